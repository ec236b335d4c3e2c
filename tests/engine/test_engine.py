"""The engine over a local zone and the memory writer: lives of tables and of ROOT."""

from __future__ import annotations

import shutil
import threading

import pytest
from filelock import FileLock
from scripted_faults import Failing, faulty
from shop import NO_STOP, TYPES, Shop, cycles, name, row

import mirror_engine.engine.turns
from mirror_engine import Config, RunResult
from mirror_engine.engine.cycle import CycleResult
from mirror_engine.errors import NoAccess, StorageUnavailable
from mirror_engine.landing_zone.layout import LOCK
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.states import CaughtUp
from mirror_engine.monitoring.wait_conditions import tables_not_caught_up
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

pytestmark = pytest.mark.usefixtures("one_attempt")


def failing(shop, pattern, error=StorageUnavailable):
    return faulty(LocalStorage(shop.root), Failing(pattern, error))


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


@pytest.mark.slow
def test_lost_batch_stays_visible_after_the_next_commit(shop):
    orders = shop.orders()
    orders.skip_numbers()
    orders.insert(row(2))
    shop.sync()
    orders.insert(row(9), name=name(2))
    shop.land(1)
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


def test_failure_that_is_over_hastens_no_further_cycle(shop):
    orders, script = shop.land(1, 2), Failing("move .*Orders")
    with shop.engine(storage=faulty(LocalStorage(shop.root), script)) as running:
        running.cycle(NO_STOP)
        assert running.next_cycle_seconds(15.0) == 0.0
        orders.insert(row(3))  # a janitor that fails keeps no file from the table
        running.cycle(NO_STOP)
        assert shop.ids() == [1, 2, 3]
        script.is_over = True
        cycles(running, 2)
        assert running.next_cycle_seconds(15.0) == 15.0


@pytest.mark.parametrize("pattern", ["list .*Zone$", "list .*/Orders$", "open .*parquet"])
def test_sync_without_access_fails_as_a_command_does(shop, pattern):
    shop.orders().insert(row(1))
    assert shop.sync(storage=failing(shop, pattern, NoAccess)).result is RunResult.FAILED
    assert shop.sync(storage=failing(shop, pattern)).result is RunResult.RETRY
    assert shop.sync().result is RunResult.CAUGHT_UP


def test_cycle_that_failed_for_another_reason_too_is_to_be_retried():
    failures = {None: NoAccess("the zone: denied"), TableName("", "Orders"): StorageUnavailable("Orders: busy")}
    assert CycleResult(failures=failures).run_result is RunResult.RETRY


def test_a_fault_of_the_engine_is_reported_from_a_failure(shop):
    shop.orders().insert(row(1))
    assert shop.sync(storage=failing(shop, "open .*parquet", RuntimeError)).result is RunResult.FAILED


@pytest.mark.slow
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


def test_zone_made_again_with_one_file_as_before_is_rebuilt(tmp_path):
    shop = Shop(tmp_path, cleanup="off")
    shop.land(1, 2)
    shop.sync()
    content = (shop.publisher.path / "Orders" / name(1)).read_bytes()
    shutil.rmtree(shop.publisher.path)
    orders = LandingZoneWriter(shop.root).table("Orders", keys=["id"], types=TYPES)
    orders.land(content)
    orders.insert(row(7))
    shop.sync()
    assert shop.ids() == [1, 7]


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


@pytest.mark.slow
def test_delta_table_removed_while_running_is_rebuilt(tmp_path):
    shop = Shop(tmp_path, cleanup="off")
    orders = shop.orders()
    orders.insert(row(1))
    with shop.engine() as running:
        running.cycle(NO_STOP)
        shop.writer.drop("dbo/Orders")
        orders.insert(row(2))
        cycles(running, 2)
    assert shop.ids() == [1, 2]
    assert "ME069" not in shop.said()  # no file is gone


def test_another_default_schema_begins_again_and_stays_so(shop):
    shop.orders().initial_load(row(1))
    shop.sync()
    shop.config = Config(default_schema="none")
    shop.apply(2, 3)
    assert shop.writer.rows("Orders").column("id").to_pylist() == [1, 2, 3]


def test_recreated_folder_keeps_files_until_they_are_read(tmp_path, monkeypatch):
    dropping, moving = Failing("drop"), Failing("move .*Orders")
    shop = Shop(tmp_path, faulty(MemoryDeltaWriter(), dropping))
    shop.land(1, 2)
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
            assert all((folder / name(number)).exists() for number in (1, 2))
        shop.clock.advance(minutes=5)
        dropping.is_over = True
        running.cycle(NO_STOP)
    assert shop.ids() == [1, 2]
