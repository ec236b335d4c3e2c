"""What goes wrong next to the engine: lost mounts, failing folders, tables that stand in each other's way."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading

import pytest
from filelock import FileLock
from scripted_faults import Script, faulty
from shop import Shop, row

import mirror_engine.engine.cycle
import mirror_engine.engine.run
from mirror_engine import Config, RunResult
from mirror_engine.engine.scheduler import Backoff
from mirror_engine.errors import StorageUnavailable
from mirror_engine.events import BatchStarted, TableDropped
from mirror_engine.landing_zone.layout import ENGINE, LOCK
from mirror_engine.landing_zone.states import CaughtUp, Halted
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.merge.memory import MemoryDeltaWriter


class Failing(Script):
    """A script in which calls fail by their words, such as `move .*Orders`, until `is_over`."""

    def __init__(self, pattern, error=StorageUnavailable):
        super().__init__()
        self.pattern = pattern
        self.error = error
        self.is_over = False

    def run(self, name, call):
        if re.match(self.pattern, name) and not self.is_over:
            raise self.error(f"{name}: scripted")
        return super().run(name, call)


pytestmark = pytest.mark.slow  # each a defect that was found once: no part of the quick look


def failing(root, pattern, error=StorageUnavailable):
    return faulty(LocalStorage(root), Failing(pattern, error))


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path / "shop")


@pytest.fixture
def no_pauses(monkeypatch):
    monkeypatch.setattr(mirror_engine.engine.cycle, "FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(mirror_engine.engine.run, "MAX_SYNC_ATTEMPTS", 1)


NO_STOP = threading.Event()


@pytest.mark.usefixtures("no_pauses")
def test_a_failure_that_is_over_hastens_no_further_cycle(shop):
    orders = shop.orders()
    orders.insert(row(1))
    orders.insert(row(2))
    script = Failing("move .*Orders")
    with shop.engine(storage=faulty(LocalStorage(shop.root), script)) as running:
        running.cycle(NO_STOP)
        assert running.engine.next_cycle_seconds(15.0) == 0.0
        script.is_over = True
        running.cycle(NO_STOP)
        assert running.engine.next_cycle_seconds(15.0) == 15.0


def test_a_janitor_that_fails_keeps_no_file_from_the_table(shop):
    orders = shop.orders()
    orders.insert(row(1))
    orders.insert(row(2))
    storage = failing(shop.root, "move .*Orders")
    with shop.engine(storage=storage) as running:
        running.cycle(NO_STOP)
        orders.insert(row(3))
        running.cycle(NO_STOP)
        assert shop.ids() == [1, 2, 3]


def test_a_fault_of_the_engine_is_reported_from_a_failure(shop, monkeypatch):
    monkeypatch.setattr(mirror_engine.engine.run, "MAX_SYNC_ATTEMPTS", 1)
    shop.orders().insert(row(1))
    storage = failing(shop.root, "open .*parquet", RuntimeError)
    assert shop.sync(storage=storage).result is RunResult.FAILED


@pytest.mark.usefixtures("no_pauses")
def test_an_empty_mount_point_is_no_deletion_however_often_it_is_seen(shop):
    shop.orders().insert(row(1))
    shop.sync()
    away = shop.publisher.path.rename(shop.root / "away")
    shop.publisher.path.mkdir()
    for _ in range(3):
        shop.sync()
    assert shop.ids() == [1]
    shop.publisher.path.rmdir()
    away.rename(shop.publisher.path)
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert shop.ids() == [1]


@pytest.mark.usefixtures("no_pauses")
def test_a_copied_root_is_learned_though_one_table_fails(shop, tmp_path):
    orders = shop.orders()
    orders.insert(row(1))
    broken = shop.orders("Broken")
    broken.insert(row(1))
    shop.sync()
    broken.insert(row(2))
    shutil.copytree(shop.root, tmp_path / "copy")
    copy = Shop(tmp_path / "copy", shop.writer)
    storage = failing(copy.root, "open .*Broken/00000000000000000002")
    assert copy.sync(storage=storage).result is RunResult.RETRY
    copy.publisher.remove("Orders")
    copy.orders().insert(row(9))
    copy.sync(storage=storage)
    assert copy.ids() == [9]


def test_a_copied_root_is_learned_though_the_engine_was_stopped_before(shop, tmp_path):
    shop.orders().insert(row(1))
    shop.sync()
    shutil.copytree(shop.root, tmp_path / "copy")
    copy = Shop(tmp_path / "copy", shop.writer)
    stop = threading.Event()
    stop.set()
    with copy.engine() as running:
        running.cycle(stop)
    copy.sync()
    assert set(copy.said()) == {"ME076"}
    assert not [event for event in copy.events if isinstance(event, TableDropped)]


def test_a_table_that_failed_is_left_alone_until_its_pause_is_over(tmp_path):
    shop = Shop(tmp_path, faulty(MemoryDeltaWriter(), Failing("apply")))
    shop.orders().insert(row(1))
    with shop.engine() as running:
        running.cycle(NO_STOP)
        running.cycle(NO_STOP)
    assert len([event for event in shop.events if isinstance(event, BatchStarted)]) == 1


@pytest.mark.usefixtures("no_pauses")
def test_a_schema_folder_that_cannot_be_listed_drops_none_of_its_tables(shop):
    shop.orders("Sales.Orders").insert(row(1))
    shop.sync()
    shop.sync(storage=failing(shop.root, "list .*Sales.schema$"))
    assert shop.ids() == [1]


@pytest.mark.usefixtures("no_pauses")
def test_files_of_a_recreated_folder_stay_until_they_are_read_again(tmp_path):
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
        running.engine._backoff = Backoff(60.0, 60.0)
        for _ in range(2):
            running.cycle(NO_STOP)
            assert all((shop.publisher.path / path).exists() for path in paths)
        running.engine._backoff = Backoff(0.0, 0.0)
        dropping.is_over = True
        running.cycle(NO_STOP)
    assert shop.ids() == [1, 2]


@pytest.mark.usefixtures("no_pauses")
def test_a_folder_that_stood_back_takes_no_table_with_it_when_it_goes(shop):
    shop.orders("Orders")
    shop.sync()
    shop.orders("dbo.Orders").insert(row(1))
    shop.sync()
    assert isinstance(next(iter(s for s in shop.mirror().status().tables if not s.name.schema)).state, Halted)
    shop.publisher.remove("Orders")
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert shop.ids("dbo.Orders") == [1]


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("delay", [0.0, 60.0])
def test_a_folder_renamed_into_a_schema_is_filled_from_scratch(tmp_path, delay):
    shop = Shop(tmp_path, drop_delay_seconds=delay, workers=1)
    for attempt in range(10):
        name = f"Orders{attempt}"
        shop.orders(name).initial_load(row(1), row(2))
    shop.sync()
    (shop.publisher.path / "dbo.schema").mkdir()
    for attempt in range(10):
        name = f"Orders{attempt}"
        (shop.publisher.path / name).rename(shop.publisher.path / "dbo.schema" / name)
    assert shop.sync().result is (RunResult.NEEDS_ATTENTION if delay else RunResult.CAUGHT_UP)
    shop.now += delay
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert [shop.ids(f"dbo.Orders{attempt}") for attempt in range(10)] == [[1, 2]] * 10


@pytest.mark.usefixtures("no_pauses")
def test_the_second_folder_is_back_while_the_owner_cannot_be_seen(shop):
    shop.orders("dbo.Orders").insert(row(1))
    shop.orders("Orders").insert(row(2))
    shop.sync()
    shop.sync(storage=failing(shop.root, "list .*dbo.schema"))
    assert shop.ids("dbo.Orders") == [1]


@pytest.mark.usefixtures("no_pauses")
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
    assert "ME069" in shop.said()


@pytest.mark.usefixtures("no_pauses")
def test_another_default_schema_begins_again_and_stays_so(shop):
    orders = shop.orders()
    orders.initial_load(row(1))
    shop.sync()
    shop.config = Config(default_schema="none")
    for number in (2, 3):
        orders.insert(row(number))
        shop.sync()
    assert shop.writer.rows("Orders").column("id").to_pylist() == [1, 2, 3]


@pytest.mark.usefixtures("no_pauses")
def test_restart_drops_all_though_the_ledger_is_lost(shop):
    shop.orders().insert(row(1))
    shop.sync()
    shutil.rmtree(shop.root / ENGINE)
    with shop.mirror() as mirror:
        assert [table.table for table in mirror.rebuild()] == ["Orders"]
    assert shop.writer.tables() == []


@pytest.mark.usefixtures("no_pauses")
def test_a_file_halt_outlives_metadata_that_vanished(shop):
    orders = shop.orders()
    orders.insert(row(1))
    content = (shop.publisher.path / "Orders/00000000000000000001.parquet").read_bytes()
    shop.sync()
    shop.publisher.write_in_place("Orders/00000000000000000002.parquet", content[:20])
    shop.sync()
    metadata = (shop.publisher.path / "Orders/_metadata.json").read_bytes()
    orders.remove("_metadata.json")
    assert shop.sync().result is RunResult.NEEDS_ATTENTION
    shop.publisher.write_in_place("Orders/00000000000000000002.parquet", content)
    orders.land_metadata(metadata)
    assert shop.sync().result is RunResult.NEEDS_ATTENTION
    assert shop.ids() == [1]


@pytest.mark.usefixtures("no_pauses")
def test_a_harmful_info_file_hurts_no_one(shop):
    orders = shop.orders()
    orders.insert(row(1))
    orders.insert(row(2))
    shop.sync()
    name = "00000000000000000001.parquet"
    info = {"files": [{"name": name, "readyAtUtc": "9999-12-31T23:59:59.0-23:59"}]}
    orders.put("_FilesReadyToDelete/_FilesReadyToDeleteInfo.json", json.dumps(info).encode())
    orders.insert(row(3))
    assert shop.sync().result is RunResult.CAUGHT_UP


@pytest.mark.slow
def test_endless_folders_among_the_moved_files_hurt_no_one(shop):
    orders = shop.orders()
    orders.insert(row(1))
    orders.insert(row(2))
    moved, limit = shop.publisher.path / "Orders/_FilesReadyToDelete", sys.getrecursionlimit()
    (moved / "/".join("d" * 500)).mkdir(parents=True)
    sys.setrecursionlimit(450)  # more folders than frames; with the usual 1000 the test takes many seconds
    try:
        assert shop.sync().result is RunResult.CAUGHT_UP
    finally:  # pytest would not get it away
        LocalStorage(moved).delete("d")
        sys.setrecursionlimit(limit)


def test_stop_waits_for_the_commits_at_hand_only(tmp_path):
    shop = Shop(tmp_path, workers=1)
    for number in range(5):
        shop.orders(f"T{number}").insert(row(1))
    stop = threading.Event()
    with shop.mirror() as mirror:
        mirror._listeners = (lambda event: stop.set() if "BatchCommitted" in repr(type(event)) else None,)
        assert mirror.sync(stop).commits == 1


@pytest.mark.usefixtures("no_pauses")
def test_a_foreign_table_that_is_taken_away_makes_room(shop):
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
        taken.drop("dbo/Orders")
        taken.foreign = False
        running.cycle(NO_STOP)
        running.cycle(NO_STOP)
        assert isinstance(next(iter(running.last.plans.values())).state, CaughtUp)


@pytest.mark.usefixtures("no_pauses")
def test_a_moved_zone_whose_files_cannot_be_read_is_tried_again(shop):
    shop.orders().insert(row(1))
    shop.sync()
    shutil.copytree(shop.publisher.path, shop.root / "backup")
    shutil.rmtree(shop.publisher.path)
    (shop.root / "backup").rename(shop.publisher.path)
    storage = failing(shop.root, "open .*parquet")
    assert shop.sync(storage=storage).result is RunResult.RETRY
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert shop.ids() == [1]


@pytest.mark.usefixtures("no_pauses")
def test_an_applied_path_is_known_though_it_moved_away_and_the_ledger_is_lost(shop):
    orders = shop.orders(strategy="LastUpdateTimeFileDetection")
    orders.insert(row(1), name="a.parquet", modified_ns=10**18)
    orders.insert(row(2), name="b.parquet", modified_ns=10**18 + 1)
    shop.sync()
    orders.insert(row(3), name="c.parquet", modified_ns=10**18 + 2)
    shop.sync()
    shutil.rmtree(shop.root / ENGINE)
    orders.insert(row(9), name="a.parquet")
    shop.sync()
    assert shop.ids() == [1, 2, 3]


@pytest.mark.usefixtures("no_pauses")
def test_strict_applies_what_comes_before_an_overwritten_file(tmp_path):
    shop = Shop(tmp_path, strict=True)
    orders = shop.orders()
    orders.skip_numbers()
    for number in (2, 3):
        orders.insert(row(number))
    shop.sync()
    orders.insert(row(33), name="00000000000000000003.parquet")
    orders.insert(row(1), name="00000000000000000001.parquet")
    assert shop.sync().result is RunResult.NEEDS_ATTENTION
    assert isinstance(shop.status().state, Halted)
    assert shop.ids() == [1, 2]


def test_a_scan_at_the_status_leaves_no_trace(shop):
    shop.orders().insert(row(1))
    shop.sync()
    before = times(shop.root)
    assert shop.status().state == CaughtUp()
    assert times(shop.root) == before


def times(root):
    """When each file was written, but the lock: some versions of its library touch it when they look."""
    return {path: path.stat().st_mtime_ns for path in root.rglob("*") if path != root / LOCK}


def test_a_scan_at_the_status_is_no_second_engine(shop):
    with shop.engine():
        pass
    look = FileLock(shop.root / LOCK, thread_local=False)
    look.acquire()
    threading.Timer(0.1, look.release).start()
    assert shop.sync().result is RunResult.CAUGHT_UP


@pytest.mark.usefixtures("no_pauses")
def test_a_copy_of_a_delta_table_next_to_it_is_not_taken_for_it(shop):
    orders = shop.orders()
    orders.insert(row(1))
    shop.sync()
    shop.writer._tables["dbo/copy"] = list(shop.writer._tables["dbo/Orders"])
    for number in (2, 3):
        orders.insert(row(number))
        shop.sync()
    assert shop.status().watermarks == {"": 3}
    assert shop.ids() == [1, 2, 3]


@pytest.mark.usefixtures("no_pauses")
def test_a_delta_table_that_cannot_be_read_at_first_stops_no_other(shop):
    class Unreadable(MemoryDeltaWriter):
        broken = True

        def snapshot(self, table):
            if self.broken and table == "dbo/Orders":
                raise StorageUnavailable("scripted")
            return super().snapshot(table)

    orders = shop.orders()
    orders.insert(row(1))
    shop.sync()
    shutil.rmtree(shop.root / ENGINE)
    writer = Unreadable()
    writer._tables = shop.writer._tables
    other = Shop(shop.root, writer)
    other.orders("Other").insert(row(1))
    orders.insert(row(2))
    with other.engine() as running:
        running.cycle(NO_STOP)
        assert other.ids("Other") == [1]
        writer.broken = False
        running.cycle(NO_STOP)
        running.cycle(NO_STOP)
    assert other.ids() == [1, 2]


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("unreadable", ["Orders", "Sales.schema"])
def test_a_folder_that_cannot_be_looked_into_is_not_level(shop, unreadable):
    shop.orders().insert(row(1))
    shop.orders("Sales.Orders").insert(row(2))
    shop.orders("Other").insert(row(3))
    report = shop.sync(storage=failing(shop.root, f"list Files/LandingZone/{unreadable}$"))
    assert report.result is RunResult.RETRY
    assert shop.ids("Other") == [3]
    assert "ME070" in shop.said()
    assert shop.sync().result is RunResult.CAUGHT_UP
