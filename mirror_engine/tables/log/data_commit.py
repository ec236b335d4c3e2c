"""Commits through deltalake: data files in one transaction, and what its errors mean for any commit of a batch.

deltalake checks neither the files nor the transaction identifier (a repeated one is committed again). So it commits
against the very snapshot that the batch was counted against, and another commit that came between is a conflict.
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

from mirror_engine.errors import CommitConflict, CommitFailed, MirrorError, StorageUnavailable, TableDamaged
from mirror_engine.tables.log.commit import CommitInDoubt, NewFile, create_table, indexed_columns, properties_of
from mirror_engine.tables.log.record import now_ms, to_metadata
from mirror_engine.tables.log.snapshot import OF_THE_STORE, first_line, open_known
from mirror_engine.tables.log.statistics import statistics_of
from mirror_engine.tables.log.table_path import StorePath

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from mirror_engine.config import ChangeDataFeed
    from mirror_engine.landing_zone.schema import Column, TableSchema
    from mirror_engine.tables.base import BatchRecord, ChangeBatch
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_path import TablePath

_log = logging.getLogger(__name__)
_REFUSED_ROWS = "failed validation check"  # in deltalake's words
_REPORT = "Run with --log-format json and report it."


def add_parts(table: str, log: DeltaLog, schema: TableSchema, parts: Iterable[Path], record: BatchRecord) -> None:
    """Move Parquet files into a table's folder and add them to the table in one commit.

    Args:
        table: its folder from `ROOT/Tables`.
        log: the snapshot that the batch was counted against.
        schema: its columns, in the files under the same names and in the same types.
        parts: the files.
        record: of the batch.

    Raises:
        CommitConflict: another writer was first; nothing was committed.
        CommitFailed: deltalake could not commit; nothing was committed.
        StorageUnavailable: a file cannot be moved or written; nothing was committed.
    """
    known, wanted = ([(column.name, column.type) for column in each.columns] for each in (log.schema, schema))
    if not log.takes_files or known != wanted:
        raise CommitConflict(f"{table}: its columns or features have changed", "The next cycle reads the state again.")
    with _moved(parts, log.folder, indexed_columns(log.table.metadata().configuration, schema)) as files:
        actions: list[Any] = [
            AddAction(file.name, file.size, {}, file.modified_ms, True, file.statistics) for file in files
        ]
        with committing(table, log, record):
            log.table.create_write_transaction(
                actions,
                mode="append",
                schema=log.table.schema(),
                partition_by=[],
                commit_properties=commit_properties(record),
            )


def create_with_files(
    table: str, folder: TablePath, batch: ChangeBatch, record: BatchRecord, change_data_feed: ChangeDataFeed
) -> None:
    """Create a table whose first version holds a batch's passthrough files.

    Raises:
        CommitConflict: another writer created one first; nothing was committed.
        StorageUnavailable: a file cannot be moved or written; nothing was committed.
    """
    wanted = indexed_columns(properties_of(batch.schema, batch.key_columns), batch.schema)
    with _moved(batch.passthrough, folder, wanted) as files:
        if not create_table(folder, batch.schema, record, files, batch.key_columns, change_data_feed=change_data_feed):
            raise CommitConflict(f"{table}: another writer committed first", "The next cycle reads the table's state.")


@contextmanager
def _moved(parts: Iterable[Path], folder: TablePath, columns: Sequence[Column]) -> Iterator[list[NewFile]]:
    """Files moved into a table's folder for a commit; they are deleted again where nothing was committed."""
    files: list[NewFile] = []
    try:
        try:
            for part in parts:
                status, statistics = part.stat(), statistics_of(pq.read_metadata(part), columns)
                name = f"part-00000-{uuid.uuid4()}-c000.parquet"
                files.append(NewFile(name, status.st_size, status.st_mtime_ns // 1_000_000, statistics))
                if isinstance(folder, StorePath):
                    (folder / name).upload(part)
                else:
                    folder.mkdir(parents=True, exist_ok=True)
                    shutil.move(part, folder / name)
        except OSError as error:
            raise StorageUnavailable(
                f"{folder}: a data file cannot be written: {error.strerror or error}",
                "Check the disk and the rights on the folder.",
            ) from error
        yield files
    except Exception as error:
        if isinstance(error.__cause__, CommitInDoubt):
            raise  # the log may name the files; VACUUM deletes them where it does not
        with suppress(OSError, StorageUnavailable):
            for file in files:
                (folder / file.name).unlink(missing_ok=True)
            if not isinstance(folder, StorePath):
                folder.rmdir()  # of a table that was not created; any other is not empty
        raise


def commit_properties(record: BatchRecord) -> CommitProperties:
    """The record and transaction of a batch; the commit fails where any other came first."""
    return CommitProperties(
        custom_metadata={"userMetadata": to_metadata(record)},
        app_transactions=[Transaction(record.application, record.progress.batch, now_ms())],
        max_commit_retries=0,
    )


@contextmanager
def committing(table: str, log: DeltaLog, record: BatchRecord, help: str = _REPORT) -> Iterator[None]:
    """Commit a batch through deltalake; one that failed after it was made counts as made.

    Raises:
        CommitConflict: another writer was first.
        CommitFailed: deltalake could not do it.
        StorageUnavailable: the disk failed, or it is not known whether the commit was made.
        TableDamaged: a data file of the table is missing.
    """
    try:
        yield
    except (DeltaError, OSError) as error:
        if _is_committed(table, log.folder, record):
            _log.warning("%s: committed, without its checkpoint: %s", table, first_line(error))
            return
        means = meaning(table, log, error, help)
        is_open = isinstance(log.folder, StorePath) and isinstance(means, StorageUnavailable)  # it may still arrive
        raise means from (CommitInDoubt(str(error)) if is_open else error)


def _is_committed(table: str, folder: TablePath, record: BatchRecord) -> bool:
    """Whether a commit that failed was made nevertheless.

    Raises:
        StorageUnavailable: the log cannot be read now; its cause is `CommitInDoubt`.
    """
    try:
        version = open_known(table, folder).table.transaction_version(record.application)
    except (MirrorError, OSError) as error:
        raise StorageUnavailable(
            f"{table}: it is not known whether a commit was made: {first_line(error)}",
            "The next cycle reads the log again.",
        ) from CommitInDoubt(str(error))
    return version is not None and version >= record.progress.batch


def meaning(table: str, log: DeltaLog, error: Exception, help: str) -> MirrorError:
    """An error of deltalake while it wrote to a table, in the error tree's words."""
    reason = first_line(error)
    is_of_the_store = bool(OF_THE_STORE.search(str(error)))
    if isinstance(error, CommitFailedError) and not (is_of_the_store and isinstance(log.folder, StorePath)):
        return CommitConflict(f"{table}: another writer committed first: {reason}", "The next cycle tries again.")
    if isinstance(error, OSError):
        return _unavailable(table, log.folder, error)
    if _REFUSED_ROWS in reason:
        return CommitFailed(
            f"{table}: a constraint of the Delta table refuses rows of this batch",
            "Drop the constraint, or correct the rows at their source.",
        )
    if missing := next((file.path for file in log.data_files() if not file.path.exists()), None):
        return TableDamaged(missing, "the Delta log names this file, and it is not there")
    if is_of_the_store:
        return _unavailable(table, log.folder, error)
    if "Invalid table version" in reason and isinstance(log.folder, StorePath):
        help = (
            "Is it Azurite? Set AZURE_STORAGE_USE_EMULATOR=true and AZURITE_BLOB_STORAGE_URL."  # lists begin elsewhere
        )
    return CommitFailed(f"{table}: deltalake could not write: {reason}", help)


def _unavailable(table: str, folder: TablePath, error: Exception) -> StorageUnavailable:
    if isinstance(folder, StorePath):
        try:
            with folder.errors("write"):
                raise OSError(str(error))
        except StorageUnavailable as in_words:
            return in_words
    reason = first_line(error)
    return StorageUnavailable(
        f"{table}: the table cannot be written: {reason}",
        "Check the disk and the rights on the folder; commits need a file system with hard links.",
    )
