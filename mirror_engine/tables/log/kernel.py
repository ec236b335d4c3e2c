"""Commits data files that lie in a table's folder, known or new, through Delta Kernel in Spark's JVM: no job is run.

Kernel has no `userMetadata`: the record of the commit stands in its `engineInfo`.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.log.commit import needs_mapping, write_through
from mirror_engine.tables.log.record import engine_info
from mirror_engine.tables.log.tables_folder import LOG_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirror_engine.landing_zone.schema import TableSchema
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.merge.statements import Transaction


def count_actions(folder: Path, version: int) -> None:
    """Let `_last_checkpoint` say how many actions the checkpoint of a version holds (Last Checkpoint File).

    Hadoop's checksum beside it goes first: it refuses what differs, and takes a file without one as it is.

    Raises:
        OSError: it was not put right.
    """
    log = folder / LOG_FOLDER
    actions = pq.read_metadata(log / f"{version:020}.checkpoint.parquet").num_rows
    passing = log / "._last_checkpoint.tmp"
    write_through(passing, json.dumps({"version": version, "size": actions}))
    (log / "._last_checkpoint.crc").unlink(missing_ok=True)
    passing.replace(log / "_last_checkpoint")


_log = logging.getLogger("mirror_engine.spark")

# what such a commit can honour: none of these asks anything of the rows that are added
_FEATURES = frozenset({"appendOnly", "invariants", "timestampNtz", "deletionVectors", "inCommitTimestamp"})
_PLAIN_WRITER, _LISTED_WRITER = 2, 7  # protocol versions without features, and with a list of them


@dataclass(frozen=True)
class NewFile:
    """A data file about to become part of a table.

    Attributes:
        path: in the table's folder.
        statistics: Delta's, as JSON.
    """

    path: Path
    statistics: str


@dataclass(frozen=True)
class NewTable:
    """What a table is to be that files are to begin.

    Attributes:
        schema: its columns, whose names need no mapping; no partitions.
        properties: of Delta.
    """

    schema: TableSchema
    properties: Mapping[str, str]


def can_append(log: DeltaLog, schema: TableSchema) -> bool:
    """Whether Kernel can add files to a table once it has these columns, and nothing is asked of their rows.

    It can neither write mapped columns nor check constraints or generate values; partitions are left to Spark.
    """
    protocol = log.table.protocol()
    writer = protocol.min_writer_version
    is_known = writer <= _PLAIN_WRITER or (
        writer == _LISTED_WRITER and set(protocol.writer_features or ()) <= _FEATURES
    )
    is_plain = not schema.partition_columns and not needs_mapping(schema)
    return is_known and is_plain and not any(field["metadata"] for field in log.fields.values())


def commit_files(
    spark: SparkSession,
    folder: Path,
    files: Iterable[NewFile],
    transaction: Transaction,
    new: NewTable | None = None,
) -> None:
    """Add data files to a table in one commit.

    Args:
        spark: any session.
        folder: the table's.
        files: they lie in it.
        transaction: makes it exactly-once.
        new: what the commit makes of a folder that is no table yet.

    Raises:
        Py4JError: whatever Kernel throws; see `spark_failures`.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - Kernel is offered to the JVM only
    kernel = jvm.io.delta.kernel
    engine = kernel.defaults.engine.DefaultEngine.create(spark._jsc.hadoopConfiguration())  # noqa: SLF001 - as above
    table = kernel.Table.forPath(engine, str(folder))
    operation = kernel.Operation.CREATE_TABLE if new else kernel.Operation.WRITE
    builder = table.createTransactionBuilder(engine, engine_info(transaction.metadata), operation)
    builder = builder.withTransactionId(engine, transaction.application, transaction.version)
    if new is not None:
        builder = builder.withSchema(engine, _struct(kernel.types, new.schema))
        builder = builder.withTableProperties(engine, dict(new.properties))
    begun = builder.build(engine)
    state = begun.getTransactionState(engine)
    context = kernel.Transaction.getWriteContext(engine, state, jvm.java.util.HashMap())
    schema = begun.getSchema(engine)
    described = jvm.java.util.ArrayList()
    for file in files:
        statistics = kernel.statistics.DataFileStatistics.deserializeFromJson(file.statistics, schema)
        told = file.path.stat()
        modified_ms = told.st_mtime_ns // 1_000_000
        described.add(kernel.utils.DataFileStatus(f"file:{file.path}", told.st_size, modified_ms, statistics))
    given = kernel.internal.util.Utils.toCloseableIterator(described.iterator())
    actions = kernel.Transaction.generateAppendActions(engine, state, given, context)
    made = begun.commit(engine, kernel.utils.CloseableIterable.inMemoryIterable(actions))
    _finish(engine, folder, made)


def _struct(types: Any, schema: TableSchema) -> Any:  # noqa: ANN401 - objects of the JVM
    struct = types.StructType()
    for column in schema.columns:
        struct = struct.add(column.name, _type(types, column.type), column.nullable)
    return struct


def _type(types: Any, word: str) -> Any:  # noqa: ANN401 - objects of the JVM
    if word.startswith("decimal"):
        kind = arrow_type(word)
        return types.DecimalType(kind.precision, kind.scale)
    return types.BasePrimitiveType.createPrimitive(word)


def _finish(engine: Any, folder: Path, made: Any) -> None:  # noqa: ANN401 - objects of the JVM
    """Write checksum and checkpoint where they are due."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - importing mirror_engine must not import Spark

    try:
        for hook in made.getPostCommitHooks():
            hook.threadSafeInvoke(engine)
            if hook.getType().toString() == "CHECKPOINT":
                count_actions(folder, made.getVersion())
    except (
        Py4JError,
        OSError,
    ) as error:  # the commit is made: what lacks costs readers time, and comes with a later one
        _log.warning("a commit lacks its checksum or checkpoint: %s", error)
