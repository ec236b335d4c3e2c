"""Opens a delimited-text change file: its header matched to the declared columns, its rows typed (LZ-6)."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.csv_dialect import RecordLimits, RecordReader, decoded
from mirror_engine.landing_zone.csv_values import CellFault, parser
from mirror_engine.landing_zone.diagnostics import Diagnostic, RejectedFile, diagnose, without_errors
from mirror_engine.landing_zone.schema import Column, folded
from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.reading.limits import broken, check_total
from mirror_engine.tables.reading.row_rules import effective_markers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from mirror_engine.config import Config
    from mirror_engine.landing_zone.csv_dialect import Record
    from mirror_engine.landing_zone.metadata import Metadata


TIME = "time"  # of an `ITime` column, a string to Delta
_INTEGER = r"^-?[0-9]{1,19}$"
_NUMBER = r"^[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|\+00:00)?$"
_TIME = r"^(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?$"
_TO_MICROSECONDS = 26  # characters of a timestamp up to its sixth decimal


class InvalidCell(Exception):
    """A cell that is not a value of its column's type.

    Attributes:
        position: of the cell, from 0.
        fault: see `CellFault`.
    """

    def __init__(self, position: int, fault: str) -> None:
        super().__init__(fault)
        self.position = position
        self.fault = fault


def array_type(kind: str) -> pa.DataType:
    """The Arrow type of a declared type."""
    return arrow_type("string" if kind == TIME else kind)


def column_array(cells: Sequence[str | None], kind: str) -> pa.Array:
    """The values of a column (LZ-6.8, LZ-6.9).

    Args:
        cells: in row order; `None` is NULL, and so is a quoted empty field but in a String.
        kind: a declared type in Delta's words, or `TIME`.

    Raises:
        InvalidCell: the first cell that is not a value of the type.
    """
    if kind == "string":
        return pa.array(cells, pa.string())
    if "" in cells:
        cells = [cell or None for cell in cells]
    fast = _FAST.get(kind)
    if fast is not None:
        with suppress(pa.ArrowInvalid):
            if (values := fast(pa.array(cells, pa.string()), array_type(kind))) is not None:
                return values
    return _exact(cells, kind)


def _exact(cells: Sequence[str | None], kind: str) -> pa.Array:
    parse = parser(kind)
    values: list[object] = []
    try:
        for cell in cells:
            values.append(None if cell is None else parse(cell))  # noqa: PERF401 - their number says which cell failed
    except CellFault as fault:
        raise InvalidCell(len(values), fault.fault) from fault
    return pa.array(values, array_type(kind))


def _all_match(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py())


def _integers(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    return texts.cast(target) if _all_match(texts, _INTEGER) else None


def _numbers(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    if not _all_match(texts, _NUMBER):
        return None
    numbers = texts.cast(pa.float64()).cast(target)
    return None if pc.any(pc.is_inf(numbers)).as_py() else numbers


def _booleans(texts: pa.Array, _target: pa.DataType) -> pa.Array | None:
    words = pc.ascii_lower(texts)
    known = pc.all(pc.is_in(words, value_set=pa.array(["true", "false", None])), min_count=0).as_py()
    return pc.equal(words, "true") if known else None


def _dates(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    return texts.cast(target) if _all_match(texts, _DATE) and not _in_year_zero(texts) else None


def _timestamps(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    if not _all_match(texts, _TIMESTAMP) or _in_year_zero(texts):
        return None
    utc = pc.replace_substring(texts, "+00:00", "Z")
    cut = pc.ascii_rtrim(pc.utf8_slice_codeunits(utc, 0, _TO_MICROSECONDS), "Z")
    return cut.cast(pa.timestamp("us")).cast(target)


def _in_year_zero(texts: pa.Array) -> bool:
    return bool(pc.any(pc.starts_with(texts, "0000")).as_py())


def _times(texts: pa.Array, _target: pa.DataType) -> pa.Array | None:
    return texts if _all_match(texts, _TIME) else None


_FAST: dict[str, Callable[[pa.Array, pa.DataType], pa.Array | None]] = {
    "short": _integers,
    "integer": _integers,
    "long": _integers,
    "float": _numbers,
    "double": _numbers,
    "boolean": _booleans,
    "date": _dates,
    "timestamp": _timestamps,
    TIME: _times,
}


CHUNK_BYTES = 256 * 1024
_CODECS = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xff\x06\x00\x00sNaPpY": "snappy"}
_HEAD_BYTES = max(map(len, _CODECS))
_MAX_FRAME = 65536
_COMPRESSED, _UNCOMPRESSED, _FIRST_SKIPPABLE = 0x00, 0x01, 0x80  # kinds of chunks in Snappy's framing format


def text_bytes(handle: BinaryIO, path: str, encoding: str) -> Iterator[bytes]:
    """Yield the decompressed text from its start; GZIP, ZSTD and framed Snappy are known by their first bytes.

    Args:
        handle: the file, seekable; stays open.
        path: for messages.
        encoding: of the text.

    Raises:
        RejectedFile: ME024.
        StorageUnavailable: reading failed.
    """
    handle.seek(0)
    head = handle.read(_HEAD_BYTES)
    handle.seek(0)
    codec = next((codec for magic, codec in _CODECS.items() if head.startswith(magic)), "")
    if not codec and encoding == "utf-8" and head.startswith(b"\0"):  # Hadoop's blocks of Snappy begin so
        raise broken(path, "it is neither text nor compressed with GZIP, ZSTD or Snappy's framing format")
    try:
        if not codec:
            yield from iter(partial(handle.read, CHUNK_BYTES), b"")
        elif codec == "snappy":
            yield from _snappy_frames(handle)
        else:
            content = pa.CompressedInputStream(pa.PythonFile(_KeptOpen(handle), mode="r"), codec)
            yield from iter(partial(content.read, CHUNK_BYTES), b"")
    except (OSError, EOFError, pa.ArrowException) as error:
        raise broken(path, f"its {codec} data is damaged or ends early") from error


class _KeptOpen(io.RawIOBase):
    """A reader that Arrow closes at its end; the file below stays open and is read again."""

    def __init__(self, source: BinaryIO) -> None:
        super().__init__()
        self._source = source

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._source.read(size)


def _snappy_frames(source: BinaryIO) -> Iterator[bytes]:
    """Decode https://github.com/google/snappy/blob/main/framing_format.txt; EOFError where it is damaged."""
    while head := source.read(4):
        kind, length = head[0], int.from_bytes(head[1:], "little")
        content = source.read(length)
        if len(content) < length or (kind < _FIRST_SKIPPABLE and kind > _UNCOMPRESSED):
            raise EOFError
        if kind == _COMPRESSED:
            size = _uncompressed_size(content[4:])
            yield pa.decompress(content[4:], decompressed_size=size, codec="snappy", asbytes=True)
        elif kind == _UNCOMPRESSED:
            yield content[4:]


def _uncompressed_size(block: bytes) -> int:
    """The size that a Snappy block claims to expand to: a varint at its beginning."""
    size = 0
    for at, byte in enumerate(block[:3]):
        size |= (byte & 0x7F) << 7 * at
        if byte < 0x80 and size <= _MAX_FRAME:  # noqa: PLR2004 - the last byte of a varint
            return size
    raise EOFError


def open_text(handle: BinaryIO, path: str, metadata: Metadata, config: Config) -> TextChangeFile:
    """Open a delimited-text change file and read its header.

    Args:
        handle: its bytes, seekable; stays open, and is the caller's to close after the last batch.
        path: for messages, from the landing zone's top.
        metadata: of a text folder: its dialect and declared columns count here.
        config: `strict` and `max_row_size` count here.

    Raises:
        RejectedFile: ME023, ME024, ME036, ME053, ME061, ME075; under `strict` also ME034 and ME052.
        StorageUnavailable: the bytes could not be read.
    """
    return TextChangeFile(handle, path, metadata, config)


@dataclass(frozen=True)
class _Field:
    """A declared column that the header names, and where."""

    at: int
    column: Column
    kind: str


class TextChangeFile:
    """An `OpenFile` over delimited text. Timestamps are UTC by rule, so that no column is naive."""

    naive_columns: frozenset[str] = frozenset()
    utc_columns: frozenset[str] = frozenset()

    def __init__(self, handle: BinaryIO, path: str, metadata: Metadata, config: Config) -> None:
        self._handle = handle
        self._size = handle.seek(0, os.SEEK_END)
        self._path = path
        self._metadata = metadata
        self._config = config
        self.diagnostics: list[Diagnostic] = []
        self._noted: set[Diagnostic] = set()
        self.marker: str | None = None
        self._marker_at: int | None = None
        self._fields: list[_Field] = []
        self._match(self._header())
        self.columns: Sequence[Column] = tuple(field.column for field in self._fields)
        without_errors(self.diagnostics)

    def batches(self, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - all are read
        """Rows in file order; see `OpenFile`. Markers and nullability are checked already.

        Raises:
            RejectedFile: ME024, ME037, ME048, ME060, ME061, ME075, at the first row that is wrong.
            StorageUnavailable: the bytes could not be read.
        """
        reader = self._reader()
        first_row, skip = 1, 1  # the header comes with the first records
        expanded = 0
        for records in self._records(reader):
            rows, skip = records[skip:], 0
            if rows:
                batch = self._batch(rows, first_row)
                first_row += len(rows)
                expanded += batch.nbytes
                check_total(expanded, first_row - 1, self._size, self._path, self._config)
                yield batch
        if reader.other_line_ends:
            self._note("ME062")
        if first_row == 1:
            self._note("ME058")

    def _reader(self) -> RecordReader:
        limits = RecordLimits(self._path, self._config.max_row_size, self._config.strict)
        return RecordReader(self._metadata.dialect, limits)

    def _records(self, reader: RecordReader) -> Iterator[list[Record]]:
        content = text_bytes(self._handle, self._path, self._metadata.dialect.encoding)
        return reader.records(decoded(content, self._metadata.dialect.encoding))

    def _header(self) -> list[str]:
        if next(text_bytes(self._handle, self._path, self._metadata.dialect.encoding), None) is None:
            raise self._rejected("ME023")
        first = next(self._records(self._reader()), None)
        if first is None:
            raise self._rejected("ME061", reason="there is no header")
        return [name or "" for name in first[0]]

    def _match(self, header: list[str]) -> None:
        """Find the marker and the declared columns (LZ-4.10, LZ-6.5)."""
        declared = {folded(column.name): column for column in self._metadata.declared_columns}
        seen: dict[str, str] = {}
        for at, name in enumerate(header):
            key = folded(name)
            if key in seen and name:
                self._reject_duplicate(seen[key], name)
            seen[key] = name
            if key == folded(MARKER_COLUMN):
                self.marker, self._marker_at = name, at
                self._note_case(name, MARKER_COLUMN)
            elif (column := declared.get(key)) is not None:
                kind = TIME if column.name in self._metadata.time_columns else column.type
                self._fields.append(_Field(at, column, kind))
                self._note_case(name, column.name)
            elif "\r" in name or "\n" in name:
                # no publisher names a column so: the header runs into the rows
                raise self._rejected("ME061", reason="header: it does not end in RowSeparator")
            else:
                self._note("ME057", column=name)
        if self._marker_at is not None and self._marker_at != len(header) - 1:
            self._note("ME034", position=self._marker_at + 1, count=len(header))

    def _reject_duplicate(self, first: str, second: str) -> None:
        if folded(first) == folded(MARKER_COLUMN):
            raise self._rejected("ME036", found="text")
        raise self._rejected("ME053", column=first, other=second)

    def _note_case(self, name: str, other: str) -> None:
        if name != other:
            self._note("ME052", column=name, other=other)

    def _batch(self, rows: list[Record], first_row: int) -> pa.RecordBatch:
        """Typed rows.

        Raises:
            RejectedFile: at the first row that is wrong, in its first column that is.
        """
        by_column = list(zip(*rows, strict=True))
        makers = [partial(self._array, field, by_column[field.at], first_row) for field in self._fields]
        if self._marker_at is not None:
            makers.append(partial(self._markers, by_column[self._marker_at], first_row))
        arrays: list[pa.Array] = []
        rejections: list[RejectedFile] = []
        for make in makers:
            try:
                arrays.append(make())
            except RejectedFile as rejected:  # noqa: PERF203 - a few columns
                rejections.append(rejected)
        if rejections:
            raise min(rejections, key=lambda rejected: rejected.diagnostic.row or 0)
        if not arrays:  # the header names no declared column
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        names = [column.name for column in self.columns] + [MARKER_COLUMN] * (self._marker_at is not None)
        return pa.RecordBatch.from_arrays(arrays, names)

    def _array(self, field: _Field, cells: Sequence[str | None], first_row: int) -> pa.Array:
        name, strict = field.column.name, self._config.strict
        try:
            values = column_array(cells, field.kind)
        except InvalidCell as cell:
            row = first_row + cell.position
            details = {"column": name, "type": field.kind, "fault": cell.fault}
            raise RejectedFile(diagnose("ME060", self._path, row=row, strict=strict, **details)) from None
        if values.null_count and not field.column.nullable:
            row = first_row + values.is_valid().index(pa.scalar(False)).as_py()
            raise RejectedFile(diagnose("ME048", self._path, row=row, strict=strict, column=name))
        return values

    def _markers(self, cells: Sequence[str | None], first_row: int) -> pa.Array:
        return effective_markers(pa.array(cells, pa.string()), self._path, first_row)

    def _note(self, code: str, **details: object) -> None:
        diagnostic = diagnose(code, self._path, row=None, strict=self._config.strict, **details)
        if diagnostic not in self._noted:  # rows are read more than once, and a header may name many columns
            self._noted.add(diagnostic)
            self.diagnostics.append(diagnostic)

    def _rejected(self, code: str, **details: object) -> RejectedFile:
        return RejectedFile(
            diagnose(code, self._path, row=None, strict=self._config.strict, **details), self.diagnostics
        )
