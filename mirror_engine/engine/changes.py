"""What a command changes about tables, besides the rows that it applies: drops, halts, archived and deleted files."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, get_args

from mirror_engine.events import (
    ArchivedFilesDeleted,
    FilesArchived,
    ProgressRebuilt,
    TableDropped,
    TableHalted,
    TableMaintained,
    TableResumed,
)
from mirror_engine.landing_zone.names import TableName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from mirror_engine.events import Event, Listener

ChangeKind = Literal[
    "dropped", "halted", "resumed", "progress_rebuilt", "maintained", "files_archived", "archived_files_deleted"
]
UNRECORDED = frozenset({"files_archived"})  # each commit has some, and the archive itself shows them
UNSYNCED = frozenset({"archived_files_deleted"})  # as many as commits, once their time is over: no fsync for each
MAX_HISTORY_BYTES = 1 << 20  # then the file is kept as the former one, and a new one begun


@dataclass(frozen=True)
class TableChange:
    """A change to one table, besides its rows.

    Attributes:
        reason: of a drop `deleted` or `recreated` (its folder), `rebuild` or `removed` (the Delta table, by others); of
            a halt its code; else `""`.
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


def change_of(event: Event, at: float) -> TableChange | None:
    """Return the change that an event reports; None where it reports none."""
    found: tuple[ChangeKind, str, int]
    match event:
        case TableDropped(_, why):
            found = "dropped", why, 0
        case TableHalted(_, diagnostic):
            found = "halted", diagnostic.code, 0
        case TableResumed():
            found = "resumed", "", 0
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
    return TableChange(event.table, kind, reason, files, at=at)


class Changes:
    """Listener that adds up changes, and passes each event on; may be called from any thread."""

    def __init__(self, clock: Callable[[], float], emit: Listener) -> None:
        self._clock, self._emit = clock, emit
        self._lock = threading.Lock()
        self._found: dict[tuple[TableName, ChangeKind, str], TableChange] = {}

    def __call__(self, event: Event) -> None:
        if change := change_of(event, self._clock()):
            key = change.table, change.kind, change.reason
            with self._lock:
                if before := self._found.get(key):
                    change = replace(change, files=before.files + change.files, times=before.times + 1)
                self._found[key] = change
        self._emit(event)

    def all(self) -> tuple[TableChange, ...]:
        """All changes so far, by kind, then by table."""
        order = get_args(ChangeKind)
        with self._lock:
            found = [*self._found.values()]
        return tuple(sorted(found, key=lambda each: (order.index(each.kind), each.reason, each.table.folder)))


class History:
    """Listener that records changes of ROOT in a file of lines, oldest first, and passes each event on.

    A record that cannot be written is lost: it stops no table.
    """

    def __init__(self, path: Path, clock: Callable[[], float], emit: Listener) -> None:
        self._path, self._clock, self._emit = path, clock, emit
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        change = change_of(event, self._clock())
        if change and change.kind not in UNRECORDED:
            line = json.dumps([change.at, change.table.folder, change.kind, change.reason, change.files])
            with self._lock, suppress(OSError):
                if self._path.exists() and self._path.stat().st_size >= MAX_HISTORY_BYTES:
                    self._path.replace(_former(self._path))
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(f"{line}\n")
                    if change.kind not in UNSYNCED:
                        file.flush()
                        os.fsync(file.fileno())
        self._emit(event)


def recorded_changes(path: Path, *, limit: int | None = None) -> Sequence[TableChange]:
    """Return what `History` recorded, newest first; lines that cannot be read are left out."""
    return [*islice((change for file in (path, _former(path)) for change in _read(file)), limit)]


def _former(path: Path) -> Path:
    return path.with_name(f"{path.stem}.1{path.suffix}")


def _read(path: Path) -> Iterator[TableChange]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in reversed(lines):
        with suppress(ValueError, TypeError):  # cut off when the machine failed
            at, folder, kind, reason, files = _values(line)
            yield TableChange(TableName.from_folder(str(folder)), kind, str(reason), int(files), at=float(at))


def _values(line: str) -> list[Any]:
    values = json.loads(line)
    if not isinstance(values, list) or values[2:3] == [] or values[2] not in get_args(ChangeKind):
        raise ValueError(line)
    return values
