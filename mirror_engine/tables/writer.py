"""`DeltaWriter` of tables in a folder: each batch becomes one commit; a merge engine makes those that merge rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import CommitConflict
from mirror_engine.tables.base import Outcome, with_method
from mirror_engine.tables.changes.staged import stage_here, staged
from mirror_engine.tables.log.commit import create_table, evolve, record_only
from mirror_engine.tables.log.data_commit import add_parts, create_with_files
from mirror_engine.tables.log.durability import make_durable
from mirror_engine.tables.log.history import latest_external_change, refuse_external_change
from mirror_engine.tables.log.record import (
    carried,
    carried_from,
    commits_after,
    creation_record,
    from_metadata,
    refuse_repeated,
)
from mirror_engine.tables.log.snapshot import count_rows, open_log, read_rows
from mirror_engine.tables.log.tables_folder import TablesFolder, log_stamp
from mirror_engine.tables.merge.key_matches import count_matches
from mirror_engine.tables.scratch import ScratchCleanup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from mirror_engine.landing_zone.schema import TableSchema
    from mirror_engine.tables.base import BatchRecord, ChangeBatch, Chosen, HistoryEntry, MatchCounts, TableSnapshot
    from mirror_engine.tables.changes.staged import Stage, StagedChanges
    from mirror_engine.tables.log.snapshot import DeltaLog


class LocalDeltaWriter(ABC):
    """`DeltaWriter` over a folder, without the merging.

    Args:
        tables: `ROOT/Tables`.
        scratch: for temporary files; next to it, on the file system of the tables, dropped tables wait for deletion.
    """

    def __init__(self, tables: Path, scratch: Path) -> None:
        self._tables = TablesFolder(tables, scratch.parent / "trash")
        self._scratch = scratch
        self._cleanup = ScratchCleanup(self._tables, scratch)

    @abstractmethod
    def merge(self, table: str, log: DeltaLog, batch: ChangeBatch, changes: StagedChanges, record: BatchRecord) -> None:
        """Commit staged changes to a table in one commit that carries the record.

        Args:
            table: by folder.
            log: the snapshot that the changes were made against, with the batch's columns.
            batch: the change files.
            changes: the same, as net changes in Parquet; at least one row.
            record: of the batch.

        Raises:
            CommitConflict: another writer was first, or changed rows since the snapshot; nothing was committed.
            CommitFailed: the engine could not do it; nothing was committed.
        """

    @abstractmethod
    def maintain(
        self, table: str, retention_hours: float, is_wanted: Callable[[], bool] = lambda: False
    ) -> Mapping[str, Any]:
        """Compact, then vacuum; see `DeltaWriter`."""

    def stage(self, batch: ChangeBatch) -> Stage:  # noqa: ARG002 - an engine may choose by it
        """The function that makes net changes of a batch."""
        return stage_here

    @abstractmethod
    def forget(self, folder: Path) -> None:
        """Forget a table: a new one in its folder has the same version numbers."""

    @abstractmethod
    def prepare(self) -> None:
        """Get ready for `apply`, without waiting."""

    @abstractmethod
    def close(self) -> None:
        """Give back what the engine holds."""

    def tables(self) -> Sequence[str]:
        return self._tables.tables()

    def snapshot(self, table: str) -> TableSnapshot | None:
        log = open_log(self._tables.path(table))
        return None if log is None else log.snapshot()

    def log_stamp(self, table: str, since: int) -> str:
        return log_stamp(self._tables.path(table), since)

    def create(self, table: str, schema: TableSchema, record: BatchRecord) -> Outcome:
        folder = self._tables.path(table)
        known = open_log(folder)
        if known is not None or not create_table(folder, schema, record):
            return Outcome(self._log(table).version if known is None else known.version)
        make_durable(folder, -1)
        self.forget(folder)
        return Outcome(0, operation="CREATE")

    def apply(
        self, table: str, batch: ChangeBatch, record: BatchRecord, snapshot: TableSnapshot | None = None
    ) -> Outcome:
        self._cleanup.clear()
        log: DeltaLog | None = snapshot.log if snapshot else open_log(self._tables.path(table))
        if log:
            refuse_repeated(table, record, log.transaction_version(record.application))
        apply = self._add_files if batch.passthrough else self._apply_rows
        since = log.version if log else -1
        operation, matches = apply(table, batch, record, log)
        # commits of other programs since the last one are not known to be on disk
        self.make_durable(table, min(record.progress.delta_version, since))
        return Outcome(self._version_of(table, record, since), matches, operation)

    def _apply_rows(
        self, table: str, batch: ChangeBatch, record: BatchRecord, log: DeltaLog | None
    ) -> tuple[str, tuple[MatchCounts, ...]]:
        if log is None:
            self.create(table, batch.schema, creation_record(record))
            log = self._log(table)
        with staged(batch, log, self._scratch, self.stage(batch)) as changes:
            log = self._evolved(table, log, batch)
            if not changes.rows:
                record_only(log.folder, log, log.version + 1, record)
                return "NOTHING", changes.match_counts
            operation = "MERGE" if changes.matches else "APPEND"
            record = with_method(record, operation)
            if changes.is_data:
                refuse_external_change(table, log.folder, log.version)
                add_parts(table, log.folder, batch.schema, sorted(changes.folder.glob("*.parquet")), record)
            else:
                self.merge(table, log, batch, changes, record)
            return operation, changes.match_counts

    def _evolved(self, table: str, log: DeltaLog, batch: ChangeBatch) -> DeltaLog:
        """The table with the batch's columns: the same snapshot, or that of the commit that added them."""
        version = evolve(log.folder, log, batch.schema, batch.key_columns)
        if version == log.version:
            return log
        evolved = self._log(table)
        if evolved.version != version:
            raise CommitConflict(f"{table}: another writer committed first", "The next cycle reads it again.")
        return evolved

    def latest_external_change(self, table: str, since: int) -> int:
        return latest_external_change(self._tables.path(table), since)

    def make_durable(self, table: str, since: int) -> None:
        make_durable(self._tables.path(table), since)

    def drop(self, table: str) -> None:
        self._tables.retire(table)
        self.forget(self._tables.path(table))

    def rows(
        self, table: str, *, version: int | None = None, limit: int | None = None, where: Chosen | None = None
    ) -> pa.Table | None:
        log = open_log(self._tables.path(table), version)
        return None if log is None else read_rows(log, limit, where)

    def row_count(self, table: str) -> int | None:
        log = open_log(self._tables.path(table))
        return None if log is None else count_rows(log)

    def history(self, table: str, *, limit: int | None = None) -> Sequence[HistoryEntry]:
        log = open_log(self._tables.path(table))
        return () if log is None else log.history(limit)

    def _log(self, table: str) -> DeltaLog:
        log = open_log(self._tables.path(table))
        if log is None:
            raise CommitConflict(f"{table}: the table was removed", "The next cycle creates it again.")
        return log

    def _add_files(
        self, table: str, batch: ChangeBatch, record: BatchRecord, log: DeltaLog | None
    ) -> tuple[str, tuple[MatchCounts, ...]]:
        """Add passthrough files to a table, or create it with them."""
        folder = self._tables.path(table)
        matches = count_matches(batch, log)
        record = with_method(record, "STAGE")
        if log is None:
            create_with_files(table, folder, batch, record)
            self.forget(folder)
        else:
            if not log.can_add_files(batch.schema):
                raise CommitConflict(f"{table}: its features have changed", "The next cycle reads the rows.")
            log = self._evolved(table, log, batch)
            refuse_external_change(table, folder, log.version)
            add_parts(table, folder, batch.schema, batch.passthrough, record)
        return "STAGE", matches

    def _version_of(self, table: str, record: BatchRecord, since: int) -> int:
        """The version in which a batch was committed: Delta ignores a transaction that it knows.

        Raises:
            CommitConflict: no commit after `since` is the batch's.
        """
        for version, commit in commits_after(self._tables.path(table), since):
            committed = from_metadata(commit.metadata)
            if committed is not None and _identity(committed) == _identity(record):
                return version
        raise CommitConflict(f"{table}: another writer committed this batch", "The next cycle reads the table again.")


def _identity(record: BatchRecord) -> tuple[object, ...]:
    return record.application, record.progress.batch, record.files


def record_again(log: DeltaLog) -> str:
    """The newest record, for a commit without files: log cleanup may delete the commit that carried it (LZ-4.18)."""
    for version, metadata in log.user_metadata():
        if from_metadata(metadata) is not None:
            return str(metadata) if carried_from(metadata) is not None else carried(metadata, version)
    return ""


def count_parquet(folder: Path) -> int:
    """Data files in a table's folder, whether they are part of the table or not."""
    return sum(1 for file in folder.rglob("*.parquet") if "_delta_log" not in file.relative_to(folder).parts)
