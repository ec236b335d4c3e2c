"""What a command changes about tables, besides the rows that it applies: drops, halts, archived and deleted files."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from mirror_engine.events import (
    ArchivedFilesDeleted,
    FilesArchived,
    FolderMoved,
    ProgressRebuilt,
    TableDropped,
    TableHalted,
    TableMaintained,
    TableResumed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror_engine.events import Event, Listener
    from mirror_engine.landing_zone.names import TableName

ChangeKind = Literal[
    "dropped",
    "halted",
    "resumed",
    "folder_moved",
    "progress_rebuilt",
    "maintained",
    "files_archived",
    "archived_files_deleted",
]


@dataclass(frozen=True)
class TableChange:
    """A change to one table, besides its rows.

    Attributes:
        reason: of a drop `deleted` or `recreated` (its folder), `rebuild` or `removed` (the Delta table, by others); of
            a halt its code; of a resume `deleted` where the halted folder is gone; else `""`.
        files: change files that were archived or deleted, data files that maintenance removed.
        times: how often it happened.
        at: when it happened last, in seconds since 1970.
    """

    table: TableName
    kind: ChangeKind
    reason: str = ""
    files: int = 0
    times: int = 1
    at: float = 0.0

    @classmethod
    def of(cls, event: Event, at: float) -> TableChange | None:
        """Return the change that an event reports; None where it reports none."""
        found: tuple[ChangeKind, str, int]
        match event:
            case TableDropped(_, why):
                found = "dropped", why, 0
            case TableHalted(_, diagnostic):
                found = "halted", diagnostic.code, 0
            case TableResumed(_, why):
                found = "resumed", why or "", 0
            case FolderMoved():
                found = "folder_moved", "", 0
            case ProgressRebuilt():
                found = "progress_rebuilt", "", 0
            case TableMaintained(_, done) if any(done.values()):
                found = "maintained", "", int(done.get("files_removed", 0))
            case FilesArchived(_, files):
                found = "files_archived", "", files
            case ArchivedFilesDeleted(_, files):
                found = "archived_files_deleted", "", files
            case _:
                return None
        kind, reason, files = found
        return cls(event.table, kind, reason, files, at=at)

    def added_to(self, before: TableChange | None) -> TableChange:
        """Add the counts of an earlier change; all else is from this one."""
        if before is None:
            return self
        return replace(self, files=before.files + self.files, times=before.times + self.times)


class Changes:
    """Listener that adds up changes, and passes each event on; may be called from any thread.

    `record` takes each change as it happens.
    """

    def __init__(
        self, clock: Callable[[], float], emit: Listener, record: Callable[[TableChange], None] = lambda _: None
    ) -> None:
        self._clock, self._emit, self._record = clock, emit, record
        self._lock = threading.Lock()
        self._found: dict[tuple[TableName, ChangeKind, str], TableChange] = {}

    def __call__(self, event: Event) -> None:
        if change := TableChange.of(event, self._clock()):
            key = change.table, change.kind, change.reason
            with self._lock:
                self._found[key] = change.added_to(self._found.get(key))
            self._record(change)
        self._emit(event)

    def all(self) -> tuple[TableChange, ...]:
        """All changes so far, by kind, then by table."""
        order = get_args(ChangeKind)
        with self._lock:
            found = [*self._found.values()]
        return tuple(sorted(found, key=lambda each: (order.index(each.kind), each.reason, each.table.folder)))
