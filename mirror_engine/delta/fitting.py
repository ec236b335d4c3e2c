"""Whether a Parquet file is a data file of its table as it lies: told from its footer and the headers of its pages.

A reader of the table must find in it exactly the rows that its change file means (LZ-4.19): every type as Delta stores
it, nothing that Spark reads otherwise, nothing beyond what one row may take. Where that is not certain, rows are read.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.delta.arrow_types import arrow_type
from mirror_engine.delta.evolution import needs_mapping
from mirror_engine.delta.file_statistics import ColumnChunk, chunks_of_column
from mirror_engine.delta.parquet_footer import PARSE_FAULTS
from mirror_engine.delta.parquet_pace import fixed_width, longest_values
from mirror_engine.delta.parquet_pages import check_pages
from mirror_engine.delta.parquet_types import FIRST_DAY, LAST_DAY, parquet_type
from mirror_engine.delta.unfolding import check_total
from mirror_engine.landing_zone.column_types import VOID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.config import Config
    from mirror_engine.delta.intake import Terms
    from mirror_engine.delta.parquet import ParquetChangeFile
    from mirror_engine.landing_zone.column_types import Column

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


def check_fit(file: ParquetChangeFile, terms: Terms, source: BinaryIO, size: int, config: Config) -> Counter[str]:
    """Make sure that a marker-free file is a data file of its table as it lies.

    Args:
        file: as opened.
        terms: what its rows are held to.
        source: its bytes.
        size: how many there are.
        config: `row_bytes` counts here.

    Returns:
        How many rows have NULL in each key column that has any.

    Raises:
        Doubt: that is not certain.
        PublisherError: a page is beyond all bounds.
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


def _check_names(file: ParquetChangeFile, terms: Terms) -> None:
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
    except PARSE_FAULTS as fault:
        raise Doubt("its first rows cannot be read") from fault
    if not file.parquet.metadata.num_rows:
        raise Doubt("it has no rows")
    told = file.parquet.metadata.metadata or {}
    version = told.get(_SPARK_VERSION, b"3")
    if any(key in told for key in _OTHER_CALENDAR) or version.split(b".")[0] in {b"1", b"2"}:
        raise Doubt("its dates may count in another calendar")


def _check_type(leaf: Any, terms: Terms, column: Column) -> None:  # noqa: ANN401 - pyarrow's ColumnSchema
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


def _check_cells(column: Column, terms: Terms, chunks: Sequence[ColumnChunk], *, is_required: bool) -> None:
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
    for group, chunks in enumerate(file.chunks):
        longest = 0
        for at, chunk in enumerate(chunks):
            told = metadata.row_group(group).column(at)
            if told.compression not in _CODECS or not set(told.encodings) <= _ENCODINGS:
                raise Doubt(f"its codec is {told.compression}, its encodings are {', '.join(told.encodings)}")
            if told.num_values and chunk.begin == chunk.end:
                raise Doubt("a column of it is encrypted")
            longest += check_pages(source, size, [chunk], path, config).largest
            unfolded += told.total_uncompressed_size
        unfolded += _repeated_bytes(metadata, source, group)
        if longest > config.row_bytes:
            raise Doubt("its pages are so large that a row might be longer than row_bytes")
    check_total(unfolded, metadata.num_rows, size, path, config)


def _repeated_bytes(metadata: Any, source: BinaryIO, group: int) -> int:  # noqa: ANN401 - pyarrow's FileMetaData
    """How many bytes dictionaries of a row group may unfold to, were every value of a row the longest."""
    described = metadata.row_group(group)
    columns = [described.column(at) for at in range(described.num_columns)]
    texts = [each.path_in_schema for each in columns if each.physical_type == "BYTE_ARRAY" and _is_folded(each)]
    fixed = fixed_width(metadata.schema, range(described.num_columns))
    try:
        longest = longest_values(source, metadata, group, texts) if texts else 0
    except PARSE_FAULTS as fault:
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
    except PARSE_FAULTS as fault:
        raise Doubt("its floating point cannot be read") from fault


def _has_dictionary(metadata: Any, at: int) -> bool:  # noqa: ANN401 - pyarrow's FileMetaData
    return any(_is_folded(metadata.row_group(group).column(at)) for group in range(metadata.num_row_groups))


def _is_folded(chunk: Any) -> bool:  # noqa: ANN401 - pyarrow's ColumnChunkMetaData
    return bool(_DICTIONARIES & {*chunk.encodings})


def _has_negative_zero(cells: pa.Array) -> bool:
    """By its bits: they make the lowest whole number of that width."""
    bits = pa.int32() if pa.types.is_float32(cells.type) else pa.int64()
    return bool(pc.any(pc.equal(cells.view(bits), -(1 << bits.bit_width - 1))).as_py())
