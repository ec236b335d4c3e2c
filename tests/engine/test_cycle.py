"""The cycle: when the next one follows at once, and when it waits; an idle one lists folders and does nothing else."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
import time
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from scripted_faults import Failing, Script, faulty
from shop import NO_STOP, Shop, cycles, name, row, settle

from mirror_engine.engine import planner
from mirror_engine.engine.cycle import RunResult
from mirror_engine.engine.janitor import Janitor
from mirror_engine.engine.ledger import Ledger
from mirror_engine.engine.poller import Poller
from mirror_engine.engine.replayer import Replayer
from mirror_engine.errors import RootLocked, StorageUnavailable, TableDamaged
from mirror_engine.events import RetryScheduled
from mirror_engine.landing_zone.names import METADATA_FILE, TableName
from mirror_engine.landing_zone.states import Blocked, CaughtUp, Halted, Unconfigured
from mirror_engine.monitoring import fabric_files, monitoring_files
from mirror_engine.monitoring.fabric_files import REPLICATOR_FILE, TABLES_FILE
from mirror_engine.storage import local
from mirror_engine.storage.local import LocalStorage

TABLES = [f"T{number}" for number in range(5)]


def test_a_cycle_follows_at_once_until_one_finds_nothing_to_do(shop):
    shop.orders().insert(row(1))
    with shop.engine() as running:
        waits = []
        for _ in range(2):
            running.cycle(NO_STOP)
            waits.append(running.next_cycle_seconds(60.0))
    assert waits == [0.0, 60.0]


def test_a_table_found_damaged_is_halted_by_the_next_cycle_without_a_retry(shop, monkeypatch):
    shop.orders().insert(row(1))

    def damaged(*_, **__):
        raise TableDamaged("dbo/Orders", "commit 1 is cut off")

    def carry_out(*_):
        monkeypatch.setattr(shop.writer, "snapshot", damaged)
        damaged()

    monkeypatch.setattr(Replayer, "carry_out", carry_out)
    with shop.engine() as running:
        running.cycle(NO_STOP)
        assert running.last.failures == {}
        running.cycle(NO_STOP)
        (plan,) = running.last.plans.values()
        assert isinstance(plan.state, Halted)
        assert plan.state.diagnostic.code == "ME081"
        monkeypatch.undo()
        for _ in range(2):
            shop.clock.advance(seconds=2)
            running.cycle(NO_STOP)
        changes = [(change.kind, change.reason) for change in running.changes.all()]
    assert changes == [("halted", "ME081"), ("resumed", "")]


@pytest.mark.slow
def test_damaged_tables_are_each_opened_twice(shop, monkeypatch):
    """By the batch that found it, and to make sure: none is read again with the others, or in the next cycle."""
    tables, opened = [f"T{number}" for number in range(100)], Counter()
    for table in tables:
        shop.orders(table).insert(row(1))

    def damaged(folder):
        opened[folder] += 1
        raise TableDamaged(folder, "commit 1 is cut off")

    def carry_out(_, task):
        monkeypatch.setattr(shop.writer, "snapshot", damaged)
        shop.writer.snapshot(f"dbo/{task.table.table}")

    monkeypatch.setattr(Replayer, "carry_out", carry_out)
    with shop.engine() as running:
        running.cycle(NO_STOP)
        assert len(opened) == len(tables)
        assert max(opened.values()) <= 2
        opened.clear()
        running.cycle(NO_STOP)
        assert opened == {}
        assert {plan.state.diagnostic.code for plan in running.last.plans.values()} == {"ME081"}


def test_a_diagnostic_is_reported_when_it_appears_and_when_it_comes_back(shop):
    stray = shop.publisher.path / "stray.txt"
    with shop.engine() as running:
        for is_there in (True, True, False, True):
            stray.touch() if is_there else stray.unlink()
            running.cycle(NO_STOP)
    assert shop.said() == ["ME002", "ME002"]


@pytest.fixture
def shops(shop):
    for table in TABLES:
        shop.land(1, 2, table=table)
    return shop


def test_idle_cycle_lists_folders_once_and_reads_nothing(shops):
    script = Script()
    zone = shops.writer
    shops.writer = faulty(zone, script)
    with shops.engine(storage=faulty(LocalStorage(shops.root), script)) as running:
        cycles(running, 3)
        script.calls.clear()
        running.cycle(NO_STOP)
        calls = Counter(call.partition(" ")[0] for call in script.calls)
    assert calls.pop("list") == 1 + len(TABLES)
    assert calls.pop("latest_external_change") == len(TABLES)
    assert calls.pop("stat") < 10
    assert calls.pop("folder_identity") < 5
    assert not calls


@pytest.mark.slow
def test_after_an_event_only_the_touched_tables_log_is_looked_at(shops):
    script = Script()
    shops.writer = faulty(shops.writer, script)
    with shops.engine() as running:
        settle(running)
        shops.writer.write_as_another("dbo/T1", [])
        script.calls.clear()
        running.cycle(NO_STOP, only={TableName("", "T2")})
        assert script.calls.count("latest_external_change dbo/T2") == 1
        assert sum(call.startswith("latest_external_change") for call in script.calls) == 1
        assert not running.last.plans[TableName("", "T1")].diagnostics
        for _ in range(3):  # it stays
            running.cycle(NO_STOP)
            assert [found.code for found in running.last.plans[TableName("", "T1")].diagnostics] == ["ME080"]
    assert shops.said() == ["ME080"]


def test_applied_file_is_looked_up_three_times(tmp_path, monkeypatch):
    """When it is listed, after it was read, and before its rows are committed."""
    shop, asked = Shop(tmp_path), Counter()
    shop.land(1)

    def counted(module, function):
        call = getattr(module, function)

        def counting(name, *arguments, **options):
            asked[str(name).rpartition("/")[2]] += 1
            return call(name, *arguments, **options)

        monkeypatch.setattr(module, function, counting)

    counted(local, "stat_entry")
    counted(os, "stat")
    with shop.engine() as running:
        running.cycle(NO_STOP)
        assert running.applied.commits == 1
    assert asked[name(1)] == 3


@pytest.mark.slow
def test_an_engine_that_lost_root_leaves_the_monitoring_files_alone(shops, monkeypatch):
    """It is lost after the cycle's first look at it; the files are those of the other engine now."""
    looks, is_lost = [], False

    def check():
        looks.append(name := threading.current_thread().name)
        if is_lost and (name == "heartbeat" or looks.count(name) > 1):
            raise RootLocked("lost")

    def written():
        return [(shops.root / file).stat().st_ino for file in (TABLES_FILE, REPLICATOR_FILE)]

    shops.sync()
    monkeypatch.setattr("mirror_engine.mirror.lock_root", lambda *_: nullcontext(check))
    monkeypatch.setattr(monitoring_files, "HEARTBEAT_SECONDS", 0.02)
    with shops.engine() as running:
        running.cycle(NO_STOP)
        is_lost = True
        time.sleep(0.1)
        before = written()
        looks.clear()
        with pytest.raises(RootLocked):
            running.cycle(NO_STOP)
        time.sleep(0.1)
        assert written() == before
    assert "heartbeat" in looks


@pytest.mark.slow
def test_failed_monitoring_write_backs_off(shops):
    storage = faulty(LocalStorage(shops.root), Failing(f"write {TABLES_FILE}"))
    with shops.engine(storage=storage) as running:
        for _ in range(9):
            running.cycle(NO_STOP)
            shops.clock.advance(seconds=0.5)
        assert list(running.last.failures) == [None]
        assert running.last.run_result is RunResult.RETRY
    assert [event.retry_seconds for event in shops.heard(RetryScheduled)] == [1.0, 2.0, 4.0]


@pytest.mark.slow
def test_a_table_whose_folder_cannot_be_listed_keeps_its_entry(shops):
    """It may still be there (LZ-7.2)."""
    storage = faulty(LocalStorage(shops.root), Failing(r"list .*/(T[12]|No table yet)$"))
    shops.orders("T2").land(b"no Parquet")
    (shops.publisher.path / "No table yet").mkdir()
    shops.sync()
    before = fabric_files.read_tables(storage)
    with shops.engine(storage=storage) as running:
        running.cycle(NO_STOP)
    assert sorted(fabric_files.read_tables(storage), key=lambda entry: entry["sourceTableName"]) == before
    assert [bool(entry["errorMessage"]) for entry in before] == [False, False, True, False, False]


@pytest.mark.slow
def test_monitoring_files_follow_changes_and_heartbeats(shops, monkeypatch):
    path = shops.root / TABLES_FILE

    def is_written():
        before = path.stat().st_ino
        running.cycle(NO_STOP)
        return path.stat().st_ino != before

    with shops.engine() as running:
        cycles(running, 3)
        assert not is_written()
        shops.land(3, table="T0")
        assert [is_written() for _ in range(3)] == [False, True, False]  # the first of them has work for a second one
        shops.clock.advance(seconds=monitoring_files.BUSY_SECONDS)
        shops.land(4, table="T0")
        assert [is_written() for _ in range(3)] == [True, True, False]
        monkeypatch.setattr(monitoring_files, "HEARTBEAT_SECONDS", 0.0)
        assert is_written()


def rows_shown(shop):
    """How many rows of T0 the monitoring files tell of."""
    entries = fabric_files.read_tables(LocalStorage(shop.root))
    return next(each["metrics"]["processedRowCount"] for each in entries if each["sourceTableName"] == "T0")


def test_monitoring_files_are_written_after_the_last_cycle(shops):
    with shops.engine() as running:
        for number in (3, 4):
            running.cycle(NO_STOP)
            shops.land(number, table="T0")
        running.cycle(NO_STOP)
    assert rows_shown(shops) == 4


def test_retry_of_the_zone_stops_no_table(shops):
    storage = faulty(LocalStorage(shops.root), Failing(r"list .*/T1$"))
    with shops.engine(storage=storage) as running:
        cycles(running, 3)
        assert isinstance(running.last.plans[TableName("", "T2")].state, CaughtUp)
    assert len(shops.heard(RetryScheduled)) == 1


@pytest.fixture
def planned(monkeypatch):
    """The tables of which files were classified, by folder."""
    tables = []

    def counting(table, *arguments, of=planner.detect, **options):
        tables.append(table.folder)
        return of(table, *arguments, **options)

    monkeypatch.setattr(planner, "detect", counting)
    return tables


@pytest.mark.slow
def test_idle_tables_are_not_planned_again(shops, planned):
    (shops.publisher.path / "Empty").mkdir()
    shops.orders("Empty")
    with shops.engine() as running:
        settle(running)
        planned.clear()
        cycles(running, 2)
        assert set(planned) == {"Empty"}  # its state depends on the time
        assert isinstance(running.last.plans[TableName("", "T0")].state, CaughtUp)
        planned.clear()
        shops.land(3, table="T2")
        settle(running)
        assert set(planned) == {"Empty", "T2"}
    assert shops.ids("T2") == [1, 2, 3]


@pytest.mark.slow
def test_blocked_and_halted_tables_are_not_planned_again(shops, monkeypatch):
    looked_up, folder, change = [], Ledger.folder, shops.writer.latest_external_change
    monkeypatch.setattr(Ledger, "folder", lambda *known: looked_up.append(known[1].folder) or folder(*known))
    zone = shops.publisher.path

    def damaged(table, *since):
        if table == "dbo/T4":
            raise TableDamaged(table, "cut", "Restore it.")
        return change(table, *since)

    with shops.engine() as running:
        settle(running)
        shops.land(4, table="T0")
        rejected = zone / "T1" / name(3)
        rejected.write_bytes(b"no Parquet")
        metadata = (zone / "T2" / METADATA_FILE).rename(shops.root / METADATA_FILE)
        for path in ("Bare", "dbo.schema/T3"):
            (zone / path).mkdir(parents=True)
        monkeypatch.setattr(shops.writer, "latest_external_change", damaged)
        settle(running)
        halted = dict.fromkeys(["T1", "T2", "T4", "dbo.schema/T3"], Halted)
        states = {plan.table.folder: type(plan.state) for plan in running.last.plans.values()}
        assert states == {"T0": Blocked, "T3": CaughtUp, "Bare": Unconfigured, **halted}
        looked_up.clear()
        cycles(running, 2)
        assert looked_up == []
        shops.land(3, table="T0")
        rejected.unlink()
        metadata.rename(zone / "T2" / METADATA_FILE)
        shutil.rmtree(zone / "dbo.schema")
        monkeypatch.setattr(shops.writer, "latest_external_change", change)
        shops.clock.advance(minutes=5)  # a log that cannot be used is read again then
        settle(running)
        assert {*looked_up} == {"T0", "T1", "T2", "T4"}
        assert {type(plan.state) for plan in running.last.plans.values()} == {CaughtUp, Unconfigured}
    assert shops.ids("T0") == [1, 2, 3, 4]


def test_empty_table_fails_after_14_days_of_idle_cycles(shops):
    shops.orders("Empty")
    with shops.engine() as running:
        settle(running)
        shops.clock.advance(days=14)
        running.cycle(NO_STOP)
    assert "ME068" in shops.said()


@pytest.mark.parametrize("what", ["files", "tables"])
def test_sync_returns_while_a_publisher_lands(shop, monkeypatch, what):
    """It applies what had landed when it began, whatever lands meanwhile."""
    orders = shop.land(1, 2, 3, table="T0")
    clean, landed = Janitor.clean, iter(range(4, 100))

    def landing(*arguments, **options):
        number = next(landed)
        (orders if what == "files" else shop.orders(f"T{number}")).insert(row(number))
        return clean(*arguments, **options)

    monkeypatch.setattr(Janitor, "clean", landing)
    report = shop.sync()
    assert report.result is RunResult.CAUGHT_UP
    assert {1, 2, 3} <= set(shop.ids("T0"))
    assert next(landed) < 20


def test_sync_waits_for_a_drop_that_lets_a_table_begin(tmp_path):
    """The Delta folder of the new table is the dropped one's (LZ-1.5)."""
    shop = Shop(tmp_path, drop_delay_seconds=0.0)
    shop.orders().initial_load(row(1))
    shop.sync()
    (shop.publisher.path / "dbo.schema").mkdir()
    (shop.publisher.path / "Orders").rename(shop.publisher.path / "dbo.schema/Orders")
    shop.sync()
    assert isinstance(shop.status().state, CaughtUp)
    assert shop.ids() == [1]


@pytest.mark.slow
def test_sync_retries_a_failed_table_while_others_go_on(tmp_path, monkeypatch):
    shop = Shop(tmp_path)
    first, second = shop.orders("A"), shop.orders("B")
    first.insert(row(1))
    second.insert(row(1))
    scan, carry_out, tries, landed = Poller.scan, Replayer.carry_out, [], itertools.count(2)

    def scan_while_files_land(poller, _):
        found = scan(poller)
        second.insert(row(next(landed)))
        return found

    def fail_once(replayer, task):
        if task.table.table == "A":
            tries.append(1)
            if len(tries) == 1:
                raise StorageUnavailable("once")
        return carry_out(replayer, task)

    monkeypatch.setattr(Poller, "scan", scan_while_files_land)
    monkeypatch.setattr(Replayer, "carry_out", fail_once)
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert (len(tries), shop.ids("A")) == (2, [1])


def test_retry_of_a_table_that_cannot_be_planned_is_not_due_for_ever(tmp_path, monkeypatch):
    shop = Shop(tmp_path)
    shop.orders().insert(row(1))

    def fail(*_):
        raise StorageUnavailable("scripted")

    with shop.engine() as running:
        with monkeypatch.context() as once:
            once.setattr(Replayer, "carry_out", fail)
            running.cycle(NO_STOP)
        zone = tmp_path / "Files/LandingZone"
        zone.rename(zone.with_name("away"))
        shop.clock.advance(hours=1)
        running.cycle(NO_STOP)
        assert running.next_cycle_seconds(60.0) > 0


@pytest.mark.slow
def test_monitoring_files_are_written_before_a_wait(shops):
    """T1 is under maintenance: its steps wait, and no cycle follows at once."""
    stop, counts = threading.Event(), []

    def wait(seconds):
        if seconds == 0:
            return
        counts.append(rows_shown(shops))
        shops.land(4, table="T0")
        if len(counts) == 2:
            stop.set()

    watcher = SimpleNamespace(touched=lambda: None, is_due=lambda: False, wait=wait)
    maintenance = SimpleNamespace(in_progress=TableName("", "T1"), start=lambda *_, **__: None)
    for table in ("T0", "T1"):
        shops.land(3, table=table)
    with shops.engine() as running:
        settle(running, maintenance.in_progress)
        before = shops.status("T0").rows_processed
        running.run(stop, watcher, maintenance)
    assert counts == [before, before + 1]
