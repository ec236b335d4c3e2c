from __future__ import annotations

import math

from mirror_engine.testing.rows import SHOWN, Rows


def test_rows_are_sorted_by_key_then_by_all_columns() -> None:
    rows = Rows([{"note": "b", "id": 2}, {"note": "a", "id": 2}, {"note": "z", "id": 1}], keys=["id"])
    assert rows == [{"note": "z", "id": 1}, {"note": "a", "id": 2}, {"note": "b", "id": 2}]


def test_null_sorts_first_and_nan_last() -> None:
    rows = Rows([{"x": math.nan}, {"x": 1.0}, {"x": None}])
    assert [repr(row["x"]) for row in rows] == ["None", "1.0", "nan"]


def test_a_difference_is_told_by_key_and_cell() -> None:
    rows = Rows([{"id": 1, "city": "Linz"}, {"id": 2, "city": "Wels"}], keys=["id"])
    assert rows.differences([{"id": 1, "city": "Graz"}, {"id": 3, "city": "Enns"}]) == [
        "different: id=1: city is 'Linz', expected 'Graz'",
        "missing: {'id': 3, 'city': 'Enns'}",
        "surplus: {'id': 2, 'city': 'Wels'}",
    ]


def test_a_missing_column_is_told() -> None:
    rows = Rows([{"id": 1}], keys=["id"])
    assert rows.differences([{"id": 1, "city": None}]) == ["different: id=1: city is not a column, expected None"]


def test_doubled_rows_are_told() -> None:
    rows = Rows([{"id": 1}, {"id": 1}], keys=["id"])
    assert rows.differences([{"id": 1}]) == ["surplus: {'id': 1}"]


def test_without_keys_whole_rows_are_told() -> None:
    assert Rows([{"id": 1}]).differences([{"id": 2}]) == ["missing: {'id': 2}", "surplus: {'id': 1}"]


def test_another_order_is_told_as_such() -> None:
    assert "another order" in Rows([{"id": 1}, {"id": 2}], keys=["id"]).differences([{"id": 2}, {"id": 1}])[0]


def test_many_differences_are_cut_and_the_table_s_state_comes_last() -> None:
    said = Rows([{"id": number} for number in range(SHOWN + 5)], keys=["id"], state="Orders is\nlatched").differences(
        []
    )
    assert said[SHOWN:] == ["… and 5 more", "Orders is", "latched"]
