"""Maintenance of Delta tables in a folder: data files put together, and those that no version needs deleted."""

from __future__ import annotations

import time
from abc import abstractmethod
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from mirror_engine.errors import TableDamaged
from mirror_engine.tables.base import DeltaMaintainer
from mirror_engine.tables.log.cleanup import clean_up_log
from mirror_engine.tables.log.durability import make_durable
from mirror_engine.tables.log.log_reader import LogReader
from mirror_engine.tables.log.record import carried
from mirror_engine.tables.log.segments import applied_by_commits, read_records, sweep_segments
from mirror_engine.tables.log.snapshot import open_log
from mirror_engine.tables.log.table_path import LOG_FOLDER, for_each

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_path import TablePath

    Maintenance: TypeAlias = tuple[Callable[[], tuple[int, int]], Callable[[], object]]  # compact: files added, removed


class LogMaintainer(LogReader, DeltaMaintainer):
    """`DeltaMaintainer` without what compacts and vacuums, which a merge engine has."""

    @abstractmethod
    def maintenance(self, table: str, log: DeltaLog, retention_hours: float) -> AbstractContextManager[Maintenance]:
        """How a table is compacted, and how vacuumed; both commits say the newest record again (`record_again`)."""

    def maintain(
        self, table: str, retention_hours: float, is_wanted: Callable[[], bool] = lambda: False
    ) -> Mapping[str, Any]:
        log = open_log(self.path(table))
        if log is None:
            return {}
        folder, since = log.folder, log.version
        with self.maintenance(table, log, retention_hours) as (compact, vacuum):
            added, removed = compact()
            make_durable(folder, since)  # what it replaced may go now
            before = _count_parquet(folder)
            if not is_wanted():
                vacuum()
        _sweep(folder, retention_hours)
        make_durable(folder, since)  # VACUUM commits, too
        if record := log.newest_record()[0]:
            with suppress(TableDamaged):  # the ledger may still know what it says
                sweep_segments(folder, record.progress.segments or (), retention_hours * 3600)
            clean_up_log(log, record.progress.covered)
        return {"files_added": added, "files_removed": removed, "files_deleted": before - _count_parquet(folder)}


def record_again(log: DeltaLog, *, with_earlier: bool = True) -> str:
    """The newest record, for a commit without files: log cleanup may delete the commit that carried it (LZ-4.18).

    With what the commits since the newest segment have applied, which may go, too.
    """
    record, version, metadata, _ = log.newest_record()
    if record is None:
        return ""
    earlier = None
    with suppress(TableDamaged):  # the ledger may still know
        if with_earlier:
            read = partial(read_records, log.folder)
            earlier = applied_by_commits(record, log.version, record.progress.covered, read)
    return carried(metadata, version, earlier)


def _count_parquet(folder: TablePath) -> int:
    """Data files in a table's folder, whether they are part of the table or not."""
    return sum(1 for file in folder.rglob("*.parquet") if LOG_FOLDER not in file.parts[len(folder.parts) :])


def _sweep(folder: TablePath, retention_hours: float) -> None:
    """Delete what VACUUM leaves, once it is past the retention: unfinished files of a killed process, change data."""
    unfinished = (
        file
        for file in folder.rglob("*#[0-9]*")
        if file.name.rpartition("#")[0].endswith((".parquet", ".json", "_last_checkpoint"))
    )

    def remove(file: TablePath) -> None:
        with suppress(OSError):
            if time.time() - file.stat().st_mtime_ns / 1e9 >= retention_hours * 3600:
                file.unlink()

    list(for_each(folder, remove, [*unfinished, *(folder / "_change_data").rglob("*.parquet")]))
