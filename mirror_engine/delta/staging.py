"""Makes Parquet files part of a table as they lie: under its folder, with statistics, in one commit."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from mirror_engine.delta.file_statistics import statistics_of
from mirror_engine.delta.kernel import NewFile, commit_files
from mirror_engine.delta.log import open_log
from mirror_engine.delta.original import data_file_name
from mirror_engine.errors import MirrorError, StorageUnavailable, TableDamaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from pyspark.sql import SparkSession

    from mirror_engine.delta.base import ChangeBatch
    from mirror_engine.delta.log import DeltaLog
    from mirror_engine.delta.merge import Transaction
    from mirror_engine.delta.original import Original
    from mirror_engine.landing_zone.column_types import Column, TableSchema

_INDEXED_COLUMNS, _NAMED_COLUMNS = "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"
_INDEXED_BY_DEFAULT = 32
_COPIES = 4  # at once
_BLOCK_BYTES = 1 << 20


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


def copy_all(originals: Sequence[Original], folder: Path) -> None:
    """Copy files into a table's folder, side by side; nothing is left of them where one cannot be copied.

    Raises:
        ZoneChanged: one was replaced meanwhile.
        StorageUnavailable: one could not be read or written.
    """
    targets = [folder / original.name for original in originals]
    try:
        with _disk_trouble(folder), ThreadPoolExecutor(_COPIES) as pool:
            list(pool.map(_copy, originals, targets))
    except MirrorError:
        _remove(targets)
        raise


def stage(spark: SparkSession, log: DeltaLog, batch: ChangeBatch, transaction: Transaction) -> None:
    """Make copied files part of a table.

    Args:
        spark: any session.
        log: the table before the commit, with its columns.
        batch: whose originals were copied into the table's folder.
        transaction: makes it exactly-once.

    Raises:
        ZoneChanged: an original is another file by now; nothing was committed.
        Py4JError: whatever Kernel throws; see `spark_failures`.
    """
    wanted = indexed_columns(log, batch.schema)
    files = [NewFile(log.folder / each.name, statistics_of(each.footer, wanted)) for each in batch.originals]
    try:
        for original in batch.originals:
            original.check()
    except MirrorError:
        _remove(file.path for file in files)
        raise
    commit_files(spark, log.folder, files, transaction)


def data_file(folder: Path, name: str) -> BinaryIO | None:
    """The bytes of a data file of a table; None where it is gone, and part of the table no longer.

    Raises:
        TableDamaged: it is not there.
        StorageUnavailable: it cannot be opened.
    """
    try:
        with _disk_trouble(folder):
            return (folder / name).open("rb")
    except FileNotFoundError:
        log = open_log(folder)
        if log is None or all(file.path.name != name for file in log.data_files()):
            return None
        raise TableDamaged(folder, f"{name}, which became part of it as it lay, is not there") from None


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
    target = folder / data_file_name()
    shutil.move(part, target)
    return target


def _copy(original: Original, target: Path) -> None:
    with original.open() as source, target.open("xb") as copy:
        left = original.size
        # not of one file system, or no file of the system's at all; others end early without a word
        with suppress(OSError, AttributeError):
            while left and (count := os.copy_file_range(source.fileno(), copy.fileno(), left)):
                left -= count
        if left:
            source.seek(0)
            copy.seek(0)
            copy.truncate()
            shutil.copyfileobj(source, copy, _BLOCK_BYTES)
    original.check()


def _remove(copies: Iterable[Path]) -> None:
    for copy in copies:
        copy.unlink(missing_ok=True)


@contextmanager
def _disk_trouble(folder: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageUnavailable(
            f"{folder}: a file cannot be copied into it: {error.strerror or error}", "Check the disk and its rights."
        ) from error
