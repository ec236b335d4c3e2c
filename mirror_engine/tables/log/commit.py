"""Every commit but those of a MERGE: of data files that are there already, of a table's creation and evolution.

A batch is committed as the very version after that which it was counted against: another commit that came between is a
conflict. The few lines of JSON are written here: Spark would take a second for them, its SQL cannot add a NOT NULL
column to an empty table; deltalake forgets table features, and lists the log twice for each commit (all measured). A
function that raises has committed nothing: `CommitConflict` where another writer was first, `CommitFailed` where
deltalake could not, `StorageUnavailable` where files or the log cannot be written.
"""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from mirror_engine.errors import CommitConflict, CommitFailed, MirrorError, StorageUnavailable, TableDamaged
from mirror_engine.tables.log.cleanup import log_properties
from mirror_engine.tables.log.durability import already_synced, sync_new
from mirror_engine.tables.log.record import ENGINE_INFO, commit_file, now_ms, read_commit, to_metadata
from mirror_engine.tables.log.snapshot import LISTED_WRITER, OF_THE_STORE, first_line, needs_mapping, open_known
from mirror_engine.tables.log.statistics import statistics_of
from mirror_engine.tables.log.table_path import StorePath, create_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from mirror_engine.config import ChangeDataFeed
    from mirror_engine.landing_zone.schema import Column, TableSchema
    from mirror_engine.tables.base import BatchRecord, ChangeBatch
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_path import TablePath

_log = logging.getLogger(__name__)
Json = dict[str, Any]


class CommitInDoubt(Exception):
    """The cause of an error after which it is not known whether the commit was made."""


def put_commit(folder: TablePath, version: int, actions: Iterable[dict[str, Any]]) -> None:
    """Write the actions of one version of a table; the cause of a store's failure is `CommitInDoubt`."""
    text = "".join(json.dumps(action, ensure_ascii=False, separators=(",", ":")) + "\n" for action in actions)
    try:
        target = commit_file(folder, version)
        create_file(target, text.encode())
        if not isinstance(target, StorePath):
            already_synced(target)
    except FileExistsError:
        raise CommitConflict(f"{folder.name}: version {version} was committed by another writer") from None
    except StorageUnavailable as error:
        raise error from CommitInDoubt(error.message)  # it may still arrive
    except OSError as error:
        raise _unavailable(str(folder), folder, error) from error


VECTORS = "delta.enableDeletionVectors"  # rows are marked as deleted
_FEED = {"keep": {}, "on": {"delta.enableChangeDataFeed": "true"}, "off": {"delta.enableChangeDataFeed": "false"}}

_MAPPING_MODE, _MAPPING_TOP = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
_INDEXED, _INDEXED_BY_DEFAULT = "delta.dataSkippingNumIndexedCols", "32"
_ID, _PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"
# which features a table without such a list has, from which writer version on
_OLD_FEATURES = {
    "appendOnly": 2,
    "invariants": 2,
    "checkConstraints": 3,
    "changeDataFeed": 4,
    "generatedColumns": 4,
    "columnMapping": 5,
    "identityColumns": 6,
}
_FOR_WRITERS = {"changeDataFeed"}  # features that readers need not know
_CHECKPOINT_INTERVAL = "delta.checkpointInterval"
_PROPERTIES = {
    _CHECKPOINT_INTERVAL: "50",  # every tenth commit would take seconds
    VECTORS: "false",  # a small MERGE would take twice as long
}

_IN_STORE = {_CHECKPOINT_INTERVAL: "10"}  # each commit since the last checkpoint is read by a request


def create_table(  # noqa: PLR0913 - what a table begins with
    folder: TablePath,
    schema: TableSchema,
    record: BatchRecord,
    files: Sequence[Json] = (),
    keys: Sequence[str] = (),
    *,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> bool:
    """Create a table in one commit; False where there is one already.

    `files` are the `add` actions of its first data files, which are in the folder; its keys get statistics;
    `properties` are those besides the engine's own, as `wanted_properties` gives them.
    """
    configuration = {**properties_of(schema, keys), **properties}
    if isinstance(folder, StorePath):
        configuration |= _IN_STORE
    fields = _fields(schema, {}, configuration)
    identity = {"id": str(uuid.uuid4()), "createdTime": now_ms()}
    actions = [
        _information("CREATE TABLE", configuration, to_metadata(record)),
        {"protocol": _protocol({"minReaderVersion": 1, "minWriterVersion": 2}, fields, configuration)},
        _metadata(identity, fields, schema.partition_columns, configuration),
        *({"add": file} for file in files),
        _transaction(record),
    ]
    try:
        put_commit(folder, 0, actions)
    except CommitConflict:
        return False
    return True


def wanted_properties(change_data_feed: ChangeDataFeed, log_retention_days: int) -> dict[str, str]:
    """What a new table has by the engine's options; with the change data feed `keep` it has none."""
    return log_properties(log_retention_days) | _FEED[change_data_feed]


def properties_of(schema: TableSchema, key_columns: Sequence[str] = ()) -> dict[str, str]:
    """The properties of a new table; by them its keys have statistics."""
    return _PROPERTIES | _statistics(schema, key_columns, _PROPERTIES)


def indexed_columns(properties: Mapping[str, Any], schema: TableSchema) -> Sequence[Column]:
    """The columns for which a table with these properties wants statistics."""
    if properties.get("delta.dataSkippingStatsColumns"):
        return ()  # a list in SQL's spelling: Spark collects them at the next rewrite
    count = int(properties.get(_INDEXED, _INDEXED_BY_DEFAULT))
    return schema.columns if count < 0 else schema.columns[:count]


def evolve(
    log: DeltaLog,
    schema: TableSchema,
    key_columns: Sequence[str] = (),
    change_data_feed: ChangeDataFeed = "keep",
) -> int:
    """Give a table what it lacks in one commit: columns, its keys' statistics, the change data feed as it is wanted.

    Nothing is written where it has all. Old rows have NULL in new columns, so one that is NOT NULL comes only where
    the table holds no row (LZ-5.5). Returns the table's version after it.
    """
    known, before = log.fields, dict(log.configuration)
    has_all = known.keys() >= set(schema.names)
    configuration = before | _statistics(schema, key_columns, before) | _FEED[change_data_feed]
    if has_all and configuration == before:
        return log.version
    fields = _fields(schema, known, configuration)
    return _replace_metadata(log, "SET TBLPROPERTIES" if has_all else "ADD COLUMNS", fields, configuration)


def _statistics(schema: TableSchema, key_columns: Sequence[str], before: Mapping[str, str]) -> dict[str, str]:
    """The property by which all keys have statistics: Delta looks at the first columns only."""
    places = [place for place, name in enumerate(schema.names, 1) if name in key_columns]
    known = int(before.get(_INDEXED, _INDEXED_BY_DEFAULT))
    return {_INDEXED: str(max(places))} if 0 <= known < max(places, default=0) else {}


def allow_vectors(log: DeltaLog) -> int:
    """Let changes mark rows as deleted instead of rewriting whole files; returns the table's version after it."""
    configuration = {**log.configuration, VECTORS: "true"}
    return _replace_metadata(log, "SET TBLPROPERTIES", list(log.fields.values()), configuration)


def _replace_metadata(log: DeltaLog, operation: str, fields: Sequence[Json], configuration: Mapping[str, str]) -> int:
    before, known = log.table.metadata(), log.table.protocol()
    identity = {
        "id": before.id,
        "name": before.name,
        "description": before.description,
        "createdTime": before.created_time,
    }
    listed = {"readerFeatures": known.reader_features, "writerFeatures": known.writer_features}
    protocol = {
        "minReaderVersion": known.min_reader_version,
        "minWriterVersion": known.min_writer_version,
        **{name: sorted(features) for name, features in listed.items() if features is not None},
    }
    wanted = _protocol(protocol, fields, configuration)
    actions = [
        _information(operation, configuration, None, log),
        *([{"protocol": wanted}] if wanted != protocol else []),
        _metadata(identity, fields, before.partition_columns, configuration),
    ]
    put_commit(log.folder, log.version + 1, actions)
    return log.version + 1


def commit_batch(log: DeltaLog, record: BatchRecord, files: Sequence[Json] = ()) -> None:
    """Commit a batch that adds data files alone, given as `add` actions, or changes no row: its record and transaction.

    Any other commit since the snapshot is a `CommitConflict`.
    """
    version = log.version + 1
    information = _information("WRITE", log.configuration, to_metadata(record), log)
    put_commit(log.folder, version, [information, *({"add": file} for file in files), _transaction(record)])
    if is_checkpoint_due(log, version):
        try:
            log.table.update_incremental()
            log.table.create_checkpoint()
        except (DeltaError, OSError) as error:
            _log.warning("%s: no checkpoint: %s", log.folder, first_line(error))


def is_checkpoint_due(log: DeltaLog, version: int) -> bool:
    """Whether a commit of this version brings a checkpoint, as deltalake counts."""
    return (version + 1) % int(log.configuration.get(_CHECKPOINT_INTERVAL, "10")) == 0


def _fields(schema: TableSchema, known: Mapping[str, Json], configuration: dict[str, str]) -> list[Json]:
    """The schema's columns as the log has them; switches mapping on in the configuration where a name needs it.

    Columns known before keep what is said of them. When mapping comes to a table that has rows, they keep their own
    names in the files, so that those stay readable.
    """
    fields = [
        known.get(column.name)
        or {"name": column.name, "type": column.type, "nullable": column.nullable, "metadata": {}}
        for column in schema.columns
    ]
    if _MAPPING_MODE in configuration or needs_mapping(schema):
        configuration.setdefault(_MAPPING_MODE, "name")
        top = int(configuration.get(_MAPPING_TOP, "0"))
        for field in fields:
            if _ID not in field["metadata"]:
                top += 1
                physical = field["name"] if field["name"] in known else f"col-{uuid.uuid4()}"
                field["metadata"] = {**field["metadata"], _ID: top, _PHYSICAL: physical}
        configuration[_MAPPING_TOP] = str(top)
    return fields


def _metadata(
    identity: Json, fields: Sequence[Json], partitions: Sequence[str], configuration: Mapping[str, str]
) -> Json:
    described = {
        **{name: value for name, value in identity.items() if value is not None},
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": list(fields)}, ensure_ascii=False),
        "partitionColumns": list(partitions),
        "configuration": configuration,
    }
    return {"metaData": described}


def _protocol(before: Json, fields: Sequence[Json], configuration: Mapping[str, str]) -> Json:
    """The protocol, raised as far as a table needs: by numbers while they have its features, else by a list."""
    needed = {
        "columnMapping": configuration.get(_MAPPING_MODE, "none") != "none",
        "timestampNtz": any(field["type"] == "timestamp_ntz" for field in fields),
        "deletionVectors": configuration.get(VECTORS) == "true",
        "changeDataFeed": configuration.items() >= _FEED["on"].items(),
    }
    features = {name for name, is_needed in needed.items() if is_needed}
    reader, writer = before["minReaderVersion"], before["minWriterVersion"]
    least = (2, 5) if "columnMapping" in features else (0, 0)
    if writer < LISTED_WRITER and features <= _old_features(max(writer, least[1])):
        return {"minReaderVersion": max(reader, least[0]), "minWriterVersion": max(writer, least[1])}
    old = _old_features(writer) if writer < LISTED_WRITER else set()
    writes = {*old, *before.get("writerFeatures", ()), *features, "invariants", "appendOnly"}
    reads = {*before.get("readerFeatures", ()), *(features - _FOR_WRITERS)} | (writes & {"columnMapping"})
    return {
        "minReaderVersion": 3 if reads else reader,
        "minWriterVersion": LISTED_WRITER,
        **({"readerFeatures": sorted(reads)} if reads else {}),
        "writerFeatures": sorted(writes),
    }


def _old_features(writer: int) -> set[str]:
    """Features of a table of this writer version, which lists none."""
    return {name for name, since in _OLD_FEATURES.items() if since <= writer}


def _transaction(record: BatchRecord) -> Json:
    return {"txn": {"appId": record.application, "version": record.progress.batch, "lastUpdated": now_ms()}}


def _information(
    operation: str, configuration: Mapping[str, str], metadata: str | None, log: DeltaLog | None = None
) -> Json:
    information: Json = {
        "timestamp": now_ms(),
        "operation": operation,
        "operationParameters": {},
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "engineInfo": ENGINE_INFO,
    }
    if metadata is not None:
        information["userMetadata"] = metadata
    if log and configuration.get("delta.enableInCommitTimestamps") == "true":
        before = int(read_commit(log.folder, log.version).information.get("inCommitTimestamp") or 0)
        information["inCommitTimestamp"] = max(now_ms(), before + 1)  # they rise, whatever the clock says
    return {"commitInfo": information}


_REFUSED_ROWS = "failed validation check"  # in deltalake's words
_REPORT = "Run with --log-format json and report it."


def add_parts(table: str, log: DeltaLog, schema: TableSchema, parts: Iterable[Path], record: BatchRecord) -> None:
    """Move Parquet files into a table's folder and add them to the table in one commit.

    The batch was counted against the snapshot `log`; in the files the schema's columns have the same names and types.
    """
    known, wanted = ([(column.name, column.type) for column in each.columns] for each in (log.schema, schema))
    if not log.can_add_files(log.schema) or known != wanted:
        raise CommitConflict(f"{table}: its columns or features have changed", "The next cycle reads the state again.")
    with _moved(table, parts, log.folder, indexed_columns(log.configuration, schema)) as files:
        commit_batch(log, record, files)


def create_with_files(
    table: str, folder: TablePath, batch: ChangeBatch, record: BatchRecord, properties: Mapping[str, str]
) -> None:
    """Create a table whose first version holds a batch's passthrough files; see `create_table`."""
    wanted = indexed_columns(properties_of(batch.schema, batch.key_columns), batch.schema)
    with _moved(table, batch.passthrough, folder, wanted) as files:
        if not create_table(folder, batch.schema, record, files, batch.key_columns, properties=properties):
            raise CommitConflict(f"{table}: another writer committed first", "The next cycle reads the table's state.")


@contextmanager
def _moved(table: str, parts: Iterable[Path], folder: TablePath, columns: Sequence[Column]) -> Iterator[list[Json]]:
    """The `add` actions of files moved into a table's folder; they are deleted again where nothing was committed."""
    files: list[Json] = []
    try:
        try:
            for part in parts:
                status, statistics = part.stat(), statistics_of(pq.read_metadata(part), columns)
                name = f"part-00000-{uuid.uuid4()}-c000.parquet"
                action = {
                    "path": name,
                    "size": status.st_size,
                    "partitionValues": {},
                    "modificationTime": status.st_mtime_ns // 1_000_000,
                    "dataChange": True,
                    "stats": statistics,
                }
                files.append(action)
                if isinstance(folder, StorePath):
                    (folder / name).upload(part)
                else:
                    folder.mkdir(parents=True, exist_ok=True)
                    shutil.move(part, folder / name)
            if not isinstance(folder, StorePath):
                sync_new(folder / file["path"] for file in files)
        except OSError as error:
            raise _unavailable(table, folder, error) from error
        yield files
    except Exception as error:
        if isinstance(error.__cause__, CommitInDoubt):
            raise  # the log may name the files; VACUUM deletes them where it does not
        with suppress(OSError, StorageUnavailable):
            for file in files:
                (folder / file["path"]).unlink(missing_ok=True)
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

    Raises `StorageUnavailable`, too, where it is not known whether it was made; `TableDamaged` where a data file of the
    table is missing.
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
    """Whether one that failed was made nevertheless; the cause is `CommitInDoubt` where the log cannot be read."""
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
    if missing := _missing_file(log):
        return TableDamaged(missing, "the Delta log names this file, and it is not there")
    if is_of_the_store:
        return _unavailable(table, log.folder, error)
    if "Invalid table version" in reason and isinstance(log.folder, StorePath):
        # lists begin elsewhere
        help = "Is it Azurite? Set AZURE_STORAGE_USE_EMULATOR=true and AZURITE_BLOB_STORAGE_URL."
    return CommitFailed(f"{table}: deltalake could not write: {reason}", help)


def _missing_file(log: DeltaLog) -> TablePath | None:
    """A data file that the log names and that is not there; None for none. In a store by one list."""
    paths = [file.path for file in log.data_files()]
    if isinstance(log.folder, StorePath):
        there = {file.path for file in log.folder.rglob("*")}
        return next((path for path in paths if isinstance(path, StorePath) and path.path not in there), None)
    return next((path for path in paths if not path.exists()), None)


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
        "Check the disk and the rights on the folder; commits need a file system with hard links, such as ext4, xfs, "
        "btrfs, APFS or NFS.",
    )
