"""A table compared with an expected one: missing, unexpected and different rows, whatever the values are."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_engine.errors import UsageError
from mirror_engine.tools.diff import diff_tables, distinct_keys, key_of
from mirror_engine.tools.difference import DifferentCell

SCHEMA = pa.schema([("Id", pa.int64()), ("Name", pa.string()), ("Price", pa.float64())])
FLOATS = pa.schema([("x", pa.float64())])
NAN = float("nan")


def table(*rows, schema=SCHEMA):
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)]
    return pa.table(columns, schema=schema)


def counts(difference):
    rows = difference.counts.equal, difference.counts.missing, difference.counts.unexpected, difference.counts.different
    assert difference.equal == (not any(rows[1:]))
    return rows


def test_rows_are_matched_by_key_and_compared_cell_by_cell():
    difference = diff_tables(
        table((1, "a", 1.0), (2, "b", 2.0), (4, "d", 4.0)), table((1, "a", 1.0), (2, "x", 2.5), (3, "c", 3.0)), ["Id"]
    )
    assert counts(difference) == (1, 1, 1, 1)
    assert difference.missing == ({"Id": 3, "Name": "c", "Price": 3.0},)
    assert difference.unexpected == ({"Id": 4, "Name": "d", "Price": 4.0},)
    (row,) = difference.different
    assert row.key == {"Id": 2}
    assert row.cells == [DifferentCell("Name", "x", "b"), DifferentCell("Price", 2.5, 2.0)]
    assert difference.different_cells == {"Name": 1, "Price": 1}


def test_distinct_keys_count_each_key_once():
    rows = table((1, "a", 1.0), (2, "b", 0.0), (1, "c", 2.0), (2, "b", -0.0), (None, "b", NAN), (None, "d", NAN))
    source = table((2, None, None), (3, None, None), (3, "x", None), (2, None, None))
    both = distinct_keys(rows.select(["Id"]), source)
    difference = diff_tables(*both, ["Id"])
    assert counts(difference) == (1, 1, 2, 0)
    assert (difference.missing, difference.unexpected) == (({"Id": 3},), ({"Id": 1}, {"Id": None}))
    assert distinct_keys(rows.select(["Price"]), rows)[0].num_rows == 4  # 1, 2, 0 (which is -0) and NaN
    assert distinct_keys(rows.slice(0, 0), rows)[0].num_rows == 0


def test_key_of_finds_columns_in_any_case():
    assert key_of(["id"], SCHEMA.names) == ["Id"]


def test_key_that_names_a_column_twice_has_it_once():
    assert key_of(["Id,id", "Name", "ID"], SCHEMA.names) == ["Id", "Name"]
    rows = table((1, "a", 1.0))
    names = key_of(["Id,Id"], SCHEMA.names)
    assert counts(diff_tables(*distinct_keys(rows.select(names), rows), names)) == (1, 0, 0, 0)
    assert key_of(["price,Id"], SCHEMA.names) == ["Price", "Id"]
    for key, found in ([], "the table has no key"), (["Sku"], "key column Sku: the table has no such column"):
        with pytest.raises(UsageError, match=found):
            key_of(key, SCHEMA.names)
    with pytest.raises(UsageError, match="key column Id: the expected table lacks it"):
        distinct_keys(table().select(["Id"]), table().select(["Name"]))


ONE_AND_TWO = ((1, "a", 0.5), (2, None, None))
BY_ID = ["Id"]
COUNTED = {  # rows, those expected, the key, the tolerance, and the counts
    "any order, by key": (ONE_AND_TWO, ONE_AND_TWO[::-1], BY_ID, 0.0, (2, 0, 0, 0)),
    "empty, by key": ((), (), BY_ID, 0.0, (0, 0, 0, 0)),
    "empty": ((), (), [], 1.0, (0, 0, 0, 0)),
    "rows without a key are a multiset": (
        [(1, "a", 1.0)] * 2 + [(2, "b", 2.0)],
        [(1, "a", 1.0), (2, "x", 2.0)],
        [],
        0.0,
        (1, 1, 2, 0),
    ),
    "a key that is there twice": ([(1, "a", 1.0), (1, "b", 1.0)], [(1, "b", 1.0)], BY_ID, 0.0, (1, 0, 1, 0)),
    "NULL and NaN are equal": ([(None, None, NAN)], [(None, None, NAN)], BY_ID, 0.0, (1, 0, 0, 0)),
    "NULL is no NaN": ([(1, "a", None)], [(1, "a", NAN)], BY_ID, 0.0, (0, 0, 0, 1)),
    "NULL is no empty text": ([(1, "", 1.0)], [(1, None, 1.0)], BY_ID, 0.0, (0, 0, 0, 1)),
    "exact": ([(1, "a", 0.1 + 0.2)], [(1, "a", 0.3)], BY_ID, 0.0, (0, 0, 0, 1)),
    "near, by key": ([(1, "a", 0.1 + 0.2)], [(1, "a", 0.3)], BY_ID, 1e-9, (1, 0, 0, 0)),
    "near, without a key": ([(1, "a", 0.1 + 0.2)], [(1, "a", 0.3)], [], 1e-9, (1, 0, 0, 0)),
    "not near, by key": ([(1, "a", 0.3)], [(1, "a", 0.4)], BY_ID, 0.01, (0, 0, 0, 1)),
    "not near, without a key": ([(1, "a", 0.3)], [(1, "a", 0.4)], [], 0.01, (0, 1, 1, 0)),
    "NaN is near to nothing": ([(1, "a", NAN)], [(1, "a", 1.0)], BY_ID, 0.01, (0, 0, 0, 1)),
    "NULL is near to nothing": ([(1, "a", None)], [(1, "a", 1.0)], BY_ID, 0.01, (0, 0, 0, 1)),
    "infinity": ([(1, "a", math.inf)], [(1, "a", math.inf)], BY_ID, 1.0, (1, 0, 0, 0)),
    "infinities": ([(1, "a", math.inf)], [(1, "a", -math.inf)], BY_ID, 1.0, (0, 0, 0, 1)),
    # matched in the order of their floats, as nothing else differs
    "near rows without a key": (
        [(1, "a", 1.0), (1, "a", 2.0)],
        [(1, "a", 2.0001), (1, "a", 1.0001)],
        [],
        0.001,
        (2, 0, 0, 0),
    ),
}


@pytest.mark.parametrize(("rows", "expected", "key", "tolerance", "expected_counts"), COUNTED.values(), ids=COUNTED)
def test_rows_are_counted(rows, expected, key, tolerance, expected_counts):
    assert counts(diff_tables(table(*rows), table(*expected), key, tolerance=tolerance)) == expected_counts


def test_a_table_of_floats_only_is_compared_with_a_tolerance():
    rows, expected = table((1.0,), (2.0,), (3.0,), schema=FLOATS), table((1.001,), (2.0,), (9.0,), schema=FLOATS)
    assert counts(diff_tables(rows, expected, tolerance=0.01)) == (2, 1, 1, 0)


def test_tables_without_a_common_column_cannot_be_compared():
    with pytest.raises(UsageError, match="no column in common") as error:
        diff_tables(table(), pa.table({"Sku": ["a"], "Size": ["XL"]}))
    assert error.value.help == "The table has Id, Name, Price; the expected one Sku, Size."


def test_columns_of_one_table_only_are_reported_and_not_compared():
    expected = table((1, "a", 1.0)).drop_columns(["Price"]).append_column("Size", pa.array([9]))
    difference = diff_tables(table((1, "a", 1.0)), expected, ["Id"])
    assert (difference.columns.missing, difference.columns.unexpected) == (("Size",), ("Price",))
    assert difference.counts.equal == 1
    assert not difference.equal


def test_the_key_is_named_in_any_case_and_must_be_in_both_tables():
    one = table((1, "a", 1.0))
    assert diff_tables(one, one, ["ID"]).key == ("Id",)
    with pytest.raises(UsageError, match="key column Sku: the table has no such column"):
        diff_tables(one, one, ["Sku"])
    with pytest.raises(UsageError, match="the expected table lacks it"):
        diff_tables(one, one.drop_columns(["Id"]), ["Id"])


def test_a_limit_bounds_the_rows_returned_and_not_the_counts():
    many = table(*((at, "a", 1.0) for at in range(50)))
    assert len(diff_tables(many, table(), ["Id"]).unexpected) == 20
    assert len(diff_tables(table(), many, ["Id"], limit=None).missing) == 50
    assert diff_tables(table(), many, ["Id"], limit=3).counts.missing == 50


def test_a_table_in_many_chunks_compares_as_one():
    rows = [table((at, str(at % 3), None)) for at in range(10)]
    assert diff_tables(pa.concat_tables(rows), pa.concat_tables(rows[::-1]), ["Id"]).equal


def test_every_type_of_a_mirrored_table_can_be_compared():
    now = datetime(2026, 11, 2, tzinfo=UTC)
    types = [pa.decimal128(10, 2), pa.binary(), pa.bool_(), pa.timestamp("us", "UTC"), pa.date32(), pa.float32()]
    schema = pa.schema([*zip("abcdef", types, strict=True), ("g", pa.int8())])
    row = (Decimal("1.50"), b"\x00", True, now, now.date(), 0.1, 7)
    other = (Decimal("1.51"), b"\x01", False, now.replace(year=2027), now.date().replace(year=2027), 0.2, 7)
    assert diff_tables(table(row, schema=schema), table(row, schema=schema)).equal
    assert diff_tables(table(row, schema=schema), table((*other[:6], 8), schema=schema), ["g"]).counts.missing == 1
    assert len(diff_tables(table(row, schema=schema), table(other, schema=schema), ["g"]).different[0].cells) == 6


cells = st.tuples(
    st.sampled_from([None, 1, 2, 3]), st.sampled_from([None, "", "a"]), st.sampled_from([None, 0.0, -0.0, NAN, 1.0])
)
some_rows = st.lists(cells, max_size=12)


def plain_row(row):
    price = row["Price"]
    return row["Id"], row["Name"], "NaN" if price is not None and math.isnan(price) else price


@given(some_rows, some_rows)
def test_without_a_key_the_difference_is_that_of_the_counted_rows(rows, expected):
    difference = diff_tables(table(*rows), table(*expected), limit=None)
    counted = Counter(plain_row(row) for row in table(*rows).to_pylist())
    counted_expected = Counter(plain_row(row) for row in table(*expected).to_pylist())
    assert Counter(map(plain_row, difference.unexpected)) == counted - counted_expected
    assert Counter(map(plain_row, difference.missing)) == counted_expected - counted
    assert difference.counts.equal == sum((counted & counted_expected).values())


@given(some_rows, some_rows, st.sampled_from([0.0, 0.5]))
def test_with_a_key_every_row_is_counted_once_and_rows_of_one_key_are_paired(rows, expected, tolerance):
    difference = diff_tables(table(*rows), table(*expected), ["Id"], tolerance=tolerance, limit=None)
    assert difference.counts.equal + difference.counts.missing + difference.counts.different == len(expected)
    assert difference.counts.equal + difference.counts.unexpected + difference.counts.different == len(rows)
    assert {row["Id"] for row in difference.missing}.isdisjoint(row["Id"] for row in difference.unexpected)
    assert all(row.cells for row in difference.different)
    swapped = diff_tables(table(*expected), table(*rows), ["Id"], tolerance=tolerance, limit=None)
    equal, missing, unexpected, different = counts(difference)
    assert counts(swapped) == (equal, unexpected, missing, different)
