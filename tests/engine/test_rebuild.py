"""Rebuild with and without replay: what is moved back, what is lost; a kill in between loses nothing (LZ-7.12)."""

from __future__ import annotations

import shutil
from contextlib import nullcontext, suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
from generated_zones import LOSE_LEDGER, ONCE, Player, stories
from hypothesis import HealthCheck, event, given, settings
from quick_folder import quick_folder
from scripted_faults import Failing, faulty
from shop import TYPES, Shop, name, row

from mirror_engine import Mirror, RunResult
from mirror_engine.engine import segments
from mirror_engine.errors import NoAccess, StorageUnavailable, UnknownTable, UsageError
from mirror_engine.landing_zone.layout import LEDGER
from mirror_engine.landing_zone.names import PROCESSED_FOLDER, READY_TO_DELETE_FOLDER
from mirror_engine.landing_zone.states import Blocked, Halted
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

pytestmark = pytest.mark.usefixtures("one_attempt")
BY_TIME = "LastUpdateTimeFileDetection"


def rebuilt(shop, *tables, parts=None, **options):
    """What a rebuild drops, moves and loses."""
    with shop.mirror(**parts or {}) as mirror:
        done = mirror.rebuild(tables, **options)
    lost = {found.path: found.details for found in done.diagnostics}
    return [each.table for each in done.dropped], done.files_moved_back, lost


@pytest.mark.slow
@pytest.mark.parametrize("ledger", ["kept", "lost"])
def test_rebuild_that_loses_rows_must_be_accepted(shop, ledger):
    """LZ-7.7."""
    shop.apply(1, 2, 3)
    if ledger == "lost":
        shop.lose_state()
    with pytest.raises(UsageError, match=r"nothing was dropped: Orders: 3 rows cannot .* 2 change files moved or del"):
        rebuilt(shop)
    assert shop.ids() == [1, 2, 3]
    assert rebuilt(shop, lose_rows=True) == (
        ["Orders"],
        0,
        {"Orders": {"count": "3", "reason": "2 change files moved or deleted", "table": "Orders"}},
    )
    assert (shop.writer.tables(), "ME069" in shop.said()) == ([], True)
    assert shop.sync().result is RunResult.NEEDS_ATTENTION
    assert isinstance(shop.status().state, Blocked)


@pytest.mark.slow
@pytest.mark.parametrize("ledger", ["kept", "lost"])
@pytest.mark.parametrize("archive", ["ready", "processed"])
def test_replay_moves_archived_files_back(tmp_path, archive, ledger):
    shop = Shop(tmp_path / "shop", cleanup=archive)
    shop.apply(1, 2, 3)
    folder = shop.publisher.path / "Orders"
    archived = folder / {"ready": READY_TO_DELETE_FOLDER, "processed": PROCESSED_FOLDER}[archive]
    times = {path.name: path.stat().st_mtime_ns for path in archived.glob("*.parquet")}
    if ledger == "lost":
        shop.lose_state()
    assert rebuilt(shop, replay=True) == (["Orders"], 2, {})
    assert shop.writer.tables() == []
    assert {path.name: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}.items() >= times.items()
    assert (shop.sync().result, shop.ids()) == (RunResult.CAUGHT_UP, [1, 2, 3])
    assert {path.name for path in archived.glob("*.parquet")} == times.keys()


@pytest.mark.slow
def test_partitions_are_replayed_from_their_archives(shop):
    orders = shop.publisher.table("Orders", keys=["id", "day"], types=TYPES, partitioned=True)
    for number in range(1, 4):
        for day in (1, 2):
            orders.insert(row(10 * day + number), partition=f"day={day}")
        shop.sync()
    shutil.rmtree(shop.publisher.path / "Orders/day=1")  # its newest file with it
    with pytest.raises(UsageError, match="1 row cannot be rebuilt: 1 change file deleted"):
        rebuilt(shop, replay=True)
    assert rebuilt(shop, replay=True, lose_rows=True)[1] == 4
    shop.sync()
    assert shop.ids() == [11, 12, 21, 22, 23]


@pytest.mark.slow
def test_one_table_is_rebuilt_and_the_others_stay(shop):
    shop.apply(1, 2, 3)
    shop.orders("Other").insert(row(9))
    shop.sync()
    (shop.publisher.path / "Unconfigured").mkdir()
    assert rebuilt(shop, "Unconfigured") == ([], 0, {})
    assert rebuilt(shop, "orders", replay=True)[0] == ["Orders"]
    assert shop.writer.tables() == ["dbo/Other"]
    with pytest.raises(UnknownTable, match="Orderz"):
        rebuilt(shop, "Orderz")


@pytest.mark.slow
def test_after_a_rebuild_without_replay_the_archive_is_replayed(shop):
    shop.apply(1, 2, 3)
    rebuilt(shop, lose_rows=True)
    shop.sync()
    assert rebuilt(shop, replay=True) == ([], 2, {})
    shop.sync()
    assert shop.ids() == [1, 2, 3]


@pytest.mark.slow
def test_archived_files_of_an_earlier_life_stay_where_they_are(shop):
    shop.apply(1, 2, 3)
    rebuilt(shop, lose_rows=True)
    (shop.publisher.path / "Orders" / name(3)).unlink()
    shop.orders().insert(row(7), name=name(1))
    shop.sync()
    assert rebuilt(shop, replay=True) == (["Orders"], 0, {})
    shop.sync()
    assert shop.ids() == [7]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        ("overwritten", "1 change file overwritten, or no longer read"),
        ("deleted", "1 change file deleted"),
        ("without metadata", "no usable `_metadata.json`"),
        ("folder deleted", "3 change files deleted"),
    ],
)
def test_replay_without_all_files_is_refused(shop, harm, reason):
    shop.apply(1, 2, 3)
    folder = shop.publisher.path / "Orders"
    match harm:
        case "overwritten":
            (folder / name(3)).write_bytes(b"another")
        case "deleted":
            shop.lose(1)
        case "without metadata":
            (folder / "_metadata.json").unlink()
        case "folder deleted":
            shutil.rmtree(folder)
    before = sorted(folder.rglob("*"))
    with pytest.raises(UsageError, match=reason):
        rebuilt(shop, replay=True)
    assert (shop.ids(), sorted(folder.rglob("*"))) == ([1, 2, 3], before)


@pytest.mark.slow
@pytest.mark.parametrize("copy", ["anew", "with its time", "alone"])
def test_newer_file_is_not_the_applied_one_without_the_ledger(shop, copy):
    shop.apply(1, 2, 3)
    if copy == "alone":
        shop.lose(1)
    shop.orders().insert(row(9), name=name(1), modified_ns=10**18 if copy == "with its time" else None)
    shop.lose_state()
    with pytest.raises(UsageError, match="1 change file overwritten"):
        rebuilt(shop, replay=True)
    assert shop.ids() == [1, 2, 3]


@pytest.mark.slow
def test_files_that_no_segment_names_any_longer_are_lost(shop, monkeypatch):
    monkeypatch.setattr(segments, "COMMITS_PER_SEGMENT", 1)
    monkeypatch.setattr(segments, "KEPT_SECONDS", 0)
    shop.apply(1, 2, 3, 4, strategy=BY_TIME)
    shop.lose_state()
    with pytest.raises(UsageError, match="cannot be rebuilt: its Delta log no longer names all its change files"):
        rebuilt(shop, replay=True)
    assert shop.ids() == [1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("ledger", ["kept", "lost"])
@pytest.mark.parametrize("strategy", ["SequentialFileName", BY_TIME])
def test_applied_file_that_is_back_is_archived_again(tmp_path, strategy, ledger):
    shop = Shop(tmp_path / "shop", strict=True)
    orders = shop.orders(strategy=strategy)
    for number in (1, 2, 3):
        orders.insert(row(number), name=name(number), modified_ns=10**18 + number)
        shop.sync()
    folder = shop.publisher.path / "Orders"
    (folder / READY_TO_DELETE_FOLDER / name(1)).rename(folder / name(1))
    if ledger == "lost":
        shop.lose_state()
    assert (shop.sync().result, shop.said(), shop.ids()) == (RunResult.CAUGHT_UP, [], [1, 2, 3])
    assert [path.name for path in folder.glob("*.parquet")] == [name(3)]


@pytest.mark.slow
def test_files_moved_back_are_durable_before_the_drop(shop, monkeypatch):
    shop.apply(1, 2, 3)
    happened = []
    monkeypatch.setattr("mirror_engine.engine.rebuild.sync_folder", lambda folder: happened.append(folder.name))
    monkeypatch.setattr(shop.writer, "drop", lambda table, _: happened.append(table))
    rebuilt(shop, replay=True)
    assert happened == ["Orders", "dbo/Orders"]


def test_an_applied_file_without_rows_that_grew_since_is_no_longer_the_same(shop):
    orders = shop.orders()
    orders.insert(row(1))
    orders.insert()
    shop.sync()
    orders.insert(row(2), name=name(2))
    with pytest.raises(UsageError, match="0 rows cannot be rebuilt: 1 change file overwritten, or no longer read"):
        rebuilt(shop, replay=True)


@pytest.mark.slow
@pytest.mark.parametrize("is_moved_by_copy", [False, True])
def test_a_late_file_would_be_read_in_another_order(shop, is_moved_by_copy):
    orders = shop.orders(strategy=BY_TIME)
    for number, time in enumerate((1, 2, 3) if is_moved_by_copy else (3, 1, 2), 1):
        orders.upsert({"id": 1, "city": str(number)}, name=f"{number}.parquet", modified_ns=10**18 + time)
        shop.sync()
    with pytest.raises(UsageError, match="3 rows cannot be rebuilt: its files would be read in another order"):
        rebuilt(shop, parts={"storage": shop.without_folders()} if is_moved_by_copy else {}, replay=True)


@pytest.mark.slow
def test_copied_root_is_replayed(shop, tmp_path):
    shop.apply(1, 2, 3)
    copy = Shop(tmp_path / "copy", shop.writer)
    shutil.copytree(shop.root, copy.root, dirs_exist_ok=True)
    assert rebuilt(copy, replay=True) == (["Orders"], 2, {})


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["moving", "dropping", "forgetting"])
def test_killed_rebuild_loses_nothing_and_is_repeatable(shop, monkeypatch, killed):
    shop.apply(1, 2, 3)
    parts = {}
    match killed:
        case "moving":
            killed_at_second = Failing(f"move .*{name(2)}", KeyboardInterrupt)
            parts = {"storage": faulty(LocalStorage(shop.root), killed_at_second)}
        case "dropping":
            monkeypatch.setattr(shop.writer, "drop", Mock(side_effect=KeyboardInterrupt))
        case "forgetting":
            monkeypatch.setattr("mirror_engine.engine.ledger.Ledger.forget", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        rebuilt(shop, replay=True, parts=parts)
    monkeypatch.undo()
    twin = Shop(shop.root, shop.writer)
    if killed != "forgetting":
        assert (twin.sync().result, twin.ids()) == (RunResult.CAUGHT_UP, [1, 2, 3])  # as if nothing had been
    rebuilt(twin, replay=True)
    assert (twin.sync().result, twin.ids()) == (RunResult.CAUGHT_UP, [1, 2, 3])


@pytest.mark.slow
def test_once_root_is_lost_a_rebuild_moves_no_further_file_back(shop, monkeypatch):
    shop.apply(1, 2, 3, 4)
    looks = [None]
    monkeypatch.setattr("mirror_engine.mirror.lock_root", lambda *_: nullcontext(looks.pop))
    with pytest.raises(IndexError):
        rebuilt(shop, replay=True)
    assert sorted(path.name for path in (shop.publisher.path / "Orders").glob("*.parquet")) == [name(1), name(4)]


@pytest.mark.slow
@pytest.mark.parametrize("error", [NoAccess, StorageUnavailable])
def test_rebuild_of_an_unlisted_folder_drops_nothing(shop, error):
    shop.apply(1, 2, 3)
    storage = faulty(LocalStorage(shop.root), Failing("list .*Orders$", error))
    with pytest.raises(StorageUnavailable, match="Orders: cannot be listed") as problem:
        rebuilt(shop, parts={"storage": storage}, lose_rows=True)
    assert type(problem.value) is error
    assert shop.ids() == [1, 2, 3]


def tables_of(mirror, writer):
    """Rows of the tables that are not halted, which a rebuild may end; columns may come in another order."""
    halted = {table.delta_folder for table in mirror._status().tables if isinstance(table.state, Halted)}
    return {
        folder: sorted(repr(sorted(row.items())) for row in writer.rows(folder).to_pylist())
        for folder in {*writer.tables()} - halted
    }


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(stories())
def test_a_replay_of_a_generated_zone_ends_in_the_same_rows_or_is_refused(story):
    with quick_folder() as folder:
        root, writer = Path(folder), MemoryDeltaWriter()
        player, mirror = Player(LandingZoneWriter(root)), Mirror(root, writer=writer)
        for act in story:
            if act is ONCE:
                mirror.sync()
            elif act is LOSE_LEDGER:
                for file in (root / LEDGER).parent.glob(f"{Path(LEDGER).name}*"):
                    file.unlink()
            else:
                act(player)
        before, dropped = tables_of(mirror, writer), []
        with suppress(UsageError):
            dropped = mirror.rebuild(replay=True).dropped
        event(f"{len(dropped)} of {len(before)} tables replayed")
        mirror.sync()
        after = tables_of(mirror, writer)
        assert {folder: after.get(folder) for folder in before} == before
