"""A store without folders (S3, GCS, Blob) over any `Storage`, for tests of what the engine makes of it."""

from __future__ import annotations

import zlib
from dataclasses import replace

from mirror_engine.storage.base import NO_IDENTITY, Kind, joined


class FlatStorage:
    """A folder is there while a file is below and has no identity; a file's identity is that of its content."""

    def __init__(self, storage):
        self._storage = storage

    def list(self, folder):
        entries = self._storage.list(folder)
        shown = (self._shown(joined(folder, entry.name), entry) for entry in entries or ())
        return [entry for entry in shown if entry] or None

    def stat(self, path):
        entry = self._storage.stat(path)
        return entry and self._shown(path, entry)

    def open(self, path):
        return self._storage.open(path)

    def write(self, path, content):
        self._storage.write(path, content)

    def move(self, source, target, only=None):
        found = self.stat(source)
        if only and found and found != replace(only, name=found.name):
            return False
        self._storage.move(source, target)
        return found is not None or only is None

    def delete(self, path):
        self._storage.delete(path)

    def scan(self, _):
        return self

    def _shown(self, path, entry):
        if entry.kind is Kind.FOLDER:
            return replace(entry, identity=NO_IDENTITY, modified_ns=0) if self._has_files(path) else None
        try:
            with self._storage.open(path) as file:
                return replace(entry, identity=f"{zlib.crc32(file.read()):x}")
        except FileNotFoundError:  # moved meanwhile
            return None

    def _has_files(self, folder):
        entries = self._storage.list(folder) or ()
        return any(
            entry.kind is Kind.FILE or (entry.kind is Kind.FOLDER and self._has_files(joined(folder, entry.name)))
            for entry in entries
        )
