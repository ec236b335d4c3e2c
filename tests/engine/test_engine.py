"""The engine over a local zone and the memory writer: lives of tables, of ROOT, and of the ledger."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from quick_folder import quick_folder
from scripted_faults import Fault, Script, faulty
from shop import TYPES, Shop, row

import mirror_engine.engine.cycle
from mirror_engine import Config, RunResult
from mirror_engine.engine import root_identity
from mirror_engine.errors import RootLocked
from mirror_engine.events import TableDropped, TableHalted
from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.landing_zone.states import Blocked, CaughtUp, Halted
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

RAGGED = ("", "a", "b", "ab")  # columns next to the key, file by file


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.setattr(mirror_engine.engine.cycle, "FIRST_PAUSE_SECONDS", 0.0)
    return Shop(tmp_path / "shop")


def test_a_second_once_does_nothing(shop):
    shop.orders().initial_load(row(1))
    assert shop.sync().commits == 1
    assert shop.sync().commits == 0
    assert shop.ids() == [1]


def test_batch_files_bounds_a_commit(tmp_path):
    shop = Shop(tmp_path, max_batch_files=1)
    orders = shop.orders()
    for number in range(5):
        orders.insert(row(number))
    assert shop.sync().commits == 5


def test_batch_bytes_bounds_a_commit_but_one_file_always_goes(tmp_path):
    shop = Shop(tmp_path, max_batch_size=1)
    orders = shop.orders()
    for number in range(3):
        orders.insert(row(number))
    assert shop.sync().commits == 3


def test_batch_bytes_counts_every_file_of_a_commit(tmp_path):
    orders = Shop(tmp_path).orders()
    names = [orders.insert(row(number)) for number in range(3)]
    sizes = [(tmp_path / "Files/LandingZone" / name).stat().st_size for name in names]
    assert Shop(tmp_path, max_batch_size=sum(sizes) - 1).sync().commits == 2


@pytest.mark.slow
def test_a_backlog_of_a_thousand_ragged_files_becomes_few_commits():
    with quick_folder() as folder:
        shop = Shop(Path(folder), max_batch_files=400)
        orders = shop.orders()
        for number in range(1000):
            columns = {name: [f"{name}{number}"] for name in RAGGED[number % 4]}
            orders.land_parquet(pa.table({"id": [number % 250], **columns, "__rowMarker__": pa.array([4], pa.int32())}))
        report = shop.sync()
        assert (report.commits, report.files_applied, report.result) == (3, 1000, RunResult.CAUGHT_UP)
        with shop.mirror() as mirror:
            rows = {row.pop("id"): row for row in mirror.read_table("Orders").to_pylist()}
    assert rows == {
        number % 250: {name: f"{name}{number}" if name in RAGGED[number % 4] else None for name in "ab"}
        for number in range(750, 1000)
    }


def test_a_bad_file_halts_its_table_alone_after_all_before_it(shop):
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


def test_deleting_and_landing_again_recovers(shop):
    orders = shop.orders()
    orders.put("00000000000000000001.parquet", b"")
    assert shop.sync().result is RunResult.NEEDS_ATTENTION
    orders.remove("00000000000000000001.parquet")
    orders.insert(row(1), name="00000000000000000001.parquet")
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert shop.ids() == [1]


def test_completing_in_place_does_not_recover(shop):
    orders = shop.orders()
    orders.insert(row(1), name="good.parquet")
    content = (shop.publisher.path / "Orders/good.parquet").read_bytes()
    orders.remove("good.parquet")
    shop.publisher.write_in_place("Orders/00000000000000000001.parquet", content[:20])
    assert shop.sync().result is RunResult.NEEDS_ATTENTION
    shop.publisher.write_in_place("Orders/00000000000000000001.parquet", content)
    assert shop.sync().result is RunResult.NEEDS_ATTENTION
    assert "ME027" in [found.code for found, _ in shop.status().diagnostics]


def test_a_gap_blocks_and_fills(shop):
    orders = shop.orders()
    orders.insert(row(1))
    orders.skip_numbers()
    orders.insert(row(3))
    assert shop.sync().result is RunResult.NEEDS_ATTENTION
    assert isinstance(shop.status().state, Blocked)
    orders.insert(row(2), name="00000000000000000002.parquet")
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert shop.ids() == [1, 2, 3]


def test_a_dropped_folder_drops_its_table(shop):
    orders = shop.orders()
    orders.insert(row(1))
    shop.sync()
    orders.drop()
    shop.sync()
    assert shop.writer.tables() == []
    assert any(isinstance(event, TableDropped) for event in shop.events)


def test_a_drop_waits_out_its_delay(tmp_path):
    shop = Shop(tmp_path, drop_delay_seconds=60)
    orders = shop.orders()
    orders.insert(row(1))
    shop.sync()
    orders.drop()
    shop.sync()
    assert shop.writer.tables() == ["dbo/Orders"]
    shop.now += 60
    shop.sync()
    assert shop.writer.tables() == []


def test_a_recreated_folder_is_rebuilt_though_no_one_saw_it_gone(shop):
    orders = shop.orders()
    orders.insert(row(1), row(2))
    shop.sync()
    orders.drop()
    shop.orders().insert(row(9))
    shop.sync()
    assert shop.ids() == [9]
    assert "ME066" in shop.said()


@pytest.mark.slow
def test_twenty_rounds_of_drop_and_recreate_with_the_same_content_are_all_noticed(shop):
    for _ in range(20):
        orders = shop.orders()
        orders.initial_load(row(1), modified_ns=10**18)
        shop.sync()
        orders.drop()
    assert shop.said().count("ME066") == 19


def test_a_lost_mount_is_no_deletion(shop):
    shop.orders().insert(row(1))
    shop.sync()
    away = shop.publisher.path.rename(shop.root / "away")
    shop.sync()
    assert shop.ids() == [1]
    shop.publisher.path.mkdir()
    shop.sync()
    assert shop.ids() == [1]
    shop.publisher.path.rmdir()
    away.rename(shop.publisher.path)
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert shop.ids() == [1]


def test_a_copied_root_drops_nothing_and_goes_on(shop, tmp_path):
    orders = shop.orders()
    for number in range(3):
        orders.insert(row(number))
    shop.sync()
    shutil.copytree(shop.root, tmp_path / "copy")
    copy = Shop(tmp_path / "copy", shop.writer)
    assert copy.sync().result is RunResult.CAUGHT_UP
    assert copy.said() == ["ME076"]
    assert copy.ids() == [0, 1, 2]
    copy.publisher.folder("Orders", types=TYPES).insert(row(9), name="00000000000000000004.parquet")
    copy.sync()
    assert copy.ids() == [0, 1, 2, 9]


def test_a_copied_root_without_its_ledger_drops_nothing_either(shop, tmp_path):
    shop.orders().insert(row(1))
    shop.sync()
    shutil.copytree(shop.root, tmp_path / "copy", ignore=shutil.ignore_patterns(ENGINE))
    copy = Shop(tmp_path / "copy", shop.writer)
    copy.sync()
    assert (copy.ids(), copy.said()) == ([1], ["ME076"])


def test_a_restored_zone_with_the_same_files_is_kept_and_one_made_again_is_rebuilt(shop):
    shop.orders().insert(row(1))
    shop.sync()
    shutil.copytree(shop.publisher.path, shop.root / "backup")
    shutil.rmtree(shop.publisher.path)
    (shop.root / "backup").rename(shop.publisher.path)
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


def test_without_its_ledger_the_engine_knows_all_from_the_tables(shop):
    orders = shop.orders()
    for number in range(3):
        orders.insert(row(number))
    shop.sync()
    before = shop.status()
    shutil.rmtree(shop.root / ENGINE)
    after = shop.status()
    assert not (shop.root / ENGINE / "ledger.sqlite").exists()
    assert (after.state, after.watermarks, after.rows_processed) == (CaughtUp(), {"": 3}, 3)
    assert after.delta_version == before.delta_version
    orders.insert(row(3))
    shop.sync()
    assert shop.ids() == [0, 1, 2, 3]


def test_a_ledger_older_than_the_tables_is_brought_up_to_them(shop):
    orders = shop.orders()
    orders.insert(row(1))
    shop.sync()
    shutil.copytree(shop.root / ENGINE, shop.root / "old")
    orders.insert(row(2))
    shop.sync()
    shutil.rmtree(shop.root / ENGINE)
    (shop.root / "old").rename(shop.root / ENGINE)
    orders.insert(row(3))
    shop.sync()
    assert shop.ids() == [1, 2, 3]


def test_last_update_time_files_are_applied_once_though_the_ledger_is_lost(tmp_path):
    shop = Shop(tmp_path, cleanup="off")
    orders = shop.publisher.table("Orders", keys=["id"], types=TYPES, strategy="LastUpdateTimeFileDetection")
    for number in range(4):
        orders.insert(row(number), name=f"file-{9 - number}.parquet")
        shop.sync()
    shutil.rmtree(shop.root / ENGINE)
    orders.insert(row(9), name="aa.parquet")
    shop.sync()
    assert shop.ids() == [0, 1, 2, 3, 9]


def test_a_removed_delta_table_is_rebuilt_from_what_is_there(shop):
    shop.orders().insert(row(1))
    shop.sync()
    shop.writer.drop("dbo/Orders")
    shop.sync()
    assert shop.ids() == [1]
    assert "ME069" in shop.said()


def test_restart_reads_again_what_still_is_there_and_says_what_is_lost(shop):
    orders = shop.orders()
    orders.insert(row(1))
    orders.insert(row(2))
    shop.sync()
    with shop.mirror() as mirror:
        assert [table.table for table in mirror.rebuild()] == ["Orders"]
    assert "ME069" in shop.said()
    assert shop.sync().result is RunResult.NEEDS_ATTENTION
    assert isinstance(shop.status().state, Blocked)


def test_two_folders_to_one_table_halt_the_second(shop):
    shop.orders("dbo.Orders").insert(row(1))
    shop.orders("orders").insert(row(2))
    assert shop.sync().result is RunResult.NEEDS_ATTENTION
    assert shop.writer.tables() == ["dbo/Orders"]
    assert isinstance(shop.status("orders").state, Halted)


def test_who_owned_a_table_first_keeps_it(shop):
    shop.orders("Orders").insert(row(2))
    shop.sync()
    shop.orders("dbo.Orders").insert(row(1))
    shop.sync()
    assert shop.ids("dbo.Orders") == [2]


def test_a_second_engine_says_so_and_stops(shop, monkeypatch):
    monkeypatch.setattr(root_identity, "LOCK_TIMEOUT_SECONDS", 0.01)
    shop.orders().insert(row(1))
    with shop.mirror() as second, root_identity.lock_root(shop.root):
        with pytest.raises(RootLocked, match="another engine"):
            second.sync()
        assert second.status().engine_running
        assert second.status().tables
    assert shop.sync().result is RunResult.CAUGHT_UP


@pytest.mark.slow
def test_run_applies_what_lands_until_it_is_stopped(shop):
    stop = threading.Event()
    shop.config = Config(poll_interval_seconds=0.05)
    reports = []

    def serve():
        with shop.mirror() as mirror:
            reports.append(mirror.run(stop))

    engine = threading.Thread(target=serve)
    engine.start()
    orders = shop.orders()
    deadline = threading.Event()
    for number in range(3):
        orders.insert(row(number))
        for _ in range(200):
            if shop.writer.tables() and len(shop.ids()) == number + 1:
                break
            deadline.wait(0.05)
    stop.set()
    engine.join(20)
    assert not engine.is_alive()
    assert shop.ids() == [0, 1, 2]
    assert reports[0].files_applied == 3


def test_a_zone_that_cannot_be_listed_drops_nothing(shop):
    shop.orders().insert(row(1))
    shop.sync()
    script = Script(dict.fromkeys(range(1, 200), Fault.REFUSED))
    assert shop.sync(storage=faulty(LocalStorage(shop.root), script)).result is RunResult.RETRY
    assert shop.ids() == [1]
    assert "ME070" in shop.said()


def test_a_foreign_table_at_our_place_is_left_alone(shop):
    class Taken(MemoryDeltaWriter):
        def snapshot(self, table):
            found = super().snapshot(table)
            return found and type(found)(found.version, found.schema, None, -1)

    shop.orders().insert(row(1))
    shop.sync()
    taken = Taken()
    taken._tables = shop.writer._tables
    shutil.rmtree(shop.root / ENGINE)
    other = Shop(shop.root, taken)
    assert other.sync().result is RunResult.NEEDS_ATTENTION
    assert "ME004" in other.said()
    assert shop.ids() == [1]


def test_the_same_bytes_again_are_reported_but_not_in_another_partition(shop):
    days = shop.publisher.table("Days", keys=["id"], types=TYPES, partitioned=True)
    for day in (1, 2):
        days.insert(row(1), partition=f"day={day}")
    shop.sync()
    assert "ME064" not in shop.said()
    days.insert(row(1), partition="day=1")
    shop.sync()
    assert "ME064" in shop.said()


def test_a_lost_batch_stays_visible_after_the_next_commit(shop):
    orders = shop.orders()
    orders.skip_numbers()
    second = orders.insert(row(2))
    shop.sync()
    orders.insert(row(9), name=second.rpartition("/")[2])
    orders.insert(row(1), name="00000000000000000001.parquet")
    shop.sync()
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert [(found.code, count) for found, count in shop.status().diagnostics] == [("ME025", 1)]


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_moving_place_that_is_no_folder_stops_nothing(shop, kind, tmp_path):
    orders = shop.orders()
    orders.insert(row(1))
    orders.insert(row(2))
    place = shop.publisher.path / "Orders/_FilesReadyToDelete"
    if kind == "link":
        place.symlink_to(tmp_path)
    else:
        place.write_bytes(b"")
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert (shop.publisher.path / "Orders/00000000000000000001.parquet").exists()
    assert {found.code for found, _ in shop.status().diagnostics} == {"ME074" if kind == "link" else "ME021"}
