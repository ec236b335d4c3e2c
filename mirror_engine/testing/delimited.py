"""Writes rows as delimited text in a dialect that every reader of the protocol understands (protocol chapter 6)."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

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


@dataclass(frozen=True)
class TextStyle:
    """How to write it; the defaults are the protocol's (LZ-6.2)."""

    row_separator: str = "\r\n"
    column_separator: str = ","
    quote: str = '"'
    escape: str = "\\"
    null_value: str = ""
    encoding: str = "utf-8"

    @classmethod
    def from_options(cls, options: Mapping[str, str | bool]) -> TextStyle:
        """The style that `FileFormatTypeProperties` asks for."""
        named = {option: str(options[name]) for name, option in OPTIONS.items() if name in options}
        return cls(**named)


def encoded_rows(columns: Sequence[str], rows: Iterable[Mapping[str, object]], style: TextStyle) -> bytes:
    """A header and rows; NULL stands unquoted, empty text quoted (LZ-6.8)."""
    lines = [style.column_separator.join(_text_field(name, style) for name in columns)]
    lines += [style.column_separator.join(_field(row.get(name), style) for name in columns) for row in rows]
    return "".join(line + style.row_separator for line in lines).encode(style.encoding)


def _field(value: object, style: TextStyle) -> str:
    match value:
        case None:
            return style.null_value
        case bool():
            return "true" if value else "false"
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return value.isoformat()
        case str():
            return _text_field(value, style)
        case _:
            return str(value)


def _text_field(value: str, style: TextStyle) -> str:
    special = (style.column_separator, "\r", "\n", style.quote or "\r", style.escape or "\r")
    plain = value not in ("", style.null_value) and value == value.strip() and not any(c in value for c in special)
    if plain or not style.quote:
        return value
    if style.escape and style.escape != style.quote:
        value = value.replace(style.escape, style.escape * 2)
    return style.quote + value.replace(style.quote, style.quote * 2) + style.quote
