"""Makes Parquet files part of a table as they lie: under its folder, with statistics, in one commit."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from mirror_engine.delta.durable import sync_file
from mirror_engine.delta.evolution import properties_of
from mirror_engine.delta.file_statistics import statistics_of
from mirror_engine.delta.kernel import NewFile, NewTable, commit_files
from mirror_engine.delta.log import open_log
from mirror_engine.delta.original import data_file_name
from mirror_engine.errors import MirrorError, SparkFailed, StorageUnavailable, TableDamaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
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
    wanted = indexed_columns(log.table.metadata().configuration, schema)
    moved = (_moved(part, log.folder) for part in sorted(parts.glob("*.parquet")))
    commit_files(spark, log.folder, _described(moved, wanted), transaction)


@contextmanager
def copied(originals: Sequence[Original], folder: Path) -> Iterator[None]:
    """Copies of files in a table's folder, for a commit made within; none is left where nothing was committed.

    While the commit is made they are brought to the disk.
    Only a JVM that died over it leaves them: whether it committed nobody can tell for sure. They are VACUUM's then.

    Args:
        originals: they are copied side by side.
        folder: the table's.

    Raises:
        ZoneChanged: one was replaced meanwhile.
        StorageUnavailable: one could not be read or written.
    """
    try:
        targets = [folder / original.name for original in originals]
        with ThreadPoolExecutor(_COPIES) as pool:
            with _disk_trouble(folder):
                folder.mkdir(parents=True, exist_ok=True)
                list(pool.map(_copy, originals, targets))
            synced = pool.map(sync_file, targets)
            yield
            with _disk_trouble(folder):  # a failed fsync is told once: `make_durable` will not hear of it
                list(synced)
    except SparkFailed:
        raise
    except Exception:
        with suppress(MirrorError, OSError):
            for name in {original.name for original in originals} - _in_use(folder):
                (folder / name).unlink(missing_ok=True)
            if not any(folder.iterdir()):
                folder.rmdir()
        raise


def stage(
    spark: SparkSession, folder: Path, log: DeltaLog | None, batch: ChangeBatch, transaction: Transaction
) -> None:
    """Make copied files part of a table, or a table of them.

    Args:
        spark: any session.
        folder: the table's.
        log: the table before the commit, with its columns; None where there is none yet.
        batch: whose originals were copied into the table's folder.
        transaction: makes it exactly-once.

    Raises:
        ZoneChanged: an original is another file by now; nothing was committed.
        Py4JError: whatever Kernel throws; see `spark_failures`.
    """
    configured = log.table.metadata().configuration if log else properties_of(batch.schema, batch.key_columns)
    new = None if log else NewTable(batch.schema, configured)
    wanted = indexed_columns(configured, batch.schema)
    files = [NewFile(folder / each.name, statistics_of(each.footer, wanted)) for each in batch.originals]
    for original in batch.originals:
        original.check()
    commit_files(spark, folder, files, transaction, new)


def data_file(folder: Path, name: str) -> BinaryIO | None:
    """The bytes of a data file of a table; None where it is gone, and part of the table no longer.

    Raises:
        TableDamaged: it is not there.
        StorageUnavailable: it cannot be opened.
    """
    with _disk_trouble(folder), suppress(FileNotFoundError):
        return (folder / name).open("rb")
    if name in _in_use(folder):
        raise TableDamaged(folder, f"{name}, which became part of it as it lay, is not there")
    return None


def indexed_columns(properties: Mapping[str, Any], schema: TableSchema) -> Sequence[Column]:
    """The columns of which a table with these properties wants statistics."""
    if properties.get(_NAMED_COLUMNS):
        return ()  # a list in SQL's spelling: whoever set it has Spark at hand to collect them
    count = int(properties.get(_INDEXED_COLUMNS, _INDEXED_BY_DEFAULT))
    return schema.columns if count < 0 else schema.columns[:count]


def _in_use(folder: Path) -> AbstractSet[str]:
    """The names of the files that are part of a table."""
    log = open_log(folder)
    return set() if log is None else {file.path.name for file in log.data_files()}


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


@contextmanager
def _disk_trouble(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageUnavailable(
            f"{folder}: a file cannot be copied into it, or brought to the disk: {error.strerror or error}",
            "Check the disk and its rights.",
        ) from error
