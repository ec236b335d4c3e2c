"""Bytes are counted as Fabric counts them (LZ-9.3)."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.reading.row_rules import byte_count


def count(values, kind):
    return byte_count([pa.array(values, kind)])


WIDTHS = {
    "byte": 1,
    "short": 2,
    "integer": 4,
    "long": 8,
    "float": 4,
    "double": 8,
    "boolean": 1,
    "date": 4,
    "timestamp": 16,
    "timestamp_ntz": 16,
    "decimal(5,2)": 16,
    "decimal(38,0)": 16,
}


@pytest.mark.parametrize("word", WIDTHS)
def test_each_type_has_its_width_and_null_none(word):
    kind, value = arrow_type(word), True if word == "boolean" else 1
    assert count([value, None, value], kind) == 2 * WIDTHS[word]
    assert count([None], kind) == count([], kind) == count([None, None], pa.null()) == 0
    assert count([b"abc", None, b""], pa.binary()) == 3


@given(st.lists(st.none() | st.text() | st.sampled_from(["€", "😀"])), st.data())
def test_text_counts_its_utf16_units_in_any_slice(texts, data):
    first = data.draw(st.integers(0, len(texts)))
    last = data.draw(st.integers(first, len(texts)))
    cells = pa.array(texts, pa.string()).slice(first, last - first)
    expected = sum(len(text.encode("utf-16-le", "surrogatepass")) for text in texts[first:last] if text is not None)
    assert byte_count([cells]) == expected


def test_bytes_under_a_null_do_not_count():
    hidden = pa.Array.from_buffers(
        pa.string(),
        2,
        [pa.py_buffer(b"\x02"), pa.py_buffer(b"\0\0\0\0\x04\0\0\0\x05\0\0\0"), pa.py_buffer("😀x".encode())],
    )
    assert hidden.to_pylist() == [None, "x"]
    assert byte_count([hidden]) == 2
