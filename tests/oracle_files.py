"""Change files for the oracle: columns, rows in order, and markers (chapters 4 to 6)."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from oracle_text import read_text

Row = dict[str, Any]
MARKER = "__rowmarker__"
UNTYPED = "untyped"


class Refused(Exception):
    """A file or metadata that the protocol does not let through."""


@dataclass
class Column:
    """A column of the mirrored table, or of a file: `untyped` where that says none (LZ-5.9)."""

    name: str
    type: str
    nullable: bool


@dataclass
class File:
    """A change file as read: columns, and rows in order with their effective markers (None: marker-free)."""

    columns: list[Column]
    rows: list[Row]
    markers: list[int] | None
    is_text: bool


ARROW_TYPES = {
    pa.string(): "string",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.binary(): "binary",
    pa.null(): UNTYPED,
    pa.decimal128(9, 2): "decimal(9,2)",
    pa.decimal128(9, 3): "decimal(9,3)",
    pa.timestamp("us"): "timestamp",
    pa.timestamp("ms"): "timestamp",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.timestamp("ms", tz="UTC"): "timestamp",
    pa.large_string(): "string",
}
MARKER_TYPES = {
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.string(),
    pa.large_string(),
    pa.null(),
}


def parquet_file(content: bytes) -> File:
    """Read Parquet (LZ-4.10, LZ-4.11, LZ-5.8)."""
    try:
        table = pq.read_table(io.BytesIO(content))
    except (pa.ArrowInvalid, OSError):
        raise Refused from None
    fields = [(index, each) for index, each in enumerate(table.schema)]
    data = [(index, each) for index, each in fields if each.name.casefold() != MARKER]
    marked = [(index, each) for index, each in fields if each.name.casefold() == MARKER]
    if len(marked) > 1 or any(each.type not in MARKER_TYPES for _, each in marked):
        raise Refused
    if any(each.type not in ARROW_TYPES for _, each in data):
        raise Refused
    columns = [Column(each.name, ARROW_TYPES[each.type], each.nullable) for _, each in data]
    values = [table.column(index).to_pylist() for index, _ in data]
    names = [each.name.casefold() for _, each in data]
    rows = [dict(zip(names, cells, strict=True)) for cells in zip(*values, strict=True)]
    markers = [_marker(value) for value in table.column(marked[0][0]).to_pylist()] if marked else None
    return File(columns, rows if data else [{}] * table.num_rows, markers, is_text=False)


def text_file(content: bytes, metadata: dict[str, Any]) -> File:
    """Read delimited text (chapter 6)."""
    declared = [each for each in metadata["SchemaDefinition"]["Columns"] if each["Name"].casefold() != MARKER]
    try:
        header, rows = read_text(content, declared)
    except ValueError:
        raise Refused from None
    columns = [Column(each["Name"], TEXT_TYPES[each["DataType"]], each.get("IsNullable", False)) for each in declared]
    there = [column for column in columns if column.name.casefold() in header]
    absent = [column for column in columns if column.name.casefold() not in header]
    if any(not column.nullable for column in absent):
        raise Refused
    keys = {key.casefold() for key in metadata["keyColumns"]}
    if any(column.name.casefold() in keys for column in absent):
        raise Refused
    markers = [_marker(row.pop(MARKER)) for row in rows] if MARKER in header else None
    return File([*there, *absent], rows, markers, is_text=True)


TEXT_TYPES = {
    "String": "string",
    "Int16": "short",
    "Int32": "integer",
    "Int64": "long",
    "Single": "float",
    "Double": "double",
    "Boolean": "boolean",
    "DateTime": "timestamp",
    "IDate": "date",
    "ITime": "string",
    "ByteArray": "binary",
}


def _marker(value: Any) -> int:
    if isinstance(value, str):
        value = {"0": 0, "1": 1, "2": 2, "4": 4}.get(value)
    if value is None:
        raise Refused
    return int(value)
