"""What `_metadata.json` says about delimited text: its options and its columns (LZ-6.1, LZ-6.2, LZ-6.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.column_types import Column, folded
from mirror_engine.landing_zone.delimited_text import TextDialect
from mirror_engine.landing_zone.json_faults import JsonObject
from mirror_engine.landing_zone.property_reader import Unreadable, boolean, by_name, either, json_object, name, text
from mirror_engine.landing_zone.text_encoding import codec_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror_engine.landing_zone.property_reader import PropertyReader

TYPES = {
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
_TIME = "ITime"
OPTIONS = frozenset(
    {
        "FirstRowAsHeader",
        "RowSeparator",
        "ColumnSeparator",
        "QuoteCharacter",
        "EscapeCharacter",
        "NullValue",
        "Encoding",
    }
)
_COLUMN_PROPERTIES = {"Name", "DataType", "IsNullable"}
# Publishers also write the escapes of these characters instead of the characters; nothing else could be meant.
_ROW_SEPARATORS = {spelling: end for end in ("\r\n", "\n", "\r") for spelling in (end, repr(end)[1:-1])}
_COLUMN_SEPARATORS = {",": ",", ";": ";", "|": "|", "\t": "\t", "\\t": "\t", "tab": "\t"}
_QUOTES = {'"': '"', "'": "'", "": ""}
_ESCAPES = {"\\": "\\", "/": "/", '"': '"', "": ""}


def read_dialect(reader: PropertyReader, given: JsonObject) -> TextDialect:
    """The text options, nested in `FileFormatTypeProperties` or flat beside it (LZ-2.7)."""
    nested = reader.property(given, "FileFormatTypeProperties", json_object, JsonObject())
    note_unknown(reader, nested, OPTIONS, "FileFormatTypeProperties.")
    places = (nested, given)
    default = TextDialect()
    reader.option(places, "FirstRowAsHeader", _header, True)
    return TextDialect(
        reader.option(places, "RowSeparator", _choice(_ROW_SEPARATORS, "\\r\\n, \\n or \\r"), default.row_separator),
        reader.option(places, "ColumnSeparator", _choice(_COLUMN_SEPARATORS, ", ; | or tab"), default.column_separator),
        reader.option(places, "QuoteCharacter", _choice(_QUOTES, "\" ' or empty"), default.quote),
        reader.option(places, "EscapeCharacter", _choice(_ESCAPES, '\\ / " or empty'), default.escape),
        reader.option(places, "NullValue", text, default.null_value),
        reader.option(places, "Encoding", _encoding, default.encoding),
    )


def read_columns(reader: PropertyReader, given: JsonObject) -> tuple[tuple[Column, ...], frozenset[str]]:
    """The declared columns, the row marker not among them (LZ-6.6), and the names of those that hold times of day.

    A repeated name is refused, ignoring case. ME056 where none are declared (LZ-6.1).
    """
    definition = reader.property(given, "SchemaDefinition", json_object, JsonObject())
    note_unknown(reader, definition, {"Columns"}, "SchemaDefinition.")
    entries: list[JsonObject] = reader.property(definition, "Columns", _objects, [], called="SchemaDefinition.Columns")
    if not entries and not reader.errors:
        found = "empty" if definition.names else "absent"
        reader.refuse("ME056", option="SchemaDefinition", found=found, known="the columns of the text")
    columns: dict[str, Column] = {}
    times = set()
    for number, entry in enumerate(entries, 1):
        column = _read_column(reader, entry, number)
        if column is None or folded(column.name) == folded(MARKER_COLUMN):
            continue
        if _TIME.casefold() in map(_lower, entry.values("DataType")):
            times.add(column.name)
        if (other := columns.setdefault(folded(column.name), column)) is not column:
            known = "different names, ignoring case"
            reader.refuse("ME011", property=f"column {other.name}", found="declared twice", known=known)
    return tuple(columns.values()), frozenset(times)


def note_unknown(reader: PropertyReader, given: JsonObject, known: set[str] | frozenset[str], place: str = "") -> None:
    """Warn of properties the protocol does not know (LZ-2.8)."""
    folded = {one.casefold() for one in known}
    for spelled in given.names:
        if spelled.casefold() not in folded:
            reader.note("ME012", property=f"{place}{spelled}")


def _read_column(reader: PropertyReader, entry: JsonObject, number: int) -> Column | None:
    note_unknown(reader, entry, _COLUMN_PROPERTIES, "SchemaDefinition.Columns.")
    if not entry.values("Name"):
        reader.refuse("ME011", property=f"Name of column {number}", found="absent", known="a name")
        return None
    called = reader.property(entry, "Name", name, "", called=f"Name of column {number}")
    if folded(called) == folded(MARKER_COLUMN):
        return Column(called, "integer")
    if not entry.values("DataType"):
        reader.refuse("ME011", property=f"DataType of column {called}", found="absent", known=either(TYPES))
    kind = reader.property(entry, "DataType", by_name(TYPES), "string", called=f"DataType of column {called}")
    nullable = reader.property(entry, "IsNullable", boolean, False, called=f"IsNullable of column {called}")
    return Column(called, kind, nullable) if called else None


def _lower(value: object) -> str:
    return value.casefold() if isinstance(value, str) else ""


def _choice(known: Mapping[str, str], allowed: str) -> Callable[[object], str]:
    def meaning(value: object) -> str:
        if isinstance(value, str) and value.casefold() in known:
            return known[value.casefold()]
        raise Unreadable(allowed)

    return meaning


def _header(value: object) -> bool:
    if boolean(value):
        return True
    raise Unreadable("true")


def _encoding(value: object) -> str:
    if isinstance(value, str) and (codec := codec_of(value)) is not None:
        return codec
    raise Unreadable("UTF-8 or another .NET name")


def _objects(value: object) -> list[JsonObject]:
    if isinstance(value, list) and all(isinstance(entry, JsonObject) for entry in value):
        return value
    raise Unreadable("an array of objects")
