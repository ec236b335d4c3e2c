"""`trace what-if`: the same table without a file, or with two exchanged."""

from __future__ import annotations

import re

import pytest
from shop import name

from mirror_engine.errors import UsageError
from mirror_engine.tools.trace.file import trace_what_if

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look


def what_if(shop, *changes, table="Orders"):
    with shop.trace(table) as trace:
        return trace_what_if(trace, changes)


def row(number, city):
    return {"id": number, "city": city}


def cells(result):
    return [
        (row.key["id"], {each.column: (each.expected, each.actual) for each in row.cells}) for row in result.different
    ]


def three_files(shop):
    table = shop.orders()
    table.insert(row(1, "a"), row(2, "a"))
    table.upsert(row(1, "b"))
    table.apply_changes((4, row(1, "c")), (2, {"id": 2}), (4, row(3, "c")))
    return table


@pytest.mark.parametrize("is_applied", [False, True])
def test_without_a_file_its_rows_are_missing_and_deleted_ones_are_back(shop, is_applied):
    three_files(shop)
    if is_applied:
        shop.sync()
    before = sorted(path.relative_to(shop.root) for path in shop.root.rglob("*"))
    result = what_if(shop, "skip=3")
    assert result.changes == ("without 00000000000000000003.parquet",)
    assert cells(result) == [(1, {"city": ("c", "b")})]
    assert result.missing == (row(3, "c"),)
    assert result.unexpected == (row(2, "a"),)
    assert sorted(path.relative_to(shop.root) for path in shop.root.rglob("*")) == before


@pytest.mark.parametrize("changes", [["swap=3,2"], ["skip=3", "swap=2,1", "skip=1"]])
def test_the_other_order_shows_a_change_that_came_too_early(shop, changes):
    three_files(shop)
    assert dict(cells(what_if(shop, *changes)))[1] == {"city": ("c", "b")}


def test_skipping_a_file_leaves_no_gap(shop):
    three_files(shop)
    result = what_if(shop, "skip=2")
    assert result.equal
    assert not re.search(r"blocked|\[ME", result.message_what_if)


def test_files_ordered_by_time_are_exchanged(shop):
    table = shop.orders(strategy="LastUpdateTimeFileDetection")
    for place, city in enumerate(("b", "a")):
        table.upsert(row(1, city), name=f"{city}.parquet", modified_ns=(place + 1) * 10**9)
    result = what_if(shop, "swap=a.parquet,b.parquet")
    assert cells(result) == [(1, {"city": ("a", "b")})]
    shop.sync()
    assert cells(what_if(shop, "skip=a.parquet")) == [(1, {"city": ("a", "b")})]


def test_without_a_rejected_file_those_behind_it_are_read(shop):
    table = three_files(shop)
    table.land(b"")
    table.upsert(row(1, "e"))
    shop.sync()
    result = what_if(shop, "skip=4")
    assert cells(result) == [(1, {"city": ("c", "e")})]
    assert "[ME023]" in result.message
    assert not re.search(r"blocked|\[ME", result.message_what_if)


def test_without_old_files_both_replays_start_with_the_delta_table(shop):
    table = shop.orders()
    table.insert(row(1, "a"), row(2, "a"))
    shop.sync()
    table.upsert(row(1, "b"))
    shop.sync()
    table.upsert(row(2, "c"))
    shop.sync()
    shop.lose(1)
    result = what_if(shop, "skip=2")
    assert (result.replay_start.deleted_files, result.replay_start.delta_version) == (1, 1)
    assert cells(result) == [(1, {"city": ("b", "a")})]
    assert result.counts.equal == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("drop=2", "not a change"),
        ("skip=1,2", "not a change"),
        ("swap=1", "not a change"),
        ("swap=1,2", "they are in this order already"),
        ("skip=9", "no such change file"),
    ],
)
def test_an_invalid_change_is_refused(shop, change, message):
    three_files(shop)
    with pytest.raises(UsageError, match=message):
        what_if(shop, change)


@pytest.mark.parametrize("is_applied", [False, True])
def test_without_the_only_file_all_its_rows_are_missing(shop, is_applied):
    shop.orders().insert(row(1, "a"), row(2, "a"))
    if is_applied:
        shop.sync()
    result = what_if(shop, "skip=1")
    assert result.missing == (row(1, "a"), row(2, "a"))
    assert result.key == ("id",)
    assert not result.counts.unexpected


def test_states_name_the_files_by_their_real_names(shop):
    table = shop.orders()
    table.insert(row(1, "a"))
    table.insert(row(2, "b"))
    table.apply_changes((3, row(3, "c")))
    assert f"{name(3)}, row 1" in what_if(shop, "skip=1").message_what_if
    assert f"{name(3)}, row 1" in what_if(shop, "swap=2,1").message_what_if


def test_a_gap_stays_a_gap_of_the_same_name(shop):
    table = three_files(shop)
    table.skip_numbers()
    table.upsert(row(1, "e"))
    result = what_if(shop, "skip=2")
    assert result.equal
    assert result.message_what_if == result.message
    assert re.match(f"Orders is blocked: {name(4)}", result.message)
    with pytest.raises(UsageError, match="is not replayed"):
        what_if(shop, "skip=5")


def test_a_rejected_first_file_alone_leaves_nothing_to_replay(shop):
    table = shop.orders()
    table.land(b"")
    with pytest.raises(UsageError, match=r"^Orders: none of its files can be replayed"):
        what_if(shop, "skip=1")
    table.insert(row(1, "a"))
    result = what_if(shop, "skip=1")
    assert result.unexpected == (row(1, "a"),)
    assert not result.counts.missing


def test_a_keyless_table_is_compared_as_a_whole_and_partitions_have_no_common_order(shop):
    table = shop.publisher.table("Log", partitioned=True)
    first = table.insert({"text": "a"}, partition="day=a").removeprefix("Log/")
    second = table.insert({"text": "a"}, {"text": "b"}, partition="day=b").removeprefix("Log/")
    assert what_if(shop, f"skip={second}", table="Log").counts.missing == 2
    with pytest.raises(UsageError, match="two partitions have no order"):
        what_if(shop, f"swap={second},{first}", table="Log")
