"""Patterns find in footers and pages' headers what reading them field by field finds, and nothing else."""

from __future__ import annotations

import io
import re
import tracemalloc
from itertools import chain
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzzing.bytes_mutations import mutated_bytes

from mirror_engine.tables.reading import parquet_structs, thrift
from mirror_engine.tables.reading.parquet_pages import layout_of
from mirror_engine.tables.reading.parquet_structs import FOOTER, PACKED, PAGE
from mirror_engine.tables.reading.thrift import Struct, read_struct

if TYPE_CHECKING:
    from collections.abc import Iterator

FIXTURES = Path(__file__).parents[2] / "fixtures"
ROWS = 300
TABLE = pa.table(
    {
        "Id": range(ROWS),
        "City": [f"city {number % 7}" for number in range(ROWS)],
        "Amount": pa.array(np.arange(ROWS) / 7),
        "Day": pa.array([None if number % 3 else number for number in range(ROWS)], pa.date32()),
        "At": pa.array(range(ROWS), pa.timestamp("us", tz="UTC")),
        "Is": [number % 2 == 0 for number in range(ROWS)],
        "A name of more letters than a pattern would look for": [b"\xff" * 100] * ROWS,
        "__rowMarker__": pa.array([4] * ROWS, pa.int32()),
    }
)
WRITERS = {
    "as Arrow does": {},
    "in pages of version 2": {"data_page_version": "2.0", "compression": "zstd"},
    "with an index": {"write_page_index": True, "row_group_size": 100},
    "in small pages": {"data_page_size": 64, "use_dictionary": False},
    "without statistics": {"write_statistics": False, "compression": "none"},
    "with checksums, sorted": {"write_page_checksum": True, "sorting_columns": [pq.SortingColumn(0)]},
}
HEADS = bytes([0x00, 0x15, 0x16, 0x18, 0x19, 0x1C, 0x25, 0x26, 0x28, 0x29, 0x2C, 0x3C, 0x80, 0xFF, 0x0C, 0x08, 0x11])


TRIES = 3_000


def landed(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, **options)
    return sink.getvalue()


def footer_of(content: bytes) -> bytes:
    return content[-8 - int.from_bytes(content[-8:-4], "little") : -8]


def headers_of(content: bytes) -> Iterator[bytes]:
    """The pages' headers of a good file."""
    for chunk in chain.from_iterable(layout_of(footer_of(content), "").groups):
        at = chunk.begin
        while at < chunk.end:
            header, body = read_struct(content, at, PAGE)
            yield content[at:body]
            at = body + header[PACKED]


WRITTEN = [landed(**options) for options in WRITERS.values()]
FOOTERS = [footer_of(content) for content in (*WRITTEN, *(path.read_bytes() for path in FIXTURES.rglob("0*.parquet")))]
PAGES = list(chain.from_iterable(map(headers_of, WRITTEN)))


def plain(wanted: Any) -> Any:
    """The same, wanted field by field."""
    if isinstance(wanted, list):
        return list(map(plain, wanted))
    if isinstance(wanted, Struct):
        return Struct({n: plain(inner) for n, inner in wanted.fields.items()}, wanted.lists)
    return wanted


def outcome(content: bytes, wanted: Struct) -> Any:
    try:
        return read_struct(content, 0, wanted)
    except (IndexError, ValueError) as fault:
        return type(fault)


def changed(content: bytes, random: Random) -> bytes:
    for _ in range(random.randint(0, 3)):
        content = mutated_bytes(content, random)
    at = random.randrange(len(content) or 1)
    return content[:at] + bytes([random.choice(HEADS)]) + content[at + 1 :]


@pytest.mark.parametrize(("wanted", "found"), [(FOOTER, FOOTERS), (PAGE, PAGES)], ids=["footers", "pages"])
def test_patterns_find_what_is_found_field_by_field(
    wanted: Struct, found: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(20)
    samples = [*found, *(changed(random.choice(found), random) for _ in range(TRIES))]
    by_pattern = [outcome(sample, wanted) for sample in samples]
    monkeypatch.setattr(thrift, "_USUAL", re.compile(b"(?!)"))
    field_by_field = [outcome(sample, plain(wanted)) for sample in samples]
    for sample, quick, slow in zip(samples, by_pattern, field_by_field, strict=True):
        assert quick == slow, sample.hex()


@pytest.mark.parametrize("content", WRITTEN, ids=WRITERS)
def test_patterns_know_what_writers_write(content: bytes) -> None:
    footer = footer_of(content)
    chunks = layout_of(footer, "").groups
    usual = [found for at in range(len(footer)) if (found := FOOTER.fields[4][0].fields[1][0].usual(footer, at))]
    assert len(usual) >= sum(map(len, chunks)) - len(chunks)  # all columns but the one with long values
    pages = list(headers_of(content))
    short = [page for page in pages if b"\xff" * 100 not in page]
    assert len(short) > 2 * len(chunks)
    assert all(PAGE.usual(page, 0) for page in short)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("begin", [b"", b"\x1c", b"\x15\x02\x15\x02\x15\x02\x1c"], ids=["struct", "nested", "page"])
@pytest.mark.parametrize(
    "unit", [b"\x1c\x00", b"\x1c\x15\x02\x00", b"\x15\x02", b"\x19\x15\x02", b"\x18\x01a", b"\x11"]
)
@pytest.mark.parametrize("end", [b"\x1d", b"\x00\x1d", b"\x00\x00"])
def test_bytes_made_on_purpose_cost_neither_time_nor_room(begin: bytes, unit: bytes, end: bytes) -> None:
    content = begin + unit * 100_000 + end
    tracemalloc.start()
    try:
        for pattern in (thrift._USUAL, parquet_structs._USUAL_PAGE, parquet_structs._USUAL_CHUNK):
            assert pattern.match(content) is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
