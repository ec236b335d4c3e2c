"""Write a landing zone as a correct publisher does: change files under a temporary name, then renamed."""

from __future__ import annotations

import json
import os
import shutil
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import pyarrow as pa
import pyarrow.parquet as pq

from mirror_engine.display import plain
from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.landing_zone.csv_dialect import TextDialect
from mirror_engine.landing_zone.detection import DIGITS, numbered_name, sequence_of
from mirror_engine.landing_zone.metadata import parse
from mirror_engine.landing_zone.names import (
    METADATA_FILE,
    PARTNER_EVENTS_FILE,
    PROCESSED_FOLDER,
    READY_TO_DELETE_FOLDER,
    SCHEMA_SUFFIX,
)
from mirror_engine.storage.store_url import local_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    Row = Mapping[str, Any]
    Codec = Literal["gzip", "brotli", "lz4", "zstd", "snappy", "none"]

_PROPERTIES = {
    "strategy": "fileDetectionStrategy",
    "upsert_default": "isUpsertDefaultRowMarker",
    "partitioned": "isPartitionEnabled",
    "file_format": "FileFormat",
    "extension": "FileExtension",
    "columns": "SchemaDefinition",
    "text_options": "FileFormatTypeProperties",
}


class LandOptions(TypedDict, total=False):
    """Where and when a change file lands."""

    name: str  # by default the partition's next number
    partition: str  # the Hive folder from the table folder, `day=1/site=b` (LZ-3.7)
    modified_ns: int  # LastModified in nanoseconds since 1970; by default now


class TableOptions(TypedDict, total=False):
    """Properties of `_metadata.json` besides the keys (LZ-2.7); `extra` is added unchanged."""

    strategy: str
    upsert_default: bool
    partitioned: bool | str
    file_format: str
    extension: str
    columns: Sequence[Mapping[str, object]]
    text_options: Mapping[str, str | bool]
    extra: Mapping[str, object]


def arrow_rows(rows: Iterable[Row], types: Mapping[str, Any] | None = None) -> pa.Table:
    """Rows as an Arrow table; a column that a row does not name is NULL in it, and no `types` are inferred ones."""
    rows = list(rows)
    names = list(types) if types is not None else list(dict.fromkeys(name for row in rows for name in row))
    arrays = [pa.array([row.get(name) for row in rows], type=(types or {}).get(name)) for name in names]
    return pa.Table.from_arrays(arrays, names=names)


class LandingZoneWriter:
    """Writer of one mirrored database's landing zone (LZ-1.1), which may be used as the zone's path itself.

    Raises:
        UsageError: `root` is a URL.
    """

    def __init__(self, root: str | os.PathLike[str], *, zone: str = "Files/LandingZone") -> None:
        self.root = local_folder(root)
        self.path = self.root / zone
        self.path.mkdir(parents=True, exist_ok=True)

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self.path / name

    def table(
        self,
        name: str,
        *,
        keys: Sequence[str] = (),
        types: Mapping[str, Any] | None = None,
        **options: Unpack[TableOptions],
    ) -> TableFolder:
        """Create a table folder with its `_metadata.json`.

        Args:
            name: `Sales.Orders` for `Sales.schema/Orders`, `Orders` for a folder at the zone's top.
            keys: the key columns; without them the table is insert-only.
            types: Arrow types of the columns in order, for rows given as mappings.
            options: further properties of `_metadata.json`.

        Raises:
            TypeError: an option is unknown.
        """
        schema, dot, table = name.partition(".")
        folder = self.folder(f"{schema}{SCHEMA_SUFFIX}/{table}" if dot else name, types=types)
        folder.write_metadata(keys=keys, **options)
        return folder

    def folder(self, path: str, *, types: Mapping[str, Any] | None = None, extension: str = "parquet") -> TableFolder:
        """A table folder by its path from the zone's top, without metadata: not configured (LZ-2.3)."""
        return TableFolder(self, path, types, extension)

    def partner_events(self, **properties: object) -> None:
        """Write `_partnerEvents.json`, which names the publisher (LZ-1.8)."""
        self.put(PARTNER_EVENTS_FILE, json.dumps(properties, indent=2).encode())

    def put(self, path: str, content: bytes, *, modified_ns: int | None = None) -> None:
        """Write a whole file by its path from the zone's top: under a `_` name, then renamed into place (LZ-3.10)."""
        target = self.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"_{target.name}.uploading")
        temporary.write_bytes(content)
        if modified_ns is not None:
            os.utime(temporary, ns=(modified_ns, modified_ns))
        temporary.replace(target)

    def write_in_place(self, path: str, content: bytes) -> None:
        """Write under the final name, as careless publishers do: an existing file keeps its identity."""
        with (self.path / path).open("r+b" if (self.path / path).exists() else "wb") as file:
            file.truncate()
            file.write(content)

    def names(self, folder: str) -> list[str]:
        """The names in a folder of the zone; none where it is missing."""
        place = self.path / folder
        return [entry.name for entry in place.iterdir()] if place.is_dir() else []

    def remove(self, path: str) -> None:
        """Delete a file, or a folder with all in it; absent is no error."""
        if (self.path / path).is_dir():
            shutil.rmtree(self.path / path)
        else:
            (self.path / path).unlink(missing_ok=True)


class TableFolder:
    """One table folder, and the next number of each of its partitions."""

    def __init__(self, writer: LandingZoneWriter, path: str, types: Mapping[str, Any] | None, extension: str) -> None:
        self.writer = writer
        self.path = path
        self.types = types
        self.extension = extension
        self._dialect: TextDialect | None = None
        self._numbers: dict[str, int] = {}

    def write_metadata(self, *, keys: Sequence[str] = (), **options: Unpack[TableOptions]) -> None:
        """Write `_metadata.json` (LZ-2.7): `keys` are its `keyColumns`."""
        _check_names(options, TableOptions, "keys", "types")
        properties: dict[str, object] = {"keyColumns": list(keys)}
        for name, spelled in _PROPERTIES.items():
            if (value := options.get(name)) is not None:
                properties[spelled] = {"Columns": list(options["columns"])} if name == "columns" else value
        content = json.dumps(properties | dict(options.get("extra", {})), indent=2).encode()
        usable, _ = parse(content, METADATA_FILE)
        is_text = usable.is_text if usable else options.get("file_format", "Parquet").casefold() != "parquet"
        self.extension = options.get("extension", "csv" if is_text else "parquet").removeprefix(".")
        self._dialect = (usable.dialect if usable else TextDialect()) if is_text else None
        self.land_metadata(content)

    def land_metadata(self, content: bytes) -> None:
        """Write any bytes as `_metadata.json`."""
        self.put(METADATA_FILE, content)

    def insert(self, *rows: Row, **where: Unpack[LandOptions]) -> str:
        """Land one file of inserts, marker 0."""
        return self.apply_changes(*((RowMarker.INSERT, row) for row in rows), **where)

    def update(self, *rows: Row, **where: Unpack[LandOptions]) -> str:
        """Land one file of updates, marker 1: full rows."""
        return self.apply_changes(*((RowMarker.UPDATE, row) for row in rows), **where)

    def delete(self, *rows: Row, **where: Unpack[LandOptions]) -> str:
        """Land one file of deletes, marker 2: the keys are enough."""
        return self.apply_changes(*((RowMarker.DELETE, row) for row in rows), **where)

    def upsert(self, *rows: Row, **where: Unpack[LandOptions]) -> str:
        """Land one file of upserts, marker 4: full rows."""
        return self.apply_changes(*((RowMarker.UPSERT, row) for row in rows), **where)

    def apply_changes(self, *changes: tuple[int, Row], **where: Unpack[LandOptions]) -> str:
        """Land one file of changes in order, row marker and row each; `__rowMarker__` is its last column (LZ-4.10)."""
        types = None if self.types is None else {**self.types, MARKER_COLUMN: pa.int32()}
        return self.land_rows([{**row, MARKER_COLUMN: int(marker)} for marker, row in changes], types=types, **where)

    def initial_load(self, *rows: Row, **where: Unpack[LandOptions]) -> str:
        """Land one file without markers, as of an initial load (LZ-4.13)."""
        return self.land_rows(rows, types=self.types, **where)

    def land_rows(
        self, rows: Iterable[Row], *, types: Mapping[str, Any] | None = None, **where: Unpack[LandOptions]
    ) -> str:
        """Land rows in the folder's format; `types` as in `arrow_rows`."""
        table = arrow_rows(rows, types)
        if self._dialect:
            return self.land(encoded_rows(table.column_names, table.to_pylist(), self._dialect), **where)
        return self.land_parquet(table, **where)

    def land_parquet(self, table: pa.Table, *, compression: Codec = "snappy", **where: Unpack[LandOptions]) -> str:
        """Land an Arrow table as it is; `compression` is one of Parquet's codecs, or `none`."""
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer, compression=compression)
        return self.land(buffer.getvalue().to_pybytes(), **where)

    def land_csv(self, text: str, *, encoding: str = "utf-8", **where: Unpack[LandOptions]) -> str:
        """Land delimited text as it is."""
        return self.land(text.encode(encoding), **where)

    def land(self, content: bytes, **where: Unpack[LandOptions]) -> str:
        """Land any bytes as a change file; returns its path from the zone's top."""
        _check_names(where, LandOptions)
        partition = where.get("partition", "")
        file = where["name"] if "name" in where else self.next_name(partition)
        return self.put(f"{partition}/{file}" if partition else file, content, modified_ns=where.get("modified_ns"))

    def next_name(self, partition: str = "") -> str:
        """Take the next number of a partition, after the newest file in its folder or archive (LZ-8.1)."""
        self.skip_numbers(1, partition)
        return numbered_name(self._numbers[partition], self.extension)

    def skip_numbers(self, count: int = 1, partition: str = "") -> None:
        """Leave out numbers: a gap (LZ-3.3)."""
        if partition not in self._numbers:
            self._numbers[partition] = self._newest(partition)
        self._numbers[partition] += count

    def _newest(self, partition: str) -> int:
        """The highest number among a partition's files, archived ones included."""
        parts = ((self.path, archive, partition) for archive in ("", READY_TO_DELETE_FOLDER, PROCESSED_FOLDER))
        folders = ["/".join(filter(None, each)) for each in parts]
        names = [name for folder in folders for name in self.writer.names(folder)]
        ending = f".{self.extension}".casefold()  # others are no change files of this table
        return max((sequence_of(name) for name in names if name.casefold()[DIGITS:] == ending), default=0)

    def put(self, path: str, content: bytes, *, modified_ns: int | None = None) -> str:
        """Write any file by its path from the table folder; returns its path from the zone's top."""
        whole = f"{self.path}/{path}"
        self.writer.put(whole, content, modified_ns=modified_ns)
        return whole

    def remove(self, path: str) -> None:
        """Delete a file or folder by its path from the table folder."""
        self.writer.remove(f"{self.path}/{path}")

    def drop(self) -> None:
        """Delete the table folder: the table is dropped, and numbers begin again (LZ-7.2)."""
        self.writer.remove(self.path)
        self._numbers.clear()


def _check_names(options: Mapping[str, object], known: type, *others: str) -> None:
    """Raise `TypeError` for an option that a `TypedDict` does not have: Python itself would ignore it."""
    names = [*others, *known.__annotations__]
    for name in options.keys() - known.__annotations__.keys():
        near = get_close_matches(name, names, n=1)
        suggestion = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
        raise TypeError(f"unexpected keyword argument {name!r}: {suggestion}")


def encoded_rows(columns: Sequence[str], rows: Iterable[Mapping[str, object]], dialect: TextDialect) -> bytes:
    """A header and rows as delimited text; NULL is unquoted, empty text quoted (LZ-6.8)."""
    lines = [dialect.column_separator.join(_text_field(name, dialect) for name in columns)]
    lines += [dialect.column_separator.join(_field(row.get(name), dialect) for name in columns) for row in rows]
    return "".join(line + dialect.row_separator for line in lines).encode(dialect.encoding)


def _field(value: object, dialect: TextDialect) -> str:
    if value is None:
        return dialect.null_value
    if isinstance(value, str):
        return _text_field(value, dialect)
    text = str(plain(value))
    return text.lower() if isinstance(value, bool) else text


def _text_field(value: str, dialect: TextDialect) -> str:
    special = (dialect.column_separator, "\r", "\n", dialect.quote or "\r", dialect.escape or "\r")
    plain = value not in ("", dialect.null_value) and value == value.strip() and not any(c in value for c in special)
    if plain or not dialect.quote:
        return value
    if dialect.escape and dialect.escape != dialect.quote:
        value = value.replace(dialect.escape, dialect.escape * 2)
    return dialect.quote + value.replace(dialect.quote, dialect.quote * 2) + dialect.quote
