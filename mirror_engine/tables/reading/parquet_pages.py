"""The pages of a Parquet file by their headers, read before a parser makes room for what these claim.

A page's header may claim 2 GB in a file of a few bytes, or unfold to that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from mirror_engine.tables.reading.parquet_footer import broken, too_large
from mirror_engine.tables.reading.parquet_structs import (
    BYTES,
    CODEC,
    COLUMNS,
    CRYPTO_METADATA,
    DATA_PAGES,
    DICTIONARY_PAGE,
    ENCODING,
    ENCODING_V2,
    FOOTER,
    META_DATA,
    PACKED,
    PAGE,
    ROW_GROUPS,
    SCHEMA,
    SPREAD,
    UNFOLDED,
    VALUES,
    VALUES_PAGE,
    VALUES_PAGE_V2,
)
from mirror_engine.tables.reading.thrift import read_struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import BinaryIO

    from mirror_engine.config import Config
    from mirror_engine.tables.reading.thrift import Bytes

PAGE_ROWS = 4  # a page may unfold to as many rows of the longest length allowed; writers make pages of a megabyte
_DELTA_BYTE_ARRAY = 7
_HEADER_BYTES, _MAX_HEADER = 512, 16 * 1024 * 1024


class Chunk(NamedTuple):
    """Where the pages of one column of one row group lie, as the footer says.

    Attributes:
        begin, end: of its bytes; the same where it has no pages here.
        unfolded: how many bytes they take without compression.
        codec: they are compressed with, by parquet.thrift's number.
    """

    begin: int = 0
    end: int = 0
    unfolded: int = 0
    codec: int = 0


@dataclass(frozen=True)
class Layout:
    """How a file is laid out, as its footer says.

    Attributes:
        schema: its columns, as they are written there.
        groups: the column chunks of each row group; one that is encrypted or empty has no pages here.
    """

    schema: bytes
    groups: Sequence[Sequence[Chunk]]


def layout_of(footer: bytes, path: str) -> Layout:
    """Read a footer.

    Raises:
        RejectedFile: ME024.
    """
    try:
        found, _ = read_struct(footer, 0, FOOTER)
    except (IndexError, ValueError):
        raise broken(path, "its footer cannot be understood") from None
    groups = [[_chunk(column) for column in group.get(COLUMNS, ())] for group in found.get(ROW_GROUPS, ())]
    return Layout(found.get(SCHEMA, b""), groups)


class Unfolded(NamedTuple):
    """What the headers of pages say.

    Attributes:
        by_chunk: how many bytes the pages of each chunk unfold to.
        largest: the same of the largest page.
        prefixed: whether values of each chunk may repeat the beginning of the one before.
    """

    by_chunk: Sequence[int]
    largest: int
    prefixed: Sequence[bool]

    @property
    def total(self) -> int:
        """How many bytes all of them unfold to."""
        return sum(self.by_chunk)


def check_pages(source: BinaryIO, size: int, chunks: Iterable[Chunk], path: str, config: Config) -> Unfolded:
    """Refuse pages that claim more room than the file has, or than a few of the longest rows need.

    Raises:
        RejectedFile: ME024, ME075.
        StorageUnavailable: the bytes could not be read.
    """
    limit = PAGE_ROWS * config.max_row_size
    totals: list[int] = []
    prefixed: list[bool] = []
    largest = 0
    content = _Bytes(source)
    for chunk in chunks:
        total = 0
        encodings: set[int | None] = set()
        if not 0 <= chunk.begin <= chunk.end <= size:
            raise broken(path, "a column is said to lie outside the file")
        at = chunk.begin
        while at < chunk.end:
            header, length = _header(content, at, path)
            packed, unfolded = header.get(PACKED, -1), header.get(UNFOLDED, -1)
            if min(packed, unfolded) < 0:
                raise broken(path, "a page is said to have no length")
            if at + length + packed > size:
                raise broken(path, "a page is said to be longer than the file")
            if max(packed, unfolded) > limit:
                raise too_large(path, f"a page of {max(packed, unfolded):,} bytes", limit)
            at += length + packed
            total, largest = total + unfolded, max(largest, unfolded)
            encodings |= {header.get(VALUES_PAGE, {}).get(ENCODING), header.get(VALUES_PAGE_V2, {}).get(ENCODING_V2)}
        totals.append(total)
        prefixed.append(_DELTA_BYTE_ARRAY in encodings)
    return Unfolded(totals, largest, prefixed)


def _chunk(column: Mapping[int, Any]) -> Chunk:
    described = column.get(META_DATA, {})
    if CRYPTO_METADATA in column or described.get(VALUES, 0) <= 0:
        return Chunk()
    begin = described.get(DATA_PAGES, 0)
    dictionary = described.get(DICTIONARY_PAGE, 0)
    begin = dictionary if 0 < dictionary < begin else begin
    end = begin + described.get(BYTES, 0)
    return Chunk(begin, end, described.get(SPREAD, 0), described.get(CODEC, 0))


class _Bytes:
    """The bytes of a file, from a place on; those in memory are not copied."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        source.seek(0)
        self._whole = memoryview(source.read_buffer()).cast("B") if isinstance(source, pa.BufferReader) else None

    def near(self, at: int, most: int) -> tuple[Bytes, int]:
        """Some that hold at least so many from there on, if there are so many, and where `at` is in them."""
        if self._whole is not None:
            return self._whole, at
        self._source.seek(at)
        return self._source.read(most), 0


def _header(content: _Bytes, at: int, path: str) -> tuple[Mapping[int, Any], int]:
    """A page's header, and how long it is."""
    for most in (_HEADER_BYTES, _MAX_HEADER):
        near, begin = content.near(at, most)
        try:
            found, end = read_struct(near, begin, PAGE)
        except IndexError:
            continue
        except ValueError:
            break
        return found, end - begin
    raise broken(path, "the header of a page cannot be understood")
