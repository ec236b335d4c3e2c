"""The zone changes under the engine's eyes: files replaced or still being written, folders made again, ROOT moved."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from quick_folder import quick_folder
from scripted_faults import Acting, Script, faulty
from seed import by_night
from shop import NO_STOP, Shop, name, row

from mirror_engine import RunResult
from mirror_engine.events import FolderMoved, TableDropped
from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.landing_zone.states import CaughtUp, Halted
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.merge.arrow import ArrowWriter

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_pauses")]
NOON = 1_700_000_000 * 10**9


class ReplacedFileZone:
    """Two change files, the first of which another program replaces by one of the same length."""

    def __init__(self, root):
        root.mkdir()
        self.shop = Shop(root, workers=1)
        self.land(1, 2, 3)

    def land(self, *ids):
        self.orders = self.shop.orders()
        self.orders.insert(*map(row, ids[:2]), name=name(1), modified_ns=NOON)
        self.orders.insert(row(ids[2]), name=name(2), modified_ns=NOON)

    @property
    def first(self):
        return self.shop.publisher.path / "Orders" / name(1)

    def other_content(self):
        content, before = content_of(8, 9), self.first.read_bytes()
        assert len(content) == len(before)
        assert content != before
        return content

    def rename_over(self):
        """Another file of the same name, size and time."""
        if self.first.exists():
            self.orders.put(name(1), self.other_content(), modified_ns=NOON)

    def write_in_place(self):
        """The same file with other bytes, of the same size and time."""
        if self.first.exists():
            content = self.other_content()
            with self.first.open("r+b") as file:
                file.write(content)
            os.utime(self.first, ns=(NOON, NOON))

    def recreate(self):
        """The folder again, with other rows in files of the same names, sizes and times."""
        self.shop.publisher.remove("Orders")
        self.land(8, 9, 3)

    def recreate_alike(self):
        """The folder again, with the same content."""
        self.shop.publisher.remove("Orders")
        self.land(1, 2, 3)

    def drop(self):
        """The folder is gone."""
        self.shop.publisher.remove("Orders")

    def sync(self, script):
        with self.shop.engine(storage=faulty(LocalStorage(self.shop.root), script)) as running:
            running.cycle(NO_STOP)


@pytest.mark.parametrize(
    ("act", "outcomes"),
    [
        ("rename_over", [[1, 2, 3], [3, 8, 9]]),
        ("write_in_place", [[1, 2, 3], [3, 8, 9]]),
        ("recreate", [[3, 8, 9]]),
        ("recreate_alike", [[1, 2, 3]]),
        ("drop", [None]),
    ],
)
def test_whatever_happens_at_any_moment_of_a_cycle_rows_are_of_one_file_never_of_two(ram, act, outcomes):
    counting = Script()
    zone = ReplacedFileZone(ram / "counting")
    zone.shop.writer = faulty(zone.shop.writer, counting)
    zone.sync(counting)
    last_look = counting.calls.index("latest_external_change dbo/Orders") - 1  # two calls before, at the first file
    seen = []
    for number in range(1, len(counting.calls) + 1):
        zone = ReplacedFileZone(ram / f"{number}")
        script = Acting(number, getattr(zone, act))
        zone.shop.writer = faulty(zone.shop.writer, script)
        zone.sync(script)
        assert any(zone.shop.sync().result is RunResult.CAUGHT_UP for _ in range(3))
        found = zone.shop.ids() if zone.shop.writer.tables() else None
        assert found in outcomes, counting.calls[number - 1]
        if act == "rename_over" and found == [1, 2, 3]:
            assert number > last_look
            assert "ME026" in {said.code for said, _ in zone.shop.status().diagnostics} or not zone.first.exists()
        seen.append(found)
    assert [outcome for outcome in outcomes if outcome not in seen] == []
    print(f"{act}: {len(seen)} moments")


def test_a_file_still_growing_under_its_final_name_is_never_half_in_the_table(tmp_path):
    shop = Shop(tmp_path)
    orders, other = shop.orders(), shop.orders("Other")
    orders.insert(row(1))
    content = (shop.publisher.path / "Orders" / name(1)).read_bytes()
    orders.remove(name(1))
    path = f"Orders/{name(1)}"
    with shop.engine() as running:
        shop.publisher.write_in_place(path, b"")  # created, and nothing written yet
        for number, end in enumerate(range(0, len(content), len(content) // 7), start=1):
            shop.publisher.write_in_place(path, content[:end])
            other.insert(row(number))
            for _ in range(2):  # the publisher stalls in the middle
                running.cycle(NO_STOP)
            assert isinstance(shop.status().state, Halted)
            assert shop.ids("Other") == list(range(1, number + 1))
        shop.publisher.write_in_place(path, content)
        running.cycle(NO_STOP)
        assert {said.code for said, _ in shop.status().diagnostics} == {"ME023", "ME027"}
        assert "dbo/Orders" not in shop.writer.tables()
        orders.remove(name(1))
        orders.put(name(1), content)
        running.cycle(NO_STOP)
    assert shop.status().state == CaughtUp()
    assert shop.ids() == [1]


@pytest.fixture(params=["disk", "memory"])
def each_disk(request, tmp_path):
    if request.param == "disk":
        yield tmp_path
    else:
        with quick_folder() as folder:
            yield Path(folder)


@pytest.fixture
def elsewhere(each_disk, tmp_path):
    """A folder of another file system, where the machine has two."""
    if each_disk is not tmp_path:
        yield tmp_path
    else:
        with quick_folder() as folder:
            yield Path(folder)


def call(*command):
    subprocess.run(command, check=True)


WAYS = {
    "cp -a": lambda source, target, _: call("cp", "-a", source, target),
    "cp -r": lambda source, target, _: call("cp", "-r", source, target),
    "mv": lambda source, target, _: source.rename(target),
    "mv to another disk": lambda source, _, elsewhere: call("mv", source, elsewhere / "copy"),
    "cp to another disk": lambda source, _, elsewhere: call("cp", "-a", source, elsewhere / "copy"),
}


@pytest.mark.parametrize("ledger", ["with its ledger", "without"])
@pytest.mark.parametrize("way", list(WAYS))
def test_a_root_copied_moved_or_restored_drops_nothing_and_goes_on(each_disk, elsewhere, way, ledger):
    shop = Shop(each_disk / "root")
    for table, strategy in (("Orders", "SequentialFileName"), ("Sales.Log", "LastUpdateTimeFileDetection")):
        folder = shop.orders(table, strategy=strategy)
        for number in (1, 2):
            folder.insert(row(number), name=name(number))
    shop.sync()
    shop.orders("Orders").insert(row(3), name=name(3))
    if ledger == "without":
        shutil.rmtree(shop.root / ENGINE)
    WAYS[way](shop.root, each_disk / "copy", elsewhere)
    root = elsewhere / "copy" if "another disk" in way else each_disk / "copy"
    copy = Shop(root, shop.writer)
    for number in (4, 5):
        assert copy.sync().result is RunResult.CAUGHT_UP
        copy.orders().insert(row(number), name=name(number))
        copy.orders("Sales.Log", strategy="LastUpdateTimeFileDetection").insert(row(number), name=name(number))
    assert copy.sync().result is RunResult.CAUGHT_UP
    assert not [event for event in copy.events if isinstance(event, TableDropped)]
    assert (copy.ids(), copy.ids("Sales.Log")) == ([1, 2, 3, 4, 5], [1, 2, 4, 5])


def test_a_root_moved_while_a_table_is_halted_drops_nothing_once_the_halt_is_over(tmp_path):
    """The table's log was cut off when ROOT was copied (ME081), and is then restored."""
    shop = Shop(tmp_path / "root", ArrowWriter(tmp_path / "root/Tables", tmp_path / "scratch"))
    for number in (1, 2):
        shop.orders(strategy="LastUpdateTimeFileDetection").insert(row(number), name=name(number))
        shop.sync()
    call("cp", "-a", shop.root, tmp_path / "copy")
    copy = Shop(tmp_path / "copy", ArrowWriter(tmp_path / "copy/Tables", tmp_path / "scratch"))
    *_, newest = sorted((copy.root / "Tables/dbo/Orders/_delta_log").glob("*.json"))
    content = newest.read_bytes()
    newest.write_bytes(content[:40])
    for _ in range(2):
        assert copy.sync().result is RunResult.NEEDS_ATTENTION
    assert [event.table.normalized for event in copy.events if isinstance(event, FolderMoved)] == ["Orders"]
    newest.write_bytes(content)
    assert copy.sync().result is RunResult.CAUGHT_UP
    assert not [event for event in copy.events if isinstance(event, TableDropped)]
    assert copy.ids() == [1, 2]


def test_a_root_restored_in_its_own_place_drops_nothing(each_disk):
    shop = Shop(each_disk / "root")
    for number in (1, 2):
        shop.orders().insert(row(number), name=name(number))
    shop.sync()
    call("cp", "-a", shop.root, each_disk / "backup")
    for _ in range(20):  # inodes are handed out again
        shutil.rmtree(shop.root)
        call("cp", "-a", each_disk / "backup", shop.root)
        assert shop.sync().result is RunResult.CAUGHT_UP
    assert not [event for event in shop.events if isinstance(event, TableDropped)]
    assert shop.ids() == [1, 2]


def test_recreated_folder_with_equal_content_is_rebuilt_each_time(each_disk):
    shop = Shop(each_disk / "root")
    content = content_of(1)
    with shop.engine() as running:
        for number in range(by_night(51, 201)):
            shop.publisher.remove("Orders")
            shop.orders().put(name(1), content)
            running.cycle(NO_STOP)
            dropped = [event for event in shop.events if isinstance(event, TableDropped)]
            assert len(dropped) == number
        assert running.report().result is RunResult.CAUGHT_UP
    assert shop.ids() == [1]


@cache
def content_of(*ids):
    """A change file's bytes."""
    with quick_folder() as folder:
        shop = Shop(Path(folder))
        shop.orders().insert(*map(row, ids))
        return (shop.publisher.path / "Orders" / name(1)).read_bytes()


def test_applied_file_written_in_place_is_reported(tmp_path):
    """Its folder's time stays: a scan looks up each file (LZ-3.13, docs/decisions/scans.md)."""
    shop = Shop(tmp_path, cleanup="off")
    shop.orders().insert(row(1), name=name(1))
    folder = shop.publisher.path / "Orders"
    with shop.engine() as running:
        running.cycle(NO_STOP)
        before = folder.stat().st_mtime_ns
        with (folder / name(1)).open("ab") as file:
            file.write(b"more")
        assert folder.stat().st_mtime_ns == before
        running.cycle(NO_STOP)
    assert "ME026" in shop.said()
