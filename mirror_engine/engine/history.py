"""The history of ROOT: a file of lines, oldest first, that says what became of tables besides their rows."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, get_args

from mirror_engine.engine.changes import ChangeKind, TableChange
from mirror_engine.landing_zone.names import TableName
from mirror_engine.tables.log.durability import sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

UNRECORDED = frozenset({"files_archived"})  # each commit has some, and the archive itself shows them
ROUTINE = frozenset({"maintained", "archived_files_deleted"})  # added up by table and day
_DURABLE = frozenset({"dropped", "halted", "resumed"})
MAX_HISTORY_BYTES = 1 << 20  # of which routine is added up; as many again may come before that
_DAY_SECONDS = 86_400


class History:
    """Records changes of ROOT. Thread-safe; a change that cannot be written is lost, and stops no table.

    There are as many deletions of expired files as commits. So that they push no drop and no halt out, routine changes
    are added up by day once the file has twice `MAX_HISTORY_BYTES`; what is still too much goes, oldest routine first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def add(self, change: TableChange) -> None:
        """Record a change, durably if it is a drop, a halt or a resume."""
        if change.kind in UNRECORDED:
            return
        with self._lock, suppress(OSError), self._path.open("ab+") as file:
            size = file.tell()
            if size:
                file.seek(-1, os.SEEK_END)
            is_cut = size and file.read(1) != b"\n"  # the machine failed
            file.write((b"\n" if is_cut else b"") + _line(change).encode())
            if change.kind in _DURABLE:
                file.flush()
                os.fsync(file.fileno())
            if size >= 2 * MAX_HISTORY_BYTES:
                file.flush()
                self._write(_read(self._path))

    def _write(self, found: Iterable[TableChange]) -> None:
        """Replace the file with these changes, without those beyond its limit."""
        changes = _added_up(found)
        lines = {number: _line(change) for number, change in enumerate(changes)}
        size = sum(map(len, lines.values()))
        for number in sorted(lines, key=lambda number: changes[number].kind not in ROUTINE):
            if size <= MAX_HISTORY_BYTES:
                break
            size -= len(lines.pop(number))
        temporary = self._path.with_suffix(".new")
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(lines.values())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        sync_folder(self._path.parent)


def recorded_changes(path: Path, *, limit: int | None = None) -> Sequence[TableChange]:
    """Return what `History` recorded, newest first, routine by day; lines that cannot be read are left out."""
    return [*islice(reversed(_added_up(_read(path))), limit)]


def _added_up(changes: Iterable[TableChange]) -> list[TableChange]:
    """Return changes in order. Routine changes are summed per table and day, at the position of the last one."""
    found: dict[object, TableChange] = {}
    for number, change in enumerate(changes):
        is_routine = change.kind in ROUTINE
        key = (change.table, change.kind, change.reason, change.at // _DAY_SECONDS) if is_routine else number
        found[key] = change.added_to(found.pop(key, None))
    return [*found.values()]


def _line(change: TableChange) -> str:
    values = [change.at, change.table.folder, change.kind, change.reason, change.files, change.times]
    return f"{json.dumps(values)}\n"


def _read(path: Path) -> Iterator[TableChange]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        with suppress(ValueError, TypeError):  # cut off when the machine failed
            at, folder, kind, reason, files, times = _values(line)
            table = TableName.from_folder(str(folder))
            yield TableChange(table, kind, str(reason), int(files), int(times), at=float(at))


def _values(line: str) -> list[Any]:
    values = json.loads(line)
    if not isinstance(values, list) or values[2:3] == [] or values[2] not in get_args(ChangeKind):
        raise ValueError(line)
    return values
