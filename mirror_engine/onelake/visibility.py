"""Delayed visibility: new names that some do not see yet, deleted folders that the engine still sees, shifted times."""

from __future__ import annotations

import io
import math
import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.onelake.conditions import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from mirror_engine.storage.base import Entry, Storage

LISTS, HEAD, ENGINE = "lists", "head", "engine"
CHANNELS = (LISTS, HEAD, ENGINE)


@dataclass(frozen=True)
class DeletedFolder:
    """A folder as it was when it was deleted; paths are relative to the store.

    Attributes:
        path: its own.
        entry: its own.
        folders: the entries of each folder in it, itself included, by path.
        contents: of its metadata files, by path; other files cannot be read any more.
    """

    path: str
    entry: Entry
    folders: Mapping[str, Sequence[Entry]] = field(default_factory=dict)
    contents: Mapping[str, bytes] = field(default_factory=dict)

    def holds(self, path: str) -> bool:
        """Whether a path is the folder's or below it."""
        return path == self.path or path.startswith(f"{self.path}/")

    def stat(self, path: str) -> Entry | None:
        """The entry of a path in it."""
        if path == self.path:
            return self.entry
        parent, _, name = path.rpartition("/")
        return next((entry for entry in self.folders.get(parent, ()) if entry.name == name), None)


class VisibilityDelays:
    """Delayed names and deleted folders; paths are relative to the store. Thread-safe.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._hidden: dict[str, tuple[float, Collection[str]]] = {}
        self._deleted: dict[str, tuple[float, DeletedFolder]] = {}

    def hide(self, path: str, channels: Collection[str], seconds: float = math.inf) -> None:
        """Hide a new name from these channels."""
        with self._lock:
            self._hidden[path] = self._clock() + seconds, channels

    def show(self, path: str) -> None:
        """Show a name to all."""
        with self._lock:
            self._hidden.pop(path, None)

    def is_hidden(self, path: str, channel: str) -> bool:
        """Whether a channel does not see a name yet."""
        if not self._hidden:
            return False
        with self._lock:
            until, channels = self._hidden.get(path, (0.0, ()))
            if until <= self._clock():
                self._hidden.pop(path, None)
                return False
            return channel in channels

    def keep_visible(self, folder: DeletedFolder, seconds: float) -> None:
        """Let the engine see a deleted folder for some time."""
        with self._lock:
            self._deleted[folder.path] = self._clock() + seconds, folder

    def forget(self, folder: DeletedFolder) -> None:
        """Let the engine see the deletion now."""
        with self._lock:
            self._deleted.pop(folder.path, None)

    def deleted_folders(self) -> Sequence[DeletedFolder]:
        """Deleted folders that the engine still sees."""
        if not self._deleted:
            return ()
        with self._lock:
            now = self._clock()
            self._deleted = {path: kept for path, kept in self._deleted.items() if now < kept[0]}
            return [folder for _, folder in self._deleted.values()]


class EngineView:
    """`Storage` of one item as its engine sees it, with the delays applied.

    Args:
        storage: the item's.
        delays: see `VisibilityDelays`.
        item: the item's path, relative to the store.
    """

    def __init__(self, storage: Storage, delays: VisibilityDelays, item: str) -> None:
        self._storage = storage
        self._delays = delays
        self._item = item

    def list(self, folder: str) -> Sequence[Entry] | None:
        if deleted := self._deleted(folder):
            return deleted.folders.get(self._path(folder))
        entries = self._storage.list(folder)
        if entries is None:
            return None
        path = self._path(folder)
        kept = [each.entry for each in self._delays.deleted_folders() if each.path.rpartition("/")[0] == path]
        replaced = {entry.name for entry in kept}
        visible = [entry for entry in entries if entry.name not in replaced and not self._is_hidden(folder, entry.name)]
        return sorted([*visible, *kept], key=lambda entry: entry.name)

    def stat(self, path: str) -> Entry | None:
        if deleted := self._deleted(path):
            return deleted.stat(self._path(path))
        return None if self._is_hidden(path) else self._storage.stat(path)

    def open(self, path: str) -> BinaryIO:
        if deleted := self._deleted(path):
            content = deleted.contents.get(self._path(path))
            if content is not None:
                return io.BytesIO(content)
        elif not self._is_hidden(path):
            return self._storage.open(path)
        raise FileNotFoundError(path)

    def write(self, path: str, content: bytes) -> None:
        self._storage.write(path, content)

    def move(self, source: str, target: str) -> None:
        if not self._deleted(source):
            self._storage.move(source, target)

    def delete(self, path: str) -> None:
        if not self._deleted(path):
            self._storage.delete(path)

    def _is_hidden(self, *parts: str) -> bool:
        return self._delays.is_hidden(self._path(*parts), ENGINE)

    def _deleted(self, path: str) -> DeletedFolder | None:
        return next((folder for folder in self._delays.deleted_folders() if folder.holds(self._path(path))), None)

    def _path(self, *parts: str) -> str:
        return "/".join(filter(None, (self._item, *parts)))


_TIME_SHIFT: ContextVar[Callable[[int], int] | None] = ContextVar("time_shift", default=None)


@contextmanager
def shifted_time(shift: Callable[[int], int]) -> Iterator[None]:
    """Give changes of this request the time that `shift` makes of the true one; both in nanoseconds."""
    token = _TIME_SHIFT.set(shift)
    try:
        yield
    finally:
        _TIME_SHIFT.reset(token)


def modified_time(true_ns: int) -> int:
    """The Last-Modified of a change made now."""
    shift = _TIME_SHIFT.get()
    return shift(true_ns) if shift else true_ns


def start_of_second(time_ns: int) -> int:
    """The time in whole seconds."""
    return time_ns - time_ns % NANOSECONDS
