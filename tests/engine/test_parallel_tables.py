"""Tables in parallel: one that commits for minutes blocks no other, and is not planned meanwhile."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from shop import NO_STOP, Shop, name, row

import mirror_engine.engine.turns
from mirror_engine.engine.janitor import Janitor
from mirror_engine.engine.poller import Poller
from mirror_engine.errors import StorageUnavailable
from mirror_engine.events import BatchStarted
from mirror_engine.landing_zone.states import CaughtUp
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter

pytestmark = pytest.mark.usefixtures("no_pauses")

SECONDS = 60.0


class HeldWriter(MemoryDeltaWriter):
    """Commits to tables that are held, and drops of them, wait."""

    def __init__(self):
        super().__init__()
        self._gates = {}
        self.blocked = set()

    def hold(self, table):
        self._gates.setdefault(table, threading.Event())

    def let_go(self, table):
        gate = self._gates.pop(table, None)
        if gate:
            gate.set()

    def let_all_go(self):
        for table in list(self._gates):
            self.let_go(table)

    def apply(self, table, batch, record, check=lambda: None):
        self._pass(table)
        return super().apply(table, batch, record, check)

    def drop(self, table, check=lambda: None):
        self._pass(table)
        super().drop(table, check)

    def _pass(self, table):
        gate = self._gates.get(table)
        if gate:
            self.blocked.add(table)
            assert gate.wait(SECONDS)
            self.blocked.discard(table)


class HeldShop(Shop):
    """A shop whose cycles end once nothing moves any more but what is held."""

    def __init__(self, root, **options):
        super().__init__(root, HeldWriter(), **options)

    @contextmanager
    def engine(self, **parts):
        """An engine; in the end nothing is held any more."""
        with super().engine(**parts) as running:
            try:
                yield running
            finally:
                self.writer.let_all_go()

    @contextmanager
    def at_work(self, **parts):
        """An engine; gives a function that runs a cycle."""
        with self.engine(**parts) as running:
            yield lambda: running.cycle(NO_STOP, None, self.stuck(running)) or running.last

    def settle(self, running):
        """One cycle, as an event calls for it, and those that the engine goes on with by itself."""
        while True:
            running.cycle(NO_STOP, None, self.stuck(running))
            if running.next_cycle_seconds(SECONDS) == SECONDS:
                return running.last

    def stuck(self, running):
        """Whether as many batches are held as can run, so that nothing moves any more."""
        workers = self.config.workers

        def is_stuck():
            busy = running.in_progress
            return bool(busy) and len(self.writer.blocked) == min(workers, len(busy))

        return is_stuck


ORDERS, ITEMS = "dbo/Orders", "dbo/Items"


@pytest.fixture
def crowd(ram):
    return HeldShop(ram, max_batch_files=1, poll_interval_seconds=60.0)


def test_changes_of_other_tables_are_applied_while_one_commits(crowd):
    """LZ-3.14."""
    orders, items = crowd.orders(), crowd.orders("Items")
    crowd.writer.hold(ORDERS)
    orders.insert(row(1))
    with crowd.at_work() as cycle:
        for number in range(3):
            items.insert(row(number))
            cycle()
            plans = cycle().plans
            assert crowd.ids("Items") == list(range(number + 1))
            assert {table.table for table, plan in plans.items() if isinstance(plan.state, CaughtUp)} == {"Items"}
        orders.insert(row(2))
        cycle()
        crowd.writer.let_go(ORDERS)
        cycle()
        assert cycle().failures == {}
    assert crowd.ids() == [1, 2]
    started = [event.first for event in crowd.heard(BatchStarted) if event.table.table == "Orders"]
    assert started == [name(1), name(2)]


def test_finish_reports_batches_in_progress_when_the_zone_is_away(crowd, monkeypatch):
    crowd.orders().insert(row(1))
    crowd.writer.hold(ORDERS)
    with crowd.engine() as running:
        running.cycle(NO_STOP, None, lambda: crowd.writer.blocked == {ORDERS})
        monkeypatch.setattr(Poller, "scan", refuse)
        threading.Timer(0.05, crowd.writer.let_go, [ORDERS]).start()
        running.finish()
        applied, result = running.applied, running.last.run_result
        assert (applied.commits, applied.rows, result.value) == (1, 1, "retry")
        assert not running.in_progress


def test_a_file_that_lands_while_its_table_ends_waits_for_no_other_table(crowd):
    orders, items = crowd.orders(), crowd.orders("Items")
    for publisher, table in ((orders, ORDERS), (items, ITEMS)):
        publisher.insert(row(1))
        crowd.writer.hold(table)
    with crowd.engine() as running:
        running.cycle(NO_STOP, None, lambda: crowd.writer.blocked == {ORDERS, ITEMS})
        items.insert(row(2))
        threading.Timer(0.1, crowd.writer.let_go, [ITEMS]).start()  # after the next scan, which leaves the table alone
        deadline = time.monotonic() + 10
        running.cycle(NO_STOP, None, lambda: time.monotonic() > deadline)
        assert time.monotonic() < deadline
        running.cycle(NO_STOP, None, lambda: crowd.ids("Items") == [1, 2])
        assert crowd.writer.blocked == {ORDERS}


def test_files_of_a_table_in_progress_are_not_moved_away(crowd, monkeypatch):
    crowd.land(1, 2)
    with crowd.at_work(storage=LocalStorage(crowd.root)) as cycle:
        with monkeypatch.context() as patch:
            patch.setattr(LocalStorage, "move", refuse)
            assert cycle().failures
        crowd.land(3)
        crowd.writer.hold(ORDERS)
        for _ in range(2):
            cycle()
        assert (crowd.publisher.path / "Orders" / name(1)).exists()
        crowd.writer.let_go(ORDERS)
        cycle()
        cycle()
    assert [path.name for path in (crowd.publisher.path / "Orders").glob("*.parquet")] == [name(3)]


def refuse(*_):
    raise StorageUnavailable("scripted")


@pytest.mark.parametrize("second", ["landed before", "lands later"])
def test_files_behind_a_long_batch_need_no_further_event(crowd, second):
    crowd.land(1)
    if second == "landed before":
        crowd.land(2)
    crowd.writer.hold(ORDERS)
    with crowd.engine() as running:
        running.cycle(NO_STOP, None, lambda: bool(crowd.writer.blocked))
        if second == "lands later":
            crowd.land(2)
        running.cycle(NO_STOP, None, lambda: True)
        crowd.writer.let_go(ORDERS)
        crowd.settle(running)
    assert crowd.ids() == [1, 2]


def test_file_landed_during_cleanup_is_applied_at_once(crowd, monkeypatch):
    orders = crowd.orders()
    orders.insert(row(1))
    crowd.sync()
    begun, gate, clean = threading.Event(), threading.Event(), Janitor.clean

    def held(*arguments, **options):
        begun.set()
        assert gate.wait(60)
        return clean(*arguments, **options)

    monkeypatch.setattr(Janitor, "clean", held)
    with crowd.engine() as running:
        running.cycle(NO_STOP, None, begun.is_set)
        orders.insert(row(2))
        threading.Timer(0.1, gate.set).start()  # the earlier batch ends in the middle of a cycle
        running.cycle(NO_STOP, None, lambda: False)
        assert running.next_cycle_seconds(60.0) == 0.0
        assert running.idle_tables == []
        crowd.settle(running)
    assert crowd.ids() == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("until", ["dropping", "committing"])
def test_renamed_folder_waits_for_the_batch_of_the_old_one(crowd, until):
    orders = crowd.orders()
    orders.initial_load(row(1))
    with crowd.at_work() as cycle:
        if until == "dropping":
            cycle()
        (crowd.publisher.path / "dbo.schema").mkdir()
        crowd.writer.hold(ORDERS)
        if until == "committing":
            cycle()
        (crowd.publisher.path / "Orders").rename(crowd.publisher.path / "dbo.schema/Orders")
        for _ in range(3):
            assert cycle().failures == {}
            assert not [event for event in crowd.heard(BatchStarted) if event.table.schema]
        crowd.writer.let_go(ORDERS)
        for _ in range(3):
            cycle()
        assert [plan.state for plan in cycle().plans.values()] == [CaughtUp()]
    assert crowd.ids("dbo.Orders") == [1]


def test_batch_between_two_cycles_is_reported_at_stop(crowd):
    crowd.orders().insert(row(1))
    crowd.writer.hold(ORDERS)
    stop = threading.Event()
    with crowd.engine() as running:
        while not running.in_progress:
            running.cycle(stop, None, lambda: bool(running.in_progress))
        stop.set()
        crowd.writer.let_go(ORDERS)
        running.finish()
        assert running.applied.files == 1


@pytest.mark.parametrize("due", ["a poll", "a try"])
def test_cycle_waits_until_a_scan_or_retry_is_due(tmp_path, monkeypatch, due):
    shop = HeldShop(tmp_path, poll_interval_seconds=0.01 if due == "a poll" else 60.0)
    shop.orders().insert(row(1))
    shop.writer.hold(ORDERS)
    if due == "a try":
        monkeypatch.setattr(mirror_engine.engine.turns, "FIRST_PAUSE_SECONDS", 0.01)
        broken = shop.orders("Broken")
        broken.insert(row(1))
        refused = iter([StorageUnavailable("scripted")])
        apply = shop.writer.apply
        monkeypatch.setattr(shop.writer, "apply", lambda table, *more: fail_once(refused, table) or apply(table, *more))
    with shop.engine() as running:
        running.cycle(NO_STOP, None, lambda: False)
        assert running.in_progress
        assert running.next_cycle_seconds(15.0) == 0.0
        running.cycle(NO_STOP, None, lambda: False) if due == "a poll" else None
        shop.writer.let_go(ORDERS)
        running.cycle(NO_STOP)
        running.cycle(NO_STOP)
        assert running.next_cycle_seconds(15.0) == 15.0
    assert shop.ids() == [1]


@pytest.mark.slow
def test_events_without_end_starve_no_table(tmp_path):
    shop = HeldShop(tmp_path, workers=2)
    tables = [f"T{number}" for number in range(8)]
    for table in tables:
        shop.land(1, table=table)
    with shop.engine() as running:
        for _ in range(1000):
            running.cycle(NO_STOP, None, lambda: True)
            if len(shop.writer.tables()) == len(tables):
                break
        running.finish()
    assert {table: shop.ids(table) for table in tables} == {key: [1] for key in tables}


@pytest.mark.slow
@pytest.mark.parametrize("pause", ["a poll", "a pause of the zone"])
def test_scans_slower_than_the_poll_interval_starve_no_table(tmp_path, monkeypatch, pause):
    shop = HeldShop(tmp_path, workers=1, poll_interval_seconds=0.01 if pause == "a poll" else 60.0)
    tables = [f"T{number}" for number in range(12)]
    scan = Poller.scan

    def slow_scan(self, only=None):
        time.sleep(0.02)
        listing = scan(self, only)
        return listing if pause == "a poll" else replace(listing, unlisted=frozenset({"Others"}))

    monkeypatch.setattr(Poller, "scan", slow_scan)
    with shop.engine() as running:
        running.cycle(NO_STOP)
        for table in tables:
            shop.orders(table).insert(row(1))
        for _ in tables[:6]:
            running.cycle(NO_STOP, None, lambda: False)
        running.finish()
    assert {table: shop.ids(table) for table in tables} == {key: [1] for key in tables}


def test_due_retry_waits_for_maintenance(crowd, monkeypatch):
    orders = crowd.land(1)
    with crowd.engine() as running:
        running.cycle(NO_STOP)
        second = orders.insert(row(2))
        with monkeypatch.context() as patch:
            patch.setattr(crowd.writer, "apply", refuse)
            running.cycle(NO_STOP)
        assert running.next_cycle_seconds(60.0) == 0.0
        (crowd.publisher.path / second).unlink()
        running.cycle(threading.Event(), next(iter(running.last.plans)))
        assert running.next_cycle_seconds(60.0) == 60.0


def fail_once(refused, table):
    if table == "dbo/Broken":
        for error in refused:
            raise error
