"""The zone changes under the engine's eyes: ROOT copied, moved or restored, files written in place."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from quick_folder import quick_folder
from shop import NO_STOP, Shop, name

from mirror_engine import RunResult
from mirror_engine.events import FolderMoved, TableDropped
from mirror_engine.tables.merge.arrow import ArrowWriter

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_pauses")]
BY_TIME = "LastUpdateTimeFileDetection"


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
def test_copied_or_moved_root_drops_nothing(each_disk, elsewhere, way, ledger):
    shop = Shop(each_disk / "root")
    shop.land(1, 2)
    shop.land(1, 2, table="Sales.Log", strategy=BY_TIME)
    shop.sync()
    shop.land(3)
    if ledger == "without":
        shop.lose_state()
    WAYS[way](shop.root, each_disk / "copy", elsewhere)
    root = elsewhere / "copy" if "another disk" in way else each_disk / "copy"
    copy = Shop(root, shop.writer)
    for number in (4, 5):
        assert copy.sync().result is RunResult.CAUGHT_UP
        copy.land(number)
        copy.land(number, table="Sales.Log", strategy=BY_TIME)
    assert copy.sync().result is RunResult.CAUGHT_UP
    assert not copy.heard(TableDropped)
    assert (copy.ids(), copy.ids("Sales.Log")) == ([1, 2, 3, 4, 5], [1, 2, 4, 5])


def test_root_moved_during_a_halt_drops_nothing(tmp_path):
    """The table's log was cut off when ROOT was copied (ME081), and is then restored."""
    shop = Shop(tmp_path / "root", ArrowWriter(tmp_path / "root/Tables", tmp_path / "scratch"))
    shop.apply(1, 2, strategy=BY_TIME)
    call("cp", "-a", shop.root, tmp_path / "copy")
    copy = Shop(tmp_path / "copy", ArrowWriter(tmp_path / "copy/Tables", tmp_path / "scratch"))
    *_, newest = sorted((copy.root / "Tables/dbo/Orders/_delta_log").glob("*.json"))
    content = newest.read_bytes()
    newest.write_bytes(content[:40])
    for _ in range(2):
        assert copy.sync().result is RunResult.NEEDS_ATTENTION
    assert [event.table.normalized for event in copy.heard(FolderMoved)] == ["Orders"]
    newest.write_bytes(content)
    assert copy.sync().result is RunResult.CAUGHT_UP
    assert not copy.heard(TableDropped)
    assert copy.ids() == [1, 2]


def test_restored_root_drops_nothing(each_disk):
    shop = Shop(each_disk / "root")
    shop.land(1, 2)
    shop.sync()
    call("cp", "-a", shop.root, each_disk / "backup")
    for _ in range(20):  # inodes are handed out again
        shutil.rmtree(shop.root)
        call("cp", "-a", each_disk / "backup", shop.root)
        assert shop.sync().result is RunResult.CAUGHT_UP
    assert not shop.heard(TableDropped)
    assert shop.ids() == [1, 2]


def test_applied_file_written_in_place_is_reported(tmp_path):
    """Its folder's time stays: a scan looks up each file (LZ-3.13, docs/decisions/scans.md)."""
    shop = Shop(tmp_path, cleanup="off")
    shop.land(1)
    folder = shop.publisher.path / "Orders"
    with shop.engine() as running:
        running.cycle(NO_STOP)
        before = folder.stat().st_mtime_ns
        with (folder / name(1)).open("ab") as file:
            file.write(b"more")
        assert folder.stat().st_mtime_ns == before
        running.cycle(NO_STOP)
    assert "ME026" in shop.said()
