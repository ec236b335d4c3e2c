"""What the Delta protocol asks of a table's schema, protocol and column mapping, and of how they may change."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delta_history import History, Json, State

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


def schema(history: History) -> Iterator[str]:
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


def evolution(history: History) -> Iterator[str]:
    """A mirrored table only gains columns (LZ-5.3), nullable ones where it has rows (LZ-5.5), and stays itself."""
    for before, commit, after in history.steps:
        if before.metadata and before.metadata is not after.metadata:
            for name in ("id", "partitionColumns"):
                if before.metadata[name] != after.metadata[name]:
                    yield f"version {commit.version} changes the table's {name}"
            yield from _columns_kept(before, after)
            lost = {name for name, value in before.configuration.items() if after.configuration.get(name) != value}
            if lost - {_TOP, _MODE}:
                yield f"version {commit.version} changes the properties {sorted(lost)}"


def _columns_kept(before: State, after: State) -> Iterator[str]:
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


def mapping(history: History) -> Iterator[str]:
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


def protocol(history: History) -> Iterator[str]:
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


def features(history: History) -> Iterator[str]:
    """Table Features: exactly what the table needs (`needed` says why), by version numbers where those can say it."""
    assumed: set[str] = set()
    for before, commit, after in history.steps:
        if before.protocol.get("minWriterVersion", 7) < 7:
            assumed |= _features(before.protocol)  # which a writer that begins a list must assume to have been used
        wanted = _wanted(set(needed(after)), assumed)
        if (found := {**after.protocol, **_sorted_lists(after.protocol)}) != wanted:
            yield f"version {commit.version} asks for {found}, it needs {wanted}"


def _wanted(needs: set[str], assumed: set[str]) -> Json:
    if not needs:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    if needs == {"columnMapping"}:
        return {"minReaderVersion": 2, "minWriterVersion": 5}
    lists = {"readerFeatures": sorted(needs), "writerFeatures": sorted(needs | _LEGACY[2] | assumed)}
    return {"minReaderVersion": 3, "minWriterVersion": 7, **lists}


def _sorted_lists(said: Json) -> Json:
    return {name: sorted(listed) for name, listed in said.items() if isinstance(listed, list)}


def needed(state: State) -> dict[str, str]:
    """Each table feature that a version needs, and why."""
    odd = [column["name"] for column in state.fields if _ODD.search(column["name"])]
    naive = [column["name"] for column in state.fields if column["type"] == "timestamp_ntz"]
    return {
        **({"columnMapping": f"columns {odd} have names that Parquet readers of Delta refuse"} if odd else {}),
        **({"timestampNtz": f"columns {naive} have times without a zone"} if naive else {}),
    }


def _features(said: Json) -> set[str]:
    """What a protocol action asks for, in features."""
    writer = said["minWriterVersion"]
    old = {name for since, names in _LEGACY.items() if since <= writer < 7 for name in names}
    return {*old, *said.get("writerFeatures", ()), *said.get("readerFeatures", ())}


SCHEMA_RULES: Mapping[str, Any] = {rule.__name__: rule for rule in (schema, evolution, mapping, protocol, features)}
