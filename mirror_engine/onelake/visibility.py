"""Delayed visibility: new names that some do not see yet, deleted folders that the engine still sees, shifted times."""

from __future__ import annotations

import io
import math
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.landing_zone.names import METADATA_FILE
from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.storage.base import Kind, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from mirror_engine.clock import Clock
    from mirror_engine.storage.base import Entry, Storage

LISTS, HEAD, ENGINE = "lists", "head", "engine"
CHANNELS = (LISTS, HEAD, ENGINE)

# Makes the Last-Modified of a change in this request of the true time, both in nanoseconds
TIME_SHIFT: ContextVar[Callable[[int], int]] = ContextVar("time_shift", default=lambda true_ns: true_ns)


@dataclass(frozen=True)
class DeletedFolder:
    """A folder as it was when it was deleted; paths are relative to the store."""

    path: str  # its own
    entries: Mapping[str, Entry]  # by path, its own and all below it
    contents: Mapping[str, bytes]  # of its metadata files, by path; other files cannot be read any more

    @staticmethod
    def of(storage: Storage, path: str) -> DeletedFolder:
        """An existing folder as it is now; PathNotFound."""
        entry = storage.stat(path)
        if entry is None:
            raise StorageApiError(StorageErrorCode.PathNotFound)
        entries, contents, pending = {path: entry}, {}, [path]
        while pending:
            folder = pending.pop()
            for child in storage.list(folder) or ():
                below = f"{folder}/{child.name}"
                entries[below] = child
                if child.kind is Kind.FOLDER:
                    pending.append(below)
                elif child.name == METADATA_FILE:
                    with suppress(FileNotFoundError), storage.open(below) as file:
                        contents[below] = file.read()
        return DeletedFolder(path, entries, contents)


class VisibilityDelays:
    """Delayed names and deleted folders by a clock, replaced files; paths are relative to the store. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        self._hidden: dict[str, tuple[float, Collection[str]]] = {}
        self._deleted: dict[str, tuple[float, DeletedFolder]] = {}
        self._replaced: dict[tuple[str, str], str] = {}

    def hide(self, path: str, channels: Collection[str], seconds: float = math.inf) -> None:
        """Hide a new name from these channels; for 0 seconds shows it."""
        self._hidden[path] = self._now() + seconds, channels

    def is_hidden(self, path: str, channel: str) -> bool:
        """Whether a channel does not see a name yet."""
        until, channels = self._hidden.get(path, (0.0, ()))
        return channel in channels and self._now() < until

    def note_replaced(self, path: str, identity: str, by: str) -> None:
        """Let the engine know which file another one, by its identity, takes the place of."""
        self._replaced[path, by] = identity

    def with_replaced(self, path: str, entry: Entry) -> Entry:
        """A file's entry with the file whose place it took."""
        identity = self._replaced.get((path, entry.identity))
        return replace(entry, replaced=identity) if identity else entry

    def keep_visible(self, folder: DeletedFolder, seconds: float) -> None:
        """Let the engine see a deleted folder for some time; for 0 seconds shows the deletion."""
        self._deleted[folder.path] = self._now() + seconds, folder

    def deleted_folders(self) -> Sequence[DeletedFolder]:
        """Deleted folders that the engine still sees."""
        return [folder for until, folder in list(self._deleted.values()) if self._now() < until]


@dataclass(frozen=True)
class EngineView:
    """`Storage` of one item, whose path is relative to the store, as its engine sees it with the delays applied."""

    storage: Storage
    delays: VisibilityDelays
    item: str

    def list(self, folder: str) -> Sequence[Entry] | None:
        path = joined(self.item, folder)
        if deleted := self._deleted(folder):
            found = deleted.entries.get(path)
            entries: Sequence[Entry] | None = [] if found and found.kind is Kind.FOLDER else None
        else:
            entries = self.storage.list(folder)
        if entries is None:
            return None
        shown = {
            each.name: self.delays.with_replaced(f"{path}/{each.name}", each)
            for each in entries
            if not self.delays.is_hidden(f"{path}/{each.name}", ENGINE)
        }
        for kept in self.delays.deleted_folders():
            shown |= {each.name: each for at, each in kept.entries.items() if at.rpartition("/")[0] == path}
        return [entry for _, entry in sorted(shown.items())]

    def stat(self, path: str) -> Entry | None:
        if deleted := self._deleted(path):
            return deleted.entries.get(joined(self.item, path))
        entry = None if self._is_hidden(path) else self.storage.stat(path)
        return entry and self.delays.with_replaced(joined(self.item, path), entry)

    def open(self, path: str) -> BinaryIO:
        if deleted := self._deleted(path):
            content = deleted.contents.get(joined(self.item, path))
            if content is not None:
                return io.BytesIO(content)
        elif not self._is_hidden(path):
            return self.storage.open(path)
        raise FileNotFoundError(path)

    def write(self, path: str, content: bytes) -> None:
        self.storage.write(path, content)

    def move(self, source: str, target: str, only: Entry | None = None) -> bool:
        return not self._deleted(source) and self.storage.move(source, target, only)

    def delete(self, path: str) -> None:
        if not self._deleted(path):
            self.storage.delete(path)

    def scan(self, folder: str) -> Storage:  # noqa: ARG002 - of a folder of this machine
        return self

    def _is_hidden(self, path: str) -> bool:
        return self.delays.is_hidden(joined(self.item, path), ENGINE)

    def _deleted(self, path: str) -> DeletedFolder | None:
        """The deleted folder that a path is in."""
        whole = f"{joined(self.item, path)}/"
        return next((each for each in self.delays.deleted_folders() if whole.startswith(f"{each.path}/")), None)
