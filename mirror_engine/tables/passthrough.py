"""Passthrough: large insert-only Parquet files are verified, then added to their table as they are (LZ-4.19).

A file is copied to the scratch folder, with a footer that holds only what is checked, and its copy is read whole
through the row rules. A file that needs a cast, has row markers, another codec, or statistics by which readers would
skip rows, takes the rows path, and says why.
"""

from __future__ import annotations

import math
import os
import re
import uuid
import weakref
from bisect import bisect
from collections import defaultdict, deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirror_engine.errors import ConcurrentModification, TransientError
from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.landing_zone.diagnostics import RejectedFile
from mirror_engine.storage.base import digest
from mirror_engine.tables.arrow_types import PARSE_ERRORS, arrow_type
from mirror_engine.tables.base import MatchCounts, accounted_bytes
from mirror_engine.tables.changes.key_counts import KeyCounts, KeyRows, key_hashes
from mirror_engine.tables.changes.net_changes import exact_numbers
from mirror_engine.tables.footer import by_converted_types, check_pages, plain_footer
from mirror_engine.tables.log.data_rows import scan
from mirror_engine.tables.log.snapshot import needs_mapping
from mirror_engine.tables.log.statistics import bounds_of, decimal_of
from mirror_engine.tables.log.tables_folder import PROCESS
from mirror_engine.tables.reading.parquet import (
    DICTIONARY_ENCODINGS,
    DOCUMENTED_CODECS,
    MAGIC,
    ParquetChangeFile,
    file_end,
    metadata_of,
    parquet_type,
)
from mirror_engine.tables.reading.reader import context_after, file_contract, read_file
from mirror_engine.tables.reading.request import ReadRequest
from mirror_engine.tables.reading.row_rules import IngestedRows
from mirror_engine.tables.reading.spill import ReadMode, scratch_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator, Sequence
    from pathlib import Path

    from mirror_engine.config import Config
    from mirror_engine.landing_zone.listing import Entry
    from mirror_engine.landing_zone.schema import Column
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.base import ChangeBatch, FileRows, ReadContext
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.reading.request import LandedFolder
    from mirror_engine.tables.reading.row_rules import FileContract

T = TypeVar("T")
MIN_BYTES = 4 * 1024 * 1024  # of a file that is worth a data file of its own
_BATCH_ROWS = 65_536
_ENCODINGS = DICTIONARY_ENCODINGS | {"PLAIN", "RLE", "BIT_PACKED"}
# in files times are whole numbers, and text is bytes
_CARRIERS = {pa.date32().id: pa.int32(), pa.timestamp("us").id: pa.int64(), pa.string().id: pa.binary()}
# what Spark writes into files whose dates count in another calendar
_OTHER_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_VERSION = b"org.apache.spark.version"
_SPARK_OF_TODAY = re.compile(rb"[3-9]\.\d+\.\d+")  # Spark compares it as text
_KEPT_KEYS = frozenset({_SPARK_VERSION})  # by it Spark knows that dates count in its own calendar


class NotEligible(Exception):
    """Why a file cannot be added unchanged, in words."""


@dataclass(frozen=True)
class PassthroughReader:
    """Copies and verifies change files of one ROOT's landing zone, in a folder on the file system of the tables."""

    storage: Storage
    config: Config
    scratch: Path
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(pa.cpu_count(), "verify"))

    def why_not(self, request: ReadRequest) -> str:
        """Why a file's rows must be read, in words; `""` where its metadata and footer do not say. Copies nothing.

        Raises:
            ConcurrentModification: the file is gone.
            StorageUnavailable: it could not be read.
        """
        seen = self._seen(request)
        if isinstance(seen, str):
            return seen
        seen[0].close()
        return ""

    def in_order(
        self,
        folder: LandedFolder,
        files: Sequence[Entry],
        context: ReadContext,
        is_full: Callable[[int, int, Entry], bool],
    ) -> Generator[FileRows | str, None, None]:
        """Verified files of one batch, to be added unchanged; at the end why the next one's rows must be read.

        As many files are verified at once as there are cores. Closing it deletes the copies beyond the last one.

        Args:
            folder: where the files are, and by which metadata they are read.
            files: those that are pending, in order.
            context: that of the first of them.
            is_full: whether a batch of so many files and accounted bytes ends before a file.

        Raises:
            ConcurrentModification: another file is there than was listed, or none.
            StorageUnavailable: it could not be read or copied.
        """
        begun, ahead = self._begun(folder, files, context, is_full), deque[_Verification]()
        try:
            while True:
                ahead.extend(islice(begun, pa.cpu_count() - len(ahead)))
                if not ahead:
                    return
                found = ahead.popleft().found.result()
                yield found
                if isinstance(found, str):
                    return
        finally:
            for verification in ahead:
                verification.discard()

    def _begun(
        self,
        folder: LandedFolder,
        files: Sequence[Entry],
        context: ReadContext,
        is_full: Callable[[int, int, Entry], bool],
    ) -> Iterator[_Verification]:
        """Start verifying files, each in the context after the previous one, which that file's footer gives."""
        size = 0
        for count, file in enumerate(files):
            if is_full(count, size, file):
                return
            request = ReadRequest(folder, file, context)
            seen: tuple[BinaryIO, int, ReadContext] | str | TransientError
            try:
                seen = self._seen(request)
            except TransientError as error:
                seen = error
            if not isinstance(seen, tuple):
                yield _Verification(_known(seen))
                return
            handle, rows, context = seen
            size += accounted_bytes(file, rows)
            yield _Verification(self._pool.submit(self._verdict, handle, request), handle)

    def _seen(self, request: ReadRequest) -> tuple[BinaryIO, int, ReadContext] | str:
        """A file that may be eligible, see `_eligible`; else why it is not, in words."""
        return self._plain_reason(request) or _or_reason(lambda: self._eligible(request))

    def _eligible(self, request: ReadRequest) -> tuple[BinaryIO, int, ReadContext]:
        """An open file whose footer is eligible, the number of its rows, and the context after it."""
        with ExitStack() as unless_eligible:
            handle = unless_eligible.enter_context(request.open(self.storage))
            file, contract = self._opened(handle, request)
            after = context_after(file, contract, request.context, fills=file.has_rows)
            unless_eligible.pop_all()
        return handle, file.promised_rows, after

    def _verdict(self, handle: BinaryIO, request: ReadRequest) -> FileRows | str:
        with handle:
            return _or_reason(lambda: self._copied(handle, request))

    def _copied(self, handle: BinaryIO, request: ReadRequest) -> FileRows:
        copy = self.scratch / f"copy-{PROCESS}-{uuid.uuid4().hex}.parquet"
        with ExitStack() as unless_verified:
            unless_verified.callback(copy.unlink, missing_ok=True)
            with scratch_errors():
                self.scratch.mkdir(parents=True, exist_ok=True)
                with copy.open("xb") as target:
                    content_digest = digest(handle, target)
            self._make_plain(copy, request)
            verified = self._verified(copy, request, content_digest)
            if request.listed_now(self.storage) != request.file:
                raise ConcurrentModification(f"{request.path}: changed since it was listed")
            unless_verified.pop_all()
        return verified

    def _plain_reason(self, request: ReadRequest) -> str:
        """The reason against a file that its listing and metadata already show."""
        reasons = {
            "passthrough is off": not self.config.passthrough,
            "it is delimited text": request.folder.metadata.is_text,
            f"it is smaller than {MIN_BYTES:,} bytes": request.file.size < MIN_BYTES,
            "its rows are upserts": request.folder.metadata.upsert_default,
            "the table is partitioned": request.folder.metadata.partitioned,
            "the table asks more of its files, or names columns otherwise": not request.context.takes_files,
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    def _opened(self, content: BinaryIO, request: ReadRequest) -> tuple[ParquetChangeFile, FileContract]:
        """The file, with columns that are the table's in name and type."""
        file = ParquetChangeFile(content, request.path, self.config)
        if file.marker is not None:
            raise NotEligible("it has row markers")
        contract = file_contract(file, request, self.config)
        _check_names(file, contract)
        for at, column in enumerate(file.columns):
            _check_type(file.parquet, at, contract, column)
        return file, contract

    def _make_plain(self, copy: Path, request: ReadRequest) -> None:
        """Give the copy a footer that holds only what is verified afterwards."""
        with copy.open("r+b") as handle:
            footer = self._opened(handle, request)[0].footer
            try:
                plain = plain_footer(footer, _KEPT_KEYS)
                _check_converted_types(plain)
            except PARSE_ERRORS as error:
                raise NotEligible("its footer is not understood") from error
            with scratch_errors():
                handle.seek(-len(file_end(footer)), os.SEEK_END)
                handle.write(file_end(plain))
                handle.truncate()

    def _verified(self, copy: Path, request: ReadRequest, content_digest: str) -> FileRows:
        """Read every row of the copy through the row rules."""
        with pa.OSFile(str(copy)) as handle:
            file, contract = self._opened(handle, request)
            metadata = file.parquet.metadata
            groups = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
            mode = ReadMode(lambda schema, keys: CopiedRows(copy, schema, keys, groups))
            ingested = IngestedRows(file, contract, mode)
            rows = cast("CopiedRows", ingested.rows)
            if not ingested.markers:
                raise NotEligible("it has no rows")
            size = handle.seek(0, os.SEEK_END)
            for group, columns in rows.facts.items():
                chunks = [metadata.row_group(group).column(at) for at in range(len(file.columns))]
                _check_places(chunks, size)
                for column, chunk in zip(file.columns, chunks, strict=True):
                    _check_chunk(column, chunk, columns[column.name])
            try:
                check_pages(handle, file.footer)
            except ValueError as error:
                raise NotEligible(f"not every reader reads its pages: {error}") from error
            return replace(read_file(file, contract, ingested, request, content_digest), passthrough=copy)


@dataclass(frozen=True)
class _Verification:
    """A file that is verified in another thread: its rows, or why they must be read; its handle until it is copied."""

    found: Future[FileRows | str]
    handle: BinaryIO | None = None

    def discard(self) -> None:
        """Delete its copy, once there is one and its thread no longer needs it."""
        if self.found.cancel():
            if self.handle:
                self.handle.close()
        elif self.found.exception() is None and not isinstance(found := self.found.result(), str):
            found.rows.close()


def _known(found: str | TransientError) -> Future[FileRows | str]:
    known: Future[FileRows | str] = Future()
    if isinstance(found, str):
        known.set_result(found)
    else:
        known.set_exception(found)
    return known


def _or_reason(look: Callable[[], T]) -> T | str:
    """Return the result of a check; if the file is not eligible, the reason in words."""
    try:
        return look()
    except NotEligible as error:
        return str(error)
    except RejectedFile as error:  # the rows path rejects it
        return error.diagnostic.message


def _check_names(file: ParquetChangeFile, contract: FileContract) -> None:
    schema = contract.merged.schema
    if needs_mapping(schema) or schema.partition_columns:
        raise NotEligible("a column of the table has another name in files, or none")
    for column in file.columns:
        known = schema.find(column.name)
        if known is None or known.name != column.name:
            raise NotEligible(f"column {column.name} is spelled otherwise in the table")
    facts = file.parquet.metadata.metadata or {}
    version = facts.get(_SPARK_VERSION, b"3.0.0")
    if any(key in facts for key in _OTHER_CALENDAR) or not _SPARK_OF_TODAY.match(version):
        raise NotEligible("its dates may count in another calendar")


def _check_converted_types(footer: bytes) -> None:
    """Refuse columns whose converted type, by which Spark goes in doubt, is not their logical type."""
    schema, old = metadata_of(footer).schema, metadata_of(by_converted_types(footer)).schema
    for at in range(len(schema)):
        known, leaf = parquet_type(schema.column(at)), old.column(at)
        if leaf.converted_type != "NONE" and parquet_type(leaf).word != known.word:
            raise NotEligible(f"the types of column {leaf.name} contradict each other")


def _check_type(file: pq.ParquetFile, at: int, contract: FileContract, column: Column) -> None:
    """Refuse a column that is not stored in exactly the table's type, as every reader knows it."""
    leaf, stored = file.schema.column(at), file.schema_arrow.field(at).type
    kind, known = parquet_type(leaf), contract.merged.schema.find(column.name)
    is_odd = kind.spelling in {"ENUM", "JSON"} or (leaf.physical_type == "BYTE_ARRAY" and pa.types.is_decimal(stored))
    if kind.taken_as or is_odd or known is None or stored != arrow_type(known.type):
        zone = "" if kind.zone == "unsaid" else f", {kind.zone}"
        raise NotEligible(f"column {column.name} is {kind.spelling}{zone} on {leaf.physical_type}")


@dataclass
class _ChunkFacts:
    """What was read of one column of one row group; times and text as they are stored."""

    nulls: int = 0
    lowest: Any = None
    highest: Any = None
    has_nan: bool = False

    def add(self, cells: pa.Array) -> None:
        self.nulls += cells.null_count
        if cells.null_count == len(cells):
            return
        lowest, highest = _extremes(cells)
        if isinstance(lowest, float) and math.isnan(lowest):
            self.has_nan = True
            lowest, highest = (end.as_py() for end in pc.min_max(cells).values())  # of the others
        self.lowest = lowest if self.lowest is None else min(self.lowest, lowest)
        self.highest = highest if self.highest is None else max(self.highest, highest)


def _extremes(cells: pa.Array) -> tuple[Any, Any]:
    """The lowest and the highest non-NULL value of cells that have one; NaN if there is any.

    NumPy takes a tenth of Arrow's time for numbers that have an own type, and finds NaN in the same pass.
    """
    kind = cells.type
    if pa.types.is_floating(kind):
        values = cells.drop_null().to_numpy()
        return float(values.min()), float(values.max())
    if pa.types.is_decimal(kind) and (numbers := exact_numbers(cells.drop_null())) is not None:
        return Decimal(f"{numbers.min()}E{-kind.scale}"), Decimal(f"{numbers.max()}E{-kind.scale}")
    extremes = pc.min_max(cells.view(_CARRIERS[kind.id]) if kind.id in _CARRIERS else cells)
    return extremes["min"].as_py(), extremes["max"].as_py()


class CopiedRows:
    """Rows of a copy, all inserts: a `RowStore` that keeps facts about its columns while they are verified.

    The copy goes with `close`, or with the object, unless it was moved. Its facts are kept by row group and column; the
    groups have as many rows as `group_rows` says, and no batch of rows is of two.

    Attributes:
        facts: by row group and column.
        keys: of all rows.
    """

    def __init__(
        self, copy: Path, schema: pa.Schema, key_columns: Collection[str], group_rows: Sequence[int] = ()
    ) -> None:
        self.schema = schema
        self.keys = KeyRows(key_columns)
        self._key_columns = key_columns
        self.facts: defaultdict[int, defaultdict[str, _ChunkFacts]] = defaultdict(lambda: defaultdict(_ChunkFacts))
        self._copy = copy
        self._ends = list(accumulate(group_rows))
        self._rows = 0
        self._discard = weakref.finalize(self, copy.unlink, missing_ok=True)

    def add(self, batch: pa.RecordBatch) -> None:
        columns = self.facts[bisect(self._ends, self._rows)]
        for name, cells in zip(batch.schema.names, batch.columns, strict=True):
            if name != MARKER_COLUMN:
                columns[name].add(cells)
        if self._key_columns:
            self.keys.add(batch)
        self._rows += batch.num_rows

    def finish(self) -> None:
        """Nothing is left to write."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        fields = [field for field in self.schema if columns is None or field.name in columns]
        names = [field.name for field in fields if field.name != MARKER_COLUMN]
        with scratch_errors(), pq.ParquetFile(self._copy, pre_buffer=False) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=names or None):
                inserts = pa.repeat(pa.scalar(RowMarker.INSERT.value, pa.int8()), batch.num_rows)
                cells = [
                    inserts if field.name == MARKER_COLUMN else batch.column(field.name).cast(field.type)
                    for field in fields
                ]
                yield pa.RecordBatch.from_arrays(cells, schema=pa.schema(fields))

    def key_ends(self) -> pa.Table:
        """The lowest and the highest value of each key column that has one: two rows."""
        ends = {}
        for name in self._key_columns:
            known = [columns[name] for columns in self.facts.values() if columns[name].lowest is not None]
            if known:
                kind = self.schema.field(name).type
                values = min(facts.lowest for facts in known), max(facts.highest for facts in known)
                ends[name] = pa.array(values, _CARRIERS.get(kind.id, kind)).view(kind)
        return pa.table(ends)

    def close(self) -> None:
        self.keys.close()
        self._discard()


def _check_places(chunks: Sequence[Any], size: int) -> None:
    """Refuse a row group whose first chunk begins elsewhere for some readers, or whose middle is not in the file.

    Spark reads a group with the part of the file that holds its middle, as the sizes of its chunks say; others with the
    part that holds its beginning.
    """
    first = chunks[0]
    begin = first.data_page_offset
    if first.has_dictionary_page:
        begin = first.dictionary_page_offset
    middle = begin + sum(chunk.total_compressed_size for chunk in chunks) // 2
    if not len(MAGIC) <= begin <= min(first.data_page_offset, middle) <= max(first.data_page_offset, middle) < size:
        raise NotEligible("readers may not find its row groups")


def _check_chunk(column: Column, chunk: Any, facts: _ChunkFacts) -> None:  # noqa: ANN401 - pyarrow's ColumnChunkMetaData
    """Check codec, encodings and statistics of a column of a row group whose every row was read.

    Readers skip row groups by these statistics, and they become those of the Delta log.
    """
    if chunk.compression not in DOCUMENTED_CODECS:
        raise NotEligible(f"its codec is {chunk.compression}")
    encodings, stated = {*chunk.encodings}, chunk.statistics
    if not encodings <= _ENCODINGS:
        raise NotEligible(f"its encodings are {', '.join(sorted(encodings))}")
    if stated is not None and stated.has_null_count and stated.null_count != facts.nulls:
        raise NotEligible(f"its footer states another number of NULLs in column {column.name}")
    if stated is None or not stated.has_min_max:
        if column.type in {"byte", "short"} and facts.lowest is not None:
            raise NotEligible(f"column {column.name} may hold numbers beyond {column.type}, which Arrow cuts off")
        return
    if facts.has_nan:
        raise NotEligible(f"column {column.name} holds NaN, which its footer leaves out")
    if not _holds(stated.min_raw, stated.max_raw, facts, column.type):
        raise NotEligible(f"column {column.name} holds other values than its footer states")


def _holds(low: Any, high: Any, facts: _ChunkFacts, word: str) -> bool:  # noqa: ANN401 - as the physical type has it
    """Whether stated bounds equal the extremes that were read; shortened bounds of long values must enclose them."""
    if facts.lowest is None:
        return False
    if word in {"string", "binary"}:
        return bool(low <= facts.lowest and facts.highest <= high)
    if word.startswith("decimal"):
        low, high = decimal_of(low, word), decimal_of(high, word)
    return bool(low == facts.lowest and facts.highest == high)


def count_duplicates(batch: ChangeBatch, log: DeltaLog | None) -> tuple[MatchCounts, ...]:
    """Count per file of a batch the inserts whose key has a row already (ME039); every change is an insert.

    `log` is the table before the batch; None where the batch begins it. The keys of the batch are in memory, those of
    the table only in pieces.
    """
    keys = list(batch.key_columns)
    if not keys:
        return (MatchCounts(),) * len(batch.files)
    copies = [cast("CopiedRows", file.rows) for file in batch.files]
    runs, counts = [copied.keys for copied in copies], KeyCounts()
    effects = counts.add(runs)
    if log is not None and set(keys) <= set(log.schema.names):
        ends = [copied.key_ends() for copied in copies]
        bounds = bounds_of(pa.concat_tables(ends, promote_options="default"))
        hashes = (key_hashes(rows.columns) for rows in scan(log, log.data_files(bounds), keys))
        held = counts.common(each[whole] for each, whole in hashes)
        effects = KeyCounts(held).add(runs) if len(held) else effects
    return tuple(MatchCounts(found.duplicate_inserts) for found in effects)
