"""A table beside an expected one: what is missing, surplus and different, whatever the values are."""

from __future__ import annotations

import math
from collections import Counter
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_engine.errors import UsageError
from mirror_engine.publisher.diff import Difference, compare

SCHEMA = pa.schema([("Id", pa.int64()), ("Name", pa.string()), ("Price", pa.float64())])
NAN = float("nan")


def table(*rows: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)]
    return pa.table(columns, schema=schema)


def counts(found: Difference) -> tuple[int, int, int, int]:
    return found.equal_rows, found.missing_rows, found.surplus_rows, found.different_rows


def test_equal_tables_are_equal_in_any_order_of_rows() -> None:
    one = table((1, "a", 0.5), (2, None, None))
    for key in ([], ["Id"]):
        found = compare(one, one.take([1, 0]), key)
        assert found.is_equal
        assert counts(found) == (2, 0, 0, 0)


def test_rows_are_matched_by_key_and_told_cell_by_cell() -> None:
    found = compare(
        table((1, "a", 1.0), (2, "b", 2.0), (4, "d", 4.0)),
        table((1, "a", 1.0), (2, "x", 2.5), (3, "c", 3.0)),
        ["Id"],
    )
    assert counts(found) == (1, 1, 1, 1)
    assert found.missing == ({"Id": 3, "Name": "c", "Price": 3.0},)
    assert found.surplus == ({"Id": 4, "Name": "d", "Price": 4.0},)
    (row,) = found.different
    assert row.key == {"Id": 2}
    assert row.cells == {"Name": ("x", "b"), "Price": (2.5, 2.0)}
    assert found.different_cells == {"Name": 1, "Price": 1}


def test_without_a_key_rows_are_a_multiset() -> None:
    found = compare(table((1, "a", 1.0), (1, "a", 1.0), (2, "b", 2.0)), table((1, "a", 1.0), (2, "x", 2.0)))
    assert counts(found) == (1, 1, 2, 0)
    assert found.key == ()


def test_a_key_that_the_table_holds_twice_is_one_surplus_row() -> None:
    found = compare(table((1, "a", 1.0), (1, "b", 1.0)), table((1, "b", 1.0)), ["Id"])
    assert counts(found) == (1, 0, 1, 0)
    assert found.surplus[0]["Name"] == "a"


def test_null_equals_null_and_differs_from_empty_text_in_keys_too() -> None:
    assert compare(table((None, None, NAN)), table((None, None, NAN)), ["Id"]).is_equal
    found = compare(table((1, "", None)), table((1, None, NAN)), ["Id"])
    assert found.different[0].cells["Name"] == (None, "")
    assert set(found.different[0].cells) == {"Name", "Price"}


def test_nan_equals_nan_and_zero_has_no_sign() -> None:
    assert compare(table((1, "a", NAN), (2, "b", -0.0)), table((1, "a", NAN), (2, "b", 0.0))).is_equal


def test_floats_are_exact_unless_a_tolerance_is_given() -> None:
    here, there = table((1, "a", 0.1 + 0.2), (2, "b", NAN)), table((1, "a", 0.3), (2, "b", NAN))
    for key in ([], ["Id"]):
        assert not compare(here, there, key).is_equal
        assert compare(here, there, key, tolerance=1e-9).is_equal
    assert counts(compare(here, table((1, "a", 0.4), (2, "b", 1.0)), ["Id"], tolerance=0.01)) == (0, 0, 0, 2)
    assert counts(compare(here, table((1, "a", 0.4), (2, "b", NAN)), tolerance=0.01)) == (1, 1, 1, 0)


def test_near_floats_meet_whatever_the_order() -> None:
    here, there = table((1, "a", 1.0), (1, "a", 2.0)), table((1, "a", 2.0001), (1, "a", 1.0001))
    assert compare(here, there, tolerance=0.001).is_equal


def test_a_table_of_nothing_but_floats_may_differ_a_little() -> None:
    schema = pa.schema([("x", pa.float64())])
    found = compare(
        table((1.0,), (2.0,), (3.0,), schema=schema), table((1.001,), (2.0,), (9.0,), schema=schema), tolerance=0.01
    )
    assert counts(found) == (2, 1, 1, 0)


def test_rows_without_a_key_meet_whichever_float_is_near() -> None:
    schema = pa.schema([("k", pa.int64()), ("a", pa.float64()), ("b", pa.float32())])
    here = table((1, 1.0, 9.0), (1, 1.04, 1.0), (2, 1.0, 9.0), schema=schema)
    there = table((1, 1.05, 9.0), (1, 1.02, 1.0), (3, 1.0, 9.0), schema=schema)
    assert counts(compare(here, there, tolerance=0.1)) == (2, 1, 1, 0)
    assert counts(compare(here, there, tolerance=0.03)) == (1, 2, 2, 0)
    assert counts(compare(here, there)) == (0, 3, 3, 0)


def test_a_surplus_row_takes_no_partner_from_a_near_one() -> None:
    here = table((1, "a", 1.0), (1, "a", 5.001), (1, "a", None), (1, "a", NAN), (1, "a", math.inf))
    there = table((1, "a", 5.0), (1, "a", 0.0), (1, "a", -math.inf))
    assert counts(compare(here, there, tolerance=0.01)) == (1, 2, 4, 0)


def test_as_many_rows_meet_as_can_where_one_float_may_differ() -> None:
    here, there = table((1, "a", 1.0), (1, "a", 2.0)), table((1, "a", 1.5), (1, "a", 2.75))
    assert compare(here, there, tolerance=0.75).is_equal
    assert compare(there, here, tolerance=0.75).is_equal


@pytest.mark.slow
def test_many_rows_of_near_floats_are_compared_in_no_time() -> None:
    here = pa.table({"x": pa.array([0.1 + 0.2] * 50_000), "y": pa.array([1.0] * 50_000)})
    there = pa.table({"x": pa.array([0.3] * 50_000), "y": pa.array([1.0] * 50_000)})
    assert compare(here, there, tolerance=1e-9).is_equal


def test_tables_without_a_common_column_cannot_be_compared() -> None:
    with pytest.raises(UsageError, match="no column in common") as error:
        compare(table(), pa.table({"Sku": ["a"], "Size": ["XL"]}))
    assert error.value.help == "The table has Id, Name, Price; the expected one has Sku, Size."


def test_infinities_equal_only_themselves() -> None:
    infinite = float("inf")
    assert compare(table((1, "a", infinite)), table((1, "a", infinite)), ["Id"], tolerance=1.0).is_equal
    assert not compare(table((1, "a", infinite)), table((1, "a", -infinite)), ["Id"], tolerance=1.0).is_equal


def test_columns_on_one_side_only_are_told_and_not_compared() -> None:
    expected = table((1, "a", 1.0)).drop_columns(["Price"]).append_column("Size", pa.array([9]))
    found = compare(table((1, "a", 1.0)), expected, ["Id"])
    assert (found.missing_columns, found.surplus_columns) == (("Size",), ("Price",))
    assert counts(found) == (1, 0, 0, 0)
    assert not found.is_equal


def test_the_key_is_named_in_any_case_and_must_be_in_both_tables() -> None:
    one = table((1, "a", 1.0))
    assert compare(one, one, ["ID"]).key == ("Id",)
    with pytest.raises(UsageError, match="the table has none"):
        compare(one, one, ["Sku"])
    with pytest.raises(UsageError, match="the expected table lacks it"):
        compare(one, one.drop_columns(["Id"]), ["Id"])


def test_as_many_rows_are_told_as_are_wanted() -> None:
    many = table(*((at, "a", 1.0) for at in range(50)))
    assert len(compare(many, table(), ["Id"]).surplus) == 20
    assert len(compare(table(), many, ["Id"], limit=None).missing) == 50
    assert compare(table(), many, ["Id"], limit=3).missing_rows == 50


def test_empty_tables_are_equal() -> None:
    for key in ([], ["Id"]):
        for tolerance in (0.0, 1.0):
            assert compare(table(), table(), key, tolerance=tolerance).is_equal


def test_a_table_in_many_chunks_compares_as_one() -> None:
    rows = [table((at, str(at % 3), None)) for at in range(10)]
    assert compare(pa.concat_tables(rows), pa.concat_tables(rows[::-1]), ["Id"]).is_equal


def test_every_type_of_a_mirrored_table_can_be_compared() -> None:
    now = datetime(2026, 11, 2, tzinfo=timezone.utc)
    schema = pa.schema(
        [
            ("a", pa.decimal128(10, 2)),
            ("b", pa.binary()),
            ("c", pa.bool_()),
            ("d", pa.timestamp("us", "UTC")),
            ("e", pa.date32()),
            ("f", pa.float32()),
            ("g", pa.int8()),
        ]
    )
    row = (Decimal("1.50"), b"\x00", True, now, now.date(), 0.1, 7)
    other = (Decimal("1.51"), b"\x01", False, now.replace(year=2027), now.date().replace(year=2027), 0.2, 8)
    assert compare(table(row, schema=schema), table(row, schema=schema)).is_equal
    assert compare(table(row, schema=schema), table(other, schema=schema), ["g"]).missing_rows == 1
    found = compare(table(row, schema=schema), table((*other[:6], 7), schema=schema), ["g"])
    assert len(found.different[0].cells) == 6


cells = st.tuples(
    st.sampled_from([None, 1, 2, 3]), st.sampled_from([None, "", "a"]), st.sampled_from([None, 0.0, -0.0, NAN, 1.0])
)
rows = st.lists(cells, max_size=12)


def plain_row(row: dict[str, Any]) -> tuple[Any, ...]:
    price = row["Price"]
    return row["Id"], row["Name"], "NaN" if price is not None and math.isnan(price) else price


@given(rows, rows)
def test_without_a_key_it_is_what_counting_rows_gives(here, there) -> None:
    found = compare(table(*here), table(*there), limit=None)
    mine = Counter(plain_row(row) for row in table(*here).to_pylist())
    theirs = Counter(plain_row(row) for row in table(*there).to_pylist())
    assert Counter(map(plain_row, found.surplus)) == mine - theirs
    assert Counter(map(plain_row, found.missing)) == theirs - mine
    assert found.equal_rows == sum((mine & theirs).values())


@given(rows, rows)
def test_with_a_key_every_row_is_counted_once_and_rows_of_one_key_meet(here, there) -> None:
    found = compare(table(*here), table(*there), ["Id"], limit=None)
    assert found.equal_rows + found.missing_rows + found.different_rows == len(there)
    assert found.equal_rows + found.surplus_rows + found.different_rows == len(here)
    lone = {row["Id"] for row in found.missing} & {row["Id"] for row in found.surplus}
    assert lone == set()
    assert all(row.cells for row in found.different)
    swapped = compare(table(*there), table(*here), ["Id"], limit=None)
    assert counts(swapped) == (found.equal_rows, found.surplus_rows, found.missing_rows, found.different_rows)
