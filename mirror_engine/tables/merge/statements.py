"""Staged changes become one Delta commit: an append, or one MERGE."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mirror_engine.tables.arrow_types import quoted, spark_type
from mirror_engine.tables.changes.net_changes import Role
from mirror_engine.tables.changes.staged import ROLE
from mirror_engine.tables.log.record import to_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from mirror_engine.tables.base import BatchRecord, ChangeBatch
    from mirror_engine.tables.changes.staged import StagedChanges

_APPLICATION = "spark.databricks.delta.write.txnAppId"
_TRANSACTION = "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
# between a few rows planning is all: one task each, and no Java source to write and compile; a third of the time goes
_SMALL_SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
SMALL_ROWS = 50_000
_LARGE_SETTINGS = {"spark.databricks.delta.merge.materializeSource": "none"}  # what is staged never changes
_BROADCAST_BYTES = 32 * 1024 * 1024  # of staged Parquet: in memory a few times as much, in each executor
_INTEGER_SUFFIXES = {"byte": "Y", "short": "S", "integer": "", "long": "L"}
_MAX_BOUND = 512  # characters; Delta's statistics know the first 32


def append(spark: SparkSession, target: Path, batch: ChangeBatch, changes: StagedChanges, record: BatchRecord) -> None:
    """Add the staged rows in one commit."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - importing mirror_engine must not import Spark

    columns = [f.col(f"c{place}").alias(name) for place, name in enumerate(batch.schema.names)]
    writer = _staged_rows(spark, batch, changes).select(columns).write.format("delta").mode("append")
    writer.options(
        txnAppId=record.application, txnVersion=record.progress.batch, userMetadata=to_metadata(record)
    ).save(str(target))


def merge_changes(
    spark: SparkSession, target: Path, batch: ChangeBatch, changes: StagedChanges, record: BatchRecord
) -> None:
    """Replace, remove and add rows in one MERGE; every column is set, also those the batch lacks (LZ-4.5)."""
    from delta.tables import DeltaTable  # noqa: PLC0415 - importing mirror_engine must not import Spark

    with (
        confs(spark, {_APPLICATION: record.application, _TRANSACTION: str(record.progress.batch)}),
        says(spark, to_metadata(record)),
    ):
        source = _staged_rows(spark, batch, changes)
        source = source.hint("broadcast") if _is_broadcast(changes) else source
        builder = DeltaTable.forPath(spark, str(target)).alias("t").merge(source.alias("s"), _condition(batch, changes))
        values = {quoted(name): f"s.c{place}" for place, name in enumerate(batch.schema.names)}
        if Role.DELETE in changes.roles:
            builder = builder.whenMatchedDelete(f"s.{ROLE} = {Role.DELETE:d}")
        if changes.roles & {Role.SET, Role.SET_ONLY}:
            builder = builder.whenMatchedUpdate(set=values)
        if _inserts(changes):
            builder = builder.whenNotMatchedInsert(f"s.{ROLE} IN ({Role.SET:d}, {Role.INSERT:d})", values)
        builder.execute()


def merge_plan(batch: ChangeBatch, changes: StagedChanges, *, marks_rows: bool) -> str:
    """How `merge_changes` goes about it, for people who read the table's history.

    Args:
        batch: what is merged.
        changes: the same, staged.
        marks_rows: whether the table has deletion vectors.
    """
    bounded = _bounded_keys(batch, changes)
    return "; ".join(
        [
            "broadcast" if _is_broadcast(changes) else "shuffled",
            "rows are marked" if marks_rows else "files are rewritten",
            "with inserts" if _inserts(changes) else "without inserts",
            f"bounds on {', '.join(bounded)}" if bounded else "no bounds",
        ]
    )


def _inserts(changes: StagedChanges) -> bool:
    return bool(changes.roles & {Role.SET, Role.INSERT})


def _is_broadcast(changes: StagedChanges) -> bool:
    return sum(file.stat().st_size for file in changes.folder.iterdir()) <= _BROADCAST_BYTES


@contextmanager
def confs(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Settings of one session for a while: a forgotten transaction makes the next write vanish silently."""
    before = {name: spark.conf.get(name, None) for name in values}
    try:
        for name, value in values.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:  # unsetting would also drop what the session was started with
                spark.conf.set(name, old)


def says(spark: SparkSession, metadata: str) -> Any:  # noqa: ANN401 - a context manager, typed by `confs`
    """Commits of this session say `metadata` about themselves."""
    return confs(spark, {_METADATA: metadata})


def sized(spark: SparkSession, rows: int) -> Any:  # noqa: ANN401 - a context manager, typed by `confs`
    """Settings for a commit in which Spark touches at most so many rows."""
    return confs(spark, _SMALL_SETTINGS if rows <= SMALL_ROWS else _LARGE_SETTINGS)


def _staged_rows(spark: SparkSession, batch: ChangeBatch, changes: StagedChanges) -> DataFrame:
    columns = [f"c{place} {spark_type(column.type)}" for place, column in enumerate(batch.schema.columns)]
    reader = spark.read.schema(", ".join([*columns, f"{ROLE} TINYINT"]))
    return reader.option("__globPaths__", "false").parquet(str(changes.folder))


def _condition(batch: ChangeBatch, changes: StagedChanges) -> SparkColumn:
    """Equal keys, among rows that match; bounds about the target alone let Delta pass over files."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - importing mirror_engine must not import Spark

    condition = f.expr(f"s.{ROLE} <> {Role.INSERT:d}")
    bounded = _bounded_keys(batch, changes)
    for name in batch.key_columns:
        column = f.col(f"t.{quoted(name)}")
        condition &= column == f.col(f"s.c{batch.schema.names.index(name)}")
        if name in bounded:
            word, low, high = bounded[name]
            condition &= (column >= _literal(low, word)) & (column <= _literal(high, word))
    return condition


def _bounded_keys(batch: ChangeBatch, changes: StagedChanges) -> Mapping[str, tuple[str, int | str, int | str]]:
    """Type and extremes of the key columns whose literals are exactly of their type, as Delta compares them."""
    words = {column.name: column.type for column in batch.schema.columns}
    found = zip(batch.key_columns, changes.bounds, strict=True)
    extremes = ((name, words[name], low.as_py(), high.as_py()) for name, (low, high) in found)
    return {
        name: (word, low, high) for name, word, low, high in extremes if all(_is_exact(x, word) for x in (low, high))
    }


def _is_exact(value: object, word: str) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_BOUND
    return isinstance(value, int) and word in _INTEGER_SUFFIXES


def _literal(value: int | str, word: str) -> SparkColumn:
    from pyspark.sql import functions as f  # noqa: PLC0415 - importing mirror_engine must not import Spark

    return f.lit(value) if isinstance(value, str) else f.expr(f"{value}{_INTEGER_SUFFIXES[word]}")
