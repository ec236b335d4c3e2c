"""A table folder that is not there, but may only be hidden, drops nothing and is reported (LZ-7.2, ME070)."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager

import pytest
from scripted_faults import Failing, faulty
from shop import NO_STOP, Shop, cycles, name, row

from mirror_engine import RunResult
from mirror_engine.engine.root_identity import DeltaPlaces
from mirror_engine.errors import StorageUnavailable
from mirror_engine.events import TableDropped
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.states import Deleted, Unlisted
from mirror_engine.monitoring.wait_conditions import tables_not_caught_up
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.merge.arrow import ArrowWriter

pytestmark = [pytest.mark.usefixtures("one_attempt"), pytest.mark.slow]
TABLES = ("Orders", "Sales.Items")
BY_TIME = "LastUpdateTimeFileDetection"


@contextmanager
def moved(shop, path):
    """A folder of ROOT is elsewhere meanwhile."""
    away = shop.root.with_name("away")
    (shop.root / path).rename(away)
    try:
        yield away
    finally:
        if (shop.root / path).is_dir():  # made again meanwhile
            shutil.rmtree(shop.root / path)
        away.rename(shop.root / path)


@contextmanager
def linked(shop, path, to="away"):
    with moved(shop, path) as away:
        (shop.root / path).symlink_to(away.with_name(to))
        yield
        (shop.root / path).unlink()


def dangling(shop, path):
    return linked(shop, path, to="nowhere")


@contextmanager
def replaced_by_file(shop, path):
    with moved(shop, path):
        (shop.root / path).write_bytes(b"")
        yield
        (shop.root / path).unlink()


@contextmanager
def replaced_by_empty_folder(shop, path):
    with moved(shop, path):
        (shop.root / path).mkdir()
        yield


@contextmanager
def replaced_by_other_zone(shop, path):
    with replaced_by_empty_folder(shop, path):
        shop.orders("Other").insert(row(1))
        yield


@contextmanager
def in_other_case(shop, path):
    place = shop.root / path
    other = place.with_name(place.name.swapcase())
    place.rename(other)
    yield
    other.rename(place)


@contextmanager
def mounted(folder, place):
    done = subprocess.run(["mount", "--bind", folder, place], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("nothing can be mounted here: that takes root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def mounted_over(shop, path):
    """An empty folder of the same file system is mounted at a folder."""
    empty = shop.root.with_name("empty")
    empty.mkdir()
    return mounted(empty, shop.root / path)


HIDINGS = [
    (linked, f"{ZONE}/Orders", ["Orders"], "Orders: is a symbolic link"),
    (replaced_by_file, f"{ZONE}/Orders", ["Orders"], "Orders: is a file"),
    (in_other_case, f"{ZONE}/Orders", ["Orders"], "Orders: was renamed to `oRDERS`"),
    (mounted_over, f"{ZONE}/Orders", ["Orders"], "Orders: has another file system mounted at it"),
    (linked, f"{ZONE}/Sales.schema", ["Sales.Items"], "Sales.schema: is a symbolic link"),
    (replaced_by_file, f"{ZONE}/Sales.schema", ["Sales.Items"], "Sales.schema: is a file"),
    (in_other_case, f"{ZONE}/Sales.schema", ["Sales.Items"], "Sales.schema/Items: was renamed to `sALES.SCHEMA`"),
    (mounted_over, f"{ZONE}/Sales.schema", ["Sales.Items"], "Sales.schema: has another file system mounted at it"),
    (linked, f"{ZONE}/Sales.schema/Items", ["Sales.Items"], "Sales.schema/Items: is a symbolic link"),
    (linked, ZONE, TABLES, f"`{ZONE}` is a symbolic link"),
    (linked, "Files", TABLES, "`Files` is a symbolic link"),
    (replaced_by_file, ZONE, TABLES, f"`{ZONE}` is a file"),
    (in_other_case, ZONE, TABLES, f"`{ZONE}` is missing, but `Files/lANDINGzONE` is there"),
    (moved, ZONE, TABLES, f"`{ZONE}` is missing"),
    (moved, "Files", TABLES, f"`{ZONE}` is missing"),
    (replaced_by_empty_folder, ZONE, TABLES, f"`{ZONE}` is another folder than before, and empty"),
    (replaced_by_other_zone, ZONE, TABLES, f"`{ZONE}` is another folder than before"),
    (mounted_over, ZONE, TABLES, f"`{ZONE}` is another folder than before, and empty"),
]


@pytest.fixture
def shop_of_tables(tmp_path):
    shop = Shop(tmp_path / "shop")
    for table in TABLES:
        shop.land(1, 2, table=table)
    shop.sync()
    shop.events.clear()
    return shop


def states(shop):
    with shop.mirror() as mirror:
        status = mirror._status()
    return {table.name.normalized: table.state for table in status.tables}


def dropped(shop):
    return sorted(event.table.normalized for event in shop.heard(TableDropped))


@pytest.mark.parametrize(("hide", "path", "tables", "found"), HIDINGS)
def test_hidden_folder_drops_nothing_and_goes_on_once_it_is_back(shop_of_tables, hide, path, tables, found):
    with hide(shop_of_tables, path):
        for _ in range(3):
            report = shop_of_tables.sync()
            assert report.result is RunResult.RETRY
            assert found in report.last_failure.message
            assert report.last_failure.help
        assert {table for table, state in states(shop_of_tables).items() if isinstance(state, Unlisted)} == {*tables}
        with shop_of_tables.mirror() as mirror:
            status = mirror._status()
            unmet = {each.table: each for each in tables_not_caught_up(status, (), "dbo")}
            assert all(found.partition(": ")[2] in unmet[table].message for table in tables)
            assert all(unmet[table].state == "unlisted" and unmet[table].help for table in tables)
            assert all(isinstance(state, Unlisted) for state in map(states(shop_of_tables).get, tables))
        assert found in " ".join(each.full_message for each in status.unlisted)
    assert not {*TABLES} & {*dropped(shop_of_tables)}
    for table in TABLES:
        shop_of_tables.land(3, table=table)
    assert shop_of_tables.sync().result is RunResult.CAUGHT_UP
    assert [shop_of_tables.ids(table) for table in TABLES] == [[1, 2, 3]] * 2
    assert not {*TABLES} & {*dropped(shop_of_tables)}


@pytest.mark.parametrize(("hide", "path", "tables", "found"), HIDINGS[:1] + HIDINGS[13:14] + HIDINGS[15:17])
def test_hidden_folder_drops_nothing_without_a_ledger(shop_of_tables, hide, path, tables, found):
    with hide(shop_of_tables, path):
        shop_of_tables.lose_state()
        report = shop_of_tables.sync()
        assert (report.result, found in report.last_failure.message) == (RunResult.RETRY, True)
        assert {each.table for each in report.tables if each.state == "unlisted"} == {*tables}
    assert shop_of_tables.sync().result is RunResult.CAUGHT_UP
    assert not {*TABLES} & {*dropped(shop_of_tables)}


def test_unmounted_table_folder_drops_nothing(tmp_path):
    shop = Shop(tmp_path / "shop")
    (shop.publisher.path / "Orders").mkdir(parents=True)
    with mounted_over(shop, f"{ZONE}/Orders"):
        shop.land(1, 2)
        assert shop.sync().result is RunResult.CAUGHT_UP
    report = shop.sync()
    assert (report.result, report.last_failure.message) == (
        RunResult.RETRY,
        "Orders: has lost its mount; no table is dropped",
    )
    assert shop.ids() == [1, 2]


def copied_elsewhere(shop, path, change=lambda _: None):
    """A copy of a folder is mounted in its place: as a share that came back with other numbers."""
    copy = shop.root.with_name("copy")
    shutil.copytree(shop.root / path, copy)
    change(copy)
    return mounted(copy, shop.root / path)


def recorded(shop):
    with shop.mirror() as mirror:
        return [(each.change, each.table) for each in mirror.history().changes]


@pytest.mark.parametrize(
    ("path", "table"),
    [
        (f"{ZONE}/Orders", "Orders"),
        (f"{ZONE}/Sales.schema", "Sales.Items"),
        (f"{ZONE}/Sales.schema/Items", "Sales.Items"),
    ],
)
def test_folder_mounted_again_with_the_same_content_goes_on(shop_of_tables, path, table):
    with copied_elsewhere(shop_of_tables, path):
        report = shop_of_tables.sync()
        assert report.result is RunResult.CAUGHT_UP
        assert [(each.change, each.table) for each in report.changes] == [("folder_moved", table)]
        assert ("folder_moved", table) in recorded(shop_of_tables)
        shop_of_tables.land(3, table=table)
        report = shop_of_tables.sync()
        assert (report.result, shop_of_tables.ids(table)) == (RunResult.CAUGHT_UP, [1, 2, 3])
        assert "folder_moved" not in {each.change for each in report.changes}
    assert dropped(shop_of_tables) == []


def test_folder_mounted_again_after_a_late_file_goes_on(shop_of_tables):
    """ME029: the file that was applied last is not the newest, so it was archived (LZ-8.1)."""
    table, folder = shop_of_tables.orders("ByTime", strategy=BY_TIME), shop_of_tables.publisher.path / "ByTime"
    for number, seconds in ((1, 2_000_000_000), (2, 1_000_000_000)):
        file = folder / table.insert(row(number), name=f"{number}.parquet").rpartition("/")[2]
        os.utime(file, (seconds, seconds))
        shop_of_tables.sync()
    assert [each.name for each in folder.glob("*.parquet")] == ["1.parquet"]
    with copied_elsewhere(shop_of_tables, f"{ZONE}/ByTime"):
        report = shop_of_tables.sync()
        assert report.result is RunResult.CAUGHT_UP
        assert [each.change for each in report.changes] == ["folder_moved"]


def older(copy):
    """As before the file that was applied last: a backup."""
    for file in copy.rglob(name(2)):
        file.unlink()
    for archived in copy.rglob(name(1)):
        archived.rename(archived.parent.with_name(archived.name))


def other_bytes(copy):
    (file,) = copy.rglob(name(2))
    content = bytearray(file.read_bytes())
    content[7] ^= 1
    file.write_bytes(content)


def other_size(copy):
    (file,) = copy.rglob(name(2))
    file.write_bytes(file.read_bytes() + b"x")


def emptied(copy):
    for file in copy.rglob("*.parquet"):
        file.unlink()


@pytest.mark.parametrize("change", [older, other_bytes, other_size, emptied])
@pytest.mark.parametrize("path", [f"{ZONE}/Orders", f"{ZONE}/Sales.schema"])
def test_folder_mounted_again_with_other_content_waits(shop_of_tables, path, change):
    table = "Orders" if "Orders" in path else "Sales.Items"
    with copied_elsewhere(shop_of_tables, path, change):
        for _ in range(2):
            report = shop_of_tables.sync()
            assert report.result is RunResult.RETRY
            assert "has another file system mounted at it" in report.last_failure.message
        assert isinstance(states(shop_of_tables)[table], Unlisted)
    assert shop_of_tables.sync().result is RunResult.CAUGHT_UP
    assert (shop_of_tables.ids(table), dropped(shop_of_tables)) == ([1, 2], [])


def test_mount_that_stays_drops_what_is_deleted_in_it(tmp_path):
    shop = Shop(tmp_path / "shop")
    (shop.publisher.path / "Sales.schema").mkdir(parents=True)
    with mounted_over(shop, f"{ZONE}/Sales.schema"):
        for table in ("Sales.Items", "Sales.Orders"):
            shop.orders(table).insert(row(1))
        shop.sync()
        shop.publisher.remove("Sales.schema/Items")
        shop.publisher.remove("Sales.schema/Orders")
        shop.orders("Sales.Orders").insert(row(2))
        assert shop.sync().result is RunResult.CAUGHT_UP
        assert (dropped(shop), shop.ids("Sales.Orders")) == (["Sales.Items", "Sales.Orders"], [2])


def test_all_folders_deleted_drop_all_tables(shop_of_tables):
    """The zone itself is the known one: that is no lost mount."""
    for folder in ("Orders", "Sales.schema"):
        shutil.rmtree(shop_of_tables.publisher.path / folder)
    assert {type(state) for state in states(shop_of_tables).values()} == {Deleted}
    assert shop_of_tables.sync().result is RunResult.CAUGHT_UP
    assert dropped(shop_of_tables) == [*TABLES]
    assert shop_of_tables.writer.tables() == []


def test_deleted_folder_has_not_caught_up_until_its_table_is_dropped(tmp_path):
    shop = Shop(tmp_path, drop_delay_seconds=60.0)
    shop.orders().insert(row(1))
    shop.sync()
    shop.publisher.remove("Orders")
    for _ in range(2):
        state = shop.status().state
        assert isinstance(state, Deleted)
        assert state.diagnostic.message == "folder was deleted; its Delta table will be dropped"
        with shop.mirror() as mirror:
            (unmet,) = tables_not_caught_up(mirror._status(), (), "dbo")
            assert "will be dropped" in unmet.message
        shop.sync()
    shop.now += 60
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert dropped(shop) == ["Orders"]


def test_table_in_another_zone_is_given_up_by_a_rebuild(shop_of_tables):
    with replaced_by_empty_folder(shop_of_tables, ZONE):
        shop_of_tables.sync()
        with shop_of_tables.mirror() as mirror:
            mirror.rebuild(lose_rows=True)
        assert shop_of_tables.sync().result is RunResult.CAUGHT_UP
        assert shop_of_tables.writer.tables() == []
        shop_of_tables.orders().insert(row(9))
        assert shop_of_tables.sync().result is RunResult.CAUGHT_UP
        assert shop_of_tables.ids() == [9]


def test_zone_made_again_rebuilds_what_is_there_and_keeps_the_rest(shop_of_tables):
    with replaced_by_empty_folder(shop_of_tables, ZONE):
        shop_of_tables.orders().insert(row(9))
        for _ in range(2):
            report = shop_of_tables.sync()
            assert report.result is RunResult.RETRY
        assert (shop_of_tables.ids(), shop_of_tables.ids("Sales.Items")) == ([9], [1, 2])


@pytest.mark.parametrize("call", [f"list {ZONE}/Orders$", f"list {ZONE}/Sales.schema$"])
def test_unreadable_folder_is_no_table_that_has_caught_up(shop_of_tables, call):
    storage = faulty(LocalStorage(shop_of_tables.root), Failing(call))
    report = shop_of_tables.sync(storage=storage)
    unlisted = [table for table in report.tables if table.state == "unlisted"]
    assert (report.result, len(unlisted), len(report.tables)) == (RunResult.RETRY, 1, 2)
    assert "cannot be listed or read" in report.last_failure.message


@pytest.fixture
def log_shop(tmp_path):
    """Two tables on disk, ordered by time; the applied files are archived but for the last ones."""
    root = tmp_path / "shop"
    shop = Shop(root, ArrowWriter(root / "Tables", root / "scratch"))
    for number in (1, 2):
        land(shop, number)
        assert shop.sync().result is RunResult.CAUGHT_UP
    shop.events.clear()
    return shop


def land(shop, number):
    for table in TABLES:
        shop.land(number, table=table, strategy=BY_TIME)


@pytest.mark.parametrize(
    ("hide", "path", "tables"),
    [
        (moved, "Tables/Sales", ["Sales.Items"]),
        (replaced_by_empty_folder, "Tables/Sales", ["Sales.Items"]),
        (mounted_over, "Tables/Sales", ["Sales.Items"]),
        (dangling, "Tables/Sales", ["Sales.Items"]),
        (replaced_by_file, "Tables/Sales", ["Sales.Items"]),
        (moved, "Tables/dbo", ["Orders"]),
    ],
)
def test_delta_tables_of_a_schema_hidden_with_its_folder_lose_no_row(log_shop, hide, path, tables):
    shop, others = log_shop, [table for table in TABLES if table not in tables]
    with hide(shop, path):
        land(shop, 3)
        for _ in range(2):
            report = shop.sync()
            assert report.result is RunResult.RETRY
            assert f"`{path}` is" in report.last_failure.message
            waiting = {each.table for each in report.tables if each.state == "unlisted"}
            assert waiting == {*tables}
        with shop.mirror() as mirror:
            assert {each.place for each in mirror._status().unlisted} == {path}
        assert [shop.ids(table) for table in others] == [[1, 2, 3]] * len(others)
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert ([shop.ids(table) for table in TABLES], dropped(shop)) == ([[1, 2, 3]] * 2, [])


@pytest.mark.parametrize("hide", [dangling, replaced_by_file])
def test_tables_folder_that_is_no_folder_is_named(log_shop, hide):
    with (
        hide(log_shop, "Tables"),
        pytest.raises(StorageUnavailable, match="Tables: is not a folder, but a file or a broken link"),
    ):
        log_shop.sync()
    assert log_shop.sync().result is RunResult.CAUGHT_UP
    assert dropped(log_shop) == []


@pytest.mark.parametrize(
    ("hide", "path"),
    [
        *((hide, "Tables/Sales") for hide in (moved, replaced_by_empty_folder, mounted_over, dangling)),
        (moved, "Tables"),
    ],
)
@pytest.mark.parametrize("idle", [[], [None], [frozenset()]], ids=["busy", "idle", "not listed"])
def test_delta_tables_hidden_under_a_running_engine_lose_no_row(log_shop, hide, path, idle):
    """The substitute is not taken for the known folder in a cycle that has nothing to do."""
    shop = log_shop
    with shop.engine() as running:
        cycles(running, 2)
        with hide(shop, path):
            for only in idle:
                running.cycle(NO_STOP, only=only)
            land(shop, 3)
            for _ in range(2):
                running.cycle(NO_STOP)
                assert f"`{path}` is" in running.last.failures[None].message
        cycles(running, 2)
    assert ([shop.ids(table) for table in TABLES], dropped(shop)) == ([[1, 2, 3]] * 2, [])


def test_nothing_new_is_made_in_a_substitute_of_a_schema_folder(log_shop):
    shop = log_shop
    with replaced_by_empty_folder(shop, "Tables/Sales"):
        shop.orders("Sales.New").insert(row(1))
        report = shop.sync()
        waiting = {each.table for each in report.tables if each.state == "unlisted"}
        assert waiting == {"Sales.Items", "Sales.New"}
        assert not [*(shop.root / "Tables/Sales").iterdir()]
    assert shop.sync().result is RunResult.CAUGHT_UP


@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("path", ["Tables", "Tables/dbo", "Tables/dbo/Orders"])
def test_delta_tables_behind_a_link_to_a_lost_disk_lose_no_row(log_shop, path, is_running):
    """The link leads to the mount point, which is another folder, and empty."""
    shop, disk, place = log_shop, log_shop.root.with_name("disk"), log_shop.root / path
    place.rename(disk)
    place.symlink_to(disk)
    assert shop.sync().result is RunResult.CAUGHT_UP  # it is known from here on
    with shop.engine() as running:
        running.cycle(NO_STOP)
        disk.rename(disk.with_name("away"))
        disk.mkdir()  # the mount point
        land(shop, 3)
        cycles(running, 3 if is_running else 0)
    if not is_running:
        report = shop.sync()
        assert f"`{path}` is another folder" in report.last_failure.message
    assert not [*disk.iterdir()]
    disk.rmdir()
    disk.with_name("away").rename(disk)
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert (shop.ids(), shop.ids("Sales.Items"), dropped(shop)) == ([1, 2, 3], [1, 2, 3], [])


@pytest.mark.parametrize("hide", [moved, replaced_by_empty_folder, mounted_over])
def test_delta_tables_hidden_with_their_folder_lose_no_row(log_shop, hide):
    shop = log_shop
    with hide(shop, "Tables"):
        assert {type(state) for state in states(shop).values()} == {Unlisted}
        for number in (3, 4):
            land(shop, number)
            report = shop.sync()
            assert (report.result, report.commits) == (RunResult.RETRY, 0)
            assert "`Tables` is another folder than before" in report.last_failure.message
            assert "mirror-engine rebuild --replay" in report.last_failure.help
        shop.orders("New").insert(row(1))  # a substitute gets no new table, either
        report = shop.sync()
        assert {table.state for table in report.tables} == {"unlisted"}
        assert not [path for path in (shop.root / "Tables").rglob("*") if path.is_file()]
        shop.now += 30 * 86_400.0
        shop.sync()  # and no archived file is deleted
        archive = shop.publisher.path / "Orders/_FilesReadyToDelete"
        assert [each.name for each in archive.glob("*.parquet")] == [name(1)]
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert [shop.ids(table) for table in TABLES] == [[1, 2, 3, 4]] * 2
    assert dropped(shop) == []


@pytest.mark.parametrize("replay", [True, False])
@pytest.mark.parametrize(("path", "tables"), [("Tables", TABLES), ("Tables/Sales", ["Sales.Items"])])
def test_delta_tables_that_are_gone_for_good_are_rebuilt(log_shop, path, tables, replay):
    shop = log_shop
    shutil.rmtree(shop.root / path)
    assert shop.sync().result is RunResult.RETRY
    with shop.mirror() as mirror:
        mirror.rebuild(tables, replay=replay, lose_rows=not replay)
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert {table: shop.ids(table) for table in TABLES} == {
        table: [1, 2] if replay or table not in tables else [2] for table in TABLES
    }


def test_delta_table_removed_from_the_known_folder_is_read_again(log_shop):
    shutil.rmtree(log_shop.root / "Tables/dbo/Orders")
    assert log_shop.sync().result is RunResult.CAUGHT_UP
    assert (dropped(log_shop), log_shop.ids(), log_shop.ids("Sales.Items")) == (["Orders"], [2], [1, 2])


def test_store_without_folders_cannot_detect_a_hidden_table(shop_of_tables):
    store = Shop(shop_of_tables.root.with_name("store"))
    store.orders().insert(row(1))
    store.sync(storage=store.without_folders())
    store.writer.drop("dbo/Orders")
    assert store.sync(storage=store.without_folders()).result is RunResult.CAUGHT_UP
    assert dropped(store) == ["Orders"]


def test_place_that_is_not_the_known_one_is_not_noted(log_shop):
    with log_shop.engine() as running, moved(log_shop, "Tables/Sales"):
        DeltaPlaces(running.context).note()
        assert DeltaPlaces(running.context).hidden("Sales/Items") == "Sales"
