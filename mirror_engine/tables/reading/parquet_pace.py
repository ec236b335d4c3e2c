"""How much of a Parquet file may be unfolded at once, so that a small file cannot fill the memory or the disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirror_engine.tables.reading.parquet_footer import too_large

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import BinaryIO

    from mirror_engine.config import Config
    from mirror_engine.tables.reading.parquet_pages import Chunk, Unfolded

BATCH_BYTES = 32 * 1024 * 1024
MAX_ROWS = 65_536
BUFFER_BYTES = 1 << 20
_FEW_BYTES = 1 << 16
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
_WIDEST_FIXED = 16  # of a decimal, whatever carries it
_DOCUMENTED = frozenset({0, 1, 2, 6})  # none, Snappy, GZIP, ZSTD (LZ-5.1)
_PREFIX_CODED = 1 << 20  # a value's length to reckon with where it may repeat the value before


@dataclass(frozen=True)
class Pace:
    """How to read one row group.

    Attributes:
        rows_per_batch: how many rows make a batch of about `BATCH_BYTES`, be they as unlike as they may.
        unfolded_bytes: the room its values take at least.
        codecs: its columns are compressed with.
    """

    rows_per_batch: int
    unfolded_bytes: int
    codecs: frozenset[str]


def pace_of(file: pq.ParquetFile, source: BinaryIO, group: int, names: Sequence[str] | None, pages: Unfolded) -> Pace:
    """Look at one row group, or at some of its columns, before they are read.

    A value of a dictionary costs next to nothing in the file and its full length in every row: where that could
    matter, the dictionary's longest value counts for every row. What the footer says of it is not believed.

    Args:
        file: opened.
        source: its bytes.
        group: which row group.
        names: of the columns to be read; None for all.
        pages: what the headers of these columns' pages say, in file order.
    """
    # Reading a row first is what makes it safe to ask for the columns' metadata: where they are corrupt, reading
    # raises, while asking ends the process (pyarrow's `RowGroupMetaData.column` lets C++ exceptions pass).
    next(file.iter_batches(batch_size=1, row_groups=[group], columns=names, use_threads=False), None)
    described = file.metadata.row_group(group)
    rows = described.num_rows
    places = [at for at in range(described.num_columns) if names is None or file.schema.column(at).name in names]
    chunks = [described.column(at) for at in places]
    texts = [at for at, chunk in enumerate(chunks) if chunk.physical_type == "BYTE_ARRAY"]
    sizes = {at: max(chunks[at].total_uncompressed_size, pages.by_chunk[at]) for at in texts}
    fixed = fixed_width(file.schema, places)
    width = fixed + sum(_expected_length(sizes[at], rows, is_prefixed=pages.prefixed[at]) for at in texts)
    if rows * sum(sizes.values()) > BATCH_BYTES:
        width += longest_values(source, file.metadata, group, [chunks[at].path_in_schema for at in texts])
    return Pace(
        rows_per_batch=int(min(max(BATCH_BYTES // max(width, 1), 1), MAX_ROWS)),
        unfolded_bytes=rows * fixed + sum(sizes.values()),
        codecs=frozenset(chunk.compression for chunk in chunks),
    )


def is_small(rows: int, row_width: int, chunks: Iterable[Chunk], unfolded: int) -> bool:
    """Whether a row group may be read at once, unseen, however unlike its rows are and however far they unfold.

    Args:
        rows: that it has.
        row_width: of all values of a fixed length.
        chunks: of the columns to be read.
        unfolded: how many bytes their pages take: no value is longer, whichever way it is packed.
    """
    is_known = all(chunk.codec in _DOCUMENTED for chunk in chunks)
    return is_known and 0 < rows <= MAX_ROWS and rows * (row_width + unfolded) <= BATCH_BYTES


def check_lengths(batch: pa.RecordBatch, path: str, first_row: int, config: Config) -> int:
    """Refuse a row longer than `max_row_size`.

    Returns:
        How many bytes all of them take; of few, how many are held for them.

    Raises:
        RejectedFile: ME075, with the row's number.
    """
    held = int(batch.get_total_buffer_size())  # never less than its rows take, and told at once
    if held <= min(_FEW_BYTES, config.max_row_size):
        return held
    taken = int(batch.nbytes)
    if taken <= config.max_row_size:
        return taken
    lengths = np.zeros(batch.num_rows, dtype=np.int64)
    for cells in batch.columns:
        if pa.types.is_string(cells.type) or pa.types.is_binary(cells.type):
            lengths += pc.fill_null(pc.binary_length(cells), 0).to_numpy()
    longest = int(lengths.argmax())
    if lengths[longest] > config.max_row_size:
        raise too_large(path, f"a row of {lengths[longest]:,} bytes", config.max_row_size, first_row + longest)
    return taken


def fixed_width(schema: Any, places: Iterable[int]) -> int:  # noqa: ANN401 - ParquetSchema
    """How many bytes the values of one row take in the columns at these places, text and bytes not counted."""
    leaves = [schema.column(at) for at in places]
    return sum(_WIDTHS.get(leaf.physical_type, max(leaf.length, _WIDEST_FIXED)) for leaf in leaves)


def _expected_length(size: int, rows: int, *, is_prefixed: bool) -> int:
    mean = size // max(rows, 1)
    return max(mean, min(size, _PREFIX_CODED)) if is_prefixed else mean


def longest_values(handle: BinaryIO, metadata: Any, group: int, paths: list[str]) -> int:  # noqa: ANN401 - as above
    """The length of the longest row that the dictionaries of some columns can make."""
    file = pq.ParquetFile(handle, metadata=metadata, read_dictionary=paths, pre_buffer=False, buffer_size=BUFFER_BYTES)
    first = next(file.iter_batches(batch_size=1, row_groups=[group], columns=paths, use_threads=False), None)
    columns = [] if first is None else first.columns
    dictionaries = [cells.dictionary for cells in columns if isinstance(cells, pa.DictionaryArray)]
    return sum(pc.max(pc.binary_length(values)).as_py() or 0 for values in dictionaries)
