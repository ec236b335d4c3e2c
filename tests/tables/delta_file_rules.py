"""What the Delta protocol asks of data files and of what the log says about them; DuckDB counts the values."""

from __future__ import annotations

import functools
import json
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from delta_history import History, Json, State

# As deltalake notes Arrow's type in its files; in Parquet the two are the same
_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
_STORED: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_EXTREMES_KNOWN_OF = {"string", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "decimal"}
_EXTREMES_KNOWN_OF |= {"timestamp_ntz", "boolean"}
_MILLISECOND = 1000  # in microseconds: to it timestamps are cut
_MAX_TEXT = 32  # characters, a last one that lifts the highest besides
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@functools.cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def duck() -> duckdb.DuckDBPyConnection:
    """A connection for one thread; to open a database takes longer than to read a small table."""
    return _database().cursor()


def data_files(history: History) -> Iterator[str]:
    """Consistency Between Table Metadata and Data Files: columns of the table, in its types, mapped ones with ids."""
    for state, action in _present_adds(history):
        found = pq.ParquetFile(history.path(action)).schema_arrow
        for field in found:
            column = {**state.partition_columns, **state.data_columns}.get(field.name)
            if column is None:
                yield f"{action['path']} has a column {field.name} that the table has not"
                continue
            if _VIEWS.get(field.type, field.type) != _stored(column["type"]):
                yield f"{action['path']}: {field.name} is stored as {field.type}, its type is {column['type']}"
            number = column["metadata"].get("delta.columnMapping.id")
            if state.is_mapped and (field.metadata or {}).get(b"PARQUET:field_id") != str(number).encode():
                yield f"{action['path']}: {field.name} is not stored under its id {number}"


def _stored(word: str) -> pa.DataType:
    if word.startswith("decimal"):
        return pa.decimal128(*map(int, word[8:-1].split(",")))
    return _STORED[word]


def _present_adds(history: History) -> Iterator[tuple[State, Json]]:
    """Every file that was added and is still there, with the state that its commit made."""
    for _, commit, after in history.steps:
        for action in commit.of("add"):
            if history.path(action).is_file():
                yield after, action


def statistics(history: History) -> Iterator[str]:
    """Per-file Statistics: what they say is so, NOT NULL columns hold no NULL, and rows are counted in every file."""
    for state, action in _present_adds(history):
        said = json.loads(action.get("stats", "{}"), parse_float=Decimal)
        yield from _statistics_of(history.path(action), state, said)


def _statistics_of(path: Path, state: State, said: Json) -> Iterator[str]:
    rows, columns = _measured(path, state)
    if said.get("numRecords") != rows:
        yield f"{path.name} holds {rows} records, said are {said.get('numRecords')}"
    if said.keys() - {"numRecords", "minValues", "maxValues", "nullCount"}:
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


def _measured(path: Path, state: State) -> tuple[int, dict[str, tuple[int, Any, Any]]]:
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


def _shown(value: str, state: State, name: str) -> str:
    word = state.data_columns[name]["type"]
    if word.startswith("timestamp"):
        return f"epoch_us({value})"
    return f"CAST({value} AS VARCHAR)" if word == "date" else value


def _is_extreme(said: Any, measured: tuple[int, Any, Any], kind: str, word: str) -> bool:
    """Whether a statistic is the lowest or highest value; of a column of NULLs it says nothing."""
    value = measured[1 if kind == "minValues" else 2]
    if said is None or value is None:
        return said is None and value is None
    if word.split("(", maxsplit=1)[0] not in _EXTREMES_KNOWN_OF:
        return False
    if word == "string":
        return _is_text_extreme(said, value, kind)
    if word.startswith("timestamp"):
        return abs(_microseconds(said) - value) < _MILLISECOND
    if word in ("float", "double"):
        kind_of_float = np.float32 if word == "float" else np.float64
        return bool(np.array_equal(kind_of_float(said), kind_of_float(value), equal_nan=True))
    return str(said) == value if word == "date" else Decimal(said) == Decimal(value)  # of a boolean, too


def _is_text_extreme(said: str, value: str, kind: str) -> bool:
    """Cut text begins as the value does; the highest is lifted, so that it lies above it all the same."""
    if said == value:
        return True
    cut = said if kind == "minValues" else said[:-1]
    if len(cut) < _MAX_TEXT or not value.startswith(cut):
        return False
    return kind == "minValues" or said.encode() >= value.encode()


def _microseconds(said: str) -> int:
    moment = datetime.fromisoformat(said.replace("Z", "+00:00"))
    moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return (moment - _EPOCH) // timedelta(microseconds=1)


FILE_RULES: Mapping[str, Any] = {rule.__name__: rule for rule in (data_files, statistics)}
