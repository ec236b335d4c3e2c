"""Makes Parquet files part of a table as they lie: under its folder, with statistics, in one commit."""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from mirror_engine.delta.file_statistics import statistics_of
from mirror_engine.delta.kernel import NewFile, commit_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirror_engine.delta.log import DeltaLog
    from mirror_engine.delta.merge import Transaction
    from mirror_engine.landing_zone.column_types import Column, TableSchema

_INDEXED_COLUMNS, _NAMED_COLUMNS = "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"
_INDEXED_BY_DEFAULT = 32


def append_parts(
    spark: SparkSession, log: DeltaLog, schema: TableSchema, parts: Path, transaction: Transaction
) -> None:
    """Add the Parquet files of a folder to a table; they are moved into it first.

    What a failure leaves behind belongs to no version, and is VACUUM's.

    Args:
        spark: any session.
        log: the table before the commit.
        schema: its columns with it.
        parts: folder of the files: columns of the table in its types, under their names.
        transaction: makes it exactly-once.

    Raises:
        Py4JError: whatever Kernel throws; see `spark_failures`.
        OSError: the files cannot be moved.
    """
    wanted = indexed_columns(log, schema)
    moved = (_moved(part, log.folder) for part in sorted(parts.glob("*.parquet")))
    commit_files(spark, log.folder, _described(moved, wanted), transaction)


def indexed_columns(log: DeltaLog, schema: TableSchema) -> Sequence[Column]:
    """The columns of which a table wants statistics."""
    properties = log.table.metadata().configuration
    if properties.get(_NAMED_COLUMNS):
        return ()  # a list in SQL's spelling: whoever set it has Spark at hand to collect them
    count = int(properties.get(_INDEXED_COLUMNS, _INDEXED_BY_DEFAULT))
    return schema.columns if count < 0 else schema.columns[:count]


def _described(files: Iterable[Path], columns: Sequence[Column]) -> Iterable[NewFile]:
    for file in files:
        yield NewFile(file, statistics_of(pq.read_metadata(file), columns))


def _moved(part: Path, folder: Path) -> Path:
    """A file, moved into a table's folder under a name as Delta gives them."""
    target = folder / f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    shutil.move(part, target)
    return target
