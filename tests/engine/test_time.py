"""Time moved forward on purpose: what waits for it is due, and what files say of themselves stays as it is."""

from __future__ import annotations

import threading

import pytest
from shop import Shop, row

from mirror_engine.clock import Clock
from mirror_engine.config import Config
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.states import Empty
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.testing.mirror import MirrorInTest


@pytest.fixture
def mirror_in_test(shop):
    with MirrorInTest(shop.root, writer=MemoryDeltaWriter()) as mirror:
        yield mirror


@pytest.mark.slow
def test_an_empty_table_fails_when_fourteen_days_have_passed_and_a_file_ends_it(shop, mirror_in_test):
    """LZ-7.1."""
    orders = shop.orders()
    mirror_in_test.sync_until_caught_up()
    mirror_in_test.advance(days=14)
    with pytest.raises(AssertionError, match="Orders"):
        mirror_in_test.sync_until_caught_up()
    (table,) = mirror_in_test._status().tables
    assert table.state == Empty(expired=True)
    orders.insert(row(1))
    mirror_in_test.sync_until_caught_up()


def test_drop_delay_ends_even_after_the_clock_lost_its_lead(tmp_path):
    shop = Shop(tmp_path / "shop", drop_delay_seconds=90.0)
    orders = shop.orders()
    orders.insert(row(1))
    shop.sync()
    shop.clock.advance(days=7)
    orders.drop()
    shop.sync()
    shop.clock = Clock(lambda: shop.now, uptime=lambda: shop.now)  # of the next process
    for tables in (["dbo/Orders"], []):
        shop.sync()
        assert shop.writer.tables() == tables
        shop.clock.advance(minutes=1.5)


@pytest.mark.parametrize("units", [{"seconds": -1}, {"days": float("nan")}, {"days": 36_501}])
def test_time_goes_forward_and_no_further_than_a_date_can(units):
    clock = Clock(lambda: 5.0, lambda: 7.0)
    with pytest.raises(UsageError):
        clock.advance(**units)
    assert (clock(), clock.monotonic()) == (5.0, 7.0)


FABRIC = Config(timing="fabric")


class Waits:
    """Stands for the watcher and maintenance of `run`: ends it after some waits, and notes how long each would last."""

    def __init__(self, *acts):
        self.stop, self.acts, self.seconds, self.in_progress = threading.Event(), list(acts), [], None

    def is_due(self):
        return False

    def touched(self):
        return None  # nothing is heard

    def start(self, *_, **__):
        pass

    def wait(self, seconds):
        if seconds > 0:
            self.seconds.append(seconds)
            self.acts.pop(0)()
        if not self.acts:
            self.stop.set()


def test_fabric_timing_backs_off_scans_of_an_idle_zone(shop):
    """LZ-3.1."""
    shop.config = FABRIC
    orders, clock = shop.orders(), shop.clock
    orders.insert(row(1))
    idle = [lambda: None] * 4
    waits = Waits(
        *idle, lambda: orders.insert(row(2)), *idle[:2], orders.drop, *idle[:2], lambda: clock.advance(days=1)
    )
    with shop.engine() as running:
        running.run(waits.stop, waits, waits)
    assert waits.seconds == [15.0, 30.0, 60.0, 120.0, 120.0, 15.0, 30.0, 60.0, 15.0, 15.0, 15.0]


def test_explicit_options_win_over_the_timing():
    assert Config().scan_pause(9) == 15.0
    assert Config(timing="fabric", poll_interval_seconds=300.0).scan_pause(9) == 300.0
    assert Config(timing="fabric", drop_delay_seconds=0.0).drop_delay("Orders") == 0.0
    assert Config().drop_delay("Orders") == 0.0


def test_a_drop_is_noticed_after_one_to_two_minutes_drawn_by_the_name():
    """LZ-7.4."""
    delays = {name: FABRIC.drop_delay(name) for name in ("Orders", "Items", "Stores")}
    assert delays == {name: FABRIC.drop_delay(name) for name in delays}
    assert len(set(delays.values())) == 3
    assert all(60 <= seconds <= 120 for seconds in delays.values())
