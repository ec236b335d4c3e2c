"""The table is on the disk before the ledger says so, and the ledger says so before a change file is moved away."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from lake import Lake
from shop import Shop, row

import mirror_engine.engine.cycle
import mirror_engine.engine.turns
import mirror_engine.tables.log.durability
from mirror_engine import RunResult
from mirror_engine.engine.ledger import Ledger
from mirror_engine.errors import StorageUnavailable
from mirror_engine.events import BatchCommitted, ProgressRebuilt
from mirror_engine.landing_zone.layout import ENGINE, SCRATCH, TABLES
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.states import CaughtUp, Halted
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.merge.arrow import ArrowWriter

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not name open files"),
]


@pytest.fixture
def done(monkeypatch):
    """What happened, in order: `fsync NAME`, `record BATCH`, `move NAME`."""
    happened = []
    sync, record, move = mirror_engine.tables.log.durability.os.fsync, Ledger.record, LocalStorage.move

    def syncing(opened):
        happened.append(f"fsync {Path(f'/proc/self/fd/{opened}').readlink().name}")
        sync(opened)

    def recording(ledger, table, progress, *changes, **options):
        happened.append(f"record {progress.batch}")
        record(ledger, table, progress, *changes, **options)

    def moving(storage, source, target, only=None):
        happened.append(f"move {source.rpartition('/')[2]}")
        return move(storage, source, target, only)

    def naming(passing, target, link=os.link):
        assert happened[-1] == f"fsync {Path(passing).name}"  # its content first
        happened[-1] = f"fsync {Path(target).name}"
        link(passing, target)

    monkeypatch.setattr(os, "link", naming)
    monkeypatch.setattr(mirror_engine.tables.log.durability.os, "fsync", syncing)
    monkeypatch.setattr(Ledger, "record", recording)
    monkeypatch.setattr(LocalStorage, "move", moving)
    return happened


def in_order(happened, *wanted):
    rest = iter(happened)
    return all(step in rest for step in wanted)


def commit_and_be_killed(lake):
    lake.land()
    with lake.mirror() as mirror, mirror._engine() as running:
        running._janitor.clean = lambda *_: 0
        running.cycle(threading.Event())


COMMIT, MOVED = f"{3:020}.json", f"move {2:020}.parquet"


def test_a_commit_is_on_the_disk_before_it_is_recorded_and_its_files_are_moved(lake, done):
    lake.land()
    assert lake.sync().result is RunResult.CAUGHT_UP
    assert in_order(done, f"fsync {COMMIT}", "fsync _delta_log", "record 3", MOVED)
    first = done.index("record 3")
    assert f"fsync {COMMIT}" not in done[first:]
    assert MOVED not in done[:first]


def test_a_small_change_waits_for_the_disk_four_times(tmp_path, monkeypatch):
    """Its data file and the folder that names it, its log entry and the log; an older checkpoint is not its own."""
    shop = Shop(tmp_path, ArrowWriter(tmp_path / TABLES, tmp_path / SCRATCH))
    orders = shop.orders()
    synced = []
    monkeypatch.setattr(os, "fsync", lambda opened: synced.append(Path(f"/proc/self/fd/{opened}").readlink()))
    with shop.engine() as running:
        for number in range(1, 4):
            orders.insert(row(number))
            synced.clear()
            for _ in range(3):  # with the monitoring files, and the archive of the file before
                running.cycle(threading.Event())
            DeltaTable(str(tmp_path / TABLES / "dbo/Orders")).create_checkpoint()
    data, data_folder, entry, log = synced
    assert (data.parent.name, data.suffix, data_folder.name) == ("Orders", ".parquet", "Orders")
    assert (entry.parent.name, entry.suffix) == ("_delta_log", ".tmp")  # before it is seen
    assert log.name == "_delta_log"


def test_the_folder_of_all_tables_has_its_name_on_the_disk_before_a_table_is_in_it(tmp_path, done):
    Lake(tmp_path / "another", files=1)
    assert in_order(done, "fsync another", "fsync _delta_log", "fsync Tables", "record 1")


@pytest.mark.parametrize("ledger", ["behind", "lost"])
def test_a_commit_that_is_found_is_brought_to_the_disk_before_it_is_recorded(lake, done, tmp_path, ledger):
    """Its process was killed after the commit, and nobody knows what the system had written by then."""
    shutil.copytree(lake.root / ENGINE, tmp_path / "behind")
    commit_and_be_killed(lake)
    shutil.rmtree(lake.root / ENGINE)
    if ledger == "behind":
        shutil.copytree(tmp_path / "behind", lake.root / ENGINE)
    done.clear()
    lake.events.clear()
    assert lake.sync().result is RunResult.CAUGHT_UP
    assert in_order(done, f"fsync {COMMIT}", "fsync _delta_log", "record 3", MOVED)
    assert ProgressRebuilt(TableName("", "Orders"), 3) in lake.events


def test_failed_fsync_prevents_the_record(lake, monkeypatch):
    def refused(_folder, _since):
        raise StorageUnavailable("scripted")

    lake.land()
    with monkeypatch.context() as patch:
        patch.setattr(mirror_engine.tables.merge.arrow, "make_durable", refused)
        patch.setattr(mirror_engine.engine.cycle, "MAX_SYNC_ATTEMPTS", 2)
        patch.setattr(mirror_engine.engine.turns, "FIRST_PAUSE_SECONDS", 0.0)
        lake.events.clear()
        assert lake.sync().result is RunResult.RETRY
    assert not [event for event in lake.events if isinstance(event, BatchCommitted)]
    assert (lake.root / "Files/LandingZone/Orders" / f"{2:020}.parquet").exists()
    assert lake.sync().result is RunResult.CAUGHT_UP
    assert lake.status().watermarks == {"": 3}


def tear_newest(lake):
    """A commit of ours as a power cut may leave it: the log's entry is there, the data file is not."""
    record = json.loads(lake.commit(3).read_text().splitlines()[0])["commitInfo"]["userMetadata"]
    lake.commit(3).unlink()
    write_deltalake(str(lake.folder), pa.table({"id": [1], "city": ["x"]}), mode="append")
    lines = [json.loads(line) for line in lake.commit(3).read_text().splitlines()]
    next(line for line in lines if "commitInfo" in line)["commitInfo"]["userMetadata"] = record
    lake.commit(3).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (data,) = lake.folder.glob("*.parquet")
    data.write_bytes(b"")


def test_a_commit_whose_data_was_lost_halts_and_is_applied_again_once_it_is_deleted(lake, tmp_path):
    shutil.copytree(lake.root / ENGINE, tmp_path / "before")
    commit_and_be_killed(lake)
    tear_newest(lake)
    shutil.rmtree(lake.root / ENGINE)
    shutil.copytree(tmp_path / "before", lake.root / ENGINE)
    status = lake.status()
    assert isinstance(status.state, Halted)
    assert "which the Delta log names, has 0 bytes of" in status.state.diagnostic.message
    assert lake.sync().result is RunResult.NEEDS_ATTENTION
    assert (lake.root / "Files/LandingZone/Orders" / f"{2:020}.parquet").exists()
    lake.commit(3).unlink()
    assert lake.sync().result is RunResult.CAUGHT_UP
    assert (lake.status().state, lake.status().delta_version) == (CaughtUp(), 3)
