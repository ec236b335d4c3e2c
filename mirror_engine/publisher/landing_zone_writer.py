"""Lands change files the way a good publisher does: in the protocol's words, under a temporary name, then renamed."""

from __future__ import annotations

import base64
import json
import os
import shutil
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq

from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.landing_zone.csv_dialect import TextDialect
from mirror_engine.landing_zone.detection import ChangeFileName
from mirror_engine.landing_zone.names import METADATA_FILE, PARTNER_EVENTS_FILE, SCHEMA_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from typing_extensions import Unpack

    Row = Mapping[str, Any]
    Codec = Literal["gzip", "brotli", "lz4", "zstd", "snappy", "none"]
    from collections.abc import Mapping

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


class Where(TypedDict, total=False):
    """Where and when a change file lands.

    Attributes:
        name: its name; without one, the partition's next number.
        partition: the Hive folder from the table folder, `day=1/site=b` (LZ-3.7).
        modified_ns: LastModified in nanoseconds since 1970; without one, now.
    """

    name: str
    partition: str
    modified_ns: int


class Options(TypedDict, total=False):
    """What `_metadata.json` says besides the keys (LZ-2.7); `extra` goes in as it stands."""

    strategy: str
    upsert_default: bool
    partitioned: bool | str
    file_format: str
    extension: str
    columns: Sequence[Mapping[str, object]]
    text_options: Mapping[str, str | bool]
    extra: Mapping[str, object]


def arrow_rows(rows: Iterable[Row], types: Mapping[str, Any] | None = None) -> pa.Table:
    """Rows as an Arrow table.

    Args:
        rows: mappings by column name; a column a row does not name is NULL in it.
        types: the columns in order with their Arrow types; None infers both from the rows.
    """
    rows = list(rows)
    names = list(types) if types is not None else list(dict.fromkeys(name for row in rows for name in row))
    arrays = [pa.array([row.get(name) for row in rows], type=(types or {}).get(name)) for name in names]
    return pa.Table.from_arrays(arrays, names=names)


class Publisher:
    """Writes the landing zone of one mirrored database, `root/Files/LandingZone` (LZ-1.1)."""

    def __init__(self, root: str | os.PathLike[str], *, zone: str = "Files/LandingZone") -> None:
        self.root = Path(root)
        self.zone = self.root / zone
        self.zone.mkdir(parents=True, exist_ok=True)

    def table(
        self, name: str, *, keys: Sequence[str] = (), types: Mapping[str, Any] | None = None, **options: Unpack[Options]
    ) -> TableFolder:
        """A table folder with its `_metadata.json`.

        Args:
            name: `Sales.Orders` for `Sales.schema/Orders`, `Orders` for a folder at the zone's top.
            keys: the key columns; none makes it insert-only.
            types: Arrow types of the columns in order, for rows given as mappings.
            options: further properties of `_metadata.json`.
        """
        schema, dot, table = name.partition(".")
        folder = f"{schema}{SCHEMA_SUFFIX}/{table}" if dot else name
        made = self.folder(folder, types=types)
        made.describe(keys=keys, **options)
        return made

    def folder(self, path: str, *, types: Mapping[str, Any] | None = None, extension: str = "parquet") -> TableFolder:
        """A table folder, by its path from the zone's top, without metadata: unarmed (LZ-2.3)."""
        return TableFolder(self, path, types, extension)

    def partner_events(self, **properties: object) -> None:
        """Say who publishes: `_partnerEvents.json` at the zone's top (LZ-1.8)."""
        self.put(PARTNER_EVENTS_FILE, json.dumps(properties, indent=2).encode())

    def put(self, path: str, content: bytes, *, modified_ns: int | None = None) -> None:
        """Write a file whole: under a temporary `_` name, then renamed into place (LZ-3.10).

        Args:
            path: from the zone's top.
            content: its bytes.
            modified_ns: LastModified in nanoseconds since 1970; None for now.
        """
        target = self.zone / path
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"_{target.name}.uploading")
        temporary.write_bytes(content)
        if modified_ns is not None:
            os.utime(temporary, ns=(modified_ns, modified_ns))
        temporary.replace(target)

    def write_in_place(self, path: str, content: bytes) -> None:
        """Write under the final name, as careless publishers do: a file already there stays the same file."""
        with (self.zone / path).open("r+b" if (self.zone / path).exists() else "wb") as file:
            file.truncate()
            file.write(content)

    def remove(self, path: str) -> None:
        """Delete a file, or a folder with all in it; absent is no error."""
        target = self.zone / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)


class TableFolder:
    """One table folder and the next number of each of its partitions."""

    def __init__(self, publisher: Publisher, path: str, types: Mapping[str, Any] | None, extension: str) -> None:
        self.publisher = publisher
        self.path = path
        self.types = types
        self.extension = extension
        self.dialect = TextDialect()
        self.is_text = False
        self._numbers: dict[str, int] = {}

    def describe(self, *, keys: Sequence[str] = (), **options: Unpack[Options]) -> None:
        """Land `_metadata.json` (LZ-2.7): `keys` are its `keyColumns`."""
        self.is_text = options.get("file_format", "Parquet").casefold() != "parquet"
        self.extension = options.get("extension", "csv" if self.is_text else "parquet").removeprefix(".")
        self.dialect = dialect_of(options.get("text_options", {}))
        self.land_metadata(json.dumps({"keyColumns": list(keys), **_properties(options)}, indent=2).encode())

    def land_metadata(self, content: bytes) -> None:
        """Land any bytes as `_metadata.json`."""
        self.put(METADATA_FILE, content)

    def insert(self, *rows: Row, **where: Unpack[Where]) -> str:
        """Land one file of inserts, marker 0."""
        return self.change(*((RowMarker.INSERT, row) for row in rows), **where)

    def update(self, *rows: Row, **where: Unpack[Where]) -> str:
        """Land one file of updates, marker 1: full rows."""
        return self.change(*((RowMarker.UPDATE, row) for row in rows), **where)

    def delete(self, *rows: Row, **where: Unpack[Where]) -> str:
        """Land one file of deletes, marker 2: the keys are enough."""
        return self.change(*((RowMarker.DELETE, row) for row in rows), **where)

    def upsert(self, *rows: Row, **where: Unpack[Where]) -> str:
        """Land one file of upserts, marker 4: full rows."""
        return self.change(*((RowMarker.UPSERT, row) for row in rows), **where)

    def change(self, *changes: tuple[int, Row], **where: Unpack[Where]) -> str:
        """Land one file of changes in order, `__rowMarker__` last (LZ-4.10).

        Args:
            changes: row marker and row.
            where: name, partition and time, if not the next number and now.
        """
        types = None
        if self.types is not None:
            types = {**self.types, MARKER_COLUMN: pa.int32()}
        return self.land_rows([{**row, MARKER_COLUMN: int(marker)} for marker, row in changes], types=types, **where)

    def load(self, *rows: Row, **where: Unpack[Where]) -> str:
        """Land one marker-free file, as of an initial load (LZ-4.13)."""
        return self.land_rows(rows, types=self.types, **where)

    def land_rows(self, rows: Iterable[Row], *, types: Mapping[str, Any] | None = None, **where: Unpack[Where]) -> str:
        """Land rows in the folder's format: `types` names columns and Arrow types, as `arrow_rows` takes them."""
        table = arrow_rows(rows, types)
        if self.is_text:
            return self.land(encoded_rows(table.column_names, table.to_pylist(), self.dialect), **where)
        return self.land_parquet(table, **where)

    def land_parquet(self, table: pa.Table, *, compression: Codec = "snappy", **where: Unpack[Where]) -> str:
        """Land an Arrow table as it is; `compression` is one of Parquet's codecs, or `none`."""
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer, compression=compression)
        return self.land(buffer.getvalue().to_pybytes(), **where)

    def land_csv(self, text: str, *, encoding: str = "utf-8", **where: Unpack[Where]) -> str:
        """Land delimited text as it is."""
        return self.land(text.encode(encoding), **where)

    def land(self, content: bytes, **where: Unpack[Where]) -> str:
        """Land any bytes as a change file; returns its path from the zone's top."""
        partition = where.get("partition", "")
        file = where["name"] if "name" in where else self.next_name(partition)
        return self.put(f"{partition}/{file}" if partition else file, content, modified_ns=where.get("modified_ns"))

    def next_name(self, partition: str = "") -> str:
        """Take the next number of a partition."""
        self._numbers[partition] = number = self._numbers.get(partition, 0) + 1
        return str(ChangeFileName(number, self.extension))

    def skip(self, count: int = 1, partition: str = "") -> None:
        """Leave out numbers: a gap (LZ-3.3)."""
        self._numbers[partition] = self._numbers.get(partition, 0) + count

    def put(self, path: str, content: bytes, *, modified_ns: int | None = None) -> str:
        """Write any file by its path from the table folder; returns its path from the zone's top."""
        whole = f"{self.path}/{path}"
        self.publisher.put(whole, content, modified_ns=modified_ns)
        return whole

    def remove(self, path: str) -> None:
        """Delete a file or folder by its path from the table folder."""
        self.publisher.remove(f"{self.path}/{path}")

    def drop(self) -> None:
        """Delete the table folder: the table goes, and numbers begin again (LZ-7.2)."""
        self.publisher.remove(self.path)
        self._numbers.clear()


def _properties(options: Options) -> dict[str, object]:
    spelled: dict[str, object] = {
        "fileDetectionStrategy": options.get("strategy"),
        "isUpsertDefaultRowMarker": options.get("upsert_default"),
        "isPartitionEnabled": options.get("partitioned"),
        "FileFormat": options.get("file_format"),
        "FileExtension": options.get("extension"),
        "SchemaDefinition": {"Columns": list(options["columns"])} if "columns" in options else None,
        "FileFormatTypeProperties": options.get("text_options"),
    }
    return {name: value for name, value in spelled.items() if value is not None} | dict(options.get("extra", {}))
