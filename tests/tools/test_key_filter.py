"""A key as a person writes it, in every type a key column may have."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from mirror_engine.errors import UsageError
from mirror_engine.tools.trace.row import parse_key, rows_with_key

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "kind", "value", "other"),
    [
        (" +042 ", pa.int8(), 42, -42),
        ("a=b", pa.string(), "a=b", "A=B"),
        ("", pa.string(), "", " "),
        ("1.50", pa.decimal128(9, 2), Decimal("1.5"), Decimal("1.51")),
        ("-0", pa.float64(), 0.0, 1.0),
        ("nan", pa.float64(), math.nan, 0.0),
        ("0.1", pa.float32(), 0.1, 0.2),
        ("2026-11-02T13:00:00+01:00", pa.timestamp("us", "UTC"), NOON, NOON.replace(hour=13)),
        ("AQI=", pa.binary(), b"\1\2", b"\1"),
    ],
)
def test_a_key_is_found_by_its_typed_value_and_null_never(text, kind, value, other):
    """Every type is read as in an expected table (`test_expected_table.py`)."""
    rows = pa.RecordBatch.from_arrays([pa.array([other, value, None, value], kind)], ["Id"])
    assert rows_with_key({"id": text}, rows).to_pylist() == [False, True, False, True]


def test_all_parts_of_a_composite_key_must_be_there_and_equal():
    rows = pa.RecordBatch.from_pydict({"A": [1, 1, 2], "B": ["x", "y", "x"]})
    assert rows_with_key({"A": "1", "B": "x"}, rows).to_pylist() == [True, False, False]
    assert rows_with_key({"A": "1", "B": "x"}, rows.select(["A"])).to_pylist() == [False] * 3


@pytest.mark.parametrize("text", ["QQ==", "a=b", "=", "", "7"])
def test_a_single_key_may_hold_an_equals_sign(text):
    for argument in (text, f"id={text}", f"Id={text}"):
        assert parse_key([argument], "Items", ["Id"]) == {"Id": text}
    assert parse_key(["b=x=y", "A=1"], "Items", ["A", "B"]) == {"A": "1", "B": "x=y"}


@pytest.mark.parametrize(
    ("arguments", "keys", "message"),
    [
        (["7", "a=b"], ["Id"], "key a=b: Id is given twice for Items"),
        (["city=Graz"], ["Id"], "key city=Graz: city is not a key column of Items"),
        (["x=1"], ["A", "B"], "key x=1: x is not a key column of Items"),
        (["QQ==", "B=1"], ["A", "B"], "key QQ==: QQ is not a key column of Items"),
        (["7"], ["A", "B"], "key 7: 7 is no name of a key column of Items"),
        (["A=1"], ["A", "B"], "key: B of Items is missing"),
        (["A=1", "a=2"], ["A", "B"], "key a=2: a is given twice for Items"),
        (["1"], [], "Items: has no keyColumns, so that no row can be identified"),
    ],
)
def test_an_invalid_key_is_refused_with_the_key_columns(arguments, keys, message):
    with pytest.raises(UsageError) as raised:
        parse_key(arguments, "Items", keys, ["Id", "City"])
    assert raised.value.message == message
    assert raised.value.help.startswith(f"the key is {', '.join(keys)}:" if keys else "trace a file instead")
