"""The specification itself: what each marker does to a table, and when keys and names are equal."""

from __future__ import annotations

import pytest

from mirror_engine.landing_zone.change import Change, Effect, RowMarker, looks_like_marker, replay, same_key, same_rows

NAN = float("nan")
OTHER = {"id": 9, "n": "other"}


def table_of(copies):
    return [{"id": 1, "n": f"copy {copy}"} for copy in range(copies)] + [OTHER]


@pytest.mark.parametrize(
    ("marker", "copies", "left", "effect"),
    [
        (RowMarker.INSERT, 0, ["new"], Effect(0, 1)),
        (RowMarker.INSERT, 2, ["copy 0", "copy 1", "new"], Effect(2, 3)),
        (RowMarker.UPDATE, 0, ["new"], Effect(0, 1)),
        (RowMarker.UPDATE, 2, ["new", "new"], Effect(2, 2)),
        (RowMarker.UPSERT, 0, ["new"], Effect(0, 1)),
        (RowMarker.UPSERT, 1, ["new"], Effect(1, 1)),
        (RowMarker.DELETE, 0, [], Effect(0, 0)),
        (RowMarker.DELETE, 2, [], Effect(2, 0)),
    ],
)
def test_marker_changes_all_rows_of_its_key(marker, copies, left, effect):
    """LZ-4.1, LZ-4.3, LZ-4.4."""
    rows, effects = replay(table_of(copies), [Change(marker, (1,), {"id": 1, "n": "new"})], ["id"])
    assert sorted(row["n"] for row in rows) == sorted([*left, "other"])
    assert effects == [effect]


def test_unknown_marker_is_no_change():
    with pytest.raises(AssertionError, match="7"):
        replay([], [Change(7, (1,), {"id": 1})], ["id"])


@pytest.mark.parametrize(
    ("key", "other", "is_same"),
    [
        ((NAN,), (-NAN,), True),
        ((0.0,), (-0.0,), True),
        ((NAN,), ("nan",), False),
        ((1.5,), (NAN,), False),
        ((1.5,), (1.5,), True),
        ((1,), (1.0,), False),
        ((1,), (True,), False),
        ((1.0,), (True,), False),
        (("a", 1), (1, "a"), False),
    ],
)
def test_key_parts_are_equal_by_value_and_type(key, other, is_same):
    """LZ-4.9."""
    assert (same_key(key) == same_key(other)) is is_same


@pytest.mark.parametrize("key", [(), (None,), (1, None)])
def test_key_with_null_matches_nothing(key):
    """LZ-4.8: not even a row with the same NULL."""
    assert same_key(key) is None
    rows, effects = replay([{"a": 1, "b": None}], [Change(RowMarker.DELETE, key, {})], ["a", "b"][: len(key)])
    assert (len(rows), effects) == (1, [Effect(0, 0)])


def test_equal_rows_need_no_null_column():
    assert same_rows([{"a": 1, "b": None}], [{"a": 1}])
    assert not same_rows([{"a": 1}], [{"a": 1}, {"a": 1}])


@pytest.mark.parametrize(
    ("name", "is_near"),
    [
        ("__rowMarker__", False),  # the marker itself
        ("__ROWMARKER__", False),
        ("rowMarker", True),
        ("Row Marker", True),
        ("__row_marker__", True),
        ("__rowMaker__", True),
        ("__rowmark", True),
        ("rowmark__", True),
        (" __rowMarker__", True),
        *((name, False) for name in ("rowMaker", "ArrowMarker", "GrowMarker", "row_market", "RowMarkerId", "marker")),
        ("__rowNumber__", False),
        ("__marker__", False),
        ("_", False),
        ("__rowMarker" + "_" * 28, True),  # 39 characters
        ("__rowMarker" + "_" * 29, False),
    ],
)
def test_near_name_of_the_marker_is_recognized(name, is_near):
    """LZ-4.10."""
    assert looks_like_marker(name) is is_near
