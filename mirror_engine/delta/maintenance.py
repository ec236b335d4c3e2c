"""Keeps a Delta table tidy: small files become larger ones, files out of retention go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirror_engine.delta.arrow_types import quoted
from mirror_engine.delta.durable import make_durable
from mirror_engine.delta.merge import confs, says
from mirror_engine.delta.record import carried, carried_from, from_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirror_engine.delta.log import DeltaLog

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
