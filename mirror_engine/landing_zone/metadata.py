"""`_metadata.json` in every documented spelling, with a diagnostic for each fault (LZ-2)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import zip_longest
from typing import TYPE_CHECKING

from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.csv_dialect import OPTIONS, TextDialect, note_unknown, read_columns, read_dialect
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.json_reader import (
    JsonFault,
    JsonObject,
    PropertyReader,
    Unreadable,
    boolean,
    one_of,
    read_json,
    shown,
)
from mirror_engine.landing_zone.names import METADATA_FILE, TableName
from mirror_engine.landing_zone.schema import folded, type_mismatch

if TYPE_CHECKING:
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.landing_zone.schema import Column

MAX_BYTES = 1024 * 1024  # of a _metadata.json; no table needs a tenth of it
WIDE_KEY = 5  # columns, from which on Fabric recommends a narrower one (LZ-2.14)
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


class Strategy(str, Enum):
    """How change files are detected and ordered (LZ-3)."""

    SEQUENTIAL = "SequentialFileName"
    LAST_UPDATE_TIME = "LastUpdateTimeFileDetection"


class FileFormat(str, Enum):
    """The format of change files."""

    PARQUET = "Parquet"
    CSV = "CSV"
    DELIMITED_TEXT = "DelimitedText"


@dataclass(frozen=True)
class Metadata:
    """A usable `_metadata.json` (LZ-2.7). Two equal values are one content, however spelled (LZ-2.12).

    Attributes:
        key_columns: the unique key; empty in a keyless, insert-only table.
        strategy: how change files are detected.
        upsert_default: whether marker-free rows are upserts.
        partitioned: whether change files are in Hive folders.
        file_format: theirs.
        extension: without the dot, lower case.
        declared_columns: `SchemaDefinition.Columns` in order, types in Delta's words; empty for Parquet.
        dialect: how delimited text is written; the defaults for Parquet.
        time_columns: those declared as `ITime`: strings that hold a time of day (LZ-6.7).
    """

    key_columns: tuple[str, ...] = ()
    strategy: Strategy = Strategy.SEQUENTIAL
    upsert_default: bool = False
    partitioned: bool = False
    file_format: FileFormat = FileFormat.PARQUET
    extension: str = "parquet"
    declared_columns: tuple[Column, ...] = ()
    dialect: TextDialect = field(default_factory=TextDialect)
    time_columns: frozenset[str] = frozenset()

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
    """Parse a `_metadata.json` (LZ-2, LZ-6.1, LZ-6.2).

    Args:
        content: the file's bytes.
        path: of the file, for messages.
        strict: whether severities are those of `strict`.

    Returns:
        The metadata with its warnings; or None if it is unusable (LZ-2.6), with every error first.
    """
    reader = PropertyReader(path, strict)
    properties = _read_object(reader, content)
    metadata = _read_metadata(reader, properties) if properties is not None else None
    if properties is None or metadata is None or reader.errors:
        return None, (*reader.errors, *reader.notes)
    keys = {folded(key) for key in metadata.key_columns}
    if not keys and [] not in properties.values("keyColumns"):  # an empty list says that none is wanted
        reader.note("ME016")
    if len(keys) >= WIDE_KEY:
        reader.note("ME089", count=len(keys))
    for column in metadata.declared_columns:
        if not column.nullable and folded(column.name) not in keys:
            reader.note("ME059", column=column.name)
    return metadata, tuple(reader.notes)


def _read_object(reader: PropertyReader, content: bytes) -> JsonObject | None:
    if len(content) > MAX_BYTES:
        known = f"at most {MAX_BYTES} bytes"
        reader.reject("ME011", property="_metadata.json", found="larger", known=known)
        return None
    try:
        value = read_json(content)
    except JsonFault as fault:
        reader.reject("ME010", line=fault.line, char=fault.column, fault=fault.fault, help=fault.help)
        return None
    if not isinstance(value, JsonObject):
        reader.reject("ME011", property="_metadata.json", found=shown(value), known="one JSON object")
        return None
    return value


def _read_metadata(reader: PropertyReader, properties: JsonObject) -> Metadata:
    no_keys: tuple[str, ...] = ()
    note_unknown(reader, properties, PROPERTIES)
    if properties.values("ConditionalUpdateColumn"):
        reader.note("ME014")
    declared_extension = reader.property(properties, "FileExtension", _extension, "")
    known_format = reader.property(properties, "FileFormat", one_of(FileFormat), None)
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
        reader.reject("ME056", option="FileExtension", found="absent", known="the extension of the change files")
    extension = "csv" if file_format is FileFormat.CSV else "parquet"
    columns, times = ((), frozenset[str]()) if is_parquet else read_columns(reader, properties)
    return Metadata(
        key_columns=reader.property(properties, "keyColumns", _key_columns, no_keys),
        strategy=reader.property(properties, "fileDetectionStrategy", one_of(Strategy), Strategy.SEQUENTIAL),
        upsert_default=reader.property(properties, "isUpsertDefaultRowMarker", boolean, False),
        partitioned=reader.property(properties, "isPartitionEnabled", boolean, False),
        file_format=file_format,
        extension=declared_extension or extension,
        declared_columns=columns,
        dialect=TextDialect() if is_parquet else read_dialect(reader, properties),
        time_columns=times,
    )


def _looks_like_text(properties: JsonObject, extension: str) -> bool:
    """Whether a folder without `FileFormat` is one of text (LZ-2.13)."""
    parts = {*extension.split(".")}
    is_declared = bool(properties.values("SchemaDefinition")) or not parts.isdisjoint({"csv", "tsv", "txt"})
    return is_declared and parts.isdisjoint({"parquet", "pq"})


def _key_columns(value: object) -> tuple[str, ...]:
    known = "an array of column names"
    if not isinstance(value, list):
        raise Unreadable(known)
    if value == [""]:
        return ()
    keys: dict[str, str] = {}
    for key in value:
        if not isinstance(key, str) or not key or folded(key) == folded(MARKER_COLUMN):
            raise Unreadable(known)
        keys.setdefault(folded(key), key)
    return tuple(keys.values())


def _extension(value: object) -> str:
    extension = value.removeprefix(".").casefold() if isinstance(value, str) else ""
    if not extension or "/" in extension or extension != extension.strip():
        raise Unreadable("a file extension")
    return extension


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
            return diagnose("ME044", path, column=new.name, reason=type_mismatch(new, old))
    return None


@dataclass(frozen=True)
class PartnerEvents:
    """The publisher's description of itself; free text, `""` if absent."""

    partner_name: str = ""
    source_type: str = ""
    source_version: str = ""

    def to_json(self) -> dict[str, str]:
        """The same as plain values."""
        return {"name": self.partner_name, "source_type": self.source_type, "source_version": self.source_version}


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
