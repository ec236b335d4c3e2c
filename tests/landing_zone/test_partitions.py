"""Hive folders as columns and values (LZ-3.7, LZ-3.8)."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_engine.landing_zone.partitions import (
    agreed_columns,
    columns_of,
    folder_fault,
    leaves,
    parse_folder,
    parse_name,
)


@pytest.mark.parametrize(
    ("folder", "levels"),
    [
        ("", ()),
        ("day=/site=b", (("day", None), ("site", "b"))),
        ("city=K%C3%B6ln%2FS%C3%BCd", (("city", "Köln/Süd"),)),
        ("k=a=b", (("k", "a=b"),)),
        ("rate=100%", (("rate", "100%"),)),
        ("k=__HIVE_DEFAULT_PARTITION__", (("k", None),)),
        ("k=%5F%5FHIVE_DEFAULT_PARTITION__", (("k", None),)),
        ("k=null/l=NULL/m=%20", (("k", "null"), ("l", "NULL"), ("m", " "))),
    ],
)
def test_a_hive_folder_gives_columns_and_decoded_values(folder, levels):
    assert parse_folder(folder) == levels


@pytest.mark.parametrize(
    "folder",
    [
        "day", "=1", "=", "day=1/x", "day=1/", "/day=1", "_day=1", ".day=1", "k=%FF", "a=1/a=2", "a=1/A=2",
        "%5F_rowMarker__=1", "a=1/%5F_ROWMARKER__=0",
    ],
)  # fmt: skip
def test_a_malformed_folder_is_none(folder):
    assert parse_folder(folder) is None
    assert columns_of(folder) is None


@given(st.text(min_size=1).filter(lambda text: text.lower() != "__rowmarker__"), st.text(min_size=1))
def test_what_a_publisher_percent_encodes_comes_back(column, value):
    name = f"{quote(column, safe='').replace('_', '%5F').replace('.', '%2E')}={quote(value, safe='')}"
    expected = None if value == "__HIVE_DEFAULT_PARTITION__" else value
    assert parse_name(name) == (column, expected)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        *[(None, ""), ("x" * 253, ""), (":" * 84, ""), ("a\0b", "NUL")],
        *[("x" * 254, "256 bytes"), (":" * 85, "257 bytes"), ("ä" * 43, "260 bytes")],
    ],
)
def test_a_value_that_no_folder_can_be_named_after_is_known(value, fault):
    found = folder_fault("p", value)
    assert fault in found
    assert bool(found) is bool(fault)


def test_a_column_whose_folder_of_null_has_too_long_a_name_is_known():
    assert folder_fault("p" * 228, None) == ""
    assert "256 bytes" in folder_fault("p" * 229, None)


def test_what_is_applied_names_the_columns_first():
    assert agreed_columns(("a=1",), ("", "b=1")) == ("b",)
    assert agreed_columns(("a=1",), ("",)) == ()
    assert agreed_columns(("a=1",), ()) == ("a",)


def test_the_first_well_formed_leaf_names_the_columns_and_a_leaf_has_no_other_folder_below_it():
    assert leaves({"", "a=1", "a=1/b=2", "a=10", "a=3/b=1/c=1", "a=3"}) == ("a=1/b=2", "a=10", "a=3/b=1/c=1")
    assert agreed_columns(("a=1/a=2", "b=1/c=1", "d=1"), ()) == ("b", "c")
