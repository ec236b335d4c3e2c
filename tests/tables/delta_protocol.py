"""Holds a Delta table on disk against the Delta protocol (PROTOCOL.md of delta-io/delta), rule by rule.

Its log is replayed by Action Reconciliation; the engine's own reading is not used. Each rule gives what is wrong, in
words. DuckDB counts the values that statistics are compared with.
"""

from __future__ import annotations

import functools
import json
import re
import struct
import uuid
import zlib
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from mirror_engine.tables.arrow_types import arrow_type

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Json = dict[str, Any]
COMMIT = re.compile(r"(\d{20})\.json")


class LogUnreadable(Exception):
    """A commit is no list of actions, or the log has no commits."""


@dataclass(frozen=True)
class Commit:
    """The actions of one version, each with its kind, in the order in which they stand."""

    version: int
    actions: tuple[tuple[str, Json], ...]

    def of(self, kind):
        return [content for each, content in self.actions if each == kind]

    @property
    def information(self):
        return next(iter(self.of("commitInfo")), {})

    @property
    def record(self):
        """What the engine says about its batch; None in a commit that holds none, or says one again."""
        try:
            said = json.loads(self.information.get("userMetadata") or "null")
        except ValueError:
            return None
        return said if isinstance(said, dict) and "mirror_engine" in said and "version" not in said else None

    @property
    def changes_data(self):
        return any(action.get("dataChange") for action in [*self.of("add"), *self.of("remove")])


@dataclass(frozen=True)
class State:
    """A version of the table. `files` go by the path as the log has it."""

    version: int = -1
    protocol: Json = field(default_factory=dict)
    metadata: Json = field(default_factory=dict)
    transactions: Mapping[str, Json] = field(default_factory=dict)
    files: Mapping[str, Json] = field(default_factory=dict)

    @cached_property
    def fields(self):
        """The columns as the schema has them."""
        found = json.loads(self.metadata["schemaString"])["fields"] if self.metadata else []
        return list(found)

    @property
    def configuration(self):
        return dict(self.metadata.get("configuration", {}))

    @property
    def is_mapped(self):
        return self.configuration.get("delta.columnMapping.mode", "none") != "none"

    def physical(self, column):
        """A column's name in data files, statistics and partition values."""
        return str(column["metadata"]["delta.columnMapping.physicalName"] if self.is_mapped else column["name"])

    @property
    def data_columns(self):
        """Columns that lie in the data files, by physical name."""
        inside = [each for each in self.fields if each["name"] not in self.metadata["partitionColumns"]]
        return {self.physical(each): each for each in inside}

    @property
    def partition_columns(self):
        """Columns that lie in the log alone, by physical name."""
        names = self.metadata["partitionColumns"]
        return {self.physical(each): each for each in self.fields if each["name"] in names}

    def after(self, commit):
        """The next version: of each thing the newest that was said."""
        added = {action["path"]: action for action in commit.of("add")}
        removed = {action["path"] for action in commit.of("remove")} - added.keys()
        return State(
            commit.version,
            next(iter(commit.of("protocol")), self.protocol),
            next(iter(commit.of("metaData")), self.metadata),
            {**self.transactions, **{action["appId"]: action for action in commit.of("txn")}},
            {path: file for path, file in {**self.files, **added}.items() if path not in removed},
        )


@dataclass(frozen=True)
class History:
    """A table: its commits, and the state after each."""

    folder: Path
    commits: tuple[Commit, ...]
    states: tuple[State, ...]

    @property
    def log(self):
        return self.folder / "_delta_log"

    @property
    def steps(self):
        """Each commit between the state before it and the state after it."""
        return zip((State(), *self.states), self.commits, self.states, strict=False)

    def path(self, action):
        """Where a data file lies: the log has it as a URI from the table's folder."""
        return self.folder / unquote(action["path"], errors="strict")


def read_history(folder):
    """Every version of a table whose log was never cleaned up.

    Raises:
        LogUnreadable: a line is no action.
    """
    files = sorted(path for path in (folder / "_delta_log").glob("*") if COMMIT.fullmatch(path.name))
    if not files:
        raise LogUnreadable("there are no commits")
    state, commits, states = State(), [], []
    try:
        for path in files:
            lines = path.read_text("utf-8").removesuffix("\n").split("\n")  # names may have other line ends
            commits.append(Commit(int(path.stem), tuple(map(_action, lines))))
            state = state.after(commits[-1])
            states.append(state)
            _ = state.fields  # the schema is read here, so that no rule meets one that is none
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LogUnreadable(f"{path.name}: {type(error).__name__}: {error}") from error
    return History(folder, tuple(commits), tuple(states))


def _action(line):
    [(kind, content)] = json.loads(line).items()
    return kind, {name: part for name, part in content.items() if part is not None}  # deltalake writes null for absent


def log_file(folder, name):
    return folder / "_delta_log" / name


def commit_path(folder, version):
    return log_file(folder, f"{version:020}.json")


def rewrite(version, change, folder):
    """Change the actions of a commit."""
    path = commit_path(folder, version)
    actions = change([json.loads(line) for line in path.read_text("utf-8").splitlines()])
    path.write_text("".join(json.dumps(action) + "\n" for action in actions), "utf-8")


# --- the rules

_OTHER_FILES = re.compile(r"_last_checkpoint|_last_vacuum_info|\d{20}\.(crc|checkpoint\.parquet)|\.[^/]+\.crc")
# RFC 2396's `pchar` and `/`; beyond ASCII the reference implementation writes letters as they are, as java.net.URI does
_URI_PATH = re.compile(r"(?:[A-Za-z0-9\-_.!~*'():@&=+$,;/]|%[0-9A-Fa-f]{2}|[^\x00-\x7f])+")
# what an action must have, and what it may have besides
_REQUIRED = {
    "commitInfo": {"timestamp": int, "operation": str},
    "protocol": {"minReaderVersion": int, "minWriterVersion": int},
    "metaData": {"id": str, "format": dict, "schemaString": str, "partitionColumns": list, "configuration": dict},
    "add": {"path": str, "partitionValues": dict, "size": int, "modificationTime": int, "dataChange": bool},
    "remove": {"path": str, "dataChange": bool},
    "cdc": {"path": str, "partitionValues": dict, "size": int, "dataChange": bool},
    "txn": {"appId": str, "version": int},
}
_OPTIONAL = {
    "protocol": {"readerFeatures": list, "writerFeatures": list},
    "metaData": {"name": str, "description": str, "createdTime": int},
    "add": {"stats": str, "tags": dict, "deletionVector": dict},
    "remove": {
        "deletionVector": dict,
        "deletionTimestamp": int,
        "extendedFileMetadata": bool,
        "partitionValues": dict,
        "size": int,
        "stats": str,
        "tags": dict,
    },
    "txn": {"lastUpdated": int},
}


def names(history):
    """Delta Log Entries: twenty digits, from 0 without a gap, and nothing left lying beside them."""
    for found in history.log.iterdir():
        if not COMMIT.fullmatch(found.name) and not _OTHER_FILES.fullmatch(found.name):
            yield f"{found.name} is no file of a Delta log"
    versions = [commit.version for commit in history.commits]
    if versions != list(range(len(versions))):
        yield f"versions {versions}"


def hadoop_checksums(history):
    """Hadoop refuses a file that differs from the hidden checksum beside it: one that was left by another file."""
    for found in [*history.log.glob(".*.crc"), *history.folder.rglob(".*.parquet.crc")]:
        target = found.with_name(found.name[1:-4])
        content = target.read_bytes() if target.exists() else b""
        stored = found.read_bytes()
        size = int.from_bytes(stored[4:8], "big")
        sums = [zlib.crc32(content[at : at + size]).to_bytes(4, "big") for at in range(0, len(content), size or 1)]
        if stored[8:] != b"".join(sums):
            yield f"{found.name} is not {target.name}'s"


def commit_info(history):
    """Commit Provenance Information: one in each commit, and first, as in-commit timestamps would ask."""
    for commit in history.commits:
        if [kind for kind, _ in commit.actions].count("commitInfo") != 1 or commit.actions[0][0] != "commitInfo":
            yield f"version {commit.version} does not begin with its one commitInfo"


def actions(history):
    """Actions: only those a mirrored table needs, with what they must have, in the right types."""
    for commit in history.commits:
        for kind, action in commit.actions:
            if kind not in _REQUIRED:
                yield f"version {commit.version} has a {kind}"
                continue
            known = {**_OPTIONAL.get(kind, {}), **_REQUIRED[kind]}
            lacking = _REQUIRED[kind].keys() - action.keys()
            strange = action.keys() - known.keys() if kind != "commitInfo" else set()
            wrong = {name for name in known.keys() & action.keys() if type(action[name]) is not known[name]}
            if not _is_json(action.get("stats", "{}")):
                yield f"version {commit.version}: the statistics in {kind} are no JSON"
            if lacking or strange or wrong:
                yield f"version {commit.version}: {kind} lacks {lacking}, has {strange}, of another type {wrong}"


def _is_json(text):
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def first_version(history):
    """Change Metadata: the first version holds protocol and metadata, none holds more than one of either."""
    for commit in history.commits:
        for kind in ("protocol", "metaData"):
            count = len(commit.of(kind))
            if count > 1 or (commit.version == 0 and count == 0):
                yield f"version {commit.version} has {count} {kind}"


def transactions(history):
    """Transaction Identifiers: each commit of a batch has one, its own, and they rise; nothing else changes data."""
    newest = {}
    for commit in history.commits:
        said = [(action["appId"], action["version"]) for action in commit.of("txn")]
        record = commit.record
        wanted = [] if record is None else [(_application(record), record["progress"]["batch"])]
        if said != wanted:
            yield f"version {commit.version} has the transactions {said}, its record says {wanted}"
        if commit.changes_data and not said:
            yield f"version {commit.version} changes data without a transaction"
        for application, version in said:
            if version <= newest.get(application, -1):
                yield f"version {commit.version}: transaction {version} after {newest[application]}"
            newest[application] = version


def _application(record):
    return f"mirror_engine:{record['progress']['generation']}"


def files(history):
    """Add File and Remove File: a path once of a kind, added while absent, removed while live, and as it was added."""
    for before, commit, _ in history.steps:
        live = before.files
        added = Counter(map(_logical, commit.of("add")))
        removed = Counter(map(_logical, commit.of("remove")))
        known = set(map(_logical, live.values()))
        twice = [path for each in (added, removed) for path, count in each.items() if count > 1]
        wrong = [*twice, *(added.keys() & known), *(removed.keys() - known), *(added & removed)]
        wrong += [path for path, _ in added if path in live and (path, _vector_id(live[path])) not in removed]
        if wrong:
            yield f"version {commit.version} adds or removes what it cannot: {wrong}"
        for action in commit.of("remove"):
            yield from _as_added(commit, action, live.get(action["path"], {}))


def _logical(action):
    """A logical file: a path and the unique id of its deletion vector."""
    return action["path"], _vector_id(action)


def _vector_id(action):
    vector = action.get("deletionVector")
    return vector and f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


def _as_added(commit, removed, added):
    if "deletionTimestamp" not in removed:
        yield f"version {commit.version} removes a file at no time"
    if removed.get("extendedFileMetadata") and not {"partitionValues", "size"} <= removed.keys():
        yield f"version {commit.version} removes a file without its extended metadata"
    differing = [name for name in ("partitionValues", "size") if removed.get(name) != added.get(name)]
    if "stats" in removed and _records(removed) != _records(added):  # they are optional, and deltalake leaves them out
        differing.append("numRecords")
    if added and removed.get("extendedFileMetadata") and differing:
        yield f"version {commit.version} removes a file with other {differing} than it was added with"


def data_change(history):
    """Add File and Remove File: where `dataChange` is false the same records only lie elsewhere."""
    for before, commit, _ in history.steps:
        moved = [action for action in [*commit.of("add"), *commit.of("remove")] if action.get("dataChange") is False]
        if moved and commit.changes_data:
            yield f"version {commit.version} both changes and rearranges data"
        signs = [(1 if action in commit.of("add") else -1, action) for action in moved]
        if sum(sign * _left(before.files.get(action["path"], {}) if sign < 0 else action) for sign, action in signs):
            yield f"version {commit.version} only rearranges, and holds another number of records"


def _records(action):
    return int(json.loads(action.get("stats", "{}")).get("numRecords", 0))


def _left(action):
    """How many rows of a file are there."""
    return _records(action) - action.get("deletionVector", {}).get("cardinality", 0)


_VECTORS = "delta.enableDeletionVectors"
_FEED = "delta.enableChangeDataFeed"


def change_data(history):
    """Add CDC File: where the feed is on, in each commit that takes rows away, beside the data, and nowhere else."""
    for _, commit, after in history.steps:
        is_on = after.configuration.get(_FEED) == "true"
        said = commit.of("cdc")
        if said and not is_on:
            yield f"version {commit.version} has change data, the table has no feed"
        if is_on and not said and any(action["dataChange"] for action in commit.of("remove")):
            yield f"version {commit.version} takes rows away and does not feed it"
        for action in said:
            if action["dataChange"] or not (after.is_mapped or action["path"].startswith("_change_data/")):
                yield f"version {commit.version}: {action['path']} is no change data"
            elif not history.path(action).is_file() or history.path(action).stat().st_size != action["size"]:
                yield f"{action['path']} is not there in full"


def paths(history):
    """Add File and Remove File: a relative URI below the table's folder, percent-encoded; live ones lead to a file."""
    for commit in history.commits:
        for action in commit.of("add"):
            path = action["path"]
            if not _URI_PATH.fullmatch(path) or path.startswith("/") or ".." in path.split("/"):
                yield f"version {commit.version}: {path!r} is no relative URI"
    for action in history.states[-1].files.values():
        if not history.path(action).is_file():
            yield f"{action['path']} is not there"
        elif (size := history.path(action).stat().st_size) != action["size"]:
            yield f"{action['path']} has {size} bytes, the log says {action['size']}"


def partition_values(history):
    """Partition Value Serialization: each file has each partition column's value, as text; NULL is null, not empty."""
    for _, commit, after in history.steps:
        columns = after.partition_columns
        for action in commit.of("add"):
            values = action["partitionValues"]
            if values.keys() != columns.keys():
                yield f"version {commit.version}: values of {sorted(values)}, columns are {sorted(columns)}"
            if any(value == "" or not isinstance(value, str | None) for value in values.values()):
                yield f"version {commit.version}: a partition value is no text"


_TYPES = re.compile(
    "string|long|integer|short|byte|float|double|boolean|binary|date|timestamp|timestamp_ntz"
    r"|decimal\(([1-9]|[12]\d|3[0-8]),\d{1,2}\)"
)
_ODD = re.compile(r"[ ,;{}()\n\t=]")
_MODE, _TOP = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
_ID, _PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"
_READER_FEATURES = {"columnMapping", "timestampNtz", "deletionVectors", "v2Checkpoint"}
# what a writer version without a list of features stands for
_LEGACY = {
    2: {"appendOnly", "invariants"},
    3: {"checkConstraints"},
    4: {"changeDataFeed", "generatedColumns"},
    5: {"columnMapping"},
    6: {"identityColumns"},
}


def schema(history):
    """Schema Serialization Format: a struct of columns with names of their own, whatever the case, and known types."""
    for state in filter(lambda state: state.metadata, history.states):
        text = json.loads(state.metadata["schemaString"])
        if text.get("type") != "struct":
            yield f"version {state.version}: the schema is no struct"
        for column in state.fields:
            if column.keys() != {"name", "type", "nullable", "metadata"} or not _TYPES.fullmatch(str(column["type"])):
                yield f"version {state.version}: {column} is no column"
        known = [column["name"].lower() for column in state.fields]
        if len(set(known)) != len(known) or not all(known):
            yield f"version {state.version}: two columns have one name"
        if state.metadata["format"] != {"provider": "parquet", "options": {}}:
            yield f"version {state.version}: the format is {state.metadata['format']}"
        lost = set(state.metadata["partitionColumns"]) - {column["name"] for column in state.fields}
        if lost:
            yield f"version {state.version}: partition columns {sorted(lost)} are no columns"


def evolution(history):
    """A mirrored table only gains columns (LZ-5.3), nullable ones where it has rows (LZ-5.5), and stays itself."""
    for before, commit, after in history.steps:
        if before.metadata and before.metadata is not after.metadata:
            for name in ("id", "partitionColumns"):
                if before.metadata[name] != after.metadata[name]:
                    yield f"version {commit.version} changes the table's {name}"
            yield from _columns_kept(before, after)
            lost = {name for name, value in before.configuration.items() if after.configuration.get(name) != value}
            if lost - {_TOP, _MODE, _VECTORS}:
                yield f"version {commit.version} changes the properties {sorted(lost)}"


def _columns_kept(before, after):
    known = {column["name"]: column for column in after.fields}
    for column in before.fields:
        there = known.get(column["name"])
        if there is None or any(there[part] != column[part] for part in ("type", "nullable")):
            yield f"version {after.version} loses or changes the column {column['name']}"
        elif not column["metadata"].items() <= there["metadata"].items():
            yield f"version {after.version} changes what is said of the column {column['name']}"
    names = [column["name"] for column in before.fields]
    if [name for name in known if name in names] != [name for name in names if name in known]:
        yield f"version {after.version} puts columns in another order"
    if before.files:
        new = [column for name, column in known.items() if name not in names]
        if not all(column["nullable"] for column in new):
            yield f"version {after.version} adds a NOT NULL column to a table with files"


def mapping(history):
    """Column Mapping: ids and physical names are each column's own, for ever, and no id is above the one recorded."""
    for before, _, after in history.steps:
        said = [column["metadata"] for column in after.fields]
        if not after.is_mapped:
            if any(name.startswith("delta.columnMapping") for each in said for name in each):
                yield f"version {after.version}: a column is mapped, the table is not"
            continue
        ids, names = [each.get(_ID) for each in said], [each.get(_PHYSICAL) for each in said]
        if None in [*ids, *names] or len(set(ids)) < len(ids) or len(set(names)) < len(names):
            yield f"version {after.version}: ids {ids} and physical names {names}"
        top = int(after.configuration.get(_TOP, "-1"))
        if max(filter(None, ids), default=0) > top or int(before.configuration.get(_TOP, "0")) > top:
            yield f"version {after.version}: ids {ids}, the highest is said to be {top}"
        if after.configuration[_MODE] != "name" or (before.is_mapped and before.configuration[_MODE] != "name"):
            yield f"version {after.version}: mapped by {after.configuration[_MODE]}"
        if before.metadata and not before.is_mapped:
            kept = {column["name"] for column in before.fields}
            wrong = [c["name"] for c in after.fields if c["name"] in kept and c["metadata"].get(_PHYSICAL) != c["name"]]
            if wrong:
                yield f"version {after.version}: the columns {wrong} can no longer be found in older files"


def protocol(history):
    """Protocol Evolution, Table Features: versions and lists that may stand together, never lowered."""
    for before, commit, after in history.steps:
        reader, writer = after.protocol["minReaderVersion"], after.protocol["minWriterVersion"]
        lists = [after.protocol.get(name) for name in ("readerFeatures", "writerFeatures")]
        if (reader == 3) != (lists[0] is not None) or (writer == 7) != (lists[1] is not None) or reader > 3 > writer:
            yield f"version {commit.version}: {after.protocol}"
        reads, writes = (set(listed or ()) for listed in lists)
        if reads - writes or (reader == 3 and writes & _READER_FEATURES - reads) or (reader == 3 and writer != 7):
            yield f"version {commit.version}: readers know {sorted(reads)}, writers {sorted(writes)}"
        if before.protocol and not _features(before.protocol) <= _features(after.protocol):
            yield f"version {commit.version} lowers the protocol"


def features(history):
    """Table Features: exactly what the table needs (`needed` says why), by version numbers where those can say it."""
    assumed = set()
    for before, commit, after in history.steps:
        if before.protocol.get("minWriterVersion", 7) < 7:
            assumed |= _features(before.protocol)  # which a writer that begins a list must assume to have been used
        wanted = _wanted(set(needed(after)), assumed, is_listed=before.protocol.get("minWriterVersion") == 7)
        if (found := {**after.protocol, **_sorted_lists(after.protocol)}) != wanted:
            yield f"version {commit.version} asks for {found}, it needs {wanted}"


def _wanted(needs, assumed, *, is_listed):
    if not needs:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    if "columnMapping" in needs and needs <= {"columnMapping", "changeDataFeed"} and not is_listed:
        return {"minReaderVersion": 2, "minWriterVersion": 5}
    lists = {"writerFeatures": sorted(needs | _LEGACY[2] | assumed)}
    if reads := sorted(needs & _READER_FEATURES):
        lists["readerFeatures"] = reads
    return {"minReaderVersion": 3 if reads else 1, "minWriterVersion": 7, **lists}


def _sorted_lists(said):
    return {name: sorted(listed) for name, listed in said.items() if isinstance(listed, list)}


def needed(state):
    """Each table feature that a version needs, and why."""
    odd = [column["name"] for column in state.fields if _ODD.search(column["name"])]
    naive = [column["name"] for column in state.fields if column["type"] == "timestamp_ntz"]
    return {
        **({"columnMapping": f"columns {odd} have names that Parquet readers of Delta refuse"} if odd else {}),
        **({"timestampNtz": f"columns {naive} have times without a zone"} if naive else {}),
        **({"deletionVectors": "rows are marked"} if state.configuration.get(_VECTORS) == "true" else {}),
        **({"changeDataFeed": "its feed is on"} if state.configuration.get(_FEED) == "true" else {}),
    }


def _features(said):
    """What a protocol action asks for, in features."""
    writer = said["minWriterVersion"]
    old = {name for since, names in _LEGACY.items() if since <= writer < 7 for name in names}
    return {*old, *said.get("writerFeatures", ()), *said.get("readerFeatures", ())}


# As deltalake notes Arrow's type in its files; in Parquet the two are the same
_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
_MILLISECOND = 1000  # in microseconds: to it timestamps are cut
_MAX_TEXT = 32  # characters, a last one that lifts the highest besides
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@functools.cache
def _database():
    return duckdb.connect()


def duck():
    """A connection for one thread; to open a database takes longer than to read a small table."""
    return _database().cursor()


def data_files(history):
    """Consistency Between Table Metadata and Data Files: columns of the table, in its types, mapped ones with ids."""
    for state, action in _present_adds(history):
        found = pq.ParquetFile(history.path(action)).schema_arrow
        for stored in found:
            if stored.name in {"_change_type", "__is_cdc"} and "changeDataFeed" in _features(state.protocol):
                continue  # Spark's MERGE leaves them there
            column = {**state.partition_columns, **state.data_columns}.get(stored.name)
            if column is None:
                yield f"{action['path']} has a column {stored.name} that the table has not"
                continue
            if _VIEWS.get(stored.type, stored.type) != arrow_type(column["type"]):
                yield f"{action['path']}: {stored.name} is stored as {stored.type}, its type is {column['type']}"
            number = column["metadata"].get("delta.columnMapping.id")
            if state.is_mapped and (stored.metadata or {}).get(b"PARQUET:field_id") != str(number).encode():
                yield f"{action['path']}: {stored.name} is not stored under its id {number}"


def _present_adds(history):
    """Every file that was added and is still there, with the state that its commit made."""
    for _, commit, after in history.steps:
        for action in commit.of("add"):
            if history.path(action).is_file():
                yield after, action


def statistics(history):
    """Per-file Statistics: what they say is so, NOT NULL columns hold no NULL, and rows are counted in every file."""
    for state, action in _present_adds(history):
        said = json.loads(action.get("stats", "{}"), parse_float=Decimal)
        yield from _statistics_of(history.path(action), state, said)


def _statistics_of(path, state, said):
    rows, columns = _measured(path, state)
    if said.get("numRecords") != rows:
        yield f"{path.name} holds {rows} records, said are {said.get('numRecords')}"
    if said.keys() - {"numRecords", "minValues", "maxValues", "nullCount", "tightBounds"}:
        yield f"{path.name}: statistics of an unknown kind: {sorted(said)}"
    for kind in ("minValues", "maxValues", "nullCount"):
        for name, value in said.get(kind, {}).items():
            if name not in columns:
                yield f"{path.name} has {kind} of {name}, which it has not"
            elif kind == "nullCount" and value != columns[name][0]:
                yield f"{path.name} has {columns[name][0]} NULLs in {name}, said are {value}"
            elif kind != "nullCount" and not _is_extreme(value, columns[name], kind, state.data_columns[name]["type"]):
                yield f"{path.name}: {kind} of {name} is {value!r}, which is not so"
    for name, (nulls, _, _) in columns.items():
        if nulls and not state.data_columns[name]["nullable"]:
            yield f"{path.name} has NULL in {name}, which is NOT NULL"


def _measured(path, state):
    """How many rows a file has, and per column its NULLs, lowest and highest value in a form that holds them all."""
    names = [name for name in pq.read_schema(path).names if name in state.data_columns]
    asked = ["count(*)"]
    for name in names:
        quoted = '"' + name.replace('"', '""') + '"'
        asked += [f"count(*) - count({quoted})", *(_shown(f"{f}({quoted})", state, name) for f in ("min", "max"))]
    source = "read_parquet($path, hive_partitioning = false)"
    query = f"SELECT {', '.join(asked)} FROM {source}"  # noqa: S608 - names of our own tables
    (found,) = duck().execute(query, {"path": str(path)}).fetchall()
    return found[0], {name: found[1 + 3 * at : 4 + 3 * at] for at, name in enumerate(names)}


def _shown(value, state, name):
    word = state.data_columns[name]["type"]
    if word.startswith("timestamp"):
        return f"epoch_us({value})"
    return f"CAST({value} AS VARCHAR)" if word == "date" else value


def _is_extreme(said, measured, kind, word):
    """Whether a statistic is the lowest or highest value; of a column of NULLs it says nothing."""
    value = measured[1 if kind == "minValues" else 2]
    if said is None or value is None:
        return said is None and value is None
    if word == "binary":  # no reader knows its order
        return False
    if word == "string":
        return _is_text_extreme(said, value, kind)
    if word.startswith("timestamp"):
        return abs(_microseconds(said) - value) < _MILLISECOND
    if word in ("float", "double"):
        kind_of_float = np.float32 if word == "float" else np.float64
        return bool(np.array_equal(kind_of_float(said), kind_of_float(value), equal_nan=True))
    return str(said) == value if word == "date" else Decimal(said) == Decimal(value)  # of a boolean, too


def _is_text_extreme(said, value, kind):
    """Cut text begins as the value does; the highest is lifted, so that it lies above it all the same."""
    if said == value:
        return True
    cut = said if kind == "minValues" else said[:-1]
    if len(cut) < _MAX_TEXT or not value.startswith(cut):
        return False
    return kind == "minValues" or said.encode() >= value.encode()


def _microseconds(said):
    moment = datetime.fromisoformat(said)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


_MAGIC = 1681511377


def vectors(history):
    """Deletion Vectors: readable, of rows that are there, never fewer than before, and bounds are said to be wide."""
    for before, commit, after in history.steps:
        for action in commit.of("add"):
            if (vector := action.get("deletionVector")) is None:
                continue
            if "deletionVectors" not in _features(after.protocol) or after.protocol["minReaderVersion"] < 3:
                yield f"version {commit.version} has a vector, its protocol has none"
            try:
                marked = marks(history.folder, vector)
            except (OSError, ValueError, KeyError, struct.error) as error:
                yield f"version {commit.version}: the vector of {action['path']} cannot be read: {error!r}"
                continue
            statistics = json.loads(action.get("stats", "{}"))
            if len(marked) != vector["cardinality"]:
                yield f"version {commit.version}: {len(marked)} marks, said are {vector['cardinality']}"
            if statistics.get("tightBounds") is not False or "numRecords" not in statistics:
                yield f"version {commit.version}: bounds of {action['path']} are said to be tight, or rows not counted"
            if max(marked, default=-1) >= _records(action):
                yield f"version {commit.version}: a mark beyond the rows of {action['path']}"
            live = before.files.get(action["path"], {})
            earlier = marks(history.folder, live["deletionVector"]) if "deletionVector" in live else set()
            if live and not earlier < marked:
                yield f"version {commit.version} marks no more rows of {action['path']} than before"


def marks(folder, vector):
    """The row numbers of a vector in a file of its own, or in the log."""
    if vector["storageType"] != "u":
        raise ValueError(vector["storageType"])
    text, number = vector["pathOrInlineDv"], 0
    letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    groups = [text[-20:][at : at + 5] for at in range(0, 20, 5)]
    for group in groups:
        number = number << 32 | functools.reduce(lambda total, letter: total * 85 + letters.index(letter), group, 0)
    name = f"deletion_vector_{uuid.UUID(int=number)}.bin"
    content = (folder / text[:-20] / name).read_bytes()
    (size,) = struct.unpack_from(">i", content, vector["offset"])
    body = content[vector["offset"] + 4 :][:size]
    (checksum,) = struct.unpack_from(">I", content, vector["offset"] + 4 + size)
    magic, count = struct.unpack_from("<iq", body)
    if content[0] != 1 or magic != _MAGIC or size != vector["sizeInBytes"] or checksum != zlib.crc32(body):
        raise ValueError("version, magic number, size or checksum")
    found, at = set(), 12
    for _ in range(count):
        (high,) = struct.unpack_from("<i", body, at)
        bitmap = BitMap.deserialize(body[at + 4 :])
        at += 4 + len(bitmap.serialize())
        found |= {high << 32 | low for low in bitmap}
    return found


RULES = {
    rule.__name__: rule
    for rule in (
        names,
        hadoop_checksums,
        commit_info,
        actions,
        first_version,
        transactions,
        files,
        data_change,
        change_data,
        paths,
        partition_values,
        schema,
        evolution,
        mapping,
        protocol,
        features,
        data_files,
        statistics,
        vectors,
    )
}
_SHAPES = ("names", "actions", "first_version", "schema")  # what all other rules build on


def protocol_faults(folder):
    """What is wrong with a table, each with the name of the rule it breaks; empty for a table that conforms."""
    try:
        history = read_history(folder)
    except LogUnreadable as error:
        return [f"readable: {error}"]
    return _found(history, _SHAPES) or _found(history, tuple(RULES))


def _found(history, names):
    return [f"{name}: {said}" for name in names for said in RULES[name](history)]
