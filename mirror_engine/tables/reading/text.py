"""Opens a delimited-text change file: its header matched to the declared columns, its rows typed (chapter 6)."""

from __future__ import annotations

import gzip
import io
import os
import zlib
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
from mirror_engine.tables.reading.limits import check_total
from mirror_engine.tables.reading.opening import guarded
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


class ColumnFault(Exception):
    """A cell that is no value of its type.

    Attributes:
        position: of the cell, from 0.
        fault: as `CellFault` tells it.
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
        ColumnFault: the first cell that is no value of the type.
    """
    if kind == "string":
        return pa.array(cells, pa.string())
    if "" in cells:
        cells = [cell or None for cell in cells]
    fast = _FAST.get(kind)
    if fast is not None:
        try:
            found = fast(pa.array(cells, pa.string()), array_type(kind))
        except pa.ArrowInvalid:
            found = None
        if found is not None:
            return found
    return _exact(cells, kind)


def _exact(cells: Sequence[str | None], kind: str) -> pa.Array:
    parse = parser(kind)
    values: list[object] = []
    try:
        # not a comprehension: how far it came says which cell is wrong
        for cell in cells:
            values.append(None if cell is None else parse(cell))  # noqa: PERF401 - see above
    except CellFault as fault:
        raise ColumnFault(len(values), fault.fault) from fault
    return pa.array(values, array_type(kind))


def _all_match(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py())


def _integers(texts: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    return texts.cast(wanted) if _all_match(texts, _INTEGER) else None


def _numbers(texts: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    if not _all_match(texts, _NUMBER):
        return None
    numbers = texts.cast(pa.float64()).cast(wanted)
    return None if pc.any(pc.is_inf(numbers)).as_py() else numbers


def _booleans(texts: pa.Array, _wanted: pa.DataType) -> pa.Array | None:
    words = pc.ascii_lower(texts)
    known = pc.all(pc.is_in(words, value_set=pa.array(["true", "false", None])), min_count=0).as_py()
    return pc.equal(words, "true") if known else None


def _dates(texts: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    return texts.cast(wanted) if _all_match(texts, _DATE) and not _in_year_zero(texts) else None


def _timestamps(texts: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    if not _all_match(texts, _TIMESTAMP) or _in_year_zero(texts):
        return None
    utc = pc.replace_substring(texts, "+00:00", "Z")
    cut = pc.ascii_rtrim(pc.utf8_slice_codeunits(utc, 0, _TO_MICROSECONDS), "Z")
    return cut.cast(pa.timestamp("us")).cast(wanted)


def _in_year_zero(texts: pa.Array) -> bool:
    return bool(pc.any(pc.starts_with(texts, "0000")).as_py())


def _times(texts: pa.Array, _wanted: pa.DataType) -> pa.Array | None:
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
_GZIP = b"\x1f\x8b\x08"
_ZSTD = b"\x28\xb5\x2f\xfd"
_FRAMED = b"\xff\x06\x00\x00sNaPpY"
_BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_TEXT_CONTROLS = frozenset(b"\t\n\v\f\r\x1b")
_HEAD_BYTES = 512
_MAX_FRAME = 65536
_MAX_PACKED = 64  # no Snappy block unpacks to more than this many times its size
_VARINT_BYTES = 5
_COMPRESSED, _UNCOMPRESSED, _FIRST_SKIPPABLE = 0x00, 0x01, 0x80


class Damaged(Exception):
    """Compressed data that cannot be unpacked."""


def text_bytes(handle: BinaryIO, path: str, config: Config) -> Iterator[bytes]:
    """The bytes of the text, from its start, in pieces; whatever it is compressed with.

    Args:
        handle: the file, seekable; left open.
        path: for messages.
        config: `max_batch_size` bounds one raw Snappy block.

    Raises:
        RejectedFile: ME024 for damaged data, ME075 for a block beyond the bound.
        StorageUnavailable: reading failed.
    """
    source = guarded(handle, path)
    size = source.seek(0, 2)
    source.seek(0)
    head = source.read(_HEAD_BYTES)
    source.seek(0)
    unpack = _unpacker(head, size)
    try:
        yield from unpack(source, config.max_batch_size)
    except Damaged as fault:
        raise RejectedFile(diagnose("ME024", path, reason=str(fault))) from fault
    except _TooLong as fault:
        limit = f"{config.max_batch_size} bytes"
        reason = f"a Snappy block of {fault.args[0]} bytes"
        raise RejectedFile(diagnose("ME075", path, reason=reason, limit=limit, option="max_batch_size")) from fault


class _TooLong(Exception):
    pass


class _Lent(io.RawIOBase):
    """A reader that Arrow may close, as it does when it is done: the file below is read again."""

    def __init__(self, source: BinaryIO) -> None:
        super().__init__()
        self._source = source

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._source.read(size)


def _unpacker(head: bytes, size: int) -> Callable[[BinaryIO, int], Iterator[bytes]]:
    if head.startswith(_GZIP):
        return _gzip
    if head.startswith(_ZSTD):
        return _zstd
    if head.startswith(_FRAMED):
        return _snappy_frames
    if head.startswith(_BOMS) or not any(byte < 32 or byte > 127 for byte in head if byte not in _TEXT_CONTROLS):  # noqa: PLR2004 - ASCII
        return _plain
    if _looks_like_hadoop(head, size):
        return _snappy_hadoop
    return _snappy_raw if _looks_raw(head, size) else _plain


def _plain(source: BinaryIO, _limit: int) -> Iterator[bytes]:
    while chunk := source.read(CHUNK_BYTES):
        yield chunk


def _gzip(source: BinaryIO, _limit: int) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=source, mode="rb") as unpacked:
        try:
            while chunk := unpacked.read(CHUNK_BYTES):
                yield chunk
        except (OSError, EOFError, zlib.error) as fault:
            raise Damaged("its gzip data is damaged or ends early") from fault


def _zstd(source: BinaryIO, _limit: int) -> Iterator[bytes]:
    try:
        unpacked = pa.CompressedInputStream(pa.PythonFile(_Lent(source), mode="r"), "zstd")
        while chunk := unpacked.read(CHUNK_BYTES):
            yield chunk
    except (OSError, pa.ArrowException) as fault:
        raise Damaged("its ZSTD data is damaged or ends early") from fault


def _snappy_frames(source: BinaryIO, limit: int) -> Iterator[bytes]:
    while head := source.read(4):
        kind, length = head[0], int.from_bytes(head[1:], "little")
        content = _exactly(source, length)
        if kind == _COMPRESSED:
            yield _block(content[4:], _MAX_FRAME, limit)
        elif kind == _UNCOMPRESSED:
            yield content[4:]
        elif kind < _FIRST_SKIPPABLE or len(head) < 4:  # noqa: PLR2004 - a frame's head
            raise Damaged("its Snappy frames are damaged")


def _snappy_hadoop(source: BinaryIO, limit: int) -> Iterator[bytes]:
    while head := source.read(4):
        left = int.from_bytes(head, "big")
        while left > 0:
            packed = int.from_bytes(_exactly(source, 4), "big")
            content = _block(_exactly(source, packed), left, limit)
            left -= len(content)
            yield content


def _snappy_raw(source: BinaryIO, limit: int) -> Iterator[bytes]:
    packed = source.read(limit + 1)
    try:
        unpacked = _block(packed, limit + 1, limit)
    except Damaged:  # no Snappy after all: text with strange characters, whose own faults say more
        source.seek(0)
        yield from _plain(source, limit)
        return
    for at in range(0, len(unpacked), CHUNK_BYTES):
        yield unpacked[at : at + CHUNK_BYTES]


def _exactly(source: BinaryIO, size: int) -> bytes:
    pieces = []
    while size > 0:
        if not (piece := source.read(min(size, CHUNK_BYTES))):
            raise Damaged("its Snappy data ends early")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _block(packed: bytes, most: int, limit: int) -> bytes:
    """One raw block, unpacked; damaged beyond what its place allows, too long beyond what memory does."""
    size, _ = _declared_size(packed)
    if size < 0 or (size > most and most <= limit):
        raise Damaged("its Snappy data is damaged")
    if size > limit:
        raise _TooLong(size)
    try:
        unpacked: bytes = pa.decompress(packed, decompressed_size=size, codec="snappy", asbytes=True)
    except (OSError, pa.ArrowException) as fault:
        raise Damaged("its Snappy data is damaged") from fault
    return unpacked


def _declared_size(packed: bytes) -> tuple[int, int]:
    """What a raw block says it unpacks to, and how many bytes say it; -1 where they say nothing."""
    size = 0
    for at, byte in enumerate(packed[:_VARINT_BYTES]):
        size |= (byte & 0x7F) << 7 * at
        if byte < 0x80:  # noqa: PLR2004 - the last byte of a varint
            return size, at + 1
    return -1, 0


def _looks_raw(head: bytes, size: int) -> bool:
    unpacked, at = _declared_size(head)
    # whatever its length, a block begins with a literal: there is nothing yet to copy from
    starts_well = 0 < at < len(head) and head[at] & 0b11 == 0
    return starts_well and size <= 32 + unpacked + unpacked // 6 and unpacked <= size * _MAX_PACKED


def _looks_like_hadoop(head: bytes, size: int) -> bool:
    whole, packed = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
    unpacked, at = _declared_size(head[8:])
    return 0 < packed <= size - 8 and 0 < unpacked <= whole and at > 0 and head[8 + at] & 0b11 == 0


def open_text(handle: BinaryIO, path: str, metadata: Metadata, config: Config) -> TextChangeFile:
    """Open a delimited-text change file and read its header.

    Args:
        handle: its bytes, seekable; stays open, and is the caller's to close after the last batch.
        path: for messages, from the landing zone's top.
        metadata: of a text folder: its dialect and declared columns count here.
        config: `strict`, `max_row_size` and `max_batch_size` count here.

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
    promised_rows: int | None = None

    def __init__(self, handle: BinaryIO, path: str, metadata: Metadata, config: Config) -> None:
        self._handle = handle
        self._size = handle.seek(0, os.SEEK_END)
        self._path = path
        self._metadata = metadata
        self._config = config
        self.diagnostics: list[Diagnostic] = []
        self._told: set[Diagnostic] = set()
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
        unfolded = 0
        for records in self._records(reader):
            rows, skip = records[skip:], 0
            if rows:
                batch = self._batch(rows, first_row)
                first_row += len(rows)
                unfolded += batch.nbytes
                check_total(unfolded, first_row - 1, self._size, self._path, self._config)
                yield batch
        if reader.other_line_ends:
            self._say("ME062")
        if first_row == 1:
            self._say("ME058")

    def _reader(self) -> RecordReader:
        limits = RecordLimits(self._path, self._config.max_row_size, self._config.strict)
        return RecordReader(self._metadata.dialect, limits)

    def _records(self, reader: RecordReader) -> Iterator[list[Record]]:
        content = text_bytes(self._handle, self._path, self._config)
        return reader.records(decoded(content, self._metadata.dialect.encoding))

    def _header(self) -> list[str]:
        if next(text_bytes(self._handle, self._path, self._config), None) is None:
            raise self._refused("ME023")
        first = next(self._records(self._reader()), None)
        if first is None:
            raise self._refused("ME061", reason="there is no header")
        return [name or "" for name in first[0]]

    def _match(self, header: list[str]) -> None:
        """Find the marker and the declared columns (LZ-4.10, LZ-6.5)."""
        declared = {folded(column.name): column for column in self._metadata.declared_columns}
        seen: dict[str, str] = {}
        for at, name in enumerate(header):
            key = folded(name)
            if key in seen and name:
                self._refuse_twice(seen[key], name)
            seen[key] = name
            if key == folded(MARKER_COLUMN):
                self.marker, self._marker_at = name, at
                self._note_case(name, MARKER_COLUMN)
            elif (column := declared.get(key)) is not None:
                kind = TIME if column.name in self._metadata.time_columns else column.type
                self._fields.append(_Field(at, column, kind))
                self._note_case(name, column.name)
            elif "\r" in name or "\n" in name:
                # nobody names a column so: the header runs into the rows
                raise self._refused("ME061", reason="header: it does not end in RowSeparator")
            else:
                self._say("ME057", column=name)
        if self._marker_at is not None and self._marker_at != len(header) - 1:
            self._say("ME034", position=self._marker_at + 1, count=len(header))

    def _refuse_twice(self, first: str, second: str) -> None:
        if folded(first) == folded(MARKER_COLUMN):
            raise self._refused("ME036", found="text")
        raise self._refused("ME053", column=first, other=second)

    def _note_case(self, name: str, other: str) -> None:
        if name != other:
            self._say("ME052", column=name, other=other)

    def _batch(self, rows: list[Record], first_row: int) -> pa.RecordBatch:
        """Typed rows.

        Raises:
            RejectedFile: at the first row that is wrong, in its first column that is.
        """
        by_column = list(zip(*rows, strict=True))
        makers = [partial(self._array, field, by_column[field.at], first_row) for field in self._fields]
        if self._marker_at is not None:
            makers.append(partial(self._markers, by_column[self._marker_at], first_row))
        faults: list[RejectedFile] = []
        arrays = [_made(maker, faults) for maker in makers]
        if faults:
            raise min(faults, key=_row)
        names = [column.name for column in self.columns] + [MARKER_COLUMN] * (self._marker_at is not None)
        return pa.RecordBatch.from_arrays(arrays, names) if arrays else _bare(len(rows))

    def _array(self, field: _Field, cells: Sequence[str | None], first_row: int) -> pa.Array:
        name = field.column.name
        try:
            made = column_array(cells, field.kind)
        except ColumnFault as fault:
            row = first_row + fault.position
            details = {"column": name, "type": field.kind, "fault": fault.fault}
            raise RejectedFile(diagnose("ME060", self._path, row=row, strict=self._config.strict, **details)) from None
        if made.null_count and not field.column.nullable:
            row = first_row + made.is_valid().index(pa.scalar(False)).as_py()
            raise RejectedFile(diagnose("ME048", self._path, row=row, strict=self._config.strict, column=name))
        return made

    def _markers(self, cells: Sequence[str | None], first_row: int) -> pa.Array:
        return effective_markers(pa.array(cells, pa.string()), self._path, first_row)

    def _say(self, code: str, **details: object) -> None:
        diagnostic = diagnose(code, self._path, row=None, strict=self._config.strict, **details)
        if diagnostic not in self._told:  # rows are read more than once, and a header may name many columns
            self._told.add(diagnostic)
            self.diagnostics.append(diagnostic)

    def _refused(self, code: str, **details: object) -> RejectedFile:
        return RejectedFile(
            diagnose(code, self._path, row=None, strict=self._config.strict, **details), self.diagnostics
        )


def _made(maker: Callable[[], pa.Array], faults: list[RejectedFile]) -> pa.Array | None:
    """The array, or None and one more fault: which row is the first wrong one, all columns together know."""
    try:
        return maker()
    except RejectedFile as fault:
        faults.append(fault)
        return None


def _row(fault: RejectedFile) -> int:
    return fault.diagnostic.row or 0


def _bare(rows: int) -> pa.RecordBatch:
    """Rows of a file whose header names no declared column."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
