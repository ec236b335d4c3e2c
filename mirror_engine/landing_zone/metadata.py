"""`_metadata.json` in every documented spelling, with a diagnostic for each fault (LZ-2)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import zip_longest
from typing import TYPE_CHECKING, cast

from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.csv_dialect import TextDialect, codec_of
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.json_reader import (
    BOOLEAN,
    NAME,
    OBJECT,
    TEXT,
    JsonFault,
    JsonObject,
    Meaning,
    PropertyReader,
    either,
    one_of,
    read_json,
    shown,
)
from mirror_engine.landing_zone.names import METADATA_FILE, TableName
from mirror_engine.landing_zone.schema import Column, folded, type_mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror_engine.landing_zone.progress import Progress

MAX_BYTES = 1024 * 1024  # of a _metadata.json; no table needs a tenth of it
WIDE_KEY = 5  # columns, from which on Fabric recommends a narrower one (LZ-2.14)
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
_DECLARED_TYPES = {**{kind: name for name, kind in TYPES.items()}, "string": "String", "time": "ITime"}
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


def _by_word(names: Mapping[str, str]) -> dict[str, str]:
    return {word: name for name, words in names.items() for word in words.split()}


# What other formats and libraries call them, for "did you mean"; without separators, in lower case
_WORDS = _by_word(
    {
        "ColumnSeparator": "delimiter separator fielddelimiter fieldseparator columndelimiter coldelimiter sep delim",
        "RowSeparator": "rowdelimiter linedelimiter lineseparator lineterminator linesep lineending recordseparator",
        "QuoteCharacter": "quote quotechar quotation textqualifier",
        "EscapeCharacter": "escape escapechar",
        "NullValue": "null nullstring nullmarker nullas nullvalues",
        "Encoding": "charset characterset codepage fileencoding encodingname",
        "FirstRowAsHeader": "header hasheader headers firstrowisheader skipheader",
        "keyColumns": "primarykey primarykeys primarykeycolumns pk key keys keycolumn keyfields uniquekey",
        "FileFormat": "format filetype",
        "FileExtension": "extension suffix",
        "SchemaDefinition": "columns schema fields columndefinitions",
        "fileDetectionStrategy": "detectionstrategy strategy",
        "isUpsertDefaultRowMarker": "upsert defaultrowmarker upsertbydefault",
        "isPartitionEnabled": "partitioned ispartitioned partitionenabled",
    }
)
_WORDS_OF_COLUMNS = _by_word(
    {
        "Name": "columnname column field",
        "DataType": "type columntype sqltype",
        "IsNullable": "nullable null isnull allownull",
    }
)
_TYPES_ELSEWHERE = _by_word(
    {
        "Int16": "smallint short byte tinyint int8",
        "Int32": "int integer int4",
        "Int64": "long bigint",
        "Single": "float real float32",
        "Double": "float64",
        "Boolean": "bool bit",
        "DateTime": "timestamp datetime2 datetimeoffset",
        "IDate": "date",
        "ITime": "time",
        "String": "text varchar nvarchar char str uuid guid decimal numeric",
        "ByteArray": "binary varbinary bytes blob",
    }
)
PROPERTIES = OPTIONS | {
    "$schema",  # for editors
    "keyColumns",
    "fileDetectionStrategy",
    "isUpsertDefaultRowMarker",
    "isPartitionEnabled",
    "FileFormat",
    "FileExtension",
    "SchemaDefinition",
    "FileFormatTypeProperties",
    "ConditionalUpdateColumn",
}


class Strategy(StrEnum):
    """How change files are detected and ordered (LZ-3)."""

    SEQUENTIAL = "SequentialFileName"
    LAST_UPDATE_TIME = "LastUpdateTimeFileDetection"


class FileFormat(StrEnum):
    """The format of change files."""

    PARQUET = "Parquet"
    CSV = "CSV"
    DELIMITED_TEXT = "DelimitedText"


@dataclass(frozen=True)
class Metadata:
    """A usable `_metadata.json` (LZ-2.7). Two equal values are one content, however spelled (LZ-2.12)."""

    key_columns: tuple[str, ...] = ()  # the unique key; empty in a keyless, insert-only table
    strategy: Strategy = Strategy.SEQUENTIAL
    upsert_default: bool = False  # whether marker-free rows are upserts
    partitioned: bool = False
    file_format: FileFormat = FileFormat.PARQUET
    extension: str = "parquet"  # without the dot, lower case
    # `SchemaDefinition.Columns` in order, types in Delta's words; empty for Parquet
    declared_columns: tuple[Column, ...] = ()
    dialect: TextDialect = field(default_factory=TextDialect)  # how delimited text is written; the defaults for Parquet
    time_columns: frozenset[str] = frozenset()  # those declared as `ITime`: strings that hold a time of day (LZ-6.7)

    @property
    def definition(self) -> tuple[Column, ...]:
        """`declared_columns` as compared by LZ-6.11: `ITime` differs from `String`."""
        return tuple(
            replace(column, type="time") if column.name in self.time_columns else column
            for column in self.declared_columns
        )

    @property
    def is_text(self) -> bool:
        """Whether its change files are delimited text."""
        return self.file_format is not FileFormat.PARQUET


def parse(content: bytes, path: str, *, strict: bool = False) -> tuple[Metadata | None, tuple[Diagnostic, ...]]:
    """The metadata in a file with its warnings; or None if it is unusable (LZ-2.6), with every error first."""
    reader = PropertyReader(path, strict)
    properties = _read_object(reader, content)
    metadata = _read_metadata(reader, properties) if properties is not None else None
    if properties is None or metadata is None or reader.errors:
        return None, (*reader.errors, *reader.notes)
    keys = {folded(key) for key in metadata.key_columns}
    is_misspelled = any(dict(note.details).get("meant") == "keyColumns" for note in reader.notes)  # said already
    if not keys and not is_misspelled and [] not in properties.values("keyColumns"):  # an empty list wants none
        reader.note("ME016")
    if len(keys) >= WIDE_KEY:
        reader.note("ME089", count=len(keys))
    for column in metadata.declared_columns:
        if not column.nullable and folded(column.name) not in keys:
            reader.note("ME059", column=column.name)
    return metadata, tuple(reader.notes)


def _read_object(reader: PropertyReader, content: bytes) -> JsonObject | None:
    if len(content) > MAX_BYTES:
        found, known = f"{len(content):,} bytes", f"at most {MAX_BYTES:,}"
        reader.reject("ME011", property="_metadata.json", found=found, known=known, help="keep to known properties")
        return None
    try:
        value = read_json(content)
    except JsonFault as fault:
        reader.reject("ME010", line=fault.line, char=fault.column, fault=fault.fault, help=fault.help)
        return None
    if not isinstance(value, JsonObject):
        found, help = shown(value), "write one object in braces"
        reader.reject("ME011", property="_metadata.json", found=found, known="one JSON object", help=help)
        return None
    return value


def _read_metadata(reader: PropertyReader, properties: JsonObject) -> Metadata:
    reader.note_unknown(properties, PROPERTIES, words=_WORDS)
    if properties.values("ConditionalUpdateColumn"):
        reader.note("ME014")
    declared_extension = reader.read("FileExtension", _EXTENSION, "", properties)
    known_format = reader.read("FileFormat", _FORMAT, None, properties)
    file_format = known_format or FileFormat.PARQUET
    if not properties.values("FileFormat") and _looks_like_text(properties, declared_extension):
        file_format = FileFormat.CSV
        reader.note("ME083", extension=declared_extension or "csv")
    is_parquet = file_format is FileFormat.PARQUET
    is_misspelled = known_format is None and properties.values("FileFormat")
    if is_parquet and not is_misspelled:  # properties of text have no effect (LZ-2.7)
        if properties.values("SchemaDefinition"):
            reader.note("ME015")
        for name in sorted({*OPTIONS, "FileFormatTypeProperties"}):
            if properties.values(name):
                reader.note("ME012", property=f"{name} (of text, in a Parquet folder)", meant="", help="remove it")
    if file_format is FileFormat.DELIMITED_TEXT and not properties.values("FileExtension"):
        known, help = "the extension of the change files", "add it, such as `csv`"
        reader.reject("ME056", option="FileExtension", found="absent", known=known, help=help)
    extension = "csv" if file_format is FileFormat.CSV else "parquet"
    columns, times = ((), frozenset[str]()) if is_parquet else _read_columns(reader, properties)
    return Metadata(
        key_columns=reader.read("keyColumns", _KEY_COLUMNS, (), properties),
        strategy=reader.read("fileDetectionStrategy", _STRATEGY, Strategy.SEQUENTIAL, properties),
        upsert_default=reader.read("isUpsertDefaultRowMarker", BOOLEAN, False, properties),
        partitioned=reader.read("isPartitionEnabled", BOOLEAN, False, properties),
        file_format=file_format,
        extension=declared_extension or extension,
        declared_columns=columns,
        dialect=TextDialect() if is_parquet else _read_dialect(reader, properties),
        time_columns=times,
    )


def _looks_like_text(properties: JsonObject, extension: str) -> bool:
    """Whether a folder without `FileFormat` contains text (LZ-2.13)."""
    parts = {*extension.split(".")}
    is_declared = bool(properties.values("SchemaDefinition")) or not parts.isdisjoint({"csv", "tsv", "txt"})
    return is_declared and parts.isdisjoint({"parquet", "pq"})


def _key_columns(value: object) -> tuple[str, ...] | None:
    keys: dict[str, str] = {}
    for key in value if isinstance(value, list) and value != [""] else ():
        if not isinstance(key, str) or not key or folded(key) == folded(MARKER_COLUMN):
            return None
        keys.setdefault(folded(key), key)
    return tuple(keys.values()) if isinstance(value, list) else None


def _extension(value: object) -> str | None:
    extension = value.removeprefix(".").casefold() if isinstance(value, str) else ""
    return None if "/" in extension or extension != extension.strip() else extension or None


def _read_dialect(reader: PropertyReader, properties: JsonObject) -> TextDialect:
    """The text options, nested in `FileFormatTypeProperties` or flat next to it (LZ-2.7)."""
    nested = reader.read("FileFormatTypeProperties", OBJECT, JsonObject(), properties)
    reader.note_unknown(nested, OPTIONS, "FileFormatTypeProperties.", _WORDS, PROPERTIES)

    def option(name: str, meaning: Meaning[str], default: str) -> str:
        return reader.read(name, meaning, default, nested, properties, code="ME056")

    default = TextDialect()
    reader.read("FirstRowAsHeader", _HEADER, True, nested, properties, code="ME056")
    return TextDialect(
        option("RowSeparator", _ROW_SEPARATOR, default.row_separator),
        option("ColumnSeparator", _COLUMN_SEPARATOR, default.column_separator),
        option("QuoteCharacter", _QUOTE, default.quote),
        option("EscapeCharacter", _ESCAPE, default.escape),
        option("NullValue", TEXT, default.null_value),
        option("Encoding", _ENCODING, default.encoding),
    )


def _read_columns(reader: PropertyReader, properties: JsonObject) -> tuple[tuple[Column, ...], frozenset[str]]:
    """The declared columns without the row marker (LZ-6.6), and the names of those with times of day.

    A repeated name is an error, ignoring case. ME056 if none are declared (LZ-6.1).
    """
    definition = reader.read("SchemaDefinition", OBJECT, JsonObject(), properties)
    reader.note_unknown(definition, {"Columns"}, "SchemaDefinition.", above=PROPERTIES)
    entries = reader.read("Columns", _OBJECTS, [], definition, called="SchemaDefinition.Columns")
    if not entries and not reader.errors:
        found = "empty" if definition.names else "absent"
        known, help = "the columns of the text", "list them in `SchemaDefinition.Columns`"
        reader.reject("ME056", option="SchemaDefinition", found=found, known=known, help=help)
    columns: dict[str, Column] = {}
    times = set()
    for number, entry in enumerate(entries, 1):
        column = _read_column(reader, entry, number)
        if column is None or folded(column.name) == folded(MARKER_COLUMN):
            continue
        if any(isinstance(kind, str) and kind.casefold() == "itime" for kind in entry.values("DataType")):
            times.add(column.name)
        if (other := columns.setdefault(folded(column.name), column)) is not column:
            known, help = "different names, ignoring case", "remove or rename one of the two"
            reader.reject("ME011", property=f"column {other.name}", found="declared twice", known=known, help=help)
    return tuple(columns.values()), frozenset(times)


def _read_column(reader: PropertyReader, entry: JsonObject, number: int) -> Column | None:
    reader.note_unknown(entry, {"Name", "DataType", "IsNullable"}, "SchemaDefinition.Columns.", _WORDS_OF_COLUMNS)
    if not entry.values("Name"):
        reader.reject("ME011", property=f"Name of column {number}", found="absent", known="a name", help="add it")
        return None
    name = reader.read("Name", NAME, "", entry, called=f"Name of column {number}")
    if folded(name) == folded(MARKER_COLUMN):
        return Column(name, "integer")
    if not entry.values("DataType"):
        called, known = f"DataType of column {name}", either(TYPES)
        reader.reject("ME011", property=called, found="absent", known=known, help="add it")
    kind = reader.read("DataType", _TYPE, "string", entry, called=f"DataType of column {name}")
    nullable = reader.read("IsNullable", BOOLEAN, False, entry, called=f"IsNullable of column {name}")
    return Column(name, kind, nullable) if name else None


def _objects(value: object) -> list[JsonObject] | None:
    is_list = isinstance(value, list) and all(isinstance(entry, JsonObject) for entry in value)
    return cast("list[JsonObject]", value) if is_list else None


_KEY_COLUMNS = Meaning("an array of column names", _key_columns, help='write the names in brackets: ["Id"]')
_STRATEGY = one_of({strategy.value: strategy for strategy in Strategy})
_FORMAT: Meaning[FileFormat | None] = one_of({known.value: known for known in FileFormat})
_EXTENSION = Meaning("a file extension", _extension)
_OBJECTS = Meaning("an array of objects", _objects, help='write `[{"Name": "Id", "DataType": "Int64"}]`')
_TYPE = one_of(TYPES, words=_TYPES_ELSEWHERE)
_HEADER = Meaning(
    "true", lambda value: BOOLEAN.of(value) or None, help="start each file with a header line, and set it"
)
_ENCODING = Meaning("UTF-8 or another .NET name", lambda value: codec_of(value) if isinstance(value, str) else None)
# Publishers also write the escapes of these characters instead of the characters; nothing else could be meant.
_ROW_SEPARATOR = one_of(
    {spelling: end for end in ("\r\n", "\n", "\r") for spelling in (end, repr(end)[1:-1])}, "\\r\\n, \\n or \\r"
)
_COLUMN_SEPARATOR = one_of({",": ",", ";": ";", "|": "|", "\t": "\t", "\\t": "\t", "tab": "\t"}, ", ; | or tab")
_QUOTE = one_of({'"': '"', "'": "'", "": ""}, "\" ' or empty")
_ESCAPE = one_of({"\\": "\\", "/": "/", '"': '"', "": ""}, '\\ / " or empty')


def forbidden_change(table: TableName, progress: Progress | None, metadata: Metadata) -> Diagnostic | None:
    """The first change that halts the table, or None."""
    if progress is None or not progress.has_table:
        return None
    path = f"{table.folder}/{METADATA_FILE}"
    keys = progress.key_columns or ()  # their order and repeats do not count; a keyless table may get some (LZ-2.9)
    if keys and {*map(folded, keys)} != {*map(folded, metadata.key_columns)}:
        return diagnose("ME017", path, before=", ".join(keys), after=", ".join(metadata.key_columns) or "none")
    before, after = progress.declared_columns, metadata.definition
    for old, new in zip_longest(before, after) if before and after else ():
        if not old or not new or old.name != new.name:
            return diagnose("ME063", path, column=(old or new).name)
        if old != new:
            return diagnose("ME044", path, column=new.name, **type_mismatch(new, old, _DECLARED_TYPES), hint="")
    return None


@dataclass(frozen=True)
class PartnerEvents:
    """The publisher's description of itself; free text, `""` if absent."""

    partner_name: str = ""
    source_type: str = ""
    source_version: str = ""


def parse_partner_events(content: bytes) -> PartnerEvents | None:
    """The file's content; None if it is not a JSON object (ME006)."""
    if len(content) > MAX_BYTES:
        return None
    try:
        value = read_json(content)
    except JsonFault:
        return None
    if not isinstance(value, JsonObject):
        return None
    source = next((info for info in value.values("sourceInfo") if isinstance(info, JsonObject)), JsonObject())
    texts = ((value, "partnerName"), (source, "sourceType"), (source, "sourceVersion"))
    return PartnerEvents(*(next((t for t in owner.values(name) if isinstance(t, str)), "") for owner, name in texts))
