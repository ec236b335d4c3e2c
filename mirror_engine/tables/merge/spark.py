"""Turns a change batch into one Delta commit that also records the batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import CommitConflict
from mirror_engine.tables.arrow_types import quoted
from mirror_engine.tables.base import Outcome, gone
from mirror_engine.tables.changes.net_changes_sql import stage_on_executors
from mirror_engine.tables.changes.staged import stage_here, staged
from mirror_engine.tables.log.commit import allow_vectors, create_table, evolve, record_only
from mirror_engine.tables.log.data_commit import add_parts, create_with_files
from mirror_engine.tables.log.durability import make_durable
from mirror_engine.tables.log.history import changed_by_others, refuse_changed
from mirror_engine.tables.log.record import (
    beginning,
    carried,
    carried_from,
    commits_after,
    from_metadata,
    refuse_repeated,
)
from mirror_engine.tables.log.snapshot import count_rows, open_log, read_rows
from mirror_engine.tables.log.tables_folder import TablesFolder, log_stamp
from mirror_engine.tables.merge.key_matches import count_matches
from mirror_engine.tables.merge.statements import append, confs, merge_changes, merge_plan, says, sized
from mirror_engine.tables.scratch import Leftovers
from mirror_engine.tables.spark.failures import spark_failures
from mirror_engine.tables.spark.session import Sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from mirror_engine.landing_zone.schema import TableSchema
    from mirror_engine.tables.base import BatchRecord, ChangeBatch, Chosen, HistoryEntry, MatchCounts, TableSnapshot
    from mirror_engine.tables.changes.staged import Stage, StagedChanges
    from mirror_engine.tables.log.snapshot import DeltaLog


_SETTINGS = {
    # a change may wait for it: only what is small is put together, so that it stays short however large the table is
    "spark.databricks.delta.optimize.minFileSize": str(16 * 1024 * 1024),
    # a MERGE rewrites whole files: larger ones make every change dearer
    "spark.databricks.delta.optimize.maxFileSize": str(128 * 1024 * 1024),
    # it may go below Delta's seven days: retention is the user's choice (LZ-8.6)
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # VACUUM lists folders in so many tasks; with the 10,000 of the default it takes minutes
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}


def tidy(
    spark: SparkSession, folder: Path, log: DeltaLog, retention_hours: float, is_wanted: Callable[[], bool]
) -> Mapping[str, Any]:
    """OPTIMIZE, then VACUUM, unless the table is wanted; how many files were added, removed from it, and deleted.

    The commits say the newest record again: log cleanup may take the one that said it first.
    """
    table = f"delta.{quoted(str(folder))}"  # DeltaTable's own methods cannot quote a backtick
    with confs(spark, _SETTINGS), says(spark, _record_again(log)):
        metrics = spark.sql(f"OPTIMIZE {table}").collect()[0]["metrics"]
        make_durable(folder, log.version)  # what it replaced may go now
        before = _count_parquet(folder)
        if not is_wanted():
            spark.sql(f"VACUUM {table} RETAIN {retention_hours:f} HOURS")
    make_durable(folder, log.version)  # VACUUM commits, too
    return {
        "files_added": metrics["numFilesAdded"],
        "files_removed": metrics["numFilesRemoved"],
        "files_deleted": before - _count_parquet(folder),
    }


def _record_again(log: DeltaLog) -> str:
    for version, metadata in log.said():
        if from_metadata(metadata) is not None:
            return str(metadata) if carried_from(metadata) is not None else carried(metadata, version)
    return ""


def _count_parquet(folder: Path) -> int:
    return sum(1 for file in folder.rglob("*.parquet") if "_delta_log" not in file.relative_to(folder).parts)


DRIVER_BATCH_BYTES = 512 * 1024 * 1024  # 16 million rows, whose keys, markers and positions take 1.6 GiB
MARKED_FROM_ROWS = 1_000_000  # of a table: from here on marking rows costs less than writing their files anew


class SparkDeltaWriter:
    """`DeltaWriter` with Spark, started when a commit first needs it.

    Args:
        tables: `ROOT/Tables`.
        scratch: for passing files; beside it, on the file system of the tables, removed ones wait to be deleted.
        session: starts Spark; what it gives is ended by `close`.
        driver_batch_bytes: batches that count for more are collapsed by Spark.

    Attributes:
        sessions: its own, to be lent to others.
    """

    def __init__(
        self,
        tables: Path,
        scratch: Path,
        session: Callable[[], SparkSession],
        driver_batch_bytes: int = DRIVER_BATCH_BYTES,
    ) -> None:
        self._tables = TablesFolder(tables, scratch.parent / "trash")
        self._scratch = scratch
        self.sessions = Sessions(session)
        self._driver_batch_bytes = driver_batch_bytes
        self._leftovers = Leftovers(self._tables, scratch)

    def tables(self) -> Sequence[str]:
        """See `DeltaWriter`."""
        return self._tables.tables()

    def state(self, table: str) -> TableSnapshot | None:
        """See `DeltaWriter`.

        Raises:
            TableDamaged: the log cannot be read.
        """
        log = open_log(self._tables.path(table))
        return None if log is None else log.state()

    def log_stamp(self, table: str, since: int) -> str:
        """See `DeltaWriter`."""
        return log_stamp(self._tables.path(table), since)

    def create(self, table: str, schema: TableSchema, record: BatchRecord) -> Outcome:
        """See `DeltaWriter`; starts no JVM."""
        folder = self._tables.path(table)
        known = open_log(folder)
        if known is not None or not create_table(folder, schema, record):
            return Outcome(self._log(table).version if known is None else known.version)
        make_durable(folder, -1)
        self._forget(folder)
        return Outcome(0, operation="CREATE")

    def prepare(self) -> None:
        """See `DeltaWriter`."""
        self.sessions.prepare()

    def apply(
        self, table: str, batch: ChangeBatch, record: BatchRecord, snapshot: TableSnapshot | None = None
    ) -> Outcome:
        """See `DeltaWriter`.

        Raises:
            CommitConflict: another writer was first; nothing was committed.
            RejectedFile: a file of the batch turned out to be unreadable after all; nothing was committed.
            CommitFailed: Spark could not do it; nothing was committed.
        """
        self._leftovers.clear()
        log: DeltaLog | None = snapshot.log if snapshot else open_log(self._tables.path(table))
        if log:
            refuse_repeated(table, record, log.transaction_version(record.application))
        apply = self._add_files if batch.passthrough else self._apply_rows
        operation, met = apply(table, batch, record, log)
        self.make_durable(table, _durable_since(record, log))
        return Outcome(self._version_of(table, record, log.version if log else -1), met, operation)

    def _apply_rows(
        self, table: str, batch: ChangeBatch, record: BatchRecord, log: DeltaLog | None
    ) -> tuple[str, tuple[MatchCounts, ...]]:
        if log is None:
            self.create(table, batch.schema, beginning(record))
            log = self._log(table)
        with staged(batch, log, self._scratch, self._stage(batch)) as changes:
            log = self._evolved(table, log, batch)
            if not changes.rows:
                record_only(log.folder, log, log.version + 1, record)
                return "NOTHING", changes.met
            operation = "MERGE" if changes.matches else "APPEND"
            record = gone(record, operation)
            if changes.is_data:
                refuse_changed(table, log.folder, log.version)
                add_parts(table, log.folder, batch.schema, sorted(changes.folder.glob("*.parquet")), record)
            else:
                self._merge(table, log, batch, changes, record)
            return operation, changes.met

    def _evolved(self, table: str, log: DeltaLog, batch: ChangeBatch) -> DeltaLog:
        """The table with the batch's columns: the same snapshot, or that of the commit that added them."""
        version = evolve(log.folder, log, batch.schema, batch.key_columns)
        if version == log.version:
            return log
        evolved = self._log(table)
        if evolved.version != version:
            raise CommitConflict(f"{table}: another writer committed first", "The next cycle reads it again.")
        return evolved

    def changed_by_others(self, table: str, since: int) -> int:
        """See `DeltaWriter`.

        Raises:
            TableDamaged: a commit cannot be read.
        """
        return changed_by_others(self._tables.path(table), since)

    def make_durable(self, table: str, since: int) -> None:
        """See `DeltaWriter`.

        Raises:
            TableDamaged: a data file is not there in full.
        """
        make_durable(self._tables.path(table), since)

    def drop(self, table: str) -> None:
        """See `DeltaWriter`."""
        self._tables.retire(table)
        self._forget(self._tables.path(table))

    def rows(
        self, table: str, *, version: int | None = None, limit: int | None = None, where: Chosen | None = None
    ) -> pa.Table | None:
        """See `DeltaWriter`.

        Raises:
            UsageError: the table has no such version.
            TableDamaged: its log or files cannot be read.
        """
        log = open_log(self._tables.path(table), version)
        return None if log is None else read_rows(log, limit, where)

    def row_count(self, table: str) -> int | None:
        """See `DeltaWriter`."""
        log = open_log(self._tables.path(table))
        return None if log is None else count_rows(log)

    def history(self, table: str, *, limit: int | None = None) -> Sequence[HistoryEntry]:
        """See `DeltaWriter`."""
        log = open_log(self._tables.path(table))
        return () if log is None else log.history(limit)

    def maintain(
        self, table: str, retention_hours: float, is_wanted: Callable[[], bool] = lambda: False
    ) -> Mapping[str, Any]:
        """See `DeltaWriter`."""
        folder = self._tables.path(table)
        log = open_log(folder)
        if log is None:
            return {}
        with spark_failures(table, "maintenance"), self.sessions.lent() as spark:
            return tidy(spark, folder, log, retention_hours, is_wanted)

    def close(self) -> None:
        """See `DeltaWriter`."""
        self.sessions.close()

    def _log(self, table: str) -> DeltaLog:
        log = open_log(self._tables.path(table))
        if log is None:
            raise CommitConflict(f"{table}: the table was removed meanwhile", "The next cycle makes it anew.")
        return log

    def _stage(self, batch: ChangeBatch) -> Stage:
        return stage_here if batch.accounted_bytes <= self._driver_batch_bytes else self._stage_on_executors

    def _stage_on_executors(self, batch: ChangeBatch, log: DeltaLog, folder: Path) -> StagedChanges:
        with spark_failures(log.folder.name, "collapse"), self.sessions.lent() as spark:
            return stage_on_executors(spark, batch, log, folder)

    def _merge(
        self, table: str, log: DeltaLog, batch: ChangeBatch, changes: StagedChanges, record: BatchRecord
    ) -> None:
        """Have Spark commit changes that were made against a snapshot of the table."""
        with spark_failures(table, "commit"), self.sessions.lent() as spark:
            folder, rows, since = log.folder, count_rows(log), log.version
            marks_rows = changes.matches and (log.marks_rows or rows >= MARKED_FROM_ROWS)
            if marks_rows and not log.marks_rows:
                since = allow_vectors(folder, log)
            plan = merge_plan(batch, changes, marks_rows=marks_rows) if changes.matches else ""
            refuse_changed(table, folder, since)
            commit = merge_changes if changes.matches else append
            with sized(spark, changes.rows + rows):
                commit(spark, folder, batch, changes, replace(record, plan=plan))

    def _add_files(
        self, table: str, batch: ChangeBatch, record: BatchRecord, log: DeltaLog | None
    ) -> tuple[str, tuple[MatchCounts, ...]]:
        """Add passthrough files to a table, or create it with them."""
        folder = self._tables.path(table)
        matches = count_matches(batch, log)
        record = gone(record, "STAGE")
        if log is None:
            create_with_files(table, folder, batch, record)
            self._forget(folder)
        else:
            if not log.can_add_files(batch.schema):
                raise CommitConflict(f"{table}: its features have changed", "The next cycle reads the rows.")
            log = self._evolved(table, log, batch)
            refuse_changed(table, folder, log.version)
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

    def _forget(self, folder: Path) -> None:
        """Make Delta's cache of logs forget a table: a new one at its place has the same version numbers."""
        if (spark := self.sessions.first) is not None:
            with spark_failures(folder.name, "forgetting of its log"):
                jvm: Any = spark._jvm  # noqa: SLF001 - Delta offers this to the JVM only
                path = jvm.org.apache.hadoop.fs.Path(str(folder))
                jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(spark._jsparkSession, path)  # noqa: SLF001 - as above


def _durable_since(record: BatchRecord, log: DeltaLog | None) -> int:
    """What others committed since is brought to the disk, too."""
    return min(record.progress.delta_version, log.version) if log else -1


def _identity(record: BatchRecord) -> tuple[object, ...]:
    return record.application, record.progress.batch, record.files
