"""An engine for each item: started, stopped, rebuilt, renamed; and what its states are meanwhile."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace

import pyarrow as pa
import pytest

from mirror_engine.config import Config
from mirror_engine.errors import SetupError, StorageUnavailable
from mirror_engine.onelake.engine_pool import DatabaseStatus, EnginePool
from mirror_engine.onelake.items import Items
from mirror_engine.onelake.store import LocalStore
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

pytestmark = pytest.mark.slow

TYPES = {"id": pa.int64(), "n": pa.int64()}
PATIENCE_SECONDS = 20.0


class Store:
    """A store with one item, and engines that write to memory."""

    def __init__(self, folder):
        self.items = Items(LocalStore(folder))
        self.item = self.items.ensure("shop", "orders")
        self.writers = {}
        self.root = folder / "shop" / "orders"
        self.table = LandingZoneWriter(self.root).table("Orders", keys=["id"], types=TYPES)
        self.open(folder)

    def open(self, folder):
        config = Config(poll_interval_seconds=0.05)
        self.said = []
        self.pool = EnginePool(folder, self.items, config, new_writer=self.writer_of, on_failure=self.said.append)

    def writer_of(self, item):
        return self.writers.setdefault(item.id, MemoryDeltaWriter())

    def publish(self, *rows):
        self.table.apply_changes(*rows)

    def status(self):
        return self.pool.status(self.item)[0]

    def rows(self):
        found = self.writer_of(self.item).rows("dbo/Orders")
        return [] if found is None else found.to_pylist()

    def until(self, holds):
        ends = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < ends, (self.status(), self.rows(), self.pool.tables(self.item))
            time.sleep(0.02)


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path)
    yield store
    store.pool.end()


def test_items_are_replicated_from_the_start(store):
    store.publish((0, {"id": 1, "n": 1}))
    store.pool.start_all()
    store.until(lambda: store.rows() == [{"id": 1, "n": 1}])
    store.until(lambda: [table["metrics"]["processedRowCount"] for table in store.pool.tables(store.item)] == [1])
    [report] = store.pool.tables(store.item)
    assert (report["sourceSchemaName"], report["sourceTableName"], report["status"]) == ("", "Orders", "Replicating")
    assert store.status() is DatabaseStatus.RUNNING


def test_a_stopped_item_is_rebuilt_at_its_next_start(store):
    store.publish((0, {"id": 1, "n": 1}))
    store.pool.start_all()
    store.until(lambda: store.pool.tables(store.item))
    store.pool.stop(store.item)
    store.until(lambda: store.status() is DatabaseStatus.STOPPED)
    assert [each["status"] for each in store.pool.tables(store.item)] == ["Stopped"]
    reported = json.loads((store.root / "Files/Monitoring/replicator.json").read_text())
    assert reported["status"] == "Stopped"
    store.writer_of(store.item).drop("dbo/Orders")
    store.pool.start(store.item)
    store.until(lambda: store.rows() == [{"id": 1, "n": 1}])
    assert store.status() is DatabaseStatus.RUNNING


def test_stopped_items_stay_stopped_after_an_emulator_restart(store, tmp_path):
    store.pool.start_all()
    store.pool.stop(store.item)
    store.pool.end()
    store.open(tmp_path)
    store.pool.start_all()
    assert store.status() is DatabaseStatus.STOPPED
    store.pool.start(store.item)
    store.until(lambda: store.status() is DatabaseStatus.RUNNING)


def test_a_folder_created_outside_the_emulator_is_replicated_once_started(store, tmp_path):
    store.pool.start_all()
    made = LandingZoneWriter(tmp_path / "shop" / "byhand")
    made.table("Orders", keys=["id"], types=TYPES).apply_changes((0, {"id": 1, "n": 1}))
    [item] = [item for item in store.pool.items.all() if item.name == "byhand"]
    assert store.pool.status(item)[0] is DatabaseStatus.INITIALIZED
    store.pool.start(item)
    store.until(lambda: store.writer_of(item).rows("dbo/Orders") is not None)


def test_running_items_continue_after_an_emulator_restart(store, tmp_path):
    store.publish((0, {"id": 1, "n": 1}))
    store.pool.start_all()
    store.until(store.rows)
    store.pool.end()
    store.publish((1, {"id": 1, "n": 2}))
    store.open(tmp_path)
    store.pool.start_all()
    store.until(lambda: store.rows() == [{"id": 1, "n": 2}])
    commits = [entry.files for entry in store.writer_of(store.item).history("dbo/Orders") if entry.files]
    assert len(commits) == 2


def test_start_and_stop_may_be_repeated(store):
    for _ in range(3):
        store.pool.start(store.item)
        store.pool.start(store.item)
        store.pool.stop(store.item)
        store.pool.stop(store.item)
    store.until(lambda: store.status() is DatabaseStatus.STOPPED)


def test_a_new_item_waits_to_be_started(store):
    item = store.items.create(store.item.workspace, "sales")
    store.pool.add(item)
    assert store.pool.status(item)[0] is DatabaseStatus.INITIALIZING
    time.sleep(1.1)
    assert store.pool.status(item)[0] is DatabaseStatus.INITIALIZED
    store.pool.start(item)
    store.until(lambda: store.pool.status(item)[0] is DatabaseStatus.RUNNING)
    store.pool.forget(item)
    store.items.remove(item)
    assert not (store.root.parent / "sales").exists()


def test_items_that_never_started_stay_initialized_after_a_restart(store, tmp_path):
    item = store.items.create(store.item.workspace, "sales")
    store.pool.add(item)
    store.pool.end()
    store.open(tmp_path)
    store.pool.start_all()
    assert store.pool.status(item)[0] is DatabaseStatus.INITIALIZED
    assert store.status() in {DatabaseStatus.STARTING, DatabaseStatus.RUNNING}


def test_a_stopped_item_stays_so_under_a_new_name(store):
    store.pool.start_all()
    store.pool.stop(store.item)
    store.pool.forget(store.item)
    renamed = store.items.change(replace(store.item, name="sold"))
    assert store.pool.status(renamed)[0] is DatabaseStatus.STOPPED


def test_a_start_that_comes_too_late_leaves_no_engine_behind(store):
    """It waited while the item was let go of; were it started, an engine would write into a removed folder."""
    life = store.pool._engine(store.item)
    with life.change:
        late = threading.Thread(target=store.pool.start, args=(store.item,))
        late.start()
        del store.pool._engines[store.item.id]
    late.join()
    assert life.thread is None


def test_the_definition_names_the_schema(store):
    content = {
        "properties": {
            "source": {"type": "GenericMirror"},
            "target": {"type": "MountedRelationalDatabase", "typeProperties": {"defaultSchema": "raw"}},
        }
    }
    item = store.items.create(store.item.workspace, "sales", "", json.dumps(content).encode())
    LandingZoneWriter(store.root.parent / "sales").table("Orders", keys=["id"], types=TYPES).apply_changes(
        (0, {"id": 1, "n": 1})
    )
    store.pool.start(item)
    store.until(lambda: "raw/Orders" in store.writer_of(item).tables())


def test_an_engine_that_cannot_run_says_why(store, monkeypatch):
    def refuse(*_):
        raise SetupError("no Java 17 was found", "Install one.")

    monkeypatch.setattr("mirror_engine.mirror.Mirror.run", refuse)
    store.pool.start(store.item)
    store.until(lambda: store.pool.status(store.item)[1])
    assert store.said == ["replication of shop/orders ended: no Java 17 was found\n  -> Install one."]
    status, error = store.pool.status(store.item)
    assert status is DatabaseStatus.STOPPED
    assert error.startswith("no Java 17 was found")


def test_a_stopped_item_says_so_though_its_files_cannot(store, monkeypatch):
    def refuse(*_, **__):
        raise StorageUnavailable("Files/Monitoring: the disk is full")

    monkeypatch.setattr("mirror_engine.onelake.engine_pool.write_stopped", refuse)
    store.pool.start(store.item)
    store.pool.stop(store.item)
    store.until(lambda: store.status() is DatabaseStatus.STOPPED)
    assert "the disk is full" in store.pool.status(store.item)[1]


def test_a_schema_that_changes_while_stopped_leaves_no_table_under_the_old_one(store):
    store.publish((0, {"id": 1, "n": 1}))
    store.pool.start_all()
    store.until(store.rows)
    store.pool.stop(store.item)
    store.until(lambda: store.status() is DatabaseStatus.STOPPED)
    target = {"type": "MountedRelationalDatabase", "typeProperties": {"defaultSchema": "raw"}}
    content = {"properties": {"source": {"type": "GenericMirror"}, "target": target}}
    changed = store.items.change(replace(store.item, definition=json.dumps(content).encode()))
    store.pool.start(changed)
    store.until(lambda: store.writer_of(changed).tables() == ["raw/Orders"])
