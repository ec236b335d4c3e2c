"""Reading a store through a cache on this machine, with a limit on what is downloaded."""

from __future__ import annotations

import os
import secrets
import threading
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.errors import StorageUnavailable
from mirror_engine.storage.base import Entry, Kind, ReadOnly
from mirror_engine.storage.remote import RangedReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from mirror_engine.storage.listing import Store

MAX_CACHED_BYTES = 1024**3
OWNER_ONLY = 0o700  # it holds rows


class Downloads:
    """How much may be downloaded from a store.

    Args:
        max_bytes: as much needs no consent; None for any number.
        confirm: called once, before more than that is downloaded, with the number; raises to refuse.
    """

    def __init__(self, max_bytes: int | None = None, confirm: Callable[[int], None] = lambda _: None) -> None:
        self.total = 0  # bytes
        self._max_bytes, self._confirm = max_bytes, confirm
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Count bytes that are about to be downloaded."""
        with self._lock:
            self.total += count
            if self._max_bytes is not None and self.total > self._max_bytes:
                self._confirm(self.total)
                self._max_bytes = None


class Cache:
    """Contents by name in a folder of this machine; the oldest give way to new ones."""

    def __init__(self, folder: Path, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._lock = threading.Lock()
        folder.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
        self._sizes = dict(sorted(((path.name, path.stat().st_size) for path in folder.iterdir()), key=self._age))

    def get(self, name: str, size: int) -> bytes | None:
        """Return a content of this size; None where it is not there."""
        with suppress(OSError):
            content = (self._folder / name).read_bytes()
            os.utime(self._folder / name)
            return content if len(content) == size else None
        return None

    def put(self, name: str, content: bytes) -> None:
        """Keep a content, as far as there is room on the disk."""
        temporary = self._folder / f"{name}.{secrets.token_hex(4)}"
        with self._lock, suppress(OSError):
            self._sizes[name] = len(content)
            while sum(self._sizes.values()) > self._max_bytes:
                oldest = next(iter(self._sizes))
                (self._folder / oldest).unlink(missing_ok=True)
                del self._sizes[oldest]
            if name in self._sizes:
                temporary.write_bytes(content)
                temporary.replace(self._folder / name)

    def _age(self, found: tuple[str, int]) -> int:
        return (self._folder / found[0]).stat().st_mtime_ns


class CachedStorage(ReadOnly):
    """A store for reading: each range of each version of a file is downloaded once.

    Args:
        store: the store, or one scan of it.
        cache: of this ROOT alone.
        downloads: counts what is not in the cache.
    """

    def __init__(self, store: Store, cache: Cache, downloads: Downloads) -> None:
        self._store, self._cache, self._downloads = store, cache, downloads

    def list(self, folder: str) -> Sequence[Entry] | None:
        return self._store.list(folder)

    def pages(self, folder: str, after: str) -> Iterator[Sequence[tuple[str, Entry]]]:
        """List a tree as the store does."""
        return self._store.pages(folder, after)

    def stat(self, path: str) -> Entry | None:
        return self._store.stat(path)

    def open(self, path: str, only: Entry | None = None) -> BinaryIO:
        """Open a file; what is in the cache is not asked for."""
        entry = only or self._store.stat(path)
        if entry is None or entry.kind is not Kind.FILE:
            raise FileNotFoundError(path)
        name = sha256(f"{path}\0{entry.identity}\0{entry.size}\0{entry.modified_ns}".encode()).hexdigest()[:32]
        opened: list[BinaryIO] = []

        def fetch(start: int, end: int) -> bytes:
            content = self._cache.get(f"{name}-{start}-{end}", end - start)
            if content is None:
                self._downloads.add(end - start)
                if not opened:
                    opened.append(self._open(path, entry))
                opened[0].seek(start)
                content = opened[0].read(end - start)
                self._cache.put(f"{name}-{start}-{end}", content)
            return content

        return RangedReader(entry.size, fetch).buffered()

    def scan(self, folder: str) -> Store:
        return CachedStorage(self._store.scan(folder), self._cache, self._downloads)

    def _open(self, path: str, entry: Entry) -> BinaryIO:
        try:
            return self._store.open(path, entry)
        except FileNotFoundError:
            raise StorageUnavailable(f"{path}: was replaced after it was listed", "Run the command again.") from None
