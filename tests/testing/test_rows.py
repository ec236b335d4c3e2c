from __future__ import annotations

import math

from mirror_engine.publisher.testing.mirrored import SHOWN, Rows


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
        "unexpected: {'id': 2, 'city': 'Wels'}",
    ]


def test_a_missing_column_is_told() -> None:
    rows = Rows([{"id": 1}], keys=["id"])
    assert rows.differences([{"id": 1, "city": None}]) == ["different: id=1: city is not a column, expected None"]


def test_doubled_rows_are_told() -> None:
    rows = Rows([{"id": 1}, {"id": 1}], keys=["id"])
    assert rows.differences([{"id": 1}]) == ["unexpected: {'id': 1}"]


def test_without_keys_whole_rows_are_told() -> None:
    assert Rows([{"id": 1}]).differences([{"id": 2}]) == ["missing: {'id': 2}", "unexpected: {'id': 1}"]


def test_another_order_is_told_as_such() -> None:
    assert "another order" in Rows([{"id": 1}, {"id": 2}], keys=["id"]).differences([{"id": 2}, {"id": 1}])[0]


def test_many_differences_are_cut_and_the_table_s_state_comes_last() -> None:
    said = Rows([{"id": number} for number in range(SHOWN + 5)], keys=["id"], state="Orders is\nlatched").differences(
        []
    )
    assert said[SHOWN:] == ["… and 5 more", "Orders is", "latched"]


def test_nan_equals_nan_and_zero_has_no_sign() -> None:
    rows = Rows([{"id": 1, "x": float("nan")}, {"id": 2, "x": -0.0}], keys=["id"])
    expected = [{"id": 1, "x": float("nan")}, {"id": 2, "x": 0.0}]
    assert rows == expected
    assert expected == rows
    assert not rows != expected  # noqa: SIM202 - both operators are meant
    assert rows != expected[:1]
    assert rows.differences([{"id": 1, "x": 1.0}, {"id": 2, "x": float("nan")}]) == [
        "different: id=1: x is nan, expected 1.0",
        "different: id=2: x is -0.0, expected nan",
    ]
    assert Rows([{"x": float("nan")}], keys=["x"]) == [{"x": float("nan")}]


def test_numbers_are_equal_as_python_has_them() -> None:
    assert Rows([{"id": 1, "x": 1.0}], keys=["id"]) == [{"id": 1, "x": 1}]
    assert Rows([{"id": 1, "x": 1.0}], keys=["id"]) != [{"id": 1, "x": 2}]
    assert Rows([{"id": 1, "x": 1.0}]).differences([{"id": 1, "x": 2}]) == [
        "missing: {'id': 1, 'x': 2}",
        "unexpected: {'id': 1, 'x': 1.0}",
    ]


def test_what_is_no_row_is_not_equal() -> None:
    rows = Rows([{"id": 1}], keys=["id"])
    for other in ([1], [{"id": [1]}], [None], (), {}, None, 1, "x"):
        assert rows != other


def test_rows_of_other_columns_are_told() -> None:
    assert Rows([{"id": 1}]) != [{"id": 1, "x": None}]
    assert Rows([{"id": 1}]) != [{"x": 1}]
