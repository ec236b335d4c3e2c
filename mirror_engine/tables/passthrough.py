"""Passthrough: large insert-only Parquet files are verified, then added to their table unchanged (LZ-4.19).

A file is copied to the scratch folder, and its copy is read whole through the row rules. A file that needs a cast, has
row markers, another codec, or statistics by which Spark would skip rows, takes the rows path, and says why.
"""

from __future__ import annotations

import os
import shutil
import uuid
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirror_engine.errors import ConcurrentModification
from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.landing_zone.diagnostics import RejectedFile, without_errors
from mirror_engine.landing_zone.schema import VOID
from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.base import FileRows
from mirror_engine.tables.log.snapshot import needs_mapping
from mirror_engine.tables.log.statistics import bounds_of_chunks, chunks_of_column
from mirror_engine.tables.reading.digest import digest
from mirror_engine.tables.reading.opening import listed_now, open_listed
from mirror_engine.tables.reading.parquet import DICTIONARY_ENCODINGS, ParquetChangeFile
from mirror_engine.tables.reading.parquet_types import FIRST_DAY, LAST_DAY, parquet_type
from mirror_engine.tables.reading.reader import facts_after, file_contract, file_diagnostics
from mirror_engine.tables.reading.request import ReadFile
from mirror_engine.tables.reading.row_rules import ingest
from mirror_engine.tables.reading.spill import ReadMode, scratch_errors
from mirror_engine.tables.scratch import PROCESS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mirror_engine.config import Config
    from mirror_engine.landing_zone.schema import Column
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.log.statistics import ColumnChunk
    from mirror_engine.tables.reading.request import ReadRequest
    from mirror_engine.tables.reading.row_rules import FileContract

MIN_BYTES = 4 * 1024 * 1024  # of a file that is worth a data file of its own
_BLOCK_BYTES = 1 << 20
_BATCH_ROWS = 65_536
_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
_ENCODINGS = DICTIONARY_ENCODINGS | {"PLAIN", "RLE", "BIT_PACKED"}
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
_CARRIERS = {pa.date32().id: pa.int32(), pa.timestamp("us").id: pa.int64()}  # what times are in files
_DAY_US = 86_400_000_000
_RANGES = {
    "date": (FIRST_DAY, LAST_DAY),
    **dict.fromkeys(_ZONES, (FIRST_DAY * _DAY_US, (LAST_DAY + 1) * _DAY_US - 1)),
}
# what Spark writes into files whose dates count in another calendar
_OTHER_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_VERSION = b"org.apache.spark.version"


class NotEligible(Exception):
    """Why a file cannot be added unchanged, in words."""


class PassthroughReader:
    """Copies and verifies change files of one ROOT's landing zone for passthrough.

    Args:
        storage: of the landing zone.
        config: all options.
        scratch: folder for the copies, on the file system of the tables.
    """

    def __init__(self, storage: Storage, config: Config, scratch: Path) -> None:
        self._storage = storage
        self._config = config
        self._scratch = scratch

    def read(self, request: ReadRequest) -> ReadFile | str:
        """A verified file, to be added unchanged; else why its rows must be read, in words.

        Raises:
            ConcurrentModification: another file is there than was listed, or none.
            StorageUnavailable: it could not be read or copied.
        """
        if reason := self._plain_reason(request):
            return reason
        copy = self._scratch / f"copy-{PROCESS}-{uuid.uuid4().hex}.parquet"
        try:
            with open_listed(self._storage, request) as handle:
                self._opened(handle, request)  # a footer that is not eligible costs no copy
                with scratch_errors():
                    self._scratch.mkdir(parents=True, exist_ok=True)
                    _copy(handle, copy, request.file.size)
            found = self._verified(copy, request)
        except NotEligible as error:
            copy.unlink(missing_ok=True)
            return str(error)
        except RejectedFile as error:  # the rows path rejects it
            copy.unlink(missing_ok=True)
            return error.diagnostic.message
        except BaseException:
            copy.unlink(missing_ok=True)
            raise
        if listed_now(self._storage, request) != request.file:
            found.rows.rows.close()
            raise ConcurrentModification(f"{request.path}: changed since it was listed")
        return found

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

    def _opened(self, content: BinaryIO, request: ReadRequest) -> tuple[ParquetChangeFile, FileContract]:
        """The file, with columns that are the table's in name and type."""
        file = ParquetChangeFile(content, request.path, self._config)
        if file.marker is not None:
            raise NotEligible("it has row markers")
        contract = file_contract(file, request, self._config)
        _check_names(file, contract)
        for at, column in enumerate(file.columns):
            _check_type(file.parquet.schema.column(at), contract, column)
        return file, contract

    def _verified(self, copy: Path, request: ReadRequest) -> ReadFile:
        """Read every row of the copy through the row rules, while its digest is ingested."""
        with copy.open("rb") as handle, copy.open("rb") as hashed, ThreadPoolExecutor(1) as pool:
            hashing = pool.submit(digest, hashed)
            file, contract = self._opened(handle, request)
            rows = CopiedRows(copy)
            ingested = ingest(file, contract, request.file.size, ReadMode(lambda schema, _: rows.of(schema)))
            if not ingested.markers:
                raise NotEligible("it has no rows")
            _check_metadata(file, rows.facts)
            content_digest, size = hashing.result()
        diagnostics = without_errors(file_diagnostics(file, contract, ingested, request))
        read = FileRows(
            path=request.file.path,
            etag=request.file.etag,
            digest=content_digest,
            modified_ns=request.file.modified_ns,
            rows=ingested.rows,
            markers=ingested.markers,
            has_marker=False,
            byte_count=ingested.byte_count,
            diagnostics=diagnostics,
            landed_bytes=size,
            passthrough=copy,
        )
        return ReadFile(read, facts_after(file, contract, request.facts, fills=True))


def _copy(source: BinaryIO, target: Path, size: int) -> None:
    with target.open("xb") as copy:
        left = size
        # not of one file system, or no file of the system's at all; others end early without an error
        with suppress(OSError, AttributeError):
            while left and (count := os.copy_file_range(source.fileno(), copy.fileno(), left, size - left)):
                left -= count
        if left:
            source.seek(0)
            copy.seek(0)
            copy.truncate()
            shutil.copyfileobj(source, copy, _BLOCK_BYTES)


def _check_names(file: ParquetChangeFile, contract: FileContract) -> None:
    schema = contract.merged.schema
    if needs_mapping(schema) or schema.partition_columns:
        raise NotEligible("a column of the table has another name in files, or none")
    for column in file.columns:
        known = schema.find(column.name)
        if known is None or known.name != column.name:
            raise NotEligible(f"column {column.name} is spelled otherwise in the table")
    facts = file.parquet.metadata.metadata or {}
    version = facts.get(_SPARK_VERSION, b"3")
    if any(key in facts for key in _OTHER_CALENDAR) or version.split(b".")[0] in {b"1", b"2"}:
        raise NotEligible("its dates may count in another calendar")


def _check_type(leaf: Any, contract: FileContract, column: Column) -> None:  # noqa: ANN401 - pyarrow's ColumnSchema
    kind = parquet_type(leaf)
    if kind.taken_as or column.type == VOID:
        raise NotEligible(f"column {column.name} is {kind.spelling}")
    if column.type in _ZONES and (kind.zone != _ZONES[column.type] or not kind.spelling.endswith("microseconds")):
        raise NotEligible(f"column {column.name} is {kind.spelling}, {kind.zone}")
    if column.type == "string" and kind.spelling != "STRING":
        raise NotEligible(f"column {column.name} is {kind.spelling}")
    decimal = arrow_type(column.type).precision if column.type.startswith("decimal") else 0
    fits = decimal <= _DIGITS.get(leaf.physical_type, 0) if decimal else leaf.physical_type == _STORED_AS[column.type]
    if not fits:
        raise NotEligible(f"column {column.name} is {kind.spelling} on {leaf.physical_type}")
    known = contract.merged.schema.find(column.name)
    if known is None or known.type != column.type:
        raise NotEligible(f"column {column.name} is of another kind of time in the table")


@dataclass
class _ColumnFacts:
    """What was read of one column."""

    nulls: int = 0
    lowest: Any = None
    highest: Any = None
    has_nan: bool = False
    has_negative_zero: bool = False

    def add(self, cells: pa.Array) -> None:
        self.nulls += cells.null_count
        if cells.null_count == len(cells):
            return
        if pa.types.is_floating(cells.type):
            self.has_nan = self.has_nan or bool(pc.any(pc.is_nan(cells)).as_py())
            bits = pa.int32() if pa.types.is_float32(cells.type) else pa.int64()
            lowest_bits = -(1 << bits.bit_width - 1)  # of -0.0, as a whole number
            self.has_negative_zero |= bool(pc.any(pc.equal(cells.view(bits), lowest_bits)).as_py())
            return
        plain = cells.view(_CARRIERS[cells.type.id]) if cells.type.id in _CARRIERS else cells
        if pa.types.is_integer(plain.type) or pa.types.is_string(plain.type) or pa.types.is_decimal(plain.type):
            extremes = pc.min_max(plain)
            lowest, highest = extremes["min"].as_py(), extremes["max"].as_py()
            self.lowest = lowest if self.lowest is None else min(self.lowest, lowest)
            self.highest = highest if self.highest is None else max(self.highest, highest)


class CopiedRows:
    """Rows of a copy, all inserts: a `RowStore` that keeps facts about its columns while they are verified.

    The copy goes with `close`, or with the object, unless it was moved.
    """

    def __init__(self, copy: Path) -> None:
        self.schema = pa.schema([])
        self.facts: dict[str, _ColumnFacts] = {}
        self._copy = copy
        self._discard = weakref.finalize(self, copy.unlink, missing_ok=True)

    def of(self, schema: pa.Schema) -> CopiedRows:
        """The same, with the columns that are read."""
        self.schema = schema
        self.facts = {name: _ColumnFacts() for name in schema.names if name != MARKER_COLUMN}
        return self

    def add(self, batch: pa.RecordBatch) -> None:
        for name, facts in self.facts.items():
            facts.add(batch.column(name))

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

    def close(self) -> None:
        self._discard()


def _check_metadata(file: ParquetChangeFile, columns: dict[str, _ColumnFacts]) -> None:
    """Check codecs, encodings and statistics of a file whose every row was read: Spark skips row groups by them."""
    metadata = file.parquet.metadata
    for at, column in enumerate(file.columns):
        encodings: set[str] = set()
        for group in range(metadata.num_row_groups):
            chunk = metadata.row_group(group).column(at)
            encodings |= {*chunk.encodings}
            if chunk.compression not in _CODECS:
                raise NotEligible(f"its codec is {chunk.compression}")
        if not encodings <= _ENCODINGS:
            raise NotEligible(f"its encodings are {', '.join(sorted(encodings))}")
        has_dictionary = bool(encodings & DICTIONARY_ENCODINGS)
        _check_statistics(column, chunks_of_column(metadata, at), columns[column.name], has_dictionary=has_dictionary)


def _check_statistics(
    column: Column, chunks: Sequence[ColumnChunk], facts: _ColumnFacts, *, has_dictionary: bool
) -> None:
    if facts.has_nan and any(chunk.bounds for chunk in chunks):
        raise NotEligible(f"column {column.name} holds NaN, which its footer leaves out")
    if facts.has_negative_zero and has_dictionary:
        raise NotEligible(f"column {column.name} holds -0.0, which Spark does not find in its dictionary")
    if all(chunk.nulls is not None for chunk in chunks) and sum(chunk.nulls or 0 for chunk in chunks) != facts.nulls:
        raise NotEligible(f"its footer states another number of NULLs in column {column.name}")
    if facts.lowest is None:
        return
    earliest, latest = _RANGES.get(column.type, (facts.lowest, facts.highest))
    if not earliest <= facts.lowest <= facts.highest <= latest:
        raise NotEligible(f"column {column.name} holds times outside the years 1 to 9999")
    bounds = bounds_of_chunks(chunks, column.type)
    if bounds is not None and not _is_within(facts, bounds):
        raise NotEligible(f"column {column.name} holds values beyond the bounds that its footer states")


def _is_within(facts: _ColumnFacts, bounds: tuple[Any, Any]) -> bool:
    values = bounds[0], facts.lowest, facts.highest, bounds[1]
    low, lowest, highest, high = (value.encode() if isinstance(value, str) else value for value in values)
    return bool(low <= lowest and highest <= high)
