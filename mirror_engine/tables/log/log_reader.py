"""Reading of Delta tables in a folder, here or in a store, by their logs."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Unpack

from mirror_engine.tables.base import APPLICATIONS, DeltaReader
from mirror_engine.tables.log.data_rows import read_rows
from mirror_engine.tables.log.durability import make_durable
from mirror_engine.tables.log.log_errors import reading_log
from mirror_engine.tables.log.record import read_commit
from mirror_engine.tables.log.segments import applied_since, read_records, read_segment
from mirror_engine.tables.log.snapshot import KeptLogs, has_transaction, history, latest_external_change, open_log
from mirror_engine.tables.log.tables_folder import TablesFolder, is_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from mirror_engine.landing_zone.progress import Applied, Progress
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.base import HistoryEntry, RowChoice, TableSnapshot


class LogReader(TablesFolder, DeltaReader):
    """`DeltaReader` of the tables below `ROOT/Tables`."""

    def __init__(self, tables: Place, scratch: Path) -> None:
        super().__init__(tables, scratch)
        self._logs = KeptLogs()

    def snapshot(self, table: str) -> TableSnapshot | None:
        log = self._logs.take(self.path(table))
        return None if log is None else log.snapshot()

    def count_rows(self, table: str) -> int | None:
        log = open_log(self.path(table))  # as it is on the disk: a log that stays open does not notice damage
        return None if log is None else log.snapshot().count_rows()

    def is_mirrored(self, table: str) -> bool:
        return has_transaction(self.path(table), APPLICATIONS)

    def latest_external_change(self, table: str, since: int, columns: str = "") -> int:
        return latest_external_change(self.path(table), since, columns)

    def applied_since(self, table: str, snapshot: TableSnapshot, known: Progress | None) -> Applied:
        folder = snapshot.log.folder if snapshot.log else self.path(table)
        with reading_log(folder):
            return applied_since(snapshot, known, partial(read_segment, folder), partial(read_records, folder))

    def make_durable(self, table: str, since: int) -> None:
        make_durable(self.path(table), since)

    def rows(self, table: str, **choice: Unpack[RowChoice]) -> pa.Table | None:
        log = open_log(self.path(table), choice.get("version"))
        if log is None:
            return None
        with reading_log(log.folder), suppress(FileNotFoundError):  # cleaned up: a checkpoint holds the same
            read_commit(log.folder, log.version)  # deltalake takes an empty one for one without changes
        return read_rows(log, choice.get("limit"), choice.get("where"), choice.get("columns"))

    def history(self, table: str, *, limit: int | None = None, until: int | None = None) -> Sequence[HistoryEntry]:
        folder = self.path(table)
        with reading_log(folder):
            return history(folder, limit, until) if until is not None or is_table(folder) else ()
