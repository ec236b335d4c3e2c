"""Tables are compacted and vacuumed next to the work, never in the way of a change."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest
from msgspec.structs import replace
from shop import Shop, row, settle

from mirror_engine.engine import maintenance as upkeep_module
from mirror_engine.engine.maintenance import MaintenanceScheduler
from mirror_engine.errors import CommitFailed, TableDamaged
from mirror_engine.events import BatchCommitted, RetryScheduled, TableMaintained
from mirror_engine.tables.base import HistoryEntry
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter

pytestmark = pytest.mark.slow

SECONDS = 60.0


class Watched(MemoryDeltaWriter):
    """A writer whose maintenance takes until it is let go, and may fail; says which tables it was asked for."""

    def __init__(self):
        super().__init__()
        self.asked = []
        self.is_let_go = threading.Event()
        self.is_let_go.set()
        self.error = None

    def maintain(self, table, retention_hours, is_wanted=lambda: False):
        self.asked.append(table)
        self.is_wanted = is_wanted
        assert self.is_let_go.wait(SECONDS)
        is_wanted()
        if self.error:
            raise self.error
        return super().maintain(table, retention_hours, is_wanted)


@pytest.fixture
def idle_shop(tmp_path):
    return Shop(tmp_path / "shop", Watched(), auto_maintain=3, max_batch_files=1, poll_interval_seconds=60.0)


def until(is_so):
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


@contextmanager
def kept(shop):
    """An engine with its upkeep; gives a function that runs a cycle and waits for what upkeep then does."""
    with shop.engine() as running, MaintenanceScheduler(running.context, lambda: None) as upkeep:

        def cycle():
            settle(running, upkeep.in_progress)
            upkeep.start(running.idle_tables, is_busy=running.is_busy)
            until(lambda: upkeep.in_progress is None)

        yield cycle


@contextmanager
def run(shop):
    """`run`, as it lasts."""
    stop = threading.Event()
    with shop.mirror() as mirror:
        thread = threading.Thread(target=mirror.run, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            shop.writer.is_let_go.set()
            stop.set()
            thread.join(SECONDS)
    assert not thread.is_alive()


def committed(shop):
    return [(event.table.table, event.files[0][:20]) for event in shop.heard(BatchCommitted)]


def test_maintenance_is_due_after_each_number_of_files(idle_shop):
    orders = idle_shop.orders()
    with kept(idle_shop) as cycle:
        for expected in (0, 0, 1, 1, 1, 2, 2):
            orders.insert(row(1))
            cycle()
            cycle()
            assert len(idle_shop.writer.asked) == expected
    assert set(idle_shop.writer.asked) == {"dbo/Orders"}
    assert len(idle_shop.heard(TableMaintained)) == 2


def test_memory_of_dropped_tables_is_freed(idle_shop):
    with idle_shop.engine() as running, MaintenanceScheduler(running.context, lambda: None) as upkeep:
        for number in range(5):
            idle_shop.orders(f"Orders{number}").insert(row(1))
            settle(running)
            upkeep.start(running.idle_tables, is_busy=False)
            idle_shop.publisher.remove(f"Orders{number}")
            settle(running)
        kept = upkeep._tables, running._turns._turns, running.context._looks
        assert [len(each) for each in kept] == [1, 1, 0]
        idle_shop.orders("Last").insert(row(1))
        settle(running)
        upkeep.start(running.idle_tables, is_busy=False)
        assert [name.table for name in upkeep._tables] == ["Last"]


def test_an_engine_started_again_knows_when_a_table_was_maintained_last(idle_shop):
    orders = idle_shop.orders()
    for expected in (0, 0, 1, 1, 1, 2):
        orders.insert(row(1))
        with kept(idle_shop) as cycle:
            cycle()
        assert len(idle_shop.writer.asked) == expected


def test_compaction_is_no_maintenance_and_start_reads_no_log(idle_shop, monkeypatch):
    """Small files are put together by OPTIMIZE commits of their own, without a VACUUM."""
    idle_shop.land(1, 2, 3)
    idle_shop.sync()
    folded = [HistoryEntry(version, 0, "OPTIMIZE") for version in (3, 2, 1)]
    asked = []
    monkeypatch.setattr(Watched, "history", lambda *_, **given: asked.append(given) or folded)
    with kept(idle_shop) as cycle:
        cycle()
    assert idle_shop.writer.asked == ["dbo/Orders"]
    assert asked == [{"limit": 1}], "once it is done: the version then"


def test_maintenance_that_was_asked_for_counts(idle_shop):
    idle_shop.land(1, 2, 3)
    idle_shop.sync()
    with idle_shop.mirror() as mirror:
        mirror.maintain()
    idle_shop.writer.asked.clear()
    with kept(idle_shop) as cycle:
        cycle()
    assert idle_shop.writer.asked == []


def test_commits_of_maintenance_are_not_missing_from_the_next_count(idle_shop, monkeypatch):
    orders = idle_shop.orders()
    versions = [HistoryEntry(5, 0, "VACUUM END")]
    monkeypatch.setattr(Watched, "history", lambda *_, **__: versions)
    for expected in (0, 0, 1):
        orders.insert(row(1))
        with kept(idle_shop) as cycle:
            cycle()
        assert len(idle_shop.writer.asked) == expected
    with idle_shop.engine() as running:
        context = running.context
        (table,) = context.ledger.tables()
        assert (context.ledger.maintained(table), context.ledger.progress(table).delta_version) == (5, 3)
    with idle_shop.engine() as running, MaintenanceScheduler(running.context, lambda: None) as upkeep:
        settle(running)
        upkeep.start(running.idle_tables, is_busy=False)
        assert upkeep._tables[table].files == 0


def test_maintenance_skips_blocked_and_runs_one_table_at_a_time(idle_shop):
    for name in ("Items", "Orders", "Stores"):
        table = idle_shop.land(1, 2, 3, table=name)
    table.skip_numbers()
    table.insert(row(9))
    with kept(idle_shop) as cycle:
        for _ in range(4):
            cycle()
    assert idle_shop.writer.asked == ["dbo/Items", "dbo/Orders"]


def test_maintenance_takes_the_longest_due_table_first(idle_shop):
    busy = [idle_shop.orders(name) for name in ("Busy1", "Busy2")]
    idle_shop.land(1, 2, 3, table="Calm")
    with kept(idle_shop) as cycle:
        for number in range(6):
            for table in busy:
                for at in range(4):
                    table.insert(row(10 * number + at))
            cycle()
    assert idle_shop.writer.asked == [f"dbo/{name}" for name in ("Busy1", "Busy2", "Calm", "Busy1", "Busy2", "Busy1")]


def test_files_are_counted_not_commits(idle_shop, monkeypatch):
    """As Delta's own history reports them."""
    history = Watched.history

    def emitted(writer, table, **options):
        commits = history(writer, table, **options)
        return [replace(commit, files_added=2) if commit.files else commit for commit in commits]

    monkeypatch.setattr(Watched, "history", emitted)
    orders = idle_shop.orders()
    with kept(idle_shop) as cycle:
        for expected in (0, 1, 1, 2):
            orders.insert(row(1))
            cycle()
            assert len(idle_shop.writer.asked) == expected


@pytest.mark.parametrize(("policy", "seconds"), [("idle", 0.0), ("idle", 60.0), ("off", 0.0)])
def test_maintenance_on_idle_waits_for_quiet(tmp_path, monkeypatch, policy, seconds):
    monkeypatch.setattr(upkeep_module, "IDLE_SECONDS", seconds)
    shop = Shop(tmp_path / "shop", Watched(), auto_maintain=policy, max_batch_files=1)
    shop.land(1, table="Items")
    with kept(shop) as cycle:
        shop.land(1, 2, 3)
        cycle()
        for _ in range(3):
            cycle()
    # in Items there is nothing to put together
    assert shop.writer.asked == (["dbo/Orders"] if (policy, seconds) == ("idle", 0.0) else [])


def test_maintenance_counts_a_recreated_table_anew(idle_shop):
    with kept(idle_shop) as cycle:
        for _ in range(2):
            orders = idle_shop.land(1, 2, 3)
            cycle()
            orders.drop()
            cycle()
    assert idle_shop.writer.asked == ["dbo/Orders"] * 2


@pytest.mark.parametrize("error", [ZeroDivisionError, type("PanicException", (BaseException,), {})])
def test_failed_maintenance_backs_off(idle_shop, error):
    """A panic of deltalake is no `Exception`."""
    idle_shop.writer.error = CommitFailed("dbo/Orders: maintenance failed")
    orders = idle_shop.orders()
    with kept(idle_shop) as cycle:
        for number in range(5):
            orders.insert(row(number))
            cycle()
        (failed,) = idle_shop.heard(RetryScheduled)
        assert (failed.table.table, failed.message) == ("Orders", "dbo/Orders: maintenance failed")
        assert failed.retry_seconds == 60.0
        idle_shop.writer.error = error()
        idle_shop.clock.advance(seconds=61)
        cycle()
    (_, failed) = idle_shop.heard(RetryScheduled)
    assert failed.message == f"internal error: {error.__name__}\n  -> Please report it, with the log."
    assert failed.retry_seconds == 120.0
    assert len(idle_shop.writer.asked) == 2
    assert idle_shop.ids() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("error", [TableDamaged("dbo/Items", "commit 1 is damaged"), OverflowError("of our own")])
def test_unreadable_history_fails_its_table_alone(idle_shop, monkeypatch, error):
    def damaged(_writer, table, **_):
        if table == "dbo/Items":
            raise error
        return ()

    monkeypatch.setattr(Watched, "history", damaged)
    for name in ("Items", "Orders"):
        idle_shop.land(1, 2, 3, table=name)
    with kept(idle_shop) as cycle:
        cycle()
        cycle()
    assert idle_shop.writer.asked == ["dbo/Items", "dbo/Orders"]
    assert [(each.table.table, each.retry_seconds) for each in idle_shop.heard(RetryScheduled)] == [("Items", 60.0)]


def test_change_that_waits_for_maintenance_is_applied_next(idle_shop):
    items, orders = idle_shop.orders("Items"), idle_shop.land(1, 2, 3)
    idle_shop.writer.is_let_go.clear()
    with run(idle_shop):
        until(lambda: idle_shop.writer.asked == ["dbo/Orders"])
        items.insert(row(1))
        until(lambda: ("Items", "0" * 19 + "1") in committed(idle_shop))
        assert not idle_shop.writer.is_wanted()
        orders.insert(row(3))
        until(idle_shop.writer.is_wanted)
        items.insert(row(2))  # seen in a later cycle: that before it is over, and Orders was passed over
        until(lambda: ("Items", "0" * 19 + "2") in committed(idle_shop))
        assert ("Orders", "0" * 19 + "4") not in committed(idle_shop)
        idle_shop.writer.is_let_go.set()
        until(lambda: ("Orders", "0" * 19 + "4") in committed(idle_shop))
    assert not idle_shop.heard(RetryScheduled)
    assert idle_shop.writer.asked == ["dbo/Orders"]
    assert len(idle_shop.heard(TableMaintained)) == 1


def test_busy_table_is_compacted_again_after_n_files(idle_shop):
    orders = idle_shop.orders()
    idle_shop.writer.is_let_go.clear()
    number = 0
    with run(idle_shop):
        for round_ in range(1, 5):
            for _ in range(3):
                orders.insert(row(number := number + 1))
            until(lambda round_=round_: len(idle_shop.writer.asked) == round_)
            orders.insert(row(number := number + 1))  # comes while it is maintained, so that VACUUM is left out
            until(idle_shop.writer.is_wanted)
            idle_shop.writer.is_let_go.set()
            until(lambda number=number: ("Orders", f"{number:020d}") in committed(idle_shop))
            idle_shop.writer.is_let_go.clear()
        idle_shop.writer.is_let_go.set()
    assert len(idle_shop.writer.asked) == 4


def test_vacuum_left_out_comes_later(idle_shop):
    idle_shop.land(1, 2, 3)
    with idle_shop.engine() as running, MaintenanceScheduler(running.context, lambda: None) as upkeep:
        settle(running, upkeep.in_progress)
        idle_shop.writer.is_let_go.clear()
        upkeep.start(running.idle_tables, is_busy=False)
        upkeep.start([], is_busy=True)  # a change waits
        idle_shop.writer.is_let_go.set()
        until(lambda: upkeep.in_progress is None)
        for seconds, times in ((0, 1), (61, 2), (0, 2)):
            idle_shop.clock.advance(seconds=seconds)
            upkeep.start(running.idle_tables, is_busy=False)
            until(lambda: upkeep.in_progress is None)
            assert len(idle_shop.writer.asked) == times
