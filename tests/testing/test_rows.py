"""A mirrored table's rows against a list: sorted, equal, and the differences by key and cell."""

from __future__ import annotations

import math

import pytest

from mirror_engine.testing.mirror import MAX_DIFFERENCES, Rows


def test_rows_are_sorted_by_key_then_by_all_columns_null_first_nan_last():
    rows = Rows([{"note": "b", "id": 2}, {"note": "a", "id": 2}, {"note": "z", "id": 1}], keys=["id"])
    assert rows == [{"note": "z", "id": 1}, {"note": "a", "id": 2}, {"note": "b", "id": 2}]
    rows = Rows([{"x": math.nan}, {"x": 1.0}, {"x": None}])
    assert [repr(row["x"]) for row in rows] == ["None", "1.0", "nan"]


LINZ, WELS = {"id": 1, "city": "Linz"}, {"id": 2, "city": "Wels"}


DIFFERENCES = {  # rows by their key, those expected, and the differences
    "by key and cell": (
        Rows([LINZ, WELS], keys=["id"]),
        [{"id": 1, "city": "Graz"}, {"id": 3, "city": "Enns"}],
        [
            "different: id=1: city is 'Linz', expected 'Graz'",
            "missing: {'id': 3, 'city': 'Enns'}",
            "unexpected: {'id': 2, 'city': 'Wels'}",
        ],
    ),
    "a missing column": (
        Rows([{"id": 1}], keys=["id"]),
        [{"id": 1, "city": None}],
        ["different: id=1: city is not a column, expected None"],
    ),
    "a duplicate row": (Rows([{"id": 1}, {"id": 1}], keys=["id"]), [{"id": 1}], ["unexpected: {'id': 1}"]),
    "without a key": (Rows([{"id": 1}]), [{"id": 2}], ["missing: {'id': 2}", "unexpected: {'id': 1}"]),
    "another order": (
        Rows([LINZ, WELS], keys=["id"]),
        [WELS, LINZ],
        ["the same rows in another order; rows() sorts by key, then by all columns, NULL first"],
    ),
    "NaN": (
        Rows([{"id": 1, "x": math.nan}, {"id": 2, "x": -0.0}], keys=["id"]),
        [{"id": 1, "x": 1.0}, {"id": 2, "x": math.nan}],
        ["different: id=1: x is nan, expected 1.0", "different: id=2: x is -0.0, expected nan"],
    ),
}


@pytest.mark.parametrize(("rows", "expected", "differences"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_differences_are_reported(rows, expected, differences):
    assert rows != expected
    assert rows.differences(expected) == differences


def test_many_differences_are_cut_and_the_state_of_the_table_comes_last():
    rows = Rows([{"id": number} for number in range(MAX_DIFFERENCES + 5)], keys=["id"])
    rows.state = "Orders is\nhalted"
    assert rows.differences([])[MAX_DIFFERENCES:] == ["… and 5 more", "Orders is", "halted"]


def test_nan_equals_nan_and_zero_has_no_sign():
    rows = Rows([{"id": 1, "x": math.nan}, {"id": 2, "x": -0.0}], keys=["id"])
    expected = [{"id": 1, "x": float("nan")}, {"id": 2, "x": 0.0}]
    assert rows == expected
    assert expected == rows
    assert not rows != expected  # noqa: SIM202 - both operators are meant
    assert rows != expected[:1]
    assert Rows([{"x": float("nan")}], keys=["x"]) == [{"x": float("nan")}]
    assert Rows([{"id": 1, "x": 1.0}], keys=["id"]) == [{"id": 1, "x": 1}]  # as Python has it


@pytest.mark.parametrize(
    "other", [[1], [{"id": [1]}], [None], (), {}, None, 1, "x", [{"id": 1, "x": None}], [{"x": 1}]]
)
def test_other_values_and_other_columns_are_not_equal(other):
    assert Rows([{"id": 1}]) != other
