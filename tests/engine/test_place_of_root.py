"""An engine writes nothing at a path that its ROOT has left, nor in a folder that is no ROOT."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from shop import NO_STOP, Shop, cycles, name, row

from mirror_engine import Config, Mirror, RunResult
from mirror_engine.cli.main import main
from mirror_engine.errors import StorageUnavailable, UsageError
from mirror_engine.landing_zone.layout import ENGINE, ZONE
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter

pytestmark = [pytest.mark.usefixtures("one_attempt"), pytest.mark.slow]


@pytest.mark.parametrize("is_pending", [False, True])
def test_moved_root_gets_no_write_at_its_old_path(tmp_path, is_pending):
    shop = Shop(tmp_path / "shop")
    shop.land(1)
    with shop.engine() as running:
        running.cycle(NO_STOP)
        if is_pending:
            shop.land(2)
        moved = shop.root.rename(tmp_path / "new")
        cycles(running, 2)
        running.finish()
        last = running.last
        assert (last.run_result, "was moved away" in last.failures[None].message) == (RunResult.RETRY, True)
        assert not shop.root.exists()
        moved.rename(shop.root)
        running.cycle(NO_STOP)
        assert running.last.run_result is RunResult.CAUGHT_UP
    assert shop.ids() == [1, 2][: 1 + is_pending]


def test_stopped_engine_whose_root_was_moved_leaves_no_ghost(tmp_path):
    shop, stop = Shop(tmp_path / "shop"), threading.Event()
    shop.orders().insert(row(1))
    with shop.mirror() as mirror:
        thread = threading.Thread(target=mirror.run, args=(stop,))
        thread.start()
        while "dbo/Orders" not in shop.writer.tables():
            stop.wait(0.01)
        shop.root.rename(tmp_path / "new")
        mirror.wake()
        stop.wait(0.3)
        stop.set()
        thread.join()
    assert not shop.root.exists()


def test_storage_makes_a_root_once(tmp_path):
    storage = LocalStorage(tmp_path / "root")
    storage.write("Files/x", b"")
    (tmp_path / "root").rename(tmp_path / "gone")
    with pytest.raises(StorageUnavailable):
        storage.write("Files/x", b"")
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("present", [[], ["notes.txt"], ["Data"]])
def test_sync_of_a_folder_that_is_no_root_is_refused(tmp_path, present):
    for path in present:
        (tmp_path / path).mkdir()
    with Mirror(tmp_path, writer=MemoryDeltaWriter()) as mirror:
        for work in (mirror.sync, mirror.rebuild, lambda: mirror.rebuild(lose_rows=True)):
            with pytest.raises(UsageError, match="contains no landing zone"):
                work()
    assert sorted(path.name for path in tmp_path.iterdir()) == present


def test_config_that_is_none_is_refused_at_once(tmp_path):
    (tmp_path / ZONE).mkdir(parents=True)
    for config in ({"strict": True}, "strict", 3):
        with pytest.raises(UsageError, match=f"config: {type(config).__name__}, expected Config"):
            Mirror(tmp_path, config)
    Mirror(tmp_path, Config(strict=True)).close()


@pytest.mark.parametrize("present", [[], ["_Item"], ["Link"]])
@pytest.mark.parametrize("is_ledger_lost", [False, True])
def test_status_of_a_root_without_tables_is_not_fabric_s(tmp_path, capsys, present, is_ledger_lost):
    root = tmp_path / "shop"
    zone = root / ZONE
    zone.mkdir(parents=True)
    for path in present:
        if path == "Link":
            (zone / path).symlink_to(tmp_path)
        else:
            (zone / path).mkdir()
            (zone / path / name(1)).write_bytes(b"x")
    assert main(["sync", str(root)]) == 0
    ignored = "There are no tables yet, but 1 path with data is ignored."
    assert (ignored in capsys.readouterr().out) == (present == ["_Item"])
    if is_ledger_lost:
        for file in Path(root / ENGINE).glob("ledger*"):
            file.unlink()
    assert main(["status", str(root)]) == 0
    assert "Fabric" not in capsys.readouterr().out


def test_status_of_a_root_whose_tables_were_all_dropped_is_not_fabric_s(tmp_path, capsys):
    shop = Shop(tmp_path / "shop")
    shop.orders().insert(row(1))
    shop.sync()
    shop.publisher.remove("Orders")
    shop.sync()
    assert main(["status", str(shop.root)]) == 0
    assert "Fabric" not in capsys.readouterr().out
