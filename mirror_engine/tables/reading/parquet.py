"""Parquet change files: the Delta types that columns are read as, and rows in bounded batches.

Arrow parses the bytes and guards itself against sizes that a footer or a page header claims. What it is not asked:
`buffer_size` (a buffer of whatever size a page header claims) and, before a row of its row group was read,
`RowGroupMetaData.column` (it ends the process where the metadata is corrupt). See docs/decisions/parquet-reading.md.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.csv_header import foreign_format
from mirror_engine.landing_zone.diagnostics import RejectedFile, without_errors
from mirror_engine.landing_zone.schema import VOID, Column, in_other_case, same_name
from mirror_engine.tables.arrow_types import FIRST_DAY, LAST_DAY, PARSE_ERRORS, arrow_type
from mirror_engine.tables.footer import CONVERTED_TYPE, NAME, PRECISION, SCALE, SCHEMA, Value, read_struct
from mirror_engine.tables.reading.open_file import OpenFile
from mirror_engine.tables.reading.row_rules import effective_markers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from mirror_engine.config import Config

BATCH_BYTES = 32 * 1024 * 1024
MAX_ROWS = 65_536  # of a batch
_THREADED_BYTES = 1 << 20  # a row group that takes less is read sooner without threads
_PREFIX_BYTES = 1 << 20  # of a value to expect where values may repeat the beginning of the one before
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
_MAX_FIXED_WIDTH = 16  # of a decimal, whatever its physical type

_HEAD_BYTES, _GZIP = 64, b"\x1f\x8b"  # that tell another format
MAGIC, _ENCRYPTED_MAGIC = b"PAR1", b"PARE"
_TAIL_BYTES = 8  # the footer's length and the magic
_BETWEEN_BYTES = 1 << 20  # behind the last column: indexes and filters, or the footer of an earlier file
_THRIFT_LIMITS = {"thrift_string_size_limit": 16 << 20, "thrift_container_size_limit": 100_000}
# Arrow's own schema under its key, as Thrift writes a key that is followed by its value. Arrow would read the
# publisher's types in memory instead of Parquet's; a renamed key is ignored.
_ARROW_SCHEMA, _IGNORED_SCHEMA = b"\x18\x0cARROW:schema\x18", b"\x18\x0cARROW:ignore\x18"

DICTIONARY_ENCODINGS = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY"})
# of Arrow's decoders; the footer names a column's encodings, too, but a damaged one ends the process when asked
_ENCODING_FAULTS = re.compile("InitBlock EOF|in a (mini)?block|bit width|encoding|implemented")
_EMPTY_DECIMAL = re.compile(r"FromBigEndian was 0\b")
_DECRYPTED = "land it without encryption"
_DECIMAL, _NO_VALUE = 5, Value(0, None)  # a converted type
DOCUMENTED_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
_MARKER_TYPES = frozenset({"byte", "short", "integer", "long", "string", VOID})
_UNSIGNED = frozenset({"UINT8", "UINT16", "UINT32", "UINT64"})

_SIGNED = {8: "byte", 16: "short", 32: "integer", 64: "long"}
_UNSIGNED_BITS = {8: "short", 16: "integer", 32: "long", 64: "decimal(20,0)"}
_WIDEST_DECIMAL = 38
_DAY = 24 * 60 * 60 * 1_000_000


@dataclass(frozen=True)
class ParquetType:
    """The type of a Parquet column, and the Delta type it is read as (LZ-5.8)."""

    spelling: str  # the type in Parquet's words
    word: str | None  # the type in Delta's words; None where the protocol has none (ME049)
    taken_as: str | None = None  # what it is taken as, where it is not read exactly as it is (ME050)
    zone: Literal["naive", "utc", "unsaid"] = "unsaid"  # whether times carry one; `unsaid` for all else, and for INT96


_ANNOTATED = {
    "String": ParquetType("STRING", "string"),
    "Enum": ParquetType("ENUM", "string"),
    "JSON": ParquetType("JSON", "string"),
    "Date": ParquetType("DATE", "date"),
    "Null": ParquetType("NULL", VOID),
    "UUID": ParquetType("UUID", "binary", taken_as="binary"),
}
_BARE = {
    "BOOLEAN": ParquetType("BOOLEAN", "boolean"),
    "INT32": ParquetType("INT32", "integer"),
    "INT64": ParquetType("INT64", "long"),
    "INT96": ParquetType("INT96", "timestamp", taken_as="timestamp in microseconds"),
    "FLOAT": ParquetType("FLOAT", "float"),
    "DOUBLE": ParquetType("DOUBLE", "double"),
    "BYTE_ARRAY": ParquetType("BYTE_ARRAY", "binary"),
}


def parquet_type(leaf: Any) -> ParquetType:  # noqa: ANN401 - pyarrow's ColumnSchema is no public type
    """The type of one column of the Parquet schema that is neither nested nor repeated (LZ-5.8)."""
    return _typed(leaf.logical_type.to_json(), leaf.physical_type, leaf.length)


@lru_cache(maxsize=1_000)
def _typed(annotation: str, physical: str, length: int) -> ParquetType:
    logical = json.loads(annotation)
    kind = logical["Type"]
    foreign = "binary" if physical == "BYTE_ARRAY" else None  # BSON, geometry and geography are bytes (LZ-5.11)
    found = _ANNOTATED.get(kind, ParquetType(kind.upper(), foreign, taken_as=foreign))
    match logical:
        case {"Type": "None"}:
            fixed = ParquetType(f"FIXED_LEN_BYTE_ARRAY({length})", "binary", taken_as="binary")
            found = _BARE.get(physical, fixed)
        case {"Type": "Int", "bitWidth": bits, "isSigned": True}:
            found = ParquetType(f"INT{bits}", _SIGNED[bits])
        case {"Type": "Int", "bitWidth": bits}:
            found = ParquetType(f"UINT{bits}", _UNSIGNED_BITS[bits], taken_as=_UNSIGNED_BITS[bits])
        case {"Type": "Decimal", "precision": precision, "scale": scale}:
            fits = 0 < precision <= _WIDEST_DECIMAL and 0 <= scale <= precision
            found = ParquetType(f"DECIMAL({precision},{scale})", f"decimal({precision},{scale})" if fits else None)
        case {"Type": "Timestamp", "timeUnit": unit, "isAdjustedToUTC": is_utc}:
            taken_as = "timestamp in microseconds" if unit == "nanoseconds" else None
            found = ParquetType(f"TIMESTAMP in {unit}", "timestamp", taken_as, "utc" if is_utc else "naive")
    return found


class Field(NamedTuple):
    """A column of the file, or the marker."""

    name: str
    type: ParquetType
    nullable: bool


def _holds_footer(content: bytes) -> bool:
    """Whether a Parquet file ends in these bytes, and another one begins behind it."""
    ends = (found.start() - 4 for found in re.finditer(re.escape(2 * MAGIC), content))
    return any(0 < int.from_bytes(content[max(end, 0) : end + 4], "little") <= end for end in ends)


class ParquetChangeFile(OpenFile):
    """An `OpenFile` over Parquet (LZ-3.10, LZ-5.1, LZ-5.8); with `threads` Arrow may decode columns in parallel.

    Attributes:
        parquet: the file as Arrow has opened it; ask for no column of a row group before a row of it was read.
        footer: its bytes.

    Raises:
        RejectedFile: ME023, ME024, ME036, ME049, ME075; under `strict` also ME034, ME035, ME050, ME052, ME095.
        StorageUnavailable: the bytes could not be read.
    """

    def __init__(self, handle: BinaryIO, path: str, config: Config, *, threads: bool = True) -> None:
        super().__init__(handle, path, config)
        self._threads = threads
        self.footer = self._read_footer()
        try:
            self.parquet = _opened(handle, self.footer)
            self._check_metadata(self.parquet.metadata)
            self._fields = fields = self._read_fields()
        except PARSE_ERRORS as error:
            self._refuse_wide_decimals()
            raise self._broken("its footer cannot be understood") from error
        self._marker_at = self._marker_position()
        self.promised_rows = rows = int(self.parquet.metadata.num_rows)
        self.has_rows = rows > 0
        self._fixed_width = _fixed_width(self.parquet.schema)
        self._check_total(rows * self._fixed_width, rows)
        self.marker = None if self._marker_at is None else fields[self._marker_at].name
        data = {at: field for at, field in enumerate(fields) if at != self._marker_at}
        self._data = {at: Column(field.name, self._word(field), field.nullable) for at, field in data.items()}
        self.columns = tuple(self._data.values())
        self.naive_columns, self.utc_columns = (
            frozenset(field.name for field in data.values() if field.type.zone == zone) for zone in ("naive", "utc")
        )
        self._note_marker_and_types()
        without_errors(self._noted)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Rows in file order; see `OpenFile`. The marker is checked already (ME037).

        Raises:
            RejectedFile: ME024, ME037, ME060, ME075, ME087; under `strict` also ME055.
            StorageUnavailable: the bytes could not be read.
        """
        rows = unfolded = 0
        for group in range(self.parquet.num_row_groups):
            for raw in self._raw_batches(group, None):
                unfolded += self._check_lengths(raw, rows + 1)
                yield self._typed(raw.columns, rows + 1)
                rows += raw.num_rows
                self._check_total(unfolded, rows)
            self._note_codecs(group)
        if rows != self.promised_rows:
            raise self._broken("it has fewer rows than its footer says")
        self._check_single()

    def _read_footer(self) -> bytes:
        """The footer's bytes; ME023 for no bytes, ME024 for an incomplete file, ME075 beyond `max_row_size`."""
        source, limit = self._handle, self._config.max_row_size
        if self._size == 0:
            raise self._rejected("ME023")
        source.seek(0)
        head = source.read(len(MAGIC))
        source.seek(max(self._size - _TAIL_BYTES, 0))
        tail = source.read(_TAIL_BYTES)
        length = int.from_bytes(tail[:4], "little")
        if _ENCRYPTED_MAGIC in {head, tail[-4:]}:
            raise self._broken("it is encrypted", _DECRYPTED)
        if head != MAGIC[: len(head)]:
            help = "land a Parquet file, or set `FileFormat` to what the files are"
            if head[:2] == _GZIP:
                raise self._broken("it is compressed as a whole", "decompress it: Parquet is compressed inside")
            source.seek(0)
            other = foreign_format(source.read(_HEAD_BYTES))
            raise self._broken(other.found if other else "it does not start like a Parquet file", help)
        if self._size < len(MAGIC) + _TAIL_BYTES or tail[-4:] != MAGIC:
            raise self._broken("it does not end as a Parquet file does")
        if length > self._size - _TAIL_BYTES - len(MAGIC):
            raise self._broken("its footer claims to be longer than the file")
        if length > limit:
            raise self._too_large(f"a footer of {length:,} bytes", limit)
        source.seek(self._size - _TAIL_BYTES - length)
        return source.read(length)

    def _refuse_wide_decimals(self) -> None:
        """ME049 for a decimal with more digits than Arrow opens a file with."""
        with suppress(ValueError, LookupError, TypeError, AttributeError):
            for element in read_struct(self.footer, last=SCHEMA)[SCHEMA].data:
                if (
                    element.get(CONVERTED_TYPE, _NO_VALUE).data == _DECIMAL
                    and element[PRECISION].data > _WIDEST_DECIMAL
                ):
                    spelling = f"DECIMAL({element[PRECISION].data},{element[SCALE].data})"
                    raise self._rejected("ME049", column=element[NAME].data.decode(), found=spelling)

    def _check_metadata(self, metadata: Any) -> None:  # noqa: ANN401 - pyarrow's FileMetaData
        groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
        rows = [group.num_rows for group in groups]
        if metadata.num_rows < 0 or min(rows, default=0) < 0 or sum(rows) != metadata.num_rows:
            raise self._broken("its footer contradicts itself about the number of rows")
        if not {group.num_columns for group in groups} <= {metadata.num_columns}:
            raise self._broken("its footer contradicts itself about the number of columns")
        if b"ARROW:schema" in (metadata.metadata or {}):  # in another spelling than writers use
            raise self._broken("its footer cannot be understood")

    def _check_single(self) -> None:
        """ME024 for several files in one, once all rows were read: only the footer of the last one counts."""
        metadata = self.parquet.metadata
        end, footer_at = len(MAGIC), self._size - _TAIL_BYTES - len(self.footer)
        if self.promised_rows and metadata.num_columns:
            last = metadata.row_group(metadata.num_row_groups - 1).column(metadata.num_columns - 1)
            begin = last.dictionary_page_offset if last.has_dictionary_page else last.data_page_offset
            end = begin + last.total_compressed_size
        if 0 < end < footer_at:
            self._handle.seek(end)
            if _holds_footer(self._handle.read(min(footer_at - end, _BETWEEN_BYTES))):
                raise self._broken("it is several Parquet files in one", "land each of them under its own name")

    def _read_fields(self) -> list[Field]:
        """The file's columns; a nested one is refused at once (ME049)."""
        fields: list[Field] = []
        for at, column in enumerate(self.parquet.schema_arrow):
            is_nested = pa.types.is_nested(column.type)
            kind = "LIST" if pa.types.is_list(column.type) else "MAP" if pa.types.is_map(column.type) else "STRUCT"
            found = ParquetType(kind, None) if is_nested else parquet_type(self.parquet.schema.column(at))
            if found.word is None and not same_name(column.name, MARKER_COLUMN):
                raise self._rejected("ME049", column=column.name, found=found.spelling)
            fields.append(Field(column.name, found, column.nullable))
            if is_nested:
                break  # behind it, the places of columns and of leaves differ
        return fields

    def _marker_position(self) -> int | None:
        """The marker's place (LZ-4.10); two of them, or one of another type, are refused (LZ-4.11)."""
        fields = self._fields
        places = [at for at, field in enumerate(fields) if same_name(field.name, MARKER_COLUMN)]
        if not places:
            return None
        first = fields[places[0]].type
        if len(places) > 1 or not (first.word in _MARKER_TYPES or first.spelling in _UNSIGNED):
            found = "occurs twice" if len(places) > 1 else f"has type {first.spelling}"
            raise self._rejected("ME036", column=MARKER_COLUMN, found=found)
        return places[0]

    def _raw_batches(self, group: int, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """A row group as Parquet types it, in batches of about `BATCH_BYTES`."""
        described = self.parquet.metadata.row_group(group)
        encoded = max(described.total_byte_size, 0)
        unfolded = described.num_rows * self._fixed_width + encoded
        self._check_total(unfolded, self.promised_rows)
        try:
            width = self._fixed_width + encoded // max(described.num_rows, 1)
            if described.num_rows * encoded > BATCH_BYTES:
                width += self._longest_text(group, names)
            yield from self.parquet.iter_batches(
                batch_size=min(max(BATCH_BYTES // max(width, 1), 1), MAX_ROWS),
                row_groups=[group],
                columns=names,
                use_threads=self._threads and unfolded > _THREADED_BYTES,
            )
        except MemoryError as error:
            limit, option = "the memory of this process", "it"
            if self._config.memory_limit != "none":
                limit, option = f"{self._config.memory_limit:,} bytes", "memory_limit"
            raise self._rejected("ME075", reason=f"row group {group + 1}", limit=limit, option=option) from error
        except PARSE_ERRORS as error:
            raise self._unreadable(group, names, str(error)) from error

    def _unreadable(self, group: int, names: Sequence[str] | None, error: str) -> RejectedFile:
        """ME024, or ME087 where Arrow speaks of an encoding; columns are read one by one to find the one that fails."""
        names = [field.name for field in self._fields] if names is None else names
        for name in names if len(names) > 1 else ():
            for _ in self._raw_batches(group, [name]):
                pass
        if "crypt" in error:
            return self._broken("it is encrypted", _DECRYPTED)
        if len(names) == 1 and _ENCODING_FAULTS.search(error):
            return self._rejected("ME087", column=names[0], reason=error)
        if len(names) == 1 and _EMPTY_DECIMAL.search(error):
            return self._rejected("ME060", column=names[0], known="a valid decimal: it has 0 bytes", help="")
        return self._broken(f"the pages of row group {group + 1} cannot be read")

    def _longest_text(self, group: int, names: Collection[str] | None) -> int:
        """Bytes of the longest row that text and binary columns of a row group can make out of few bytes.

        A dictionary's value costs next to nothing in the file and its whole length in every row; so does the beginning
        that a value shares with the one before (DELTA_BYTE_ARRAY).
        """
        metadata = self.parquet.metadata
        leaves = map(self.parquet.schema.column, range(metadata.num_columns))
        texts = {
            at: leaf.path
            for at, leaf in enumerate(leaves)
            if leaf.physical_type == "BYTE_ARRAY" and (names is None or leaf.path in names)
        }
        if not texts:
            return 0
        _first_row(self.parquet, group, texts.values())
        described = metadata.row_group(group)  # from here on its columns may be asked for
        encodings = {path: {*described.column(at).encodings} for at, path in texts.items()}
        prefixed = sum("DELTA_BYTE_ARRAY" in known for known in encodings.values())
        longest = prefixed * min(described.total_byte_size, _PREFIX_BYTES)
        if folded := [path for path, known in encodings.items() if known & DICTIONARY_ENCODINGS]:
            file = pq.ParquetFile(
                self._handle, metadata=metadata, read_dictionary=folded, pre_buffer=False, **_THRIFT_LIMITS
            )
            dictionaries = (cells.dictionary for cells in _first_row(file, group, folded))
            longest += sum(pc.max(pc.binary_length(values)).as_py() or 0 for values in dictionaries)
        return int(longest)

    def _typed(self, cells: Sequence[pa.Array], first_row: int) -> pa.RecordBatch:
        """A file's columns, as the engine's types, with the marker last."""
        names = [column.name for column in self._data.values()]
        arrays = [self._column(column, cells[at], first_row) for at, column in self._data.items()]
        if self._marker_at is not None:
            names.append(MARKER_COLUMN)
            marker = cells[self._marker_at]
            plain = marker.storage if isinstance(marker, pa.ExtensionArray) else marker
            arrays.append(effective_markers(plain, self._path, first_row))
        return pa.RecordBatch.from_arrays(arrays, names)

    def _column(self, column: Column, cells: pa.Array, first_row: int) -> pa.Array:
        if column.type == VOID:
            return pa.nulls(len(cells))
        try:
            return converted(cells, arrow_type(column.type))
        except OutOfRange as error:
            row = first_row + error.position if error.position >= 0 else None
            raise self._rejected("ME060", row, column=column.name, known=error.expected, help="") from error

    def _word(self, field: Field) -> str:
        is_ntz = self._config.naive_timestamps == "ntz" and field.type.zone == "naive"
        return "timestamp_ntz" if is_ntz else field.type.word or VOID

    def _note_marker_and_types(self) -> None:
        """Diagnostics of the marker, and of types that are not read as they are."""
        self._note_misspelled_marker(field.name for field in self._fields)
        if self._marker_at is not None:
            marker = self._fields[self._marker_at]
            if self._marker_at != len(self._fields) - 1:
                self._note("ME034", position=self._marker_at + 1, count=len(self._fields))
            if marker.name != MARKER_COLUMN:
                self._note("ME052", **in_other_case({marker.name: MARKER_COLUMN}))
            if marker.type.word == "string":
                self._note("ME035")
        for at, field in enumerate(self._fields):
            if taken_as := field.type.taken_as:
                taken_as = "integer" if at == self._marker_at else taken_as
                self._note("ME050", column=field.name, found=field.type.spelling, taken_as=taken_as)

    def _note_codecs(self, group: int) -> None:
        """ME055."""
        described = self.parquet.metadata.row_group(group)
        columns = range(described.num_columns) if described.num_rows else ()
        codecs = {described.column(at).compression for at in columns}
        for codec in sorted(codecs - DOCUMENTED_CODECS):
            self._note("ME055", found=codec)
        without_errors(self._noted)


def _opened(source: BinaryIO, footer: bytes) -> pq.ParquetFile:
    """The file with the types of Parquet itself (LZ-5.8), whatever Arrow schema its footer stores."""
    return pq.ParquetFile(
        source,
        metadata=metadata_of(footer.replace(_ARROW_SCHEMA, _IGNORED_SCHEMA)),
        pre_buffer=False,
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=True,
        **_THRIFT_LIMITS,
    )


def file_end(footer: bytes) -> bytes:
    """A footer's bytes with the length and magic bytes that end a file."""
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def metadata_of(footer: bytes) -> Any:  # noqa: ANN401 - pyarrow's FileMetaData
    """What a footer says, as Arrow reads it; any of `PARSE_ERRORS` where it cannot."""
    alone = pa.BufferReader(MAGIC + file_end(footer))
    return pq.ParquetFile(alone, pre_buffer=False, **_THRIFT_LIMITS).metadata


def _fixed_width(schema: Any) -> int:  # noqa: ANN401 - pyarrow's ParquetSchema
    """Bytes of one row's values in memory, text and binary not counted."""
    leaves = [schema.column(at) for at in range(len(schema))]
    return sum(_WIDTHS.get(leaf.physical_type, max(leaf.length, _MAX_FIXED_WIDTH)) for leaf in leaves)


def _first_row(file: pq.ParquetFile, group: int, columns: Iterable[str]) -> list[pa.Array]:
    first = next(file.iter_batches(batch_size=1, row_groups=[group], columns=list(columns), use_threads=False), None)
    return [] if first is None else first.columns


class OutOfRange(ValueError):
    """A cell outside its own type: its position in the array (-1: unknown), and what was expected."""

    def __init__(self, expected: str, position: int = -1) -> None:
        super().__init__(expected)
        self.expected = expected
        self.position = position


def converted(cells: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert a column's cells from Parquet's type to the Arrow type that the engine uses.

    Times are cut to microseconds towards the past, also before 1970.

    Raises:
        OutOfRange: text that is not UTF-8, a date or time outside the years 1 to 9999, too wide a decimal.
    """
    if isinstance(cells, pa.ExtensionArray):
        cells = cells.storage
    if pa.types.is_timestamp(target):
        expected = "a time in the years 1 to 9999"
        naive = cells.view(pa.timestamp(cells.type.unit))
        if cells.type.unit == "ns":
            naive = pc.floor_temporal(naive, unit="microsecond")
        values = (
            naive if cells.type.unit == "us" else _read(naive, lambda some: some.cast(pa.timestamp("us")), expected)
        )
        _check_years(values.view(pa.int64()), FIRST_DAY * _DAY, (LAST_DAY + 1) * _DAY - 1, expected)
        return values.view(target)
    expected = "text in UTF-8" if pa.types.is_string(target) else f"a valid {_spelling(target)}"
    values = _read(cells, lambda some: _cast(some, target), expected)
    if pa.types.is_date32(target):
        _check_years(values.view(pa.int32()), FIRST_DAY, LAST_DAY, "a date in the years 1 to 9999")
    return values


@lru_cache(maxsize=1_000)
def _spelling(target: pa.DataType) -> str:
    """A type as users write it: `decimal(36,17)`, without Arrow's bit width."""
    return re.sub(r"^decimal\d+\((\d+), (\d+)\)$", r"decimal(\1,\2)", str(target))


def _cast(cells: pa.Array, target: pa.DataType) -> pa.Array:
    values = cells if cells.type == target else cells.cast(target)
    values.validate(full=True)
    return values


def _read(cells: pa.Array, reading: Callable[[pa.Array], pa.Array], expected: str) -> pa.Array:
    """Convert all cells at once; one by one where that fails, to find the position."""
    try:
        return reading(cells)
    except pa.ArrowInvalid as error:
        position = -1
        try:
            for position in range(len(cells)):
                reading(cells.slice(position, 1))
        except pa.ArrowInvalid:
            raise OutOfRange(expected, position) from error
        raise OutOfRange(expected) from error


def _check_years(counts: pa.Array, first: int, last: int, expected: str) -> None:
    ends = pc.min_max(counts)
    if not ends["min"].is_valid or (first <= ends["min"].as_py() and ends["max"].as_py() <= last):
        return
    outside = pc.or_(pc.less(counts, first), pc.greater(counts, last))
    raise OutOfRange(expected, pc.index(outside, True).as_py())
