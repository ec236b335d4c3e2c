"""Writes rows as delimited text in a dialect that every reader of the protocol understands (protocol chapter 6)."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import TYPE_CHECKING

from mirror_engine.landing_zone.delimited_text import TextDialect

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

OPTIONS = {
    "RowSeparator": "row_separator",
    "ColumnSeparator": "column_separator",
    "QuoteCharacter": "quote",
    "EscapeCharacter": "escape",
    "NullValue": "null_value",
    "Encoding": "encoding",
}


def dialect_of(options: Mapping[str, str | bool]) -> TextDialect:
    """The dialect that `FileFormatTypeProperties` asks for."""
    return TextDialect(**{field: str(options[name]) for name, field in OPTIONS.items() if name in options})


def encoded_rows(columns: Sequence[str], rows: Iterable[Mapping[str, object]], dialect: TextDialect) -> bytes:
    """A header and rows; NULL stands unquoted, empty text quoted (LZ-6.8)."""
    lines = [dialect.column_separator.join(_text_field(name, dialect) for name in columns)]
    lines += [dialect.column_separator.join(_field(row.get(name), dialect) for name in columns) for row in rows]
    return "".join(line + dialect.row_separator for line in lines).encode(dialect.encoding)


def _field(value: object, dialect: TextDialect) -> str:
    match value:
        case None:
            return dialect.null_value
        case bool():
            return "true" if value else "false"
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return value.isoformat()
        case str():
            return _text_field(value, dialect)
        case _:
            return str(value)


def _text_field(value: str, dialect: TextDialect) -> str:
    special = (dialect.column_separator, "\r", "\n", dialect.quote or "\r", dialect.escape or "\r")
    plain = value not in ("", dialect.null_value) and value == value.strip() and not any(c in value for c in special)
    if plain or not dialect.quote:
        return value
    if dialect.escape and dialect.escape != dialect.quote:
        value = value.replace(dialect.escape, dialect.escape * 2)
    return dialect.quote + value.replace(dialect.quote, dialect.quote * 2) + dialect.quote
