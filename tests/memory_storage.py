"""Storage in memory: the same promise without a disk, for tests, `trace` and the docs."""

from __future__ import annotations

import errno
import io
import threading
import time
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.diagnostics import printable
from mirror_engine.storage.base import Entry, Kind, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass
class Node:
    """A file with its content, a folder with what is in it, or what is neither."""

    kind: Kind
    modified_ns: int
    identity: str
    content: bytes = b""
    inside: dict[str, Node] = field(default_factory=dict)

    def entry(self, name: str) -> Entry:
        """As a listing shows it."""
        return Entry(name, self.kind, len(self.content), self.modified_ns, self.identity)


class MemoryStorage:
    """A `Storage` in this process; safe to share between threads.

    Besides the promise it lets a test be the publisher: `put`, `write_in_place` and `put_odd`.

    Args:
        clock: nanoseconds since 1970; gives LastModified.
    """

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._births = count(1)
        self._lock = threading.RLock()
        self._root = self._new(Kind.FOLDER)

    def list(self, folder: str) -> Sequence[Entry] | None:
        with self._lock:
            node = self._find(parts_of(folder), Kind.FOLDER)
            return None if node is None else [inner.entry(name) for name, inner in sorted(node.inside.items())]

    def stat(self, path: str) -> Entry | None:
        with self._lock:
            parts = parts_of(path)
            node = self._find(parts)
            return None if node is None else node.entry(parts[-1] if parts else "")

    def open(self, path: str) -> BinaryIO:
        with self._lock:
            return io.BytesIO(self._file(path).content)

    def write(self, path: str, content: bytes) -> None:
        self.put(path, content)

    def move(self, source: str, target: str, only: Entry | None = None) -> bool:
        with self._lock:
            parts = parts_of(source)
            file = self._find(parts, Kind.FILE)
            if not parts or file is None:
                found = self.stat(target)
                return only is None or (found is not None and found.is_same(only))
            if only and not file.entry("").is_same(only):
                return False
            self._place(target, file)
            if parts != parts_of(target):
                self._remove(parts)
            return True

    def delete(self, path: str) -> None:
        with self._lock:
            parts = parts_of(path)
            if parts and self._find(parts) is not None:
                self._remove(parts)

    def scan(self, folder: str) -> MemoryStorage:  # noqa: ARG002 - lists cost nothing here
        return self

    def put(self, path: str, content: bytes, *, modified_ns: int | None = None) -> None:
        """Create a file, or replace it by a new one, at a time of one's choice (the clock's by default)."""
        with self._lock:
            file = self._new(Kind.FILE, content)
            self._place(path, file if modified_ns is None else replace(file, modified_ns=modified_ns))

    def write_in_place(self, path: str, content: bytes) -> None:
        """Change a file as a publisher does who opens it again: its identity stays.

        Raises:
            FileNotFoundError: there is no regular file.
        """
        with self._lock:
            self._place(path, replace(self._file(path), content=content, modified_ns=self._clock()))

    def put_odd(self, path: str) -> None:
        """Create what is neither file nor folder, as a symbolic link or a socket would be."""
        with self._lock:
            self._place(path, self._new(Kind.OTHER))

    def _new(self, kind: Kind, content: bytes = b"") -> Node:
        return Node(kind, self._clock(), f"{next(self._births)}", content)

    def _find(self, parts: Sequence[str] | None, kind: Kind | None = None) -> Node | None:
        node = None if parts is None else self._root
        for part in parts or ():
            node = node.inside.get(part) if node else None
        return node if node and kind in {None, node.kind} else None

    def _file(self, path: str) -> Node:
        file = self._find(parts_of(path), Kind.FILE)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no regular file", path)
        return file

    def _place(self, path: str, node: Node) -> None:
        parts = parts_of(path)
        if not parts:
            raise StorageUnavailable(f"{printable(path)}: is no file's path below ROOT", "Name a file inside ROOT.")
        folder = self._root
        for part in parts[:-1]:
            below = folder.inside.get(part)
            if below is None:
                below = self._new(Kind.FOLDER)
                self._change(folder, part, below)
            if below.kind is not Kind.FOLDER:
                raise StorageUnavailable(f"{printable(path)}: no folder is on the way", "Remove what is there.")
            folder = below
        if self._find(parts, Kind.FOLDER):
            raise StorageUnavailable(f"{printable(path)}: a folder is there", "Remove that folder.")
        self._change(folder, parts[-1], node)

    def _remove(self, parts: Sequence[str]) -> None:
        folder = self._find(parts[:-1])
        if folder:
            self._change(folder, parts[-1], None)

    def _change(self, folder: Node, name: str, node: Node | None) -> None:
        if node is None:
            del folder.inside[name]
        else:
            folder.inside[name] = node
        folder.modified_ns = self._clock()


def read(storage, path):
    with storage.open(path) as file:
        return file.read()


def names(storage, folder):
    return [entry.name for entry in storage.list(folder)]
