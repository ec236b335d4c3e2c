"""Whether a Parquet file is a data file of its table as it lies: told from its footer and the headers of its pages.

A reader of the table must find in it exactly the rows that its change file means (LZ-4.19): every type as Delta stores
it, nothing that Spark reads otherwise, nothing beyond what one row may take. Where that is not certain, rows are read.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.errors import (
    CommitConflict,
    ConcurrentModification,
    MirrorError,
    SparkFailed,
    StorageUnavailable,
    TableDamaged,
)
from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.landing_zone.diagnostics import RejectedFile, without_errors
from mirror_engine.landing_zone.schema import VOID
from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.base import FileRows
from mirror_engine.tables.log.commit import create_table, properties_of
from mirror_engine.tables.log.data_commit import NewFile, add_files, data_file_name, indexed_columns
from mirror_engine.tables.log.durability import sync_file
from mirror_engine.tables.log.snapshot import needs_mapping, open_log
from mirror_engine.tables.log.statistics import ColumnChunk, bounds_of_chunks, chunks_of_column, statistics_of
from mirror_engine.tables.reading.limits import broken, check_total
from mirror_engine.tables.reading.opening import guarded, listed_now, open_listed
from mirror_engine.tables.reading.parquet import fixed_width, longest_text, open_parquet, read_footer
from mirror_engine.tables.reading.parquet_types import FIRST_DAY, LAST_DAY, PARSE_ERRORS, parquet_type
from mirror_engine.tables.reading.reader import facts_after, file_contract, file_diagnostics
from mirror_engine.tables.reading.request import ReadFile, ReadRequest
from mirror_engine.tables.reading.row_rules import IngestedRows, ingest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path
    from typing import BinaryIO

    from mirror_engine.config import Config
    from mirror_engine.landing_zone.schema import Column
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.base import BatchRecord, ChangeBatch, RowSource
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.reading.parquet import ParquetChangeFile
    from mirror_engine.tables.reading.row_rules import FileContract
    from mirror_engine.tables.reading.spill import ReadMode, RowStore

_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
_DICTIONARIES = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY"})
_ENCODINGS = _DICTIONARIES | {"PLAIN", "RLE", "BIT_PACKED"}
_STORED_AS = {
    "boolean": "BOOLEAN",
    "byte": "INT32",
    "short": "INT32",
    "integer": "INT32",
    "long": "INT64",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "INT32",
    "timestamp": "INT64",
    "timestamp_ntz": "INT64",
    "string": "BYTE_ARRAY",
    "binary": "BYTE_ARRAY",
}
_ZONES = {"timestamp": "utc", "timestamp_ntz": "naive"}
_DIGITS = {"INT32": 9, "INT64": 18, "FIXED_LEN_BYTE_ARRAY": 38}  # of a decimal on that carrier
_FLOATS = frozenset({"float", "double"})
_BATCH_ROWS = 262_144
_DAY_US = 86_400_000_000
_RANGES = {
    "date": (FIRST_DAY, LAST_DAY),
    **dict.fromkeys(_ZONES, (FIRST_DAY * _DAY_US, (LAST_DAY + 1) * _DAY_US - 1)),
}
# what Spark writes into files whose dates count in another calendar
_OTHER_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_VERSION = b"org.apache.spark.version"


class Doubt(Exception):
    """Why a file is no data file as it lies, in words."""


def check_fit(
    file: ParquetChangeFile, terms: FileContract, source: BinaryIO, size: int, config: Config
) -> Counter[str]:
    """Make sure that a marker-free file is a data file of its table as it lies.

    Args:
        file: as opened.
        terms: what its rows are held to.
        source: its bytes.
        size: how many there are.
        config: `max_row_size` counts here.

    Returns:
        How many rows have NULL in each key column that has any.

    Raises:
        Doubt: that is not certain.
        RejectedFile: a page is beyond all bounds.
    """
    _check_names(file, terms)
    _check_footer(file)
    nulls: Counter[str] = Counter()
    for at, column in enumerate(file.columns):
        _check_type(file.parquet.schema.column(at), terms, column)
        chunks = chunks_of_column(file.parquet.metadata, at)
        _check_cells(column, terms, chunks, is_required=file.parquet.schema.column(at).max_definition_level == 0)
        if column.name in terms.key_columns:
            nulls[column.name] = sum(chunk.nulls or 0 for chunk in chunks)
    _check_rows(file, source, size, terms.incoming.path, config)
    _check_floats(file)
    return +nulls


def _check_names(file: ParquetChangeFile, terms: FileContract) -> None:
    schema = terms.merged.schema
    if needs_mapping(schema) or schema.partition_columns:
        raise Doubt("a column of the table has another name in files, or none")
    for column in file.columns:
        known = schema.find(column.name)
        if known is None or known.name != column.name:
            raise Doubt(f"column {column.name} is spelled otherwise in the table")


def _check_footer(file: ParquetChangeFile) -> None:
    """That asking for the columns' metadata is safe (see `pace_of`), and what it says of the file as a whole."""
    try:
        for group in range(file.parquet.num_row_groups):
            next(file.parquet.iter_batches(batch_size=1, row_groups=[group]), None)
    except PARSE_ERRORS as fault:
        raise Doubt("its first rows cannot be read") from fault
    if not file.parquet.metadata.num_rows:
        raise Doubt("it has no rows")
    told = file.parquet.metadata.metadata or {}
    version = told.get(_SPARK_VERSION, b"3")
    if any(key in told for key in _OTHER_CALENDAR) or version.split(b".")[0] in {b"1", b"2"}:
        raise Doubt("its dates may count in another calendar")


def _check_type(leaf: Any, terms: FileContract, column: Column) -> None:  # noqa: ANN401 - pyarrow's ColumnSchema
    kind = parquet_type(leaf)
    if kind.taken_as or column.type == VOID:
        raise Doubt(f"column {column.name} is {kind.spelling}")
    if column.type in _ZONES and (kind.zone != _ZONES[column.type] or not kind.spelling.endswith("microseconds")):
        raise Doubt(f"column {column.name} is {kind.spelling}, {kind.zone}")
    if column.type == "string" and kind.spelling != "STRING":
        raise Doubt(f"column {column.name} is {kind.spelling}")
    decimal = arrow_type(column.type).precision if column.type.startswith("decimal") else 0
    fits = decimal <= _DIGITS.get(leaf.physical_type, 0) if decimal else leaf.physical_type == _STORED_AS[column.type]
    if not fits:
        raise Doubt(f"column {column.name} is {kind.spelling} on {leaf.physical_type}")
    known = terms.merged.schema.find(column.name)
    if known is None or known.type != column.type:
        raise Doubt(f"column {column.name} is of another kind of time in the table")


def _check_cells(column: Column, terms: FileContract, chunks: Sequence[ColumnChunk], *, is_required: bool) -> None:
    """What the footer tells of a column's cells is enough, and nothing that would be refused."""
    known = terms.merged.schema.find(column.name)
    is_filled = known is not None and not known.nullable
    if (is_filled or column.name in terms.key_columns) and not is_required:
        if any(chunk.nulls is None for chunk in chunks):
            raise Doubt(f"its footer does not tell whether column {column.name} holds NULL")
        if is_filled and any(chunk.nulls for chunk in chunks):
            raise Doubt(f"column {column.name} holds NULL")
    if column.type in _RANGES:
        lowest, highest = _RANGES[column.type]
        for chunk in chunks:
            if not chunk.is_empty and (chunk.bounds is None or chunk.bounds[0] < lowest or chunk.bounds[1] > highest):
                raise Doubt(f"its footer does not tell that column {column.name} is within the years 1 to 9999")


def _check_rows(file: ParquetChangeFile, source: BinaryIO, size: int, path: str, config: Config) -> None:
    """Pages, codecs and encodings are such as every reader knows, and no row can be longer than allowed."""
    unfolded = 0
    metadata = file.parquet.metadata
    for group in range(metadata.num_row_groups):
        for at in range(metadata.num_columns):
            told = metadata.row_group(group).column(at)
            if told.compression not in _CODECS or not set(told.encodings) <= _ENCODINGS:
                raise Doubt(f"its codec is {told.compression}, its encodings are {', '.join(told.encodings)}")
            unfolded += told.total_uncompressed_size
        unfolded += _repeated_bytes(metadata, source, group)
    check_total(unfolded, metadata.num_rows, size, path, config)


def _repeated_bytes(metadata: Any, source: BinaryIO, group: int) -> int:  # noqa: ANN401 - pyarrow's FileMetaData
    """How many bytes dictionaries of a row group may unfold to, were every value of a row the longest."""
    described = metadata.row_group(group)
    columns = [described.column(at) for at in range(described.num_columns)]
    texts = [each.path_in_schema for each in columns if each.physical_type == "BYTE_ARRAY" and _is_folded(each)]
    fixed = fixed_width(metadata.schema)
    try:
        longest = longest_text(source, metadata, group, texts) if texts else 0
    except PARSE_ERRORS as fault:
        raise Doubt("its dictionaries cannot be read") from fault
    return int(described.num_rows) * (fixed + longest)


def _check_floats(file: ParquetChangeFile) -> None:
    """No value that Spark passes over: by bounds, which leave NaN out, or by dictionaries, where -0.0 is not 0.0."""
    metadata = file.parquet.metadata
    places = [(at, column.name) for at, column in enumerate(file.columns) if column.type in _FLOATS]
    bounded = {name for at, name in places if any(chunk.bounds for chunk in chunks_of_column(metadata, at))}
    listed = {name for at, name in places if _has_dictionary(metadata, at)}
    if not bounded | listed:
        return
    try:
        for batch in file.parquet.iter_batches(_BATCH_ROWS, columns=sorted(bounded | listed)):
            for name, cells in zip(batch.schema.names, batch.columns, strict=True):
                if name in bounded and pc.any(pc.is_nan(cells)).as_py():
                    raise Doubt(f"column {name} holds NaN, which its footer leaves out")
                if name in listed and _has_negative_zero(cells):
                    raise Doubt(f"column {name} holds -0.0, which Spark does not find in its dictionary")
    except PARSE_ERRORS as fault:
        raise Doubt("its floating point cannot be read") from fault


def _has_dictionary(metadata: Any, at: int) -> bool:  # noqa: ANN401 - pyarrow's FileMetaData
    return any(_is_folded(metadata.row_group(group).column(at)) for group in range(metadata.num_row_groups))


def _is_folded(chunk: Any) -> bool:  # noqa: ANN401 - pyarrow's ColumnChunkMetaData
    return bool(_DICTIONARIES & {*chunk.encodings})


def _has_negative_zero(cells: pa.Array) -> bool:
    """By its bits: they make the lowest whole number of that width."""
    bits = pa.int32() if pa.types.is_float32(cells.type) else pa.int64()
    return bool(pc.any(pc.equal(cells.view(bits), -(1 << bits.bit_width - 1))).as_py())


@dataclass(frozen=True)
class PassthroughFile:
    """The file itself (LZ-4.19).

    Attributes:
        name: under which it comes to lie in the table's folder.
        size: in bytes.
        footer: its Parquet metadata; columns are the table's, in exactly its types.
        open: its bytes, from the beginning.
        check: raises `ConcurrentModification` where something else lies there by now.
    """

    name: str
    size: int
    footer: Any
    open: Callable[[], BinaryIO]
    check: Callable[[], None]


_COUNTS = {pa.date32().id: pa.int32(), pa.timestamp("us").id: pa.int64()}  # what times are in files
_ORDERED = ("byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz", "string", "decimal")


class Seen:
    """What was seen of one column: how many NULLs, the lowest and the highest value."""

    def __init__(self) -> None:
        self.nulls = 0
        self.lowest: Any = None
        self.highest: Any = None

    def add(self, cells: pa.Array) -> None:
        """Take the next cells."""
        self.nulls += cells.null_count
        plain = cells.view(_COUNTS[cells.type.id]) if cells.type.id in _COUNTS else cells
        if cells.null_count == len(cells) or not _is_ordered(plain.type):
            return
        found = pc.min_max(plain)
        lowest, highest = found["min"].as_py(), found["max"].as_py()
        self.lowest = lowest if self.lowest is None else min(self.lowest, lowest)
        self.highest = highest if self.highest is None else max(self.highest, highest)


class _KeyStore:
    """A `RowStore` of keys and markers alone; of the other columns it notes what it saw."""

    def __init__(self, below: RowStore, seen: dict[str, Seen]) -> None:
        self._below = below
        self._seen = seen
        self.schema = below.schema

    def add(self, batch: pa.RecordBatch) -> None:
        for name, seen in self._seen.items():
            seen.add(batch.column(name))
        self._below.add(batch.select(self.schema.names))

    def finish(self) -> None:
        self._below.finish()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return self._below.batches(columns)

    def close(self) -> None:
        self._below.close()


def check_bounds(footer: Any, columns: Sequence[Column], seen: dict[str, Seen], path: str) -> None:  # noqa: ANN401 - FileMetaData
    """Refuse a file whose footer told other things of its cells than they are: readers pass over files by that.

    Raises:
        RejectedFile: ME024.
    """
    words = {column.name: column.type for column in columns}
    for at in range(footer.num_columns):
        name = footer.schema.column(at).name
        chunks = chunks_of_column(footer, at)
        if all(chunk.nulls is not None for chunk in chunks) and sum(c.nulls or 0 for c in chunks) != seen[name].nulls:
            raise broken(path, f"its footer tells another number of NULLs in column {name}")
        told = bounds_of_chunks(chunks, words[name]) if words[name].partition("(")[0] in _ORDERED else None
        if told is not None and seen[name].lowest is not None and not _holds(told, seen[name]):
            raise broken(path, f"column {name} holds values beyond those that its footer tells")


def _holds(told: tuple[Any, Any], seen: Seen) -> bool:
    lowest, low, high, highest = map(_comparable, (told[0], seen.lowest, seen.highest, told[1]))
    return bool(min(lowest, low) == lowest) and bool(max(highest, high) == highest)


def _comparable(value: Any) -> Any:  # noqa: ANN401 - of any column
    return value.encode() if isinstance(value, str) else value


def _is_ordered(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_decimal(kind))


MIN_BYTES = 4 * 1024 * 1024  # of a file that is worth a data file of its own
_SAMPLES, _SAMPLE_BYTES = 64, 4096  # of a file's bytes, beside its footer, that tell it from others


class PassthroughReader:
    """Looks at change files of one ROOT's landing zone without reading their rows.

    Args:
        storage: door 1.
        config: all options.
        mode: where rows go when they are read after all.
    """

    def __init__(self, storage: Storage, config: Config, mode: ReadMode) -> None:
        self._storage = storage
        self._config = config
        self._mode = mode

    def look(self, request: ReadRequest) -> ReadFile | str:
        """A file that becomes part of its table as it lies; else why it does not, in words.

        Raises:
            ConcurrentModification: another file lies there than was sighted, or none.
            StorageUnavailable: it could not be read.
        """
        if reason := self._plain_reason(request):
            return reason
        try:
            return self._looked_at(request)
        except Doubt as doubt:
            return str(doubt)
        except RejectedFile as refused:
            return refused.diagnostic.message

    def inspected(self, content: BinaryIO, request: ReadRequest) -> FileRows:
        """A file that became part of its table as it lay, read at last; of its rows only keys and markers are kept.

        Args:
            content: the table's own copy.
            request: what the file was, against the table as it is now.

        Raises:
            RejectedFile: it breaks the protocol after all.
            StorageUnavailable: it could not be read.
        """
        file = open_parquet(guarded(content, request.path), request.path, self._config)
        terms = file_contract(file, request, self._config)
        seen: dict[str, Seen] = {}

        def store(schema: pa.Schema, key_columns: Collection[str]) -> RowStore:
            seen.update({name: Seen() for name in schema.names if name != MARKER_COLUMN})
            keys = pa.schema([schema.field(name) for name in (*key_columns, MARKER_COLUMN)])
            return _KeyStore(self._mode.store(keys, key_columns), seen)

        taken = ingest(file, terms, request.file.size, replace(self._mode, store=store))
        check_bounds(file.parquet.metadata, terms.merged.schema.columns, seen, request.path)
        return FileRows(
            request.file.path, "", "", 0, taken.rows, taken.markers, has_marker=False, byte_count=taken.byte_count
        )

    def _plain_reason(self, request: ReadRequest) -> str:
        """What needs no look into the file."""
        metadata = request.metadata
        if not self._config.passthrough:
            return "passthrough is off"
        if metadata.is_text:
            return "it is delimited text"
        if request.file.size < MIN_BYTES:
            return f"it is smaller than {MIN_BYTES:,} bytes"
        if metadata.upsert_default:
            return "its rows are upserts"
        if metadata.partitioned:
            return "the table is partitioned"
        return "" if request.facts.takes_files else "the table asks more of its files, or names columns otherwise"

    def _looked_at(self, request: ReadRequest) -> ReadFile:
        size = request.file.size
        with open_listed(self._storage, request) as handle:
            content = guarded(handle, request.path)
            file = open_parquet(content, request.path, self._config)
            if file.marker is not None:
                raise Doubt("it has row markers")
            terms = file_contract(file, request, self._config)
            nulls = check_fit(file, terms, content, size, self._config)
            digest = _digest(content, size, request.path, self._config)
        taken = IngestedRows(
            _RowsOnDemand(partial(self._rows, request)), _inserts(file.parquet.metadata.num_rows), 0, nulls
        )
        said = without_errors(file_diagnostics(file, terms, taken, request))
        original = PassthroughFile(
            data_file_name(),
            size,
            file.parquet.metadata,
            partial(open_listed, self._storage, request),
            partial(self._check_unchanged, request),
        )
        seen = request.file
        self._check_unchanged(request)
        rows = FileRows(
            path=seen.path,
            etag=seen.etag,
            digest=digest,
            modified_ns=seen.modified_ns,
            rows=taken.rows,
            markers=taken.markers,
            has_marker=False,
            byte_count=0,
            diagnostics=said,
            landed_bytes=size,
            original=original,
        )
        return ReadFile(rows, facts_after(file, terms, request.facts, fills=True))

    def _rows(self, request: ReadRequest) -> RowSource:
        with open_listed(self._storage, request) as handle:
            file = open_parquet(guarded(handle, request.path), request.path, self._config)
            contract = file_contract(file, request, self._config)
            return ingest(file, contract, request.file.size, self._mode).rows

    def _check_unchanged(self, request: ReadRequest) -> None:
        if listed_now(self._storage, request) != request.file:
            raise ConcurrentModification(f"{request.path}: changed since it was listed")


@dataclass
class _RowsOnDemand:
    """The rows of a file, read when somebody first asks for them; a `RowSource`."""

    read: Callable[[], RowSource]
    found: RowSource | None = None

    @property
    def schema(self) -> pa.Schema:
        """See `RowSource`."""
        return self._rows().schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """See `RowSource`.

        Raises:
            RejectedFile: the file breaks the protocol.
            ConcurrentModification: it is no longer there.
        """
        return self._rows().batches(columns)

    def close(self) -> None:
        """See `RowSource`."""
        if self.found is not None:
            self.found.close()

    def _rows(self) -> RowSource:
        if self.found is None:
            self.found = self.read()
        return self.found


def _inserts(rows: int) -> Counter[int]:
    return Counter({RowMarker.INSERT.value: rows})


def _digest(content: BinaryIO, size: int, path: str, config: Config) -> str:
    """Tells a file from another by its footer, its size and samples of its bytes; never equal to a digest of all."""
    hasher = blake2b(read_footer(content, path, config), digest_size=16)
    hasher.update(size.to_bytes(8, "big"))
    for sample in range(_SAMPLES):
        content.seek(size * sample // _SAMPLES)
        hasher.update(content.read(_SAMPLE_BYTES))
    return f"sampled:{hasher.hexdigest()}"


_COPIES = 4  # at once
_BLOCK_BYTES = 1 << 20


@contextmanager
def copied(originals: Sequence[PassthroughFile], folder: Path) -> Iterator[None]:
    """Copies of files in a table's folder, for a commit made within; none is left where nothing was committed.

    While the commit is made they are brought to the disk.
    Only a JVM that died over it leaves them: whether it committed nobody can tell for sure. They are VACUUM's then.

    Args:
        originals: they are copied side by side.
        folder: the table's.

    Raises:
        ConcurrentModification: one was replaced meanwhile.
        StorageUnavailable: one could not be read or written.
    """
    try:
        targets = [folder / original.name for original in originals]
        with ThreadPoolExecutor(_COPIES) as pool:
            with _disk_trouble(folder):
                folder.mkdir(parents=True, exist_ok=True)
                list(pool.map(_copy, originals, targets))
            synced = pool.map(sync_file, targets)
            yield
            with _disk_trouble(folder):  # a failed fsync is told once: `make_durable` will not hear of it
                list(synced)
    except SparkFailed:
        raise
    except Exception:
        with suppress(MirrorError, OSError):
            for name in {original.name for original in originals} - _in_use(folder):
                (folder / name).unlink(missing_ok=True)
            if not any(folder.iterdir()):
                folder.rmdir()
        raise


def stage(table: str, folder: Path, log: DeltaLog | None, batch: ChangeBatch, record: BatchRecord) -> None:
    """Make copied files part of a table, or a table of them.

    Args:
        table: its folder from `ROOT/Tables`.
        folder: the table's.
        log: the table before the commit, with its columns; None where there is none yet.
        batch: whose originals were copied into the table's folder.
        record: of the batch.

    Raises:
        ConcurrentModification: an original is another file by now; nothing was committed.
        CommitConflict: another writer was first; nothing was committed.
    """
    configured = log.table.metadata().configuration if log else properties_of(batch.schema, batch.key_columns)
    wanted = indexed_columns(configured, batch.schema)
    files = [NewFile(folder / each.name, statistics_of(each.footer, wanted)) for each in batch.originals]
    for original in batch.originals:
        original.check()
    if log:
        add_files(table, log, batch.schema, files, record)
    elif not create_table(folder, batch.schema, record, files, batch.key_columns):
        raise CommitConflict(f"{table}: another writer created the table first", "The next cycle reads its state.")


def data_file(folder: Path, name: str) -> BinaryIO | None:
    """The bytes of a data file of a table; None where it is gone, and part of the table no longer.

    Raises:
        TableDamaged: it is not there.
        StorageUnavailable: it cannot be opened.
    """
    with _disk_trouble(folder), suppress(FileNotFoundError):
        return (folder / name).open("rb")
    if name in _in_use(folder):
        raise TableDamaged(folder, f"{name}, which became part of it as it lay, is not there")
    return None


def _in_use(folder: Path) -> AbstractSet[str]:
    """The names of the files that are part of a table."""
    log = open_log(folder)
    return set() if log is None else {file.path.name for file in log.data_files()}


def _copy(original: PassthroughFile, target: Path) -> None:
    with original.open() as source, target.open("xb") as copy:
        left = original.size
        # not of one file system, or no file of the system's at all; others end early without a word
        with suppress(OSError, AttributeError):
            while left and (count := os.copy_file_range(source.fileno(), copy.fileno(), left)):
                left -= count
        if left:
            source.seek(0)
            copy.seek(0)
            copy.truncate()
            shutil.copyfileobj(source, copy, _BLOCK_BYTES)
    original.check()


@contextmanager
def _disk_trouble(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageUnavailable(
            f"{folder}: a file cannot be copied into it, or brought to the disk: {error.strerror or error}",
            "Check the disk and its rights.",
        ) from error
