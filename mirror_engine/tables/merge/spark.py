"""The merge engine on Spark: DataFrame MERGE, OPTIMIZE and VACUUM."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mirror_engine.tables.arrow_types import quoted
from mirror_engine.tables.changes.net_changes_sql import stage_on_executors
from mirror_engine.tables.changes.staged import stage_here
from mirror_engine.tables.log.commit import allow_vectors
from mirror_engine.tables.log.durability import make_durable
from mirror_engine.tables.log.history import refuse_external_change
from mirror_engine.tables.log.snapshot import count_rows, open_log
from mirror_engine.tables.merge.statements import append, confs, merge_changes, merge_plan, says, sized
from mirror_engine.tables.spark.failures import spark_failures
from mirror_engine.tables.spark.session import Sessions
from mirror_engine.tables.writer import LocalDeltaWriter, count_parquet, record_again

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirror_engine.tables.base import BatchRecord, ChangeBatch
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


def compact_and_vacuum(
    spark: SparkSession, folder: Path, log: DeltaLog, retention_hours: float, is_wanted: Callable[[], bool]
) -> Mapping[str, Any]:
    """OPTIMIZE, then VACUUM, unless the table is wanted; how many files were added, removed from it, and deleted.

    The commits say the newest record again: log cleanup may take the one that said it first.
    """
    table = f"delta.{quoted(str(folder))}"  # DeltaTable's own methods cannot quote a backtick
    with confs(spark, _SETTINGS), says(spark, record_again(log)):
        metrics = spark.sql(f"OPTIMIZE {table}").collect()[0]["metrics"]
        make_durable(folder, log.version)  # what it replaced may go now
        before = count_parquet(folder)
        if not is_wanted():
            spark.sql(f"VACUUM {table} RETAIN {retention_hours:f} HOURS")
    make_durable(folder, log.version)  # VACUUM commits, too
    return {
        "files_added": metrics["numFilesAdded"],
        "files_removed": metrics["numFilesRemoved"],
        "files_deleted": before - count_parquet(folder),
    }


DRIVER_BATCH_BYTES = 512 * 1024 * 1024  # 16 million rows, whose keys, markers and positions take 1.6 GiB
MARKED_FROM_ROWS = 1_000_000  # of a table: from here on marking rows costs less than rewriting their files


class SparkDeltaWriter(LocalDeltaWriter):
    """`DeltaWriter` that merges with Spark, which starts when a merge first needs it.

    Args:
        tables: `ROOT/Tables`.
        scratch: for temporary files.
        session: starts Spark; what it gives is ended by `close`.
        driver_batch_bytes: larger batches are reduced to net changes by Spark.

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
        super().__init__(tables, scratch)
        self.sessions = Sessions(session)
        self._driver_batch_bytes = driver_batch_bytes

    def prepare(self) -> None:
        self.sessions.prepare()

    def close(self) -> None:
        self.sessions.close()

    def merge(self, table: str, log: DeltaLog, batch: ChangeBatch, changes: StagedChanges, record: BatchRecord) -> None:
        """Have Spark commit changes that were made against a snapshot of the table."""
        with spark_failures(table, "commit"), self.sessions.lent() as spark:
            folder, rows, since = log.folder, count_rows(log), log.version
            marks_rows = changes.matches and (log.marks_rows or rows >= MARKED_FROM_ROWS)
            if marks_rows and not log.marks_rows:
                since = allow_vectors(log)
            plan = merge_plan(batch, changes, marks_rows=marks_rows) if changes.matches else ""
            refuse_external_change(table, folder, since)
            commit = merge_changes if changes.matches else append
            with sized(spark, changes.rows + rows):
                commit(spark, folder, batch, changes, replace(record, plan=plan))

    def stage(self, batch: ChangeBatch) -> Stage:
        return stage_here if batch.accounted_bytes <= self._driver_batch_bytes else self._stage_on_executors

    def _stage_on_executors(self, batch: ChangeBatch, log: DeltaLog, folder: Path) -> StagedChanges:
        with spark_failures(log.folder.name, "reduction to net changes"), self.sessions.lent() as spark:
            return stage_on_executors(spark, batch, log, folder)

    def maintain(
        self, table: str, retention_hours: float, is_wanted: Callable[[], bool] = lambda: False
    ) -> Mapping[str, Any]:
        folder = self._tables.path(table)
        log = open_log(folder)
        if log is None:
            return {}
        with spark_failures(table, "maintenance"), self.sessions.lent() as spark:
            return compact_and_vacuum(spark, folder, log, retention_hours, is_wanted)

    def forget(self, folder: Path) -> None:
        """Make Delta's cache of logs forget a table: a new one at its place has the same version numbers."""
        if (spark := self.sessions.first) is not None:
            with spark_failures(folder.name, "forgetting of its log"):
                jvm: Any = spark._jvm  # noqa: SLF001 - Delta offers this to the JVM only
                path = jvm.org.apache.hadoop.fs.Path(str(folder))
                jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(spark._jsparkSession, path)  # noqa: SLF001 - as above
