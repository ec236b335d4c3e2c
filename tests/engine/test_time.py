"""Time moved forward on purpose: what waits for it is due, and what files say of themselves stays as it is."""

from __future__ import annotations

import pytest
from shop import Shop, name, row

from mirror_engine.clock import Clock
from mirror_engine.engine.scheduler import Backoff
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.states import Empty
from mirror_engine.publisher.testing.mirror import MirrorInTest
from mirror_engine.tables.merge.memory import MemoryDeltaWriter


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path / "shop")


@pytest.fixture
def mirror(shop):
    with MirrorInTest(shop.root, writer=MemoryDeltaWriter()) as mirror:
        yield mirror


def test_archived_files_are_deleted_when_seven_days_have_passed(shop, mirror):
    orders = shop.orders()
    for number in (1, 2):
        orders.insert(row(number))
    mirror.sync_until_caught_up()
    archived = shop.publisher.path / "Orders/_FilesReadyToDelete" / name(1)
    for days, is_there in ((0, True), (6.9, True), (0.1, False)):
        mirror.advance(days=days)
        mirror.sync_until_caught_up()
        assert archived.exists() == is_there


def test_an_empty_table_fails_when_fourteen_days_have_passed_and_a_file_ends_it(shop, mirror):
    orders = shop.orders()
    mirror.sync_until_caught_up()
    mirror.advance(days=14)
    with pytest.raises(AssertionError, match="Orders"):
        mirror.sync_until_caught_up()
    (table,) = mirror.status().tables
    assert table.state == Empty(expired=True)
    orders.insert(row(1))
    mirror.sync_until_caught_up()


def test_a_dropped_table_goes_when_its_delay_has_passed_also_by_a_clock_that_lost_its_lead(tmp_path):
    shop = Shop(tmp_path / "shop", drop_delay_seconds=90.0)
    orders = shop.orders()
    orders.insert(row(1))
    shop.sync()
    shop.clock.advance(days=7)
    orders.drop()
    shop.sync()
    shop.clock = Clock(lambda: shop.now)  # of the next process
    for tables in (["dbo/Orders"], []):
        shop.sync()
        assert shop.writer.tables() == tables
        shop.clock.advance(minutes=1.5)


def test_a_retry_is_due_when_its_pause_has_passed():
    clock = Clock()
    backoff = Backoff(100.0, 300.0, clock)
    backoff.failed(None)
    for hours, waiting in ((0, {None}), (1, set())):
        clock.advance(hours=hours)
        assert backoff.waiting == waiting
    assert backoff.next_seconds(15.0) == 0.0


@pytest.mark.parametrize("units", [{"seconds": -1}, {"days": float("nan")}, {"days": 36_501}])
def test_time_goes_forward_and_no_further_than_a_date_can(units):
    clock = Clock(lambda: 5.0, lambda: 7.0)
    with pytest.raises(UsageError):
        clock.advance(**units)
    assert (clock(), clock.monotonic()) == (5.0, 7.0)
