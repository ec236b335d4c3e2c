"""Commits of data files, through deltalake: one transaction that carries the batch's identifier and record.

deltalake checks neither the files nor the transaction identifier (a repeated one is committed again), so both are
compared here, against a handle that is opened for the commit.
"""

from __future__ import annotations

import logging
import shutil
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from mirror_engine.errors import CommitConflict, CommitFailed, MirrorError, StorageUnavailable
from mirror_engine.tables.log.commit import NewFile, create_table, properties_of
from mirror_engine.tables.log.record import now_ms, refuse_repeated, to_metadata
from mirror_engine.tables.log.snapshot import open_log
from mirror_engine.tables.log.statistics import statistics_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from mirror_engine.landing_zone.schema import Column, TableSchema
    from mirror_engine.tables.base import BatchRecord, ChangeBatch
    from mirror_engine.tables.log.snapshot import DeltaLog

_log = logging.getLogger(__name__)
_INDEXED_COLUMNS, _NAMED_COLUMNS = "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"
_INDEXED_BY_DEFAULT = 32


def data_file_name() -> str:
    """A new name for a data file."""
    return f"part-00000-{uuid.uuid4()}-c000.parquet"


def add_parts(table: str, folder: Path, schema: TableSchema, parts: Iterable[Path], record: BatchRecord) -> None:
    """Move Parquet files into a table's folder and add them to the table in one commit.

    Args:
        table: its folder from `ROOT/Tables`.
        folder: the table's folder.
        schema: its columns, in the files under the same names and in the same types.
        parts: the files.
        record: of the batch.

    Raises:
        CommitConflict: another writer was first; nothing was committed.
        CommitFailed: deltalake could not commit; nothing was committed.
        StorageUnavailable: a file cannot be moved or written; nothing was committed.
    """
    log = _opened(table, folder)
    with _moved(parts, folder, indexed_columns(log.table.metadata().configuration, schema)) as files:
        add_files(table, log, schema, files, record)


def create_with_files(table: str, folder: Path, batch: ChangeBatch, record: BatchRecord) -> None:
    """Create a table whose first version holds a batch's passthrough files.

    Raises:
        CommitConflict: another writer created one first; nothing was committed.
        StorageUnavailable: a file cannot be moved or written; nothing was committed.
    """
    wanted = indexed_columns(properties_of(batch.schema, batch.key_columns), batch.schema)
    with _moved(batch.passthrough, folder, wanted) as files:
        if not create_table(folder, batch.schema, record, files, batch.key_columns):
            raise CommitConflict(f"{table}: another writer committed first", "The next cycle reads the table's state.")


class _CommitInDoubt(Exception):
    """The cause of an error after which it is not known whether the commit was made."""


@contextmanager
def _moved(parts: Iterable[Path], folder: Path, columns: Sequence[Column]) -> Iterator[list[NewFile]]:
    """Files moved into a table's folder for a commit; they are deleted again where nothing was committed."""
    targets: list[Path] = []
    try:
        with _disk_trouble(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for part in parts:
                targets.append(folder / data_file_name())
                shutil.move(part, targets[-1])
        yield [NewFile(target, statistics_of(pq.read_metadata(target), columns)) for target in targets]
    except Exception as error:
        if isinstance(error.__cause__, _CommitInDoubt):
            raise  # the log may name the files; VACUUM deletes them where it does not
        with suppress(OSError):
            for target in targets:
                target.unlink(missing_ok=True)
            folder.rmdir()  # of a table that was not created; any other is not empty
        raise


@contextmanager
def _disk_trouble(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageUnavailable(
            f"{folder}: a data file cannot be written: {error.strerror or error}",
            "Check the disk and the rights on the folder.",
        ) from error


def add_files(table: str, log: DeltaLog, schema: TableSchema, files: Sequence[NewFile], record: BatchRecord) -> None:
    """Add data files to a table in one commit.

    Args:
        table: its folder from `ROOT/Tables`.
        log: the table, opened for this commit.
        schema: the files' columns.
        files: in the table's folder.
        record: of the batch.

    Raises:
        CommitConflict: another writer was first, or the table is another by now; nothing was committed.
        CommitFailed: deltalake could not commit.
        StorageUnavailable: the log cannot be written.
    """
    refuse_repeated(table, record, log.transaction_version(record.application))
    if not log.takes_files or _types(log.schema) != _types(schema):
        raise CommitConflict(f"{table}: its columns or features have changed", "The next cycle reads the state again.")
    properties = CommitProperties(
        custom_metadata={"userMetadata": to_metadata(record)},
        app_transactions=[Transaction(record.application, record.progress.batch, now_ms())],
    )
    actions: list[Any] = [
        AddAction(file.path.name, file.path.stat().st_size, {}, file.modified_ms, True, file.statistics)
        for file in files
    ]
    try:
        log.table.create_write_transaction(
            actions, mode="append", schema=log.table.schema(), partition_by=[], commit_properties=properties
        )
    except (DeltaError, OSError) as error:
        if _is_committed(table, log.folder, record):
            _log.warning("%s: committed, without its checkpoint: %s", table, error)
            return
        raise _meaning(table, error) from error


def _is_committed(table: str, folder: Path, record: BatchRecord) -> bool:
    """Whether a commit that failed was made nevertheless.

    Raises:
        StorageUnavailable: the log cannot be read now; its cause is `_CommitInDoubt`.
    """
    try:
        version = _opened(table, folder).transaction_version(record.application)
    except (MirrorError, OSError) as error:
        raise StorageUnavailable(
            f"{table}: it is not known whether a commit was made: {error}", "The next cycle reads the log again."
        ) from _CommitInDoubt(str(error))
    return version is not None and version >= record.progress.batch


def indexed_columns(properties: Mapping[str, Any], schema: TableSchema) -> Sequence[Column]:
    """The columns for which a table with these properties wants statistics."""
    if properties.get(_NAMED_COLUMNS):
        return ()  # a list in SQL's spelling: Spark collects them at the next rewrite
    count = int(properties.get(_INDEXED_COLUMNS, _INDEXED_BY_DEFAULT))
    return schema.columns if count < 0 else schema.columns[:count]


def _opened(table: str, folder: Path) -> DeltaLog:
    log = open_log(folder)
    if log is None:
        raise CommitConflict(f"{table}: the table was removed", "The next cycle creates it again.")
    return log


def _types(schema: TableSchema) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in schema.columns]


def _meaning(table: str, error: Exception) -> Exception:
    reason = str(error).partition("\n")[0]
    if isinstance(error, CommitFailedError):
        return CommitConflict(f"{table}: another writer committed first: {reason}", "The next cycle tries again.")
    if isinstance(error, OSError):
        help = "Check the disk and the rights on the folder; commits need a file system with hard links."
        return StorageUnavailable(f"{table}: the Delta log cannot be written: {reason}", help)
    return CommitFailed(f"{table}: deltalake could not commit: {reason}", "Run with --log-format json and report it.")
