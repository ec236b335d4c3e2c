"""Contents of files that a case lands: fenced blocks as bytes, with the kinds and options of fixtures/README.md."""

from __future__ import annotations

import base64
import io
import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Options = Mapping[str, str]

_COLUMN = re.compile(r'("(?:[^"\\]|\\.)*"|[^",:]+):(\S+?)( not null)?(?:, |$)')
_TYPE = re.compile(r"(\w+)[\[(<](.+)[\])>]")
_PARAMETRIC: Mapping[str, Callable[..., pa.DataType]] = {
    "binary": lambda width: pa.binary(int(width)),
    "decimal128": lambda precision, scale: pa.decimal128(int(precision), int(scale)),
    "decimal256": lambda precision, scale: pa.decimal256(int(precision), int(scale)),
    "list": lambda kind: pa.list_(_arrow_type(kind)),
    "map": lambda *kinds: pa.map_(*map(_arrow_type, kinds)),
    "struct": lambda *fields: pa.struct([_arrow_field(*field.split(":")) for field in fields]),
    "timestamp": pa.timestamp,
}


def typed_rows(text: str) -> tuple[list[tuple[str, str, bool]], list[list[Any]]]:
    """Columns by name, type and nullability, and rows; a line that ends with a comma continues on the next one.

    Raises:
        ValueError: it is not in that form, or a row has another number of values than there are columns.
    """
    heading, *lines = re.sub(r",\n *", ", ", text).split("\n")
    found = list(_COLUMN.finditer(heading))
    if "".join(match[0] for match in found) != heading:
        raise ValueError(f'"{heading}" is not `name:type, …`')
    columns = [
        (json.loads(name) if name.startswith('"') else name, kind, not is_required)
        for name, kind, is_required in (match.groups() for match in found)
    ]
    rows = [_values(line) for line in lines]
    if wrong := [row for row in rows if len(row) != len(columns)]:
        raise ValueError(f"{len(wrong[0])} values in a row of {len(columns)} columns")
    return columns, rows


def _values(line: str) -> list[Any]:
    try:
        values: list[Any] = json.loads(f"[{line}]")
    except json.JSONDecodeError as error:
        raise ValueError(f"{line} is not a row of JSON values: {error.msg}") from None
    return values


def _text(text: str, options: Options) -> bytes:
    return text.encode(options.get("encoding", "utf-8"))


def _csv(text: str, options: Options) -> bytes:
    ended = f"{text}\n" if text else ""
    return _text(ended if "ends" in options else ended.replace("\n", "\r\n"), options)


def _escaped(text: str, _: Options) -> bytes:
    return text.replace("\n", "").encode().decode("unicode_escape").encode("latin-1")


def _base64(text: str, _: Options) -> bytes:
    return base64.b64decode(text)


def _parquet(text: str, options: Options) -> bytes:
    columns, rows = typed_rows(text)
    schema = pa.schema([_arrow_field(name, kind, nullable=nullable) for name, kind, nullable in columns])
    table = pa.Table.from_arrays(
        [_array([row[at] for row in rows], kind) for at, kind in enumerate(schema.types)], schema=schema
    )
    sink = io.BytesIO()
    codec: Any = options.get("compression", "snappy")
    pq.write_table(table, sink, compression=codec, use_deprecated_int96_timestamps="times" in options)
    return sink.getvalue()


CONTENTS: Mapping[str, Callable[[str, Options], bytes]] = {
    "base64": _base64,
    "csv": _csv,
    "escaped": _escaped,
    "json": _text,
    "rows": _parquet,
    "text": _text,
}


def _arrow_field(name: str, kind: str, *, nullable: bool = True) -> pa.Field[Any]:
    return pa.field(name, _arrow_type(kind), nullable=nullable)


def _arrow_type(word: str) -> pa.DataType:
    """An Arrow type by its alias, or such as `timestamp[us,UTC]`, `decimal128(9,2)`, `binary[4]`, `list<int32>`."""
    match = _TYPE.fullmatch(word)
    if match is not None and match[1] in _PARAMETRIC:
        return _PARAMETRIC[match[1]](*match[2].split(","))
    return pa.uuid() if word == "uuid" else pa.type_for_alias(word)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array[Any]:
    """An array from JSON's values: text is cast to other types, and hexadecimal to binary."""
    if kind == pa.uuid():
        return pa.ExtensionArray.from_storage(kind, _array(values, pa.binary(16)))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.array([None if value is None else bytes.fromhex(value) for value in values], kind)
    if pa.types.is_map(kind):
        return pa.array([None if value is None else list(value.items()) for value in values], kind)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not is_text and any(isinstance(value, str) for value in values):
        return pa.array([None if value is None else str(value) for value in values], pa.string()).cast(kind)
    return pa.array(values, kind)
