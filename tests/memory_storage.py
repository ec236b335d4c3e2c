"""Storage in memory: the same promise without a disk."""

from __future__ import annotations

import io
import threading
import time
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.listing import Entry, Kind
from mirror_engine.storage.base import no_file_path, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class Node:
    """A file with its content, or a folder."""

    entry: Entry
    content: bytes = b""


class MemoryStorage:
    """A `Storage` in this process; safe to share between threads.

    Besides the promise it lets a test be the publisher: `put` and `write_in_place`.

    Args:
        clock: nanoseconds since 1970; gives LastModified.
    """

    is_store = False

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._births = count(1)
        self._lock = threading.RLock()
        self._nodes = {(): self._new("", Kind.FOLDER)}  # by the parts of its path

    def list(self, folder: str) -> Sequence[Entry] | None:
        with self._lock:
            parts = parts_of(folder)
            if not self._is(parts, Kind.FOLDER):
                return None
            return [node.entry for path, node in sorted(self._below(parts)) if len(path) == len(parts) + 1]

    def stat(self, path: str) -> Entry | None:
        node = self._nodes.get(parts_of(path))
        return node and node.entry

    def open(self, path: str, only: Entry | None = None) -> BinaryIO:
        file = self._file(path)
        if only and file.entry.identity != only.identity:
            raise FileNotFoundError(path)
        return io.BytesIO(file.content)

    def write(self, path: str, content: bytes) -> None:
        self.put(path, content)

    def move(self, source: str, target: str, only: Entry | None = None) -> bool:
        with self._lock:
            parts = parts_of(source)
            if not self._is(parts, Kind.FILE):
                found = self.stat(target)
                return only is None or (found is not None and found.is_same(only))
            file = self._nodes[parts]
            if only and not file.entry.is_same(only):
                return False
            self._place(target, file)
            if parts != parts_of(target):
                self.delete(source)
            return True

    def delete(self, path: str) -> None:
        with self._lock:
            parts = parts_of(path)
            if parts and parts in self._nodes:
                for below, _ in self._below(parts):
                    del self._nodes[below]
                del self._nodes[parts]

    def scan(self, folder: str) -> MemoryStorage:  # noqa: ARG002 - lists cost nothing here
        return self

    def put(self, path: str, content: bytes, *, modified_ns: int | None = None) -> None:
        """Create a file, or replace it by a new one, at a time of one's choice (the clock's by default)."""
        with self._lock:
            self._place(path, self._new("", Kind.FILE, content, modified_ns))

    def write_in_place(self, path: str, content: bytes) -> None:
        """Change a file as a publisher does who opens it again: its identity stays.

        Raises:
            FileNotFoundError: there is no regular file.
        """
        with self._lock:
            entry = replace(self._file(path).entry, size=len(content), modified_ns=self._clock())
            self._place(path, Node(entry, content))

    def _new(self, name: str, kind: Kind, content: bytes = b"", modified_ns: int | None = None) -> Node:
        at = self._clock() if modified_ns is None else modified_ns
        return Node(Entry(name, len(content), at, f"{next(self._births)}", kind=kind), content)

    def _is(self, parts: Sequence[str] | None, kind: Kind) -> bool:
        node = self._nodes.get(parts)
        return node is not None and node.entry.kind is kind

    def _file(self, path: str) -> Node:
        if not self._is(parts_of(path), Kind.FILE):
            raise FileNotFoundError(path)
        return self._nodes[parts_of(path)]

    def _below(self, parts: Sequence[str]) -> Sequence[tuple[Sequence[str], Node]]:
        """All that is in a folder, however deep."""
        size = len(parts)
        return [(path, node) for path, node in self._nodes.items() if len(path) > size and path[:size] == parts]

    def _place(self, path: str, node: Node) -> None:
        parts = parts_of(path)
        if not parts:
            raise no_file_path(path)
        for above in (parts[:size] for size in range(1, len(parts))):
            if not self._is(above, Kind.FOLDER):
                if above in self._nodes:
                    raise StorageUnavailable(f"{path}: no folder is on the way", "Remove what is there.")
                self._nodes[above] = self._new(above[-1], Kind.FOLDER)
        if self._is(parts, Kind.FOLDER):
            raise StorageUnavailable(f"{path}: a folder is there", "Remove that folder.")
        self._nodes[parts] = replace(node, entry=replace(node.entry, path=parts[-1]))


def read(storage, path):
    with storage.open(path) as file:
        return file.read()


def names(storage, folder):
    return [entry.name for entry in storage.list(folder)]
