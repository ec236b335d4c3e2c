"""Clocks that jump back and forth: what waits from one run to the next waits no shorter, and not for ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from shop import NO_STOP, Shop, name, row

from mirror_engine.clock import Clock
from mirror_engine.engine.known_time import KnownTime
from mirror_engine.engine.ledger import Ledger
from mirror_engine.landing_zone.states import CaughtUp, Deleted, Empty

HOUR, DAY, YEAR = 3600.0, 86_400.0, 365 * 86_400.0
RIGHT = 57 * YEAR  # some time in 2026


class Wall:
    """A machine's clock, which may be wrong, and how much time has really passed."""

    def __init__(self):
        self.real, self.wrong = RIGHT, 0.0

    @property
    def clock(self):
        return Clock(lambda: self.real + self.wrong, lambda: self.real)


class Runs:
    """One run after the other over a ledger."""

    def __init__(self):
        self.wall, self.ledger = Wall(), Ledger.fresh()

    def seen(self, wrong, later=0.0):
        """What a run sees, by a clock that is wrong by so much, some time after the last one."""
        self.wall.real, self.wall.wrong = self.wall.real + later, wrong
        return KnownTime(self.wall.clock, self.ledger, is_stored=True)()


@pytest.mark.parametrize("back", [-HOUR, -YEAR, -RIGHT + 1])
def test_time_goes_on_while_the_clock_is_back(back):
    runs = Runs()
    first = runs.seen(0.0)
    assert runs.seen(back, later=HOUR) >= first
    behind = runs.seen(back)
    assert runs.seen(back, later=2 * HOUR) - behind == pytest.approx(2 * HOUR)
    assert runs.seen(0.0, later=HOUR) == runs.wall.real


@pytest.mark.parametrize("ahead", [HOUR, YEAR, 30 * YEAR])
def test_time_goes_on_after_a_clock_that_was_ahead(ahead):
    runs = Runs()
    runs.seen(0.0)
    wrong = runs.seen(ahead, later=HOUR)
    right = runs.seen(0.0, later=HOUR)
    assert right >= wrong
    assert runs.seen(0.0, later=7 * DAY) - right == pytest.approx(7 * DAY)


def test_jumps_back_and_forth_end_where_they_began():
    """Ahead, right, in 1970, right again: no wait of a week is over after some hours."""
    runs = Runs()
    runs.seen(0.0)
    runs.seen(40 * DAY, later=HOUR)
    begun = runs.seen(0.0, later=HOUR)
    for wrong in (-RIGHT + 1, 0.0, -YEAR, -HOUR, 0.0, -RIGHT + 1, 0.0):
        runs.seen(wrong, later=HOUR)
    assert runs.seen(0.0) - begun <= 8 * HOUR
    assert runs.seen(0.0, later=41 * DAY) == runs.wall.real


def test_clock_that_is_set_back_again_and_again_costs_no_growing_record():
    runs = Runs()
    seen = [runs.seen(0.0)]
    sizes = []
    for number in range(1, 60):
        seen.append(runs.seen(-number * HOUR, later=1.0))
        sizes.append(len(runs.ledger.get_property("known_time")))
    assert seen == sorted(seen)
    assert max(sizes) < 300
    assert runs.seen(0.0, later=HOUR) == runs.wall.real


def test_jump_within_a_run_takes_no_time_back():
    wall, ledger = Wall(), Ledger.fresh()
    time = KnownTime(wall.clock, ledger, is_stored=True)
    seen = []
    for wrong in (0.0, -YEAR, 0.0, HOUR, 0.0, -HOUR):
        wall.real, wall.wrong = wall.real + 60, wrong
        seen.append(time())
    assert seen == sorted(seen)


@pytest.mark.parametrize("wrong", [-50.0, -HOUR, -YEAR])
def test_jump_to_another_wrong_date_within_a_run_ends_no_wait(wrong):
    """A clock that was a bit ahead is set far back, then to the right date, which is still behind the known time."""
    wall = Wall()
    time = KnownTime(wall.clock, Ledger.fresh(), is_stored=True)
    seen = [time()]
    for each in (-40_000.0, wrong, -2 * YEAR, wrong):
        wall.real, wall.wrong = wall.real + 60, each
        seen.append(time())
        assert seen[-1] <= wall.real + 1
    assert seen == sorted(seen)
    wall.wrong = 0.0
    assert time() == wall.real


def test_reader_stores_nothing_and_knows_the_time():
    runs = Runs()
    first = runs.seen(0.0)
    before = runs.ledger.get_property("known_time")
    runs.wall.wrong = -YEAR
    assert KnownTime(runs.wall.clock, runs.ledger, is_stored=False)() >= first
    assert runs.ledger.get_property("known_time") == before


@pytest.mark.parametrize("text", ["{", "[]", '["x", []]', "[1]", "null"])
def test_damaged_property_is_forgotten(text):
    ledger = Ledger.fresh()
    ledger.set_property("known_time", text)
    assert KnownTime(Clock(lambda: RIGHT), ledger, is_stored=True)() == RIGHT


JUMPS = [-HOUR, -YEAR, -990_000.0, 0.0]


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


def archived(shop):
    return sorted(each.name for each in Path(shop.publisher.path).glob("Orders/_FilesReadyToDelete/*.parquet"))


def sync_at(shop, wrong):
    """One run with a clock that is wrong by so many seconds."""
    right = shop.now
    shop.now = max(right + wrong, 1.0)
    shop.clock = Clock(lambda: shop.now)
    report = shop.sync()
    shop.now = right
    return report


@pytest.mark.parametrize("wrong", JUMPS)
def test_first_file_archived_by_a_clock_that_is_back_stays_seven_days(shop, wrong):
    """Of a table that had no archive yet, whose times would not show it (LZ-8.3)."""
    orders = shop.orders()
    orders.insert(row(1), name=name(1))
    sync_at(shop, 0.0)
    orders.insert(row(2), name=name(2))
    sync_at(shop, wrong)
    orders.insert(row(3), name=name(3))
    sync_at(shop, 0.0)
    assert archived(shop) == [name(1), name(2)]
    shop.now += 7 * DAY + 1
    sync_at(shop, 0.0)
    assert archived(shop) == []


@pytest.mark.parametrize("ahead", [HOUR, 3 * DAY, 10 * YEAR])
def test_file_archived_after_a_clock_was_ahead_goes_after_seven_days(shop, ahead):
    orders = shop.orders()
    orders.insert(row(1), name=name(1))
    sync_at(shop, 0.0)
    orders.insert(row(2), name=name(2))
    sync_at(shop, ahead)
    for number in (3, 4):
        orders.insert(row(number), name=name(number))
        sync_at(shop, 0.0)
    assert archived(shop) == [name(1), name(2), name(3)]
    left = []
    for _ in range(8):  # at most the time between two runs longer
        shop.now += DAY + 1
        sync_at(shop, 0.0)
        left.append(len(archived(shop)))
    assert (left[5], left[7]) == (3, 0)


def test_lost_ledger_and_a_clock_that_is_back_delete_no_archive(shop):
    orders = shop.orders()
    for number in (1, 2):
        orders.insert(row(number), name=name(number))
    sync_at(shop, 0.0)
    for file in shop.root.glob(".mirror-engine/ledger*"):
        file.unlink()
    orders.insert(row(3), name=name(3))
    sync_at(shop, -900_000.0)
    orders.insert(row(4), name=name(4))
    sync_at(shop, 0.0)
    assert name(1) in archived(shop)


@pytest.mark.parametrize("wrong", JUMPS)
def test_drop_delay_is_not_over_early(tmp_path, wrong):
    """LZ-7.4."""
    shop = Shop(tmp_path, drop_delay_seconds=HOUR)
    shop.orders().insert(row(1))
    sync_at(shop, 0.0)
    shop.publisher.remove("Orders")
    sync_at(shop, 0.0)
    sync_at(shop, wrong)
    sync_at(shop, 0.0)
    assert isinstance(shop.status().state, Deleted)
    shop.now += HOUR
    sync_at(shop, wrong)
    shop.now += HOUR
    sync_at(shop, 0.0)
    assert shop.writer.tables() == []


@pytest.mark.parametrize("wrong", JUMPS)
def test_empty_table_is_not_failed_early(shop, wrong):
    """LZ-7.1."""
    shop.orders("Other").insert(row(1))
    sync_at(shop, 0.0)
    shop.orders()
    sync_at(shop, wrong)
    sync_at(shop, 0.0)
    assert shop.status().state == Empty(expired=False)
    shop.now += 14 * DAY + 1
    sync_at(shop, 0.0)
    assert shop.status().state == Empty(expired=True)


@pytest.mark.parametrize("wrong", [-YEAR, YEAR])
def test_jump_under_a_running_engine_delays_nothing(shop, wrong):
    """Neither the deletion of expired files nor the next cycle."""
    orders = shop.orders()
    for number in (1, 2):
        orders.insert(row(number), name=name(number))
    shop.now, passed = RIGHT + max(wrong, 0.0), [0.0]  # wrong from the start, or from the second cycle on
    shop.clock = Clock(lambda: shop.now, lambda: passed[0])
    with shop.engine() as running:
        running.cycle(NO_STOP)
        shop.now = RIGHT + min(wrong, 0.0)
        running.cycle(NO_STOP)
        assert archived(shop) == [name(1)]
        shop.now, passed[0] = shop.now + 7 * DAY + 1, 7 * DAY + 1
        running.cycle(NO_STOP)
        assert archived(shop) == []
        assert isinstance(shop.status().state, CaughtUp)
