"""Opens a Parquet change file: its columns as Parquet itself types them, and its rows in bounded batches.

Arrow parses the bytes and guards itself against sizes that a footer or a page header claims. What it is not asked:
`buffer_size` (a buffer of whatever size a page header claims) and, before a row of its row group was read,
`RowGroupMetaData.column` (it ends the process where the metadata is corrupt). See decision 22.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.diagnostics import RejectedFile, diagnose, without_errors
from mirror_engine.landing_zone.schema import VOID, Column, same_name
from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.reading.limits import broken, check_lengths, check_total, out_of_memory, too_large
from mirror_engine.tables.reading.parquet_types import PARSE_ERRORS, OutOfRange, ParquetType, converted, parquet_type
from mirror_engine.tables.reading.request import OpenFile
from mirror_engine.tables.reading.row_rules import effective_markers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from mirror_engine.config import Config

BATCH_BYTES = 32 * 1024 * 1024
MAX_ROWS = 65_536  # of a batch
_THREADED_BYTES = 1 << 20  # a row group that takes less is read sooner without threads
_PREFIX_BYTES = 1 << 20  # of a value to expect where values may repeat the beginning of the one before
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
_MAX_FIXED_WIDTH = 16  # of a decimal, whatever its physical type

_MAGIC, _ENCRYPTED_MAGIC = b"PAR1", b"PARE"
_TAIL_BYTES = 8  # the footer's length and the magic
_THRIFT_LIMITS = {"thrift_string_size_limit": 16 << 20, "thrift_container_size_limit": 100_000}
# Arrow's own schema under its key, as Thrift writes a key that is followed by its value. Arrow would read the
# publisher's types in memory instead of Parquet's; a renamed key is ignored.
_ARROW_SCHEMA, _IGNORED_SCHEMA = b"\x18\x0cARROW:schema\x18", b"\x18\x0cARROW:ignore\x18"

DICTIONARY_ENCODINGS = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY"})
# of Arrow's decoders; the footer names a column's encodings, too, but a damaged one ends the process when asked
_ENCODING_FAULTS = re.compile("InitBlock EOF|in a (mini)?block|bit width|encoding|implemented")
_DOCUMENTED_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
_MARKER_TYPES = frozenset({"byte", "short", "integer", "long", "string", VOID})
_UNSIGNED = frozenset({"UINT8", "UINT16", "UINT32", "UINT64"})


class Field(NamedTuple):
    """A column of the file, the marker included."""

    name: str
    type: ParquetType
    nullable: bool


class ParquetChangeFile(OpenFile):
    """An `OpenFile` over Parquet (LZ-3.10, LZ-5.1, LZ-5.8).

    Args:
        threads: whether Arrow may decode columns in parallel.

    Attributes:
        parquet: the file as Arrow has opened it; ask for no column of a row group before a row of it was read.

    Raises:
        RejectedFile: ME023, ME024, ME036, ME049, ME075; under `strict` also ME034, ME035, ME050, ME052.
        StorageUnavailable: the bytes could not be read.
    """

    def __init__(self, handle: BinaryIO, path: str, config: Config, *, threads: bool = True) -> None:
        super().__init__(handle, path, config)
        self._threads = threads
        footer = self._read_footer()
        try:
            self.parquet = _opened(handle, footer)
            _check_metadata(self.parquet.metadata, path)
            self._fields = fields = _fields(self.parquet, path)
        except PARSE_ERRORS as error:
            raise broken(path, "its footer cannot be understood") from error
        self._marker_at = _marker_position(fields, path)
        self.promised_rows = rows = int(self.parquet.metadata.num_rows)
        self.has_rows = rows > 0
        self._fixed_width = _fixed_width(self.parquet.schema)
        check_total(rows * self._fixed_width, rows, self._size, path, config)
        self.marker = None if self._marker_at is None else fields[self._marker_at].name
        data = {at: field for at, field in enumerate(fields) if at != self._marker_at}
        self._data = {at: Column(field.name, self._word(field), field.nullable) for at, field in data.items()}
        self.columns = tuple(self._data.values())
        self.naive_columns, self.utc_columns = (
            frozenset(field.name for field in data.values() if field.type.zone == zone) for zone in ("naive", "utc")
        )
        self._note_marker_and_types()
        without_errors(self._noted)

    def batches(self, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Rows in file order; see `OpenFile`. The marker is checked already (ME037).

        Raises:
            RejectedFile: ME024, ME037, ME060, ME075, ME087; under `strict` also ME055.
            StorageUnavailable: the bytes could not be read.
        """
        rows = unfolded = 0
        read: Sequence[int] = range(len(self._fields))
        names = None
        if columns is not None:
            wanted = {*columns, self.marker}
            read = [at for at in read if self._fields[at].name in wanted] or [0]
            names = [self._fields[at].name for at in read]
        for group in range(self.parquet.num_row_groups):
            for raw in self._raw_batches(group, names):
                unfolded += check_lengths(raw, self._path, rows + 1, self._config)
                yield self._typed(dict(zip(read, raw.columns, strict=False)), rows + 1)
                rows += raw.num_rows
                check_total(unfolded, rows, self._size, self._path, self._config)
            self._note_codecs(group, read)
        if rows != self.promised_rows:
            raise broken(self._path, "it holds fewer rows than its footer says")

    def _read_footer(self) -> bytes:
        """Read the footer's bytes.

        Raises:
            RejectedFile: ME023 for 0 bytes, ME024 for an incomplete file, ME075 for a footer beyond `max_row_size`.
        """
        path, source, limit = self._path, self._handle, self._config.max_row_size
        if self._size == 0:
            raise RejectedFile(diagnose("ME023", path))
        source.seek(0)
        head = source.read(len(_MAGIC))
        source.seek(max(self._size - _TAIL_BYTES, 0))
        tail = source.read(_TAIL_BYTES)
        length = int.from_bytes(tail[:4], "little")
        if _ENCRYPTED_MAGIC in {head, tail[-4:]}:
            raise broken(path, "it is encrypted")
        if head != _MAGIC[: len(head)]:
            raise broken(path, "it does not begin as a Parquet file does")
        if self._size < len(_MAGIC) + _TAIL_BYTES or tail[-4:] != _MAGIC:
            raise broken(path, "it does not end as a Parquet file does")
        if length > self._size - _TAIL_BYTES - len(_MAGIC):
            raise broken(path, "its footer is said to be longer than the file")
        if length > limit:
            raise too_large(path, f"a footer of {length:,} bytes", limit)
        source.seek(self._size - _TAIL_BYTES - length)
        return source.read(length)

    def _raw_batches(self, group: int, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """A row group as Parquet types it, in batches of about `BATCH_BYTES`."""
        described = self.parquet.metadata.row_group(group)
        encoded = max(described.total_byte_size, 0)
        unfolded = described.num_rows * self._fixed_width + encoded
        check_total(unfolded, self.promised_rows, self._size, self._path, self._config)
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
            raise out_of_memory(self._path, f"row group {group + 1}", self._config) from error
        except PARSE_ERRORS as error:
            raise self._unreadable(group, names, str(error)) from error

    def _unreadable(self, group: int, names: Sequence[str] | None, error: str) -> RejectedFile:
        """ME024, or ME087 where Arrow speaks of an encoding; columns are read one by one to find the one that fails."""
        names = [field.name for field in self._fields] if names is None else names
        for name in names if len(names) > 1 else ():
            for _ in self._raw_batches(group, [name]):
                pass
        if "crypt" in error:
            return broken(self._path, "it is encrypted")
        if len(names) == 1 and _ENCODING_FAULTS.search(error):
            return RejectedFile(self._diagnostic("ME087", column=names[0], reason=error))
        return broken(self._path, f"the pages of row group {group + 1} cannot be read")

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

    def _typed(self, cells: dict[int, pa.Array], first_row: int) -> pa.RecordBatch:
        """Columns by place in the file, as the engine's types, with the marker last."""
        names = [self._data[at].name for at in cells if at != self._marker_at]
        arrays = [self._column(self._data[at], array, first_row) for at, array in cells.items() if at in self._data]
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
            raise RejectedFile(self._diagnostic("ME060", row, column=column.name, type=error.expected)) from error

    def _word(self, field: Field) -> str:
        is_ntz = self._config.naive_timestamps == "ntz" and field.type.zone == "naive"
        return "timestamp_ntz" if is_ntz else field.type.word or VOID

    def _note_marker_and_types(self) -> None:
        """Diagnostics of the marker, and of types that are not read as they are."""
        if self._marker_at is not None:
            marker = self._fields[self._marker_at]
            if self._marker_at != len(self._fields) - 1:
                self._note("ME034", position=self._marker_at + 1, count=len(self._fields))
            if marker.name != MARKER_COLUMN:
                self._note("ME052", column=marker.name, other=MARKER_COLUMN)
            if marker.type.word == "string":
                self._note("ME035")
        for at, field in enumerate(self._fields):
            if taken_as := field.type.taken_as:
                taken_as = "integer" if at == self._marker_at else taken_as
                self._note("ME050", column=field.name, found=field.type.spelling, taken_as=taken_as)

    def _note_codecs(self, group: int, read: Iterable[int]) -> None:
        """ME055, of columns that were read."""
        described = self.parquet.metadata.row_group(group)
        codecs = {described.column(at).compression for at in read} if described.num_rows else set()
        for codec in sorted(codecs - _DOCUMENTED_CODECS):
            self._note("ME055", found=codec)
        without_errors(self._noted)


def _opened(source: BinaryIO, footer: bytes) -> pq.ParquetFile:
    """The file with the types of Parquet itself (LZ-5.8), whatever Arrow schema its footer stores."""
    footer = footer.replace(_ARROW_SCHEMA, _IGNORED_SCHEMA)
    alone = pa.BufferReader(_MAGIC + footer + len(footer).to_bytes(4, "little") + _MAGIC)
    return pq.ParquetFile(
        source,
        metadata=pq.ParquetFile(alone, pre_buffer=False, **_THRIFT_LIMITS).metadata,
        pre_buffer=False,
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=True,
        **_THRIFT_LIMITS,
    )


def _check_metadata(metadata: Any, path: str) -> None:  # noqa: ANN401 - pyarrow's FileMetaData
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    rows = [group.num_rows for group in groups]
    if metadata.num_rows < 0 or min(rows, default=0) < 0 or sum(rows) != metadata.num_rows:
        raise broken(path, "its footer contradicts itself about the number of rows")
    if not {group.num_columns for group in groups} <= {metadata.num_columns}:
        raise broken(path, "its footer contradicts itself about the number of columns")
    if b"ARROW:schema" in (metadata.metadata or {}):  # in another spelling than writers use
        raise broken(path, "its footer cannot be understood")


def _fields(file: pq.ParquetFile, path: str) -> list[Field]:
    """The file's columns; a nested one is refused at once (ME049)."""
    fields: list[Field] = []
    for at, column in enumerate(file.schema_arrow):
        is_nested = pa.types.is_nested(column.type)
        kind = "LIST" if pa.types.is_list(column.type) else "MAP" if pa.types.is_map(column.type) else "STRUCT"
        found = ParquetType(kind, None) if is_nested else parquet_type(file.schema.column(at))
        if found.word is None and not same_name(column.name, MARKER_COLUMN):
            raise RejectedFile(diagnose("ME049", path, column=column.name, found=found.spelling))
        fields.append(Field(column.name, found, column.nullable))
        if is_nested:
            break  # behind it, the places of columns and of leaves differ
    return fields


def _marker_position(fields: Sequence[Field], path: str) -> int | None:
    """The marker's place (LZ-4.10); two of them, or one of another type, are refused (LZ-4.11)."""
    places = [at for at, field in enumerate(fields) if same_name(field.name, MARKER_COLUMN)]
    if not places:
        return None
    first = fields[places[0]].type
    if len(places) > 1 or not (first.word in _MARKER_TYPES or first.spelling in _UNSIGNED):
        kinds = " and ".join(fields[at].type.spelling for at in places)
        raise RejectedFile(diagnose("ME036", path, column=MARKER_COLUMN, found=kinds))
    return places[0]


def _fixed_width(schema: Any) -> int:  # noqa: ANN401 - pyarrow's ParquetSchema
    """Bytes of one row's values in memory, text and binary not counted."""
    leaves = [schema.column(at) for at in range(len(schema))]
    return sum(_WIDTHS.get(leaf.physical_type, max(leaf.length, _MAX_FIXED_WIDTH)) for leaf in leaves)


def _first_row(file: pq.ParquetFile, group: int, columns: Iterable[str]) -> list[pa.Array]:
    first = next(file.iter_batches(batch_size=1, row_groups=[group], columns=list(columns), use_threads=False), None)
    return [] if first is None else first.columns
