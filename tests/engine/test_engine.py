"""The engine over a local zone and the memory writer: lives of tables, of ROOT, and of the ledger."""

from __future__ import annotations

import shutil
import threading

import pytest
from filelock import FileLock
from scripted_faults import Failing, faulty
from shop import NO_STOP, TYPES, Shop, row

import mirror_engine.engine.turns
from mirror_engine import Config, RunResult
from mirror_engine.engine import lock
from mirror_engine.errors import RootLocked, StorageUnavailable
from mirror_engine.events import BatchStarted, TableHalted, ignore
from mirror_engine.landing_zone.layout import ENGINE, LOCK
from mirror_engine.landing_zone.states import CaughtUp, Halted
from mirror_engine.monitoring.wait_conditions import tables_not_caught_up
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

pytestmark = pytest.mark.usefixtures("one_attempt")


def failing(shop, pattern, error=StorageUnavailable):
    return faulty(LocalStorage(shop.root), Failing(pattern, error))


# batches


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "commits"),
    [({}, 1), ({"max_batch_files": 1}, 3), ({"max_batch_size": 1}, 3), ({"max_batch_size": "two files"}, 2)],
    ids=str,
)
def test_batch_files_and_bytes_bound_a_commit_but_one_file_always_goes(tmp_path, options, commits):
    """LZ-4.16."""
    orders = Shop(tmp_path).orders()
    sizes = [(tmp_path / "Files/LandingZone" / orders.insert(row(number))).stat().st_size for number in range(3)]
    if options == {"max_batch_size": "two files"}:
        options = {"max_batch_size": sum(sizes) - 1}
    assert Shop(tmp_path, **options).sync().commits == commits


def test_a_bad_file_halts_its_table_alone_after_all_before_it(shop):
    """LZ-4.17."""
    orders = shop.orders()
    orders.insert(row(1))
    orders.put("00000000000000000002.parquet", b"not parquet")
    orders.skip_numbers()
    orders.insert(row(3))
    shop.orders("Other").insert(row(1))
    report = shop.sync()
    assert report.result is RunResult.NEEDS_ATTENTION
    assert (shop.ids(), shop.ids("Other")) == ([1], [1])
    assert isinstance(shop.status().state, Halted)
    assert isinstance(shop.status("Other").state, CaughtUp)
    assert [event.diagnostic.code for event in shop.events if isinstance(event, TableHalted)] == ["ME024"]


def test_a_lost_batch_stays_visible_after_the_next_commit(shop):
    orders = shop.orders()
    orders.skip_numbers()
    second = orders.insert(row(2))
    shop.sync()
    orders.insert(row(9), name=second.rpartition("/")[2])
    orders.insert(row(1), name="00000000000000000001.parquet")
    shop.sync()
    assert shop.sync().result is RunResult.CAUGHT_UP
    found = shop.status()
    assert [(diagnostic.code, count) for diagnostic, count in found.diagnostics] == [("ME025", 1)]
    assert (found.urgency, found.needs_attention) == ("stuck", True)
    assert found.message.endswith("has caught up; 1 lost file [ME025]")
    with shop.mirror() as mirror:
        (unmet,) = tables_not_caught_up(mirror._status(), (), "dbo")
        assert (unmet.message, unmet.is_final, unmet.needs_attention) == (found.message, True, True)
        assert tables_not_caught_up(mirror._status(), ["Orders"], "dbo") == (unmet,)
        mirror.rebuild(lose_rows=True)
    assert shop.status().lost_files == 0


def test_the_same_bytes_again_are_reported_but_not_in_another_partition(shop):
    days = shop.publisher.table("Days", keys=["id"], types=TYPES, partitioned=True)
    for day in (1, 2):
        days.insert(row(1), partition=f"day={day}")
    shop.sync()
    assert "ME064" not in shop.said()
    days.insert(row(1), partition="day=1")
    shop.sync()
    assert "ME064" in shop.said()


# failures


def test_a_failure_that_is_over_hastens_no_further_cycle(shop):
    orders = shop.orders()
    orders.insert(row(1))
    orders.insert(row(2))
    script = Failing("move .*Orders")
    with shop.engine(storage=faulty(LocalStorage(shop.root), script)) as running:
        running.cycle(NO_STOP)
        assert running.next_cycle_seconds(15.0) == 0.0
        orders.insert(row(3))  # a janitor that fails keeps no file from the table
        running.cycle(NO_STOP)
        assert shop.ids() == [1, 2, 3]
        script.is_over = True
        for _ in range(2):
            running.cycle(NO_STOP)
        assert running.next_cycle_seconds(15.0) == 15.0


def test_a_fault_of_the_engine_is_reported_from_a_failure(shop):
    shop.orders().insert(row(1))
    assert shop.sync(storage=failing(shop, "open .*parquet", RuntimeError)).result is RunResult.FAILED


def test_a_table_that_failed_is_left_alone_until_its_pause_is_over(tmp_path, monkeypatch):
    monkeypatch.setattr(mirror_engine.engine.turns, "FIRST_PAUSE_SECONDS", 60.0)
    shop = Shop(tmp_path, faulty(MemoryDeltaWriter(), Failing("apply")))
    shop.orders().insert(row(1))
    with shop.engine() as running:
        running.cycle(NO_STOP)
        running.cycle(NO_STOP)
    assert len([event for event in shop.events if isinstance(event, BatchStarted)]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("unreadable", ["", "/Orders", "/Sales.schema"])
def test_what_cannot_be_listed_drops_nothing_is_retried_and_stops_no_other(shop, unreadable):
    """LZ-7.2."""
    shop.orders().insert(row(1))
    shop.orders("Sales.Items").insert(row(2))
    shop.sync()
    shop.orders("Other").insert(row(3))
    assert shop.sync(storage=failing(shop, f"list Files/LandingZone{unreadable}$")).result is RunResult.RETRY
    assert "ME070" in shop.said()
    assert (shop.ids(), shop.ids("Items")) == ([1], [2])
    assert shop.writer.tables() == ["Sales/Items", *(["dbo/Orders"] if not unreadable else ["dbo/Orders", "dbo/Other"])]
    assert shop.sync().result is RunResult.CAUGHT_UP


def test_files_of_a_recreated_folder_stay_until_they_are_read_again(tmp_path, monkeypatch):
    dropping, moving = Failing("drop"), Failing("move .*Orders")
    shop = Shop(tmp_path, faulty(MemoryDeltaWriter(), dropping))
    orders = shop.orders()
    paths = [orders.insert(row(number)) for number in (1, 2)]
    folder = shop.publisher.path / "Orders"
    with shop.engine(storage=faulty(LocalStorage(shop.root), moving)) as running:
        running.cycle(NO_STOP)
        moving.is_over = True
        folder.rename(tmp_path / "before")
        folder.mkdir()
        for file in (tmp_path / "before").iterdir():
            file.rename(folder / file.name)
        running._turns.keep([])
        monkeypatch.setattr(mirror_engine.engine.turns, "FIRST_PAUSE_SECONDS", 60.0)
        for _ in range(2):
            running.cycle(NO_STOP)
            assert all((shop.publisher.path / path).exists() for path in paths)
        shop.clock.advance(minutes=5)
        dropping.is_over = True
        running.cycle(NO_STOP)
    assert shop.ids() == [1, 2]


# ROOT


def test_a_lost_mount_is_no_deletion_however_often_it_is_seen(shop):
    shop.orders().insert(row(1))
    shop.sync()
    away = shop.publisher.path.rename(shop.root / "away")
    shop.sync()
    shop.publisher.path.mkdir()
    for _ in range(2):
        shop.sync()
        assert shop.ids() == [1]
    shop.publisher.path.rmdir()
    away.rename(shop.publisher.path)
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert shop.ids() == [1]


def test_a_restored_zone_with_the_same_files_is_kept_and_one_made_again_is_rebuilt(shop):
    shop.orders().insert(row(1))
    shop.sync()
    shutil.copytree(shop.publisher.path, shop.root / "backup")
    shutil.rmtree(shop.publisher.path)
    (shop.root / "backup").rename(shop.publisher.path)
    assert shop.sync(storage=failing(shop, "open .*parquet")).result is RunResult.RETRY  # the content decides
    shop.sync()
    assert (shop.ids(), shop.said()) == ([1], ["ME076"])
    shutil.rmtree(shop.publisher.path)
    LandingZoneWriter(shop.root).table("Orders", keys=["id"], types=TYPES).insert(row(7))
    shop.sync()
    assert shop.ids() == [7]


def test_a_zone_made_again_with_one_file_as_before_is_rebuilt(tmp_path):
    shop = Shop(tmp_path, cleanup="off")
    orders = shop.orders()
    first = orders.insert(row(1))
    orders.insert(row(2))
    shop.sync()
    content = (shop.publisher.path / first).read_bytes()
    shutil.rmtree(shop.publisher.path)
    orders = LandingZoneWriter(shop.root).table("Orders", keys=["id"], types=TYPES)
    orders.land(content)
    orders.insert(row(7))
    shop.sync()
    assert shop.ids() == [1, 7]


def test_a_second_engine_says_so_and_stops(shop, monkeypatch):
    monkeypatch.setattr(lock, "LOCK_TIMEOUT_SECONDS", 0.01)
    shop.orders().insert(row(1))
    with shop.mirror() as second, lock.lock_root(shop.root, ignore):
        with pytest.raises(RootLocked, match="another engine"):
            second.sync()
        assert second._status().engine_running
        assert second._status().tables
    assert shop.sync().result is RunResult.CAUGHT_UP


def test_a_look_at_the_status_leaves_no_trace_and_is_no_second_engine(shop):
    def times():
        """When each file was written, but the lock: some versions of its library touch it when they look."""
        return {path: path.stat().st_mtime_ns for path in shop.root.rglob("*") if path != shop.root / LOCK}

    shop.orders().insert(row(1))
    shop.sync()
    before = times()
    assert shop.status().state == CaughtUp()
    assert times() == before
    look = FileLock(shop.root / LOCK, thread_local=False)
    look.acquire()
    threading.Timer(0.1, look.release).start()
    assert shop.sync().result is RunResult.CAUGHT_UP


# Delta folders


def test_a_folder_that_stood_back_takes_no_table_with_it_when_it_goes(shop):
    shop.orders("Orders")
    shop.sync()
    shop.orders("dbo.Orders").insert(row(1))
    shop.sync()
    assert isinstance(next(iter(s for s in shop.mirror()._status().tables if not s.name.schema)).state, Halted)
    shop.publisher.remove("Orders")
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert shop.ids("dbo.Orders") == [1]


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 60.0])
def test_a_folder_renamed_into_a_schema_is_filled_from_scratch(tmp_path, delay):
    shop = Shop(tmp_path, drop_delay_seconds=delay, workers=1)
    names = [f"Orders{attempt}" for attempt in range(3)]
    for name in names:
        shop.orders(name).initial_load(row(1), row(2))
    shop.sync()
    (shop.publisher.path / "dbo.schema").mkdir()
    for name in names:
        (shop.publisher.path / name).rename(shop.publisher.path / "dbo.schema" / name)
    assert shop.sync().result is (RunResult.NEEDS_ATTENTION if delay else RunResult.CAUGHT_UP)
    shop.now += delay
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert [shop.ids(f"dbo.{name}") for name in names] == [[1, 2]] * 3


def test_a_delta_table_removed_under_a_running_engine_is_rebuilt_from_what_is_there(tmp_path):
    shop = Shop(tmp_path, cleanup="off")
    orders = shop.orders()
    orders.insert(row(1))
    with shop.engine() as running:
        running.cycle(NO_STOP)
        shop.writer.drop("dbo/Orders")
        orders.insert(row(2))
        running.cycle(NO_STOP)
        running.cycle(NO_STOP)
    assert shop.ids() == [1, 2]
    assert "ME069" not in shop.said()  # no file is gone


def test_rows_of_a_removed_delta_table_are_said_until_a_rebuild(tmp_path):
    shop = Shop(tmp_path)
    orders = shop.orders()
    for number in (1, 2):
        orders.insert(row(number))
        shop.sync()
    shop.writer.drop("dbo/Orders")
    for _ in range(2):
        report = shop.sync()
        (table,) = report.tables
        assert [found.message.partition(":")[0] for found in table.lost] == ["1 row cannot be rebuilt"]
    orders.insert(row(3))
    assert "ME069" in {found.code for found, _ in shop.status().diagnostics}
    with shop.mirror() as mirror:
        mirror.rebuild(replay=True)
    report = shop.sync()
    assert ([*report.tables[0].lost], shop.ids()) == ([], [1, 2, 3])
    assert shop.said().count("ME069") == 1


def test_another_default_schema_begins_again_and_stays_so(shop):
    orders = shop.orders()
    orders.initial_load(row(1))
    shop.sync()
    shop.config = Config(default_schema="none")
    for number in (2, 3):
        orders.insert(row(number))
        shop.sync()
    assert shop.writer.rows("Orders").column("id").to_pylist() == [1, 2, 3]


def test_a_foreign_table_halts_its_place_until_it_is_taken_away(shop):
    class Taken(MemoryDeltaWriter):
        foreign = True

        def snapshot(self, table):
            found = super().snapshot(table)
            return found and (type(found)(found.version, found.schema, None, -1) if self.foreign else found)

    shop.orders().insert(row(1))
    shop.sync()
    taken = Taken()
    taken._tables = shop.writer._tables
    shutil.rmtree(shop.root / ENGINE)
    other = Shop(shop.root, taken)
    with other.engine() as running:
        running.cycle(NO_STOP)
        assert isinstance(next(iter(running.last.plans.values())).state, Halted)
        assert "ME004" in other.said()
        assert shop.ids() == [1]
        taken.drop("dbo/Orders")
        taken.foreign = False
        for _ in range(3):
            other.clock.advance(seconds=9)
            running.cycle(NO_STOP)
        assert isinstance(next(iter(running.last.plans.values())).state, CaughtUp)


# the ledger


def test_an_applied_path_is_known_though_it_moved_away_and_the_ledger_is_lost(shop):
    orders = shop.orders(strategy="LastUpdateTimeFileDetection")
    for number, name in enumerate(("a", "b", "c"), 1):
        orders.insert(row(number), name=f"{name}.parquet", modified_ns=10**18 + number)
        shop.sync()
    shutil.rmtree(shop.root / ENGINE)
    orders.insert(row(9), name="a.parquet")
    shop.sync()
    assert shop.ids() == [1, 2, 3]
