"""`trace --what-if`: the same table without a file, or with two in each other's place."""

from __future__ import annotations

import pytest
from shop import name

from mirror_engine.errors import UsageError
from mirror_engine.publisher.trace.what_if import trace_what_if

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look


def what_if(shop, *suppositions, table="Orders"):
    with shop.scene(table) as scene:
        return trace_what_if(scene, suppositions)


def row(number, city):
    return {"id": number, "city": city}


def cells(found):
    return [(each.key["id"], dict(each.cells)) for each in found.difference.different]


def three_files(shop):
    table = shop.orders()
    table.insert(row(1, "a"), row(2, "a"))
    table.upsert(row(1, "b"))
    table.apply_changes((4, row(1, "c")), (2, {"id": 2}), (4, row(3, "c")))
    return table


@pytest.mark.parametrize("is_applied", [False, True])
def test_without_a_file_its_rows_are_missing_and_others_come_back(shop, is_applied) -> None:
    three_files(shop)
    if is_applied:
        shop.sync()
    found = what_if(shop, "skip=3")
    assert found.supposed == ("without 00000000000000000003.parquet",)
    assert cells(found) == [(1, {"city": ("c", "b")})]
    assert found.difference.missing == (row(3, "c"),)
    assert found.difference.unexpected == (row(2, "a"),)


def test_a_file_in_the_middle_can_be_left_out_without_a_gap(shop) -> None:
    three_files(shop)
    found = what_if(shop, "skip=2")
    assert found.difference.is_equal
    assert found.state_otherwise.endswith("has caught up")


def test_the_other_order_shows_a_change_that_came_too_early(shop) -> None:
    three_files(shop)
    found = what_if(shop, "order=3,2")
    assert cells(found) == [(1, {"city": ("c", "b")})]
    assert found.difference.missing_rows == found.difference.unexpected_rows == 0


def test_several_suppositions_hold_together(shop) -> None:
    table = three_files(shop)
    table.upsert(row(1, "d"))
    found = what_if(shop, "skip=4", "order=3,2", "skip=1")
    assert cells(found) == [(1, {"city": ("d", "b")})]


def test_files_ordered_by_time_change_places_in_time(shop) -> None:
    table = shop.orders(strategy="LastUpdateTimeFileDetection")
    for place, city in enumerate(("b", "a")):
        table.upsert(row(1, city), name=f"{city}.parquet", modified_ns=(place + 1) * 10**9)
    found = what_if(shop, "order=a.parquet,b.parquet")
    assert cells(found) == [(1, {"city": ("a", "b")})]
    shop.sync()
    assert cells(what_if(shop, "skip=a.parquet")) == [(1, {"city": ("a", "b")})]


def test_without_a_refused_file_those_behind_it_are_read(shop) -> None:
    table = three_files(shop)
    table.land(b"")
    table.upsert(row(1, "e"))
    shop.sync()
    found = what_if(shop, "skip=4")
    assert cells(found) == [(1, {"city": ("c", "e")})]
    assert found.state.startswith("Orders is halted")
    assert found.state_otherwise.endswith("has caught up")


def test_a_gap_stays_a_gap(shop) -> None:
    table = three_files(shop)
    table.skip_numbers()
    table.upsert(row(1, "e"))
    found = what_if(shop, "skip=2")
    assert found.difference.is_equal
    assert found.state_otherwise.startswith("Orders is blocked")
    with pytest.raises(UsageError, match="is not replayed"):
        what_if(shop, "skip=5")


def test_where_old_files_are_gone_both_begin_with_the_table_behind_them(shop) -> None:
    table = shop.orders()
    table.insert(row(1, "a"), row(2, "a"))
    shop.sync()
    table.upsert(row(1, "b"))
    shop.sync()
    table.upsert(row(2, "c"))
    shop.sync()
    shop.lose(1)
    found = what_if(shop, "skip=2")
    assert (found.beginning.gone, found.beginning.version) == (1, 1)
    assert cells(found) == [(1, {"city": ("b", "a")})]
    assert found.difference.equal_rows == 1


def test_a_keyless_table_is_compared_as_a_whole(shop) -> None:
    table = shop.publisher.table("Log")
    table.insert({"text": "a"})
    table.insert({"text": "a"}, {"text": "b"})
    found = what_if(shop, "skip=2", table="Log")
    assert found.difference.missing_rows == 2


@pytest.mark.parametrize(
    ("supposed", "message"),
    [
        ("drop=2", "nothing to suppose"),
        ("skip=1,2", "nothing to suppose"),
        ("order=1", "nothing to suppose"),
        ("order=1,2", "they are in this order already"),
        ("skip=9", "no such change file"),
    ],
)
def test_what_cannot_be_supposed_is_told(shop, supposed, message) -> None:
    three_files(shop)
    with pytest.raises(UsageError, match=message):
        what_if(shop, supposed)


def test_files_of_two_partitions_have_no_order(shop) -> None:
    table = shop.publisher.table("Days", keys=["id"], partitioned=True)
    for day in ("a", "b"):
        table.insert({"id": 1}, partition=f"day={day}")
    first, second = (f"day={day}/00000000000000000001.parquet" for day in "ab")
    with pytest.raises(UsageError, match="two partitions have no order"):
        what_if(shop, f"order={second},{first}", table="Days")


@pytest.mark.parametrize("is_applied", [False, True])
def test_without_the_only_file_all_its_rows_are_missing(shop, is_applied) -> None:
    shop.orders().insert(row(1, "a"), row(2, "a"))
    if is_applied:
        shop.sync()
    found = what_if(shop, "skip=1")
    assert found.difference.missing == (row(1, "a"), row(2, "a"))
    assert found.difference.key == ("id",)
    assert not found.difference.unexpected_rows


def test_without_a_refused_first_file_all_rows_behind_it_come(shop) -> None:
    table = shop.orders()
    table.land(b"")
    table.insert(row(1, "a"))
    found = what_if(shop, "skip=1")
    assert found.difference.unexpected == (row(1, "a"),)
    assert not found.difference.missing_rows


def test_where_no_file_can_be_replayed_that_is_told(shop) -> None:
    shop.orders().land(b"")
    with pytest.raises(UsageError, match=r"^Orders: no file of it can be replayed"):
        what_if(shop, "skip=1")


def test_nothing_is_written_but_what_was_there(shop) -> None:
    three_files(shop)
    before = sorted(path.relative_to(shop.root) for path in shop.root.rglob("*"))
    what_if(shop, "skip=3")
    assert sorted(path.relative_to(shop.root) for path in shop.root.rglob("*")) == before


def test_files_keep_their_names_whatever_place_they_take(shop) -> None:
    table = shop.orders()
    table.insert(row(1, "a"))
    table.insert(row(2, "b"))
    table.apply_changes((3, row(3, "c")))
    assert f"is halted: {name(3)}," in what_if(shop, "skip=1").state_otherwise
    assert f"is halted: {name(3)}," in what_if(shop, "order=2,1").state_otherwise


def test_a_gap_keeps_its_name_though_files_move_up(shop) -> None:
    table = three_files(shop)
    table.skip_numbers()
    table.insert(row(9, "z"))
    found = what_if(shop, "skip=2")
    assert found.state_otherwise == found.state
    assert f"{name(4)} is missing" in found.state
