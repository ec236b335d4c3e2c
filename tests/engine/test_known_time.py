"""Clocks that jump back and forth: what waits from one run to the next waits no shorter, and not for ever."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from shop import NO_STOP, Shop, name, row

from mirror_engine.clock import Clock
from mirror_engine.engine.known_time import KnownTime
from mirror_engine.engine.ledger import Ledger
from mirror_engine.landing_zone.states import CaughtUp, Deleted, Empty

HOUR, DAY, YEAR = 3600.0, 86_400.0, 365 * 86_400.0
RIGHT = 57 * YEAR  # some time in 2026


class Machine:
    """One run after the other over a ledger, on a machine whose date may be wrong, with how much really passed."""

    def __init__(self):
        self.ledger, self.real, self.wrong, self.boots = Ledger.fresh(), RIGHT, 0.0, 1

    def clock(self):
        return Clock(lambda: self.real + self.wrong, uptime=lambda: self.real, boot=f"boot {self.boots}")

    def run(self):
        return KnownTime(self.clock(), self.ledger, is_stored=True)

    def seen(self, wrong, later=0.0, *, restarts=False):
        """What a run sees, by a date that is wrong by so much, some time after the last one."""
        self.real, self.wrong, self.boots = self.real + later, wrong, self.boots + restarts
        return self.run()()


DATES = [-RIGHT + 1, -YEAR, -40 * DAY, -HOUR, -50.0, 0.0, 50.0, HOUR, 40 * DAY, 30 * YEAR]


@pytest.mark.parametrize("seed", range(20))
def test_dates_that_jump_neither_shorten_nor_prolong_a_wait(seed):
    """Between runs and within them, whatever the date says: time goes on as it passes."""
    chance, machine = random.Random(seed), Machine()
    begun, run = machine.seen(chance.choice(DATES)), machine.run()
    for _ in range(40):
        machine.wrong, later = chance.choice(DATES), chance.choice([0.0, 1.0, HOUR, 9 * DAY])
        machine.real += later
        run = machine.run() if chance.random() < 0.5 else run
        assert run() - begun == pytest.approx(machine.real - RIGHT, abs=1e-3)


@pytest.mark.parametrize("off", [60.0, HOUR, DAY - 1])
def test_machine_that_was_off_for_less_than_a_day_prolongs_no_wait(off):
    machine = Machine()
    begun = machine.seen(0.0)
    for _ in range(5):
        machine.seen(0.0, later=off, restarts=True)
    assert machine.seen(0.0) - begun == pytest.approx(5 * off)


@pytest.mark.parametrize("wrong", DATES)
def test_wrong_date_after_a_restart_shortens_a_wait_by_a_day_at_most(wrong):
    machine = Machine()
    begun = machine.seen(0.0)
    for each in (wrong, 0.0):  # the second: back from what was behind
        passed = machine.seen(each, later=HOUR, restarts=True) - begun
    assert 0 <= passed <= DAY + 2 * HOUR


def test_machine_that_was_off_for_long_counts_a_day():
    machine = Machine()
    begun = machine.seen(0.0)
    assert machine.seen(0.0, later=30 * DAY, restarts=True) - begun == DAY
    machine.seen(0.0, later=HOUR, restarts=True)
    assert machine.seen(0.0, later=6 * DAY) - begun == 7 * DAY + HOUR


def test_process_whose_boot_is_unknown_goes_by_dates_up_to_a_day():
    real, ledger, seen = RIGHT, Ledger.fresh(), []
    for later in (0.0, HOUR, 7 * DAY, -HOUR):
        real += later
        seen.append(KnownTime(Clock(lambda: real, uptime=lambda: 5.0, boot=""), ledger, is_stored=True)())  # noqa: B023
    assert [after - before for before, after in itertools.pairwise(seen)] == [HOUR, DAY, 0.0]


def test_short_runs_whose_boot_is_unknown_know_that_a_date_was_ahead():
    ledger, uptime, seen = Ledger.fresh(), itertools.count(5.0, 20.0), []
    for date in (RIGHT, RIGHT + YEAR, *(RIGHT + number * HOUR for number in range(3))):
        run = KnownTime(Clock(lambda: date, uptime=lambda: next(uptime), boot=""), ledger, is_stored=True)  # noqa: B023
        seen.append(run())
    assert [round((after - before) / HOUR) for before, after in itertools.pairwise(seen)] == [24, 0, 1, 1]


def test_uptime_that_is_back_in_the_same_boot_is_no_end_of_time():
    """A machine restored from a snapshot has the boot of before; who holds ROOT elsewhere knows a later uptime."""
    machine = Machine()
    machine.seen(0.0)
    begun = machine.seen(0.0, later=95 * DAY)
    restored = [machine.seen(95 * DAY, later=-90 * DAY)]
    restored += [machine.seen(95 * DAY, later=HOUR) for _ in range(3)]
    assert [after - begun for after in restored] == [DAY, DAY + HOUR, DAY + 2 * HOUR, DAY + 3 * HOUR]


def test_uptime_that_is_back_in_the_same_boot_gives_a_day_twice_at_most():
    """Tools that fake the date fake the uptime, too."""
    machine = Machine()
    begun = machine.seen(0.0)
    assert machine.seen(0.0, later=40 * DAY) - begun == 40 * DAY
    assert machine.seen(0.0, later=-80 * DAY) - begun == 40 * DAY
    assert machine.seen(0.0, later=40 * DAY + HOUR) - begun == 41 * DAY


def test_uptime_that_is_back_under_a_running_engine_takes_no_time_back():
    machine = Machine()
    run = machine.run()
    begun = run()
    machine.real -= HOUR
    assert run() == begun


def test_date_costs_a_write_a_minute_at_most():
    machine, stored = Machine(), set()
    run = machine.run()
    for number in range(100):
        machine.real, machine.wrong = machine.real + 3.0, -number * HOUR
        run()
        stored.add(machine.ledger.get_property("known_time"))
    assert len(stored) <= 6
    assert max(map(len, stored)) < 300


def test_reader_stores_nothing_and_knows_the_time():
    machine = Machine()
    first = machine.seen(0.0)
    before = machine.ledger.get_property("known_time")
    machine.real, machine.wrong = machine.real + 2 * DAY, -YEAR
    assert KnownTime(machine.clock(), machine.ledger, is_stored=False)() == first + 2 * DAY
    assert machine.ledger.get_property("known_time") == before


@pytest.mark.parametrize("text", ["{", "[]", '["x", []]', "{}", '{"time": "x", "date": 1.0}', "null", "7"])
def test_damaged_property_is_forgotten(text):
    ledger = Ledger.fresh()
    ledger.set_property("known_time", text)
    assert KnownTime(Clock(lambda: RIGHT, uptime=lambda: 5.0), ledger, is_stored=True)() == RIGHT


JUMPS = [-HOUR, -YEAR, -990_000.0, 0.0, HOUR, 40 * DAY]


def archived(shop):
    return sorted(each.name for each in Path(shop.publisher.path).glob("Orders/_FilesReadyToDelete/*.parquet"))


def sync_at(shop, wrong):
    """One run with a date that is wrong by so many seconds."""
    shop.clock = Clock(lambda: max(shop.now + wrong, 1.0), uptime=lambda: shop.now)
    return shop.sync()


@pytest.mark.slow
@pytest.mark.parametrize("wrong", JUMPS)
def test_first_archive_under_a_late_clock_keeps_retention(shop, wrong):
    """Of a table that had no archive yet, whose times would not show it (LZ-8.3)."""
    for number, date in ((1, 0.0), (2, wrong), (3, 0.0)):
        shop.land(number)
        sync_at(shop, date)
    assert archived(shop) == [name(1), name(2)]
    shop.now += 7 * DAY + 1
    sync_at(shop, 0.0)
    assert archived(shop) == []


@pytest.mark.slow
def test_lost_ledger_after_a_long_pause_deletes_no_archive(shop):
    """Known time is behind the date then; the info file has dates (LZ-8.2)."""
    shop.land(1)
    sync_at(shop, 0.0)
    shop.now += 60 * DAY
    shop.land(2)
    shop.clock = Clock(lambda: shop.now, uptime=lambda: 5.0, boot="another")
    shop.sync()
    shop.lose_ledger()
    for days, left in ((0.0, [name(1)]), (6.9, [name(1)]), (0.2, [])):
        shop.now += days * DAY
        sync_at(shop, 0.0)
        assert archived(shop) == left


@pytest.mark.slow
def test_lost_ledger_and_a_clock_that_is_back_delete_no_archive(shop):
    shop.land(1, 2)
    sync_at(shop, 0.0)
    shop.lose_ledger()
    shop.land(3)
    sync_at(shop, -900_000.0)
    shop.land(4)
    sync_at(shop, 0.0)
    assert name(1) in archived(shop)


@pytest.mark.slow
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


@pytest.mark.slow
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
    shop.land(1, 2)
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
