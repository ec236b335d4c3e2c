"""Every commit but Spark's: of data files, of a table's creation and evolution, of maintenance.

A batch is committed as the very version after that which it was counted against: another commit that came between is a
conflict. The few lines of JSON are written here: Spark would take a second for them, its SQL cannot add a NOT NULL
column to an empty table; deltalake forgets table features, and lists the log twice for each commit (all measured). A
function that raises has committed nothing: `CommitConflict` where another writer was first, `StorageUnavailable` where
files or the log cannot be written.
"""

from __future__ import annotations

import json
import logging
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import CommitConflict, StorageUnavailable, is_panic
from mirror_engine.tables.log.cleanup import log_properties
from mirror_engine.tables.log.data_files import written_file
from mirror_engine.tables.log.durability import already_synced, forget_new, sync_new
from mirror_engine.tables.log.log_errors import first_line
from mirror_engine.tables.log.log_names import commit_name
from mirror_engine.tables.log.record import ENGINE_INFO, now_ms, read_commit, to_metadata
from mirror_engine.tables.log.snapshot import needs_mapping, physical_name
from mirror_engine.tables.log.statistics import statistics_of
from mirror_engine.tables.log.table_file import read_footer
from mirror_engine.tables.log.table_path import LOG_FOLDER, StorePath, create_file, for_each

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from mirror_engine.config import ChangeDataFeed
    from mirror_engine.landing_zone.schema import Column, TableSchema
    from mirror_engine.tables.base import BatchRecord, ChangeBatch
    from mirror_engine.tables.log.data_files import WrittenFile
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_file import DataFile
    from mirror_engine.tables.log.table_path import TablePath
    from mirror_engine.tables.log.vectors import Descriptor, NewVectors

_log = logging.getLogger(__name__)
Json = dict[str, Any]


class CommitInDoubt(Exception):
    """The cause of an error after which it is not known whether the commit was made."""


def put_commit(folder: TablePath, version: int, actions: Iterable[dict[str, Any]]) -> None:
    """Write the actions of one version of a table; the cause of a store's failure is `CommitInDoubt`."""
    text = "".join(json.dumps(action, ensure_ascii=False, separators=(",", ":")) + "\n" for action in actions)
    try:
        name = f"{LOG_FOLDER}/{commit_name(version)}"
        create_file(folder / name, text.encode())
        if not isinstance(folder, StorePath):
            already_synced(folder, name)
    except FileExistsError:
        raise CommitConflict(f"{folder.name}: version {version} was committed by another writer") from None
    except StorageUnavailable as error:
        raise error from CommitInDoubt(error.message)  # it may still arrive
    except OSError as error:
        raise _unavailable(str(folder), folder, error) from error


VECTORS = "delta.enableDeletionVectors"  # rows are marked as deleted
VECTORS_FROM_ROWS = 1_000_000  # of a table: from here on marking rows costs less than rewriting their files
_FEED = {"keep": {}, "on": {"delta.enableChangeDataFeed": "true"}, "off": {"delta.enableChangeDataFeed": "false"}}

_MAPPING_MODE, _MAPPING_TOP = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
_INDEXED, _INDEXED_BY_DEFAULT = "delta.dataSkippingNumIndexedCols", 32
_ID, _PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"
_LISTED_WRITER = 7  # the version of a protocol with a list of features
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
_CHECKPOINT_INTERVAL, _INTERVAL_BY_DEFAULT = "delta.checkpointInterval", 10
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
        *files,
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


def indexed_columns(
    properties: Mapping[str, Any], schema: TableSchema, names: Mapping[str, str] = MappingProxyType({})
) -> Sequence[Column]:
    """The columns for which a table with these properties wants statistics, under their names in its data files.

    `names` has those that differ from the table's own.
    """
    if properties.get("delta.dataSkippingStatsColumns"):
        return ()  # a list in SQL's spelling: Spark collects them at the next rewrite
    count = _indexed_count(properties)
    wanted = schema.columns if count < 0 else schema.columns[:count]
    return [replace(column, name=names.get(column.name, column.name)) for column in wanted]


@dataclass(frozen=True)
class Evolution:
    """What a commit says anew of its table."""

    operation: str
    schema: TableSchema  # the table's after it
    fields: Sequence[Json]  # its columns as the log has them
    configuration: Mapping[str, str]
    actions: Sequence[Json]  # `protocol` and `metaData`; none where the table has all

    @property
    def feeds_changes(self) -> bool:
        """Whether the table has a change data feed from this commit on."""
        return self.configuration.items() >= _FEED["on"].items()

    @property
    def indexed(self) -> Sequence[Column]:
        """The columns that get statistics, under their names in data files."""
        return indexed_columns(
            self.configuration, self.schema, {each["name"]: physical_name(each) for each in self.fields}
        )


def evolution(
    log: DeltaLog,
    schema: TableSchema,
    key_columns: Sequence[str] = (),
    change_data_feed: ChangeDataFeed = "keep",
    *,
    vectors: bool = False,
) -> Evolution:
    """The changes that a table needs: columns, statistics of its keys, the wanted change data feed, deletion vectors.

    Old rows have NULL in new columns, so one that is NOT NULL comes only where the table holds no row (LZ-5.5).
    """
    known, before = log.fields, dict(log.configuration)
    operation = "SET TBLPROPERTIES" if known.keys() >= set(schema.names) else "ADD COLUMNS"
    configuration = before | _statistics(schema, key_columns, before) | _FEED[change_data_feed]
    configuration |= {VECTORS: "true"} if vectors else {}
    fields = _fields(schema, known, configuration)
    if configuration == before and operation != "ADD COLUMNS":
        return Evolution(operation, schema, fields, configuration, ())
    return Evolution(operation, schema, fields, configuration, _described(log, fields, configuration))


def evolve(log: DeltaLog, evolution: Evolution, record: str = "") -> int:
    """Give a table what it lacks in a commit of its own; returns the table's version after it.

    `record`: the newest one, said again: it tells of which generation the commit is, should it come late (LZ-4.18).
    """
    if not evolution.actions:
        return log.version
    information = _information(evolution.operation, evolution.configuration, record or None, log)
    put_commit(log.folder, log.version + 1, [information, *evolution.actions])
    return log.version + 1


def _statistics(schema: TableSchema, key_columns: Sequence[str], before: Mapping[str, str]) -> dict[str, str]:
    """The property by which all keys have statistics: Delta looks at the first columns only."""
    places = [place for place, name in enumerate(schema.names, 1) if name in key_columns]
    known = _indexed_count(before)
    return {_INDEXED: str(max(places))} if 0 <= known < max(places, default=0) else {}


def _indexed_count(properties: Mapping[str, Any]) -> int:
    count = _whole_number(properties.get(_INDEXED))
    return _INDEXED_BY_DEFAULT if count is None else count


def _described(log: DeltaLog, fields: Sequence[Json], configuration: Mapping[str, str]) -> Sequence[Json]:
    """The `metaData` and `protocol` actions of a table from now on."""
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
    changed = [{"protocol": wanted}] if wanted != protocol else []
    return [*changed, _metadata(identity, fields, before.partition_columns, configuration)]


def commit_batch(
    log: DeltaLog,
    record: BatchRecord,
    evolution: Evolution,
    actions: Sequence[Json] = (),
    operation: str = "WRITE",
) -> None:
    """Commit a batch's actions with its record and transaction; without actions no row changes.

    `evolution`: what the commit says anew of the table. Any other commit since the snapshot is a `CommitConflict`.
    """
    information = _information(operation, evolution.configuration, to_metadata(record), log)
    commit_actions(log, [information, *evolution.actions, *actions, _transaction(record)])


def commit_maintenance(log: DeltaLog, operation: str, user_metadata: str | None, actions: Sequence[Json] = ()) -> None:
    """Commit actions that change no row; `user_metadata` is the record, said again, where it is."""
    commit_actions(log, [_information(operation, log.configuration, user_metadata, log), *actions])


def commit_actions(log: DeltaLog, actions: Sequence[Json]) -> None:
    """Commit actions as the version after the snapshot, and a checkpoint where one is due.

    An error is one before the commit: without its checkpoint it is one all the same.
    """
    version = log.version + 1
    put_commit(log.folder, version, actions)
    if is_checkpoint_due(log, version):
        try:
            log.move_on()
            log.handle.create_checkpoint()
        except BaseException as error:
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            _log.warning("%s: no checkpoint: %s", log.folder, first_line(error))


def is_checkpoint_due(log: DeltaLog, version: int) -> bool:
    """Whether a commit of this version brings a checkpoint, as deltalake counts."""
    return (version + 1) % (_whole_number(log.configuration.get(_CHECKPOINT_INTERVAL)) or _INTERVAL_BY_DEFAULT) == 0


def _whole_number(text: object) -> int | None:
    """A property's value; None where another program wrote none."""
    try:
        return int(str(text))
    except ValueError:
        return None


def _fields(schema: TableSchema, known: Mapping[str, Mapping[str, Any]], configuration: dict[str, str]) -> list[Json]:
    """The schema's columns as the log has them; switches mapping on in the configuration where a name needs it.

    Columns known before keep what is said of them. When mapping comes to a table that has rows, they keep their own
    names in the files, so that those stay readable.
    """
    fields: list[Json] = []
    for column in schema.columns:
        own = {"name": column.name, "type": column.type, "nullable": column.nullable, "metadata": {}}
        fields.append({**own, **known.get(column.name, {})})
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
    """The implied features of a writer version that lists none."""
    return {name for name, since in _OLD_FEATURES.items() if since <= writer}


def _transaction(record: BatchRecord) -> Json:
    return {"txn": {"appId": record.application, "version": record.progress.batch, "lastUpdated": now_ms()}}


def _information(
    operation: str, configuration: Mapping[str, str], user_metadata: str | None, log: DeltaLog | None = None
) -> Json:
    information: Json = {
        "timestamp": now_ms(),
        "operation": operation,
        "operationParameters": {},
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "engineInfo": ENGINE_INFO,
    }
    if user_metadata is not None:
        information["userMetadata"] = user_metadata
    if log and configuration.get("delta.enableInCommitTimestamps") == "true":
        before = int(read_commit(log.folder, log.version).information.get("inCommitTimestamp") or 0)
        information["inCommitTimestamp"] = max(now_ms(), before + 1)  # they rise, whatever the clock says
    return {"commitInfo": information}


def add_parts(table: str, log: DeltaLog, evolution: Evolution, parts: Iterable[Path], record: BatchRecord) -> None:
    """Move Parquet files into a table's folder and add them to the table in one commit.

    The batch was counted against the snapshot `log`. In the files, the columns of `evolution` have the same names and
    types.
    """
    files = as_they_are(parts)
    with moved(table, log.folder, files):
        commit_batch(log, record, evolution, [add_action(file, evolution.indexed) for file in files])


def create_with_files(
    table: str, folder: TablePath, batch: ChangeBatch, record: BatchRecord, properties: Mapping[str, str]
) -> None:
    """Create a table whose first version holds a batch's passthrough files; see `create_table`."""
    wanted = indexed_columns(properties_of(batch.schema, batch.key_columns), batch.schema)
    files = as_they_are(batch.passthrough)
    with moved(table, folder, files):
        added = [add_action(file, wanted) for file in files]
        if not create_table(folder, batch.schema, record, added, batch.key_columns, properties=properties):
            raise CommitConflict(f"{table}: another writer committed first", "The next cycle reads the table's state.")


def as_they_are(parts: Iterable[Path]) -> Sequence[WrittenFile]:
    """Parquet files of an unpartitioned table, with columns under its own names."""
    return [written_file(part, f"part-00000-{uuid.uuid4()}-c000.parquet") for part in parts]


def add_action(file: WrittenFile, columns: Sequence[Column], *, changes_rows: bool = True) -> Json:
    """The `add` action of a new data file, with statistics of these columns, which have their physical names."""
    said = {"modificationTime": now_ms(), "dataChange": changes_rows, "stats": statistics_of(file.footer, columns)}
    return {"add": {**file.action, **said}}


def remove_action(log: DeltaLog, file: DataFile, *, changes_rows: bool = True) -> Json:
    """The `remove` action of a data file, with the vector that it has: the log knows it by both."""
    said = {"deletionTimestamp": now_ms(), "dataChange": changes_rows, "extendedFileMetadata": True}
    vector = {"deletionVector": file.vector} if file.vector else {}
    return {"remove": {**known_action(log, file), **said, **vector}}


def marked_action(log: DeltaLog, file: DataFile, vector: Descriptor, columns: Sequence[Column]) -> Json:
    """The `add` action of a data file with a new vector; its statistics bound the rows that are left, too."""
    statistics = statistics_of(read_footer(file.path), columns, is_tight=False)
    said = {"modificationTime": file.modified_ms, "dataChange": True, "stats": statistics, "deletionVector": vector}
    return {"add": {**known_action(log, file), **said}}


def known_action(log: DeltaLog, file: DataFile) -> Json:
    """What every action that names a data file of the table says of it."""
    names = log.physical_names
    values = {names[name]: value for name, value in file.partition.items()}
    return {"path": file.spelled, "partitionValues": values, "size": file.size}


@contextmanager
def writing(table: str, folder: TablePath) -> Iterator[None]:
    """What is raised while files of a table are written or deleted, in the error tree's words."""
    try:
        yield
    except OSError as error:
        raise _unavailable(table, folder, error) from error


@contextmanager
def moved(
    table: str, folder: TablePath, files: Sequence[WrittenFile], vectors: Sequence[NewVectors] = ()
) -> Iterator[None]:
    """Bring new files into a table's folder, durably, for a commit; they are deleted again where it was not made."""
    names = [*(file.name for file in files), *(file.name for file in vectors)]
    try:
        with writing(table, folder):
            list(for_each(folder, lambda file: file.put(folder), files))
            if isinstance(folder, StorePath):
                for each in vectors:
                    (folder / each.name).create(each.content)
            else:
                for each in vectors:
                    (folder / each.name).write_bytes(each.content)
                sync_new(folder, names)
        yield
    except Exception as error:
        if isinstance(error.__cause__, CommitInDoubt):
            raise  # the log may name the files; VACUUM deletes them where it does not
        with suppress(OSError, StorageUnavailable):
            if not isinstance(folder, StorePath):
                forget_new(folder, names)
            for name in names:
                (folder / name).unlink(missing_ok=True)
            if not isinstance(folder, StorePath):
                folder.rmdir()  # of a table that was not created; any other is not empty
        raise


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
