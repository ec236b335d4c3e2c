"""Commits without rows: a table's creation, columns it did not have before, batches that change nothing.

Their two or three lines of JSON are written here: Spark would take a second for them, its SQL cannot add a NOT NULL
column to an empty table, and deltalake forgets table features (both measured). A function that raises has committed
nothing: `CommitConflict` where another writer was first, `StorageUnavailable` where the log cannot be written.
"""

from __future__ import annotations

import errno
import json
import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import DeltaError

from mirror_engine.errors import CommitConflict, StorageUnavailable
from mirror_engine.tables.log.record import ENGINE_INFO, commit_file, now_ms, read_commit, to_metadata
from mirror_engine.tables.log.snapshot import first_line, needs_mapping, open_delta
from mirror_engine.tables.log.table_path import StorePath, create_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror_engine.config import ChangeDataFeed
    from mirror_engine.landing_zone.schema import Column, TableSchema
    from mirror_engine.tables.base import BatchRecord
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_path import TablePath

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}  # from file systems without hard links


class CommitInDoubt(Exception):
    """The cause of an error after which it is not known whether the commit was made."""


def put_commit(folder: TablePath, version: int, actions: Iterable[dict[str, Any]]) -> None:
    """Write the actions of one version of a table; the cause of a store's failure is `CommitInDoubt`."""
    text = "".join(json.dumps(action, ensure_ascii=False, separators=(",", ":")) + "\n" for action in actions)
    try:
        create_file(commit_file(folder, version), text.encode())
    except FileExistsError:
        raise CommitConflict(f"{folder.name}: version {version} was committed by another writer") from None
    except StorageUnavailable as error:
        raise error from CommitInDoubt(error.message)  # it may still arrive
    except OSError as error:
        help = "Check the disk and the rights on the folder."
        if error.errno in _NO_LINKS:
            help = "Put ROOT on a file system with hard links, such as ext4, xfs, btrfs, APFS or NFS."
        raise StorageUnavailable(
            f"{folder}: the Delta log cannot be written: {error.strerror or error}", help
        ) from error


VECTORS = "delta.enableDeletionVectors"  # rows are marked as deleted
_FEED = {"keep": {}, "on": {"delta.enableChangeDataFeed": "true"}, "off": {"delta.enableChangeDataFeed": "false"}}

_MAPPING_MODE, _MAPPING_TOP = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
_INDEXED, _INDEXED_BY_DEFAULT = "delta.dataSkippingNumIndexedCols", "32"
_ID, _PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"
_LISTED_WRITER = 7  # the protocol version with a list of features
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

Json = dict[str, Any]


@dataclass(frozen=True)
class NewFile:
    """A data file to be added to a table.

    Attributes:
        name: in the table's folder.
        size: in bytes.
        modified_ms: modification time, milliseconds since 1970.
        statistics: Delta's, as JSON.
    """

    name: str
    size: int
    modified_ms: int
    statistics: str


def create_table(  # noqa: PLR0913 - what a table begins with
    folder: TablePath,
    schema: TableSchema,
    record: BatchRecord,
    files: Sequence[NewFile] = (),
    keys: Sequence[str] = (),
    *,
    change_data_feed: ChangeDataFeed = "keep",
) -> bool:
    """Create a table in one commit.

    Args:
        folder: of the table; made if need be.
        schema: its columns.
        record: of the batch.
        files: its first data files, in the folder.
        keys: its key columns, which get statistics.
        change_data_feed: whether it has one; with `keep`, none.

    Returns:
        Whether it was created; False where there is one already.
    """
    configuration = properties_of(schema, keys) | _FEED[change_data_feed]
    if isinstance(folder, StorePath):
        configuration |= _IN_STORE
    fields = _fields(schema, {}, configuration)
    identity = {"id": str(uuid.uuid4()), "createdTime": now_ms()}
    added = [
        {
            "path": file.name,
            "partitionValues": {},
            "size": file.size,
            "modificationTime": file.modified_ms,
            "dataChange": True,
            "stats": file.statistics,
        }
        for file in files
    ]
    actions = [
        _information("CREATE TABLE", configuration, to_metadata(record)),
        {"protocol": _protocol({"minReaderVersion": 1, "minWriterVersion": 2}, fields, configuration)},
        _metadata(identity, fields, schema.partition_columns, configuration),
        *({"add": action} for action in added),
        _transaction(record),
    ]
    try:
        put_commit(folder, 0, actions)
    except CommitConflict:
        return False
    return True


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
    the table holds no row (LZ-5.5).

    Returns:
        The table's version after it.
    """
    known, before = log.fields, dict(log.table.metadata().configuration)
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
    configuration = {**log.table.metadata().configuration, VECTORS: "true"}
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


def record_only(log: DeltaLog, record: BatchRecord) -> None:
    """Commit a batch that changes no row of the table as it was: its record and transaction alone."""
    configuration, version = log.table.metadata().configuration, log.version + 1
    information = _information("WRITE", configuration, to_metadata(record), log)
    put_commit(log.folder, version, [information, _transaction(record)])
    if (version + 1) % int(configuration.get(_CHECKPOINT_INTERVAL, "10")) == 0:  # as deltalake counts
        try:
            open_delta(log.folder).create_checkpoint()
        except (DeltaError, OSError) as error:
            logging.getLogger(__name__).warning("%s: no checkpoint: %s", log.folder, first_line(error))


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
    if writer < _LISTED_WRITER and features <= _old_features(max(writer, least[1])):
        return {"minReaderVersion": max(reader, least[0]), "minWriterVersion": max(writer, least[1])}
    old = _old_features(writer) if writer < _LISTED_WRITER else set()
    writes = {*old, *before.get("writerFeatures", ()), *features, "invariants", "appendOnly"}
    reads = {*before.get("readerFeatures", ()), *(features - _FOR_WRITERS)} | (writes & {"columnMapping"})
    return {
        "minReaderVersion": 3 if reads else reader,
        "minWriterVersion": _LISTED_WRITER,
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
        before = read_commit(log.folder, log.version).in_commit_timestamp
        information["inCommitTimestamp"] = max(now_ms(), before + 1)  # they rise, whatever the clock says
    return {"commitInfo": information}
