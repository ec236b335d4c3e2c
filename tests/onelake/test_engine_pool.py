"""An engine for each item: started, stopped, rebuilt, renamed; and what its states are meanwhile."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from faulty_onelake import faulty
from raw_http import until
from starlette.testclient import TestClient

from mirror_engine.clock import Clock
from mirror_engine.config import Config
from mirror_engine.errors import SetupError, StorageUnavailable
from mirror_engine.onelake.engine_pool import INITIALIZING_SECONDS, DatabaseStatus, EnginePool
from mirror_engine.onelake.faults import hold, parse_fault
from mirror_engine.onelake.items import Items
from mirror_engine.onelake.options import EmulatorOptions, ServerPlan
from mirror_engine.onelake.page.web import Web
from mirror_engine.onelake.serving import Services
from mirror_engine.onelake.store import LocalStore
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

pytestmark = pytest.mark.slow

TYPES = {"id": pa.int64(), "n": pa.int64()}
ROW, OTHER = {"id": 1, "n": 1}, {"id": 2, "n": 2}


class Store:
    """A store with one item, and engines that write to memory."""

    def __init__(self, folder):
        self.folder = folder
        self.items = Items(LocalStore(folder))
        self.item = self.items.ensure("shop", "orders")
        self.writers = {}
        self.root = folder / "shop" / "orders"
        self.table = LandingZoneWriter(self.root).table("Orders", keys=["id"], types=TYPES)
        self.open()

    def open(self, **options):
        config = Config(poll_interval_seconds=0.05)
        self.failures = []
        plan = ServerPlan(self.folder, config=config, new_writer=self.writer_of, **options)
        self.pool = EnginePool(plan, self.items, on_failure=self.failures.append)

    def restart(self):
        self.pool.end()
        self.open()
        self.pool.start_all()

    def writer_of(self, item):
        return self.writers.setdefault(item.id, MemoryDeltaWriter())

    def publish(self, *rows, **where):
        return self.table.apply_changes(*rows, **where)

    def status(self, item=None):
        return self.pool.status(item or self.item)[0]

    def rows(self):
        found = self.writer_of(self.item).rows("dbo/Orders")
        return [] if found is None else found.to_pylist()

    def reported(self):
        """What `replicator.json` says."""
        path = self.root / "Files/Monitoring/replicator.json"
        return json.loads(path.read_text()) if path.exists() else {"errorCode": ""}

    def until(self, holds):
        until(holds, lambda: (self.status(), self.rows(), self.pool.tables(self.item)))

    def until_status(self, status, item=None):
        self.until(lambda: self.status(item) is status)


@pytest.fixture
def pooled(tmp_path):
    store = Store(tmp_path)
    yield store
    store.pool.end()


def test_items_are_replicated_from_the_start_and_the_page_shows_it(pooled):
    """LZ-7.11."""
    pooled.items.ensure("shop", "customers")
    pooled.publish((0, {"id": 4711, "n": 1}))
    pooled.pool.start_all()
    page = TestClient(Web(pooled.pool.shown).app, headers={"Accept": "application/json"})
    pooled.until(lambda: pooled.rows() == [{"id": 4711, "n": 1}])
    pooled.until(lambda: [table["status"] for table in pooled.pool.tables(pooled.item)] == ["Replicating"])
    assert pooled.status() is DatabaseStatus.RUNNING
    pooled.until(lambda: page.get("/readyz").text == "ready\n")
    pooled.until(lambda: '"caught_up"' in page.get("/").text)
    assert "4711" in page.get(f"/tables/{pooled.item.id}/Orders").text

    def running():
        return [item["mirror"]["engine_running"] for item in page.get("/").json()["items"]]

    assert running() == [True, True]
    assert 'mirror_engine_up{item="orders",workspace="shop"} 1.0' in page.get("/metrics").text
    pooled.pool.stop(pooled.item)
    pooled.until(lambda: sorted(running()) == [False, True])
    pooled.until(lambda: "Stopped" in page.get("/").text)
    assert page.get("/readyz").status_code == 200


def test_time_moved_forward_reaches_engines_that_wait_and_the_page(pooled):
    pooled.pool.plan = replace(pooled.pool.plan, config=Config(poll_interval_seconds=3600.0))
    page = TestClient(Web(pooled.pool.shown, pooled.pool.clock).app)
    for number in (1, 2):
        pooled.publish((0, {"id": number, "n": 1}))
    pooled.pool.start_all()
    archive = pooled.root / "Files/LandingZone/Orders/_FilesReadyToDelete"
    pooled.until(lambda: list(archive.glob("*.parquet")))
    pooled.until(lambda: page.get("/readyz").text == "ready\n")
    pooled.pool.clock.advance(days=7)
    pooled.until(lambda: not list(archive.glob("*.parquet")))
    pooled.until(lambda: page.get("/readyz").text == "ready\n")


def test_a_stopped_item_is_rebuilt_at_its_next_start(pooled):
    """LZ-7.7."""
    pooled.publish((0, ROW))
    pooled.pool.start_all()
    pooled.until(lambda: pooled.pool.tables(pooled.item))
    pooled.pool.stop(pooled.item)
    pooled.until_status(DatabaseStatus.STOPPED)
    assert [each["status"] for each in pooled.pool.tables(pooled.item)] == ["Stopped"]
    assert pooled.reported()["status"] == "Stopped"
    pooled.writer_of(pooled.item).drop("dbo/Orders")
    pooled.pool.start(pooled.item)
    pooled.until(lambda: pooled.rows() == [ROW])
    assert pooled.status() is DatabaseStatus.RUNNING


@pytest.mark.parametrize("has_engines", [True, False])
def test_stopped_items_and_those_that_never_started_stay_so_after_a_restart(pooled, has_engines):
    pooled.open(has_engines=has_engines)
    created = pooled.items.create(pooled.item.workspace, "sales")
    pooled.pool.add(created)
    pooled.pool.start(pooled.item)
    pooled.pool.stop(pooled.item)
    pooled.restart()
    assert (pooled.status(), pooled.status(created)) == (DatabaseStatus.STOPPED, DatabaseStatus.INITIALIZED)
    pooled.pool.forget(pooled.item)
    renamed = pooled.items.change(replace(pooled.item, name="sold"))
    assert pooled.status(renamed) is DatabaseStatus.STOPPED
    pooled.pool.start(renamed)
    pooled.until_status(DatabaseStatus.RUNNING, renamed)


def test_running_items_continue_after_an_emulator_restart(pooled):
    pooled.publish((0, ROW))
    pooled.pool.start_all()
    pooled.until(pooled.rows)
    pooled.pool.end()
    pooled.publish((1, {"id": 1, "n": 2}))
    pooled.restart()
    pooled.until(lambda: pooled.rows() == [{"id": 1, "n": 2}])
    commits = [entry.files for entry in pooled.writer_of(pooled.item).history("dbo/Orders") if entry.files]
    assert len(commits) == 2


def test_start_and_stop_may_be_repeated(pooled):
    for _ in range(3):
        pooled.pool.start(pooled.item)
        pooled.pool.start(pooled.item)
        pooled.pool.stop(pooled.item)
        pooled.pool.stop(pooled.item)
    pooled.until_status(DatabaseStatus.STOPPED)


def test_a_new_item_waits_to_be_started_and_its_folder_can_be_released(pooled):
    now = [0.0]
    pooled.open(options=EmulatorOptions(clock=Clock(monotonic=lambda: now[0])))
    item = pooled.items.create(pooled.item.workspace, "sales")
    pooled.pool.add(item)
    assert pooled.status(item) is DatabaseStatus.INITIALIZING
    now[0] += INITIALIZING_SECONDS.get()
    assert pooled.status(item) is DatabaseStatus.INITIALIZED
    pooled.pool.start(item)
    pooled.until_status(DatabaseStatus.RUNNING, item)
    pooled.pool.forget(item)
    pooled.items.remove(item)
    assert not (pooled.root.parent / "sales").exists()


def test_a_start_that_comes_too_late_leaves_no_engine_behind(pooled):
    """It waited while the item was let go of; were it started, an engine would write into a removed folder."""
    engine = pooled.pool._engine(pooled.item)
    with engine.change:
        late = threading.Thread(target=pooled.pool.start, args=(pooled.item,))
        late.start()
        del pooled.pool._engines[pooled.item.id]
    late.join()
    assert engine.thread is None


def test_an_engine_that_cannot_run_says_why(pooled, monkeypatch):
    def refuse(*_):
        raise SetupError("no Java 17 was found", "Install one.")

    monkeypatch.setattr("mirror_engine.mirror.Mirror.run", refuse)
    pooled.pool.start(pooled.item)
    pooled.until_status(DatabaseStatus.STOPPED)
    assert pooled.failures == ["replication of shop/orders ended: no Java 17 was found\n  -> Install one."]
    assert pooled.pool.status(pooled.item)[1].startswith("no Java 17 was found")


def test_a_stopped_item_says_so_though_its_files_cannot(pooled, monkeypatch):
    def refuse(*_, **__):
        raise StorageUnavailable("Files/Monitoring: the disk is full")

    monkeypatch.setattr("mirror_engine.onelake.engine_pool.fabric_files.write_stopped", refuse)
    pooled.pool.start(pooled.item)
    pooled.pool.stop(pooled.item)
    pooled.until_status(DatabaseStatus.STOPPED)
    assert "the disk is full" in pooled.pool.status(pooled.item)[1]


def test_a_schema_that_changes_while_stopped_leaves_no_table_under_the_old_one(pooled):
    pooled.publish((0, ROW))
    pooled.pool.start_all()
    pooled.until(pooled.rows)
    pooled.pool.stop(pooled.item)
    pooled.until_status(DatabaseStatus.STOPPED)
    target = {"type": "MountedRelationalDatabase", "typeProperties": {"defaultSchema": "raw"}}
    content = {"properties": {"source": {"type": "GenericMirror"}, "target": target}}
    changed = pooled.items.change(replace(pooled.item, definition=json.dumps(content).encode()))
    pooled.pool.start(changed)
    pooled.until(lambda: pooled.writer_of(changed).tables() == ["raw/Orders"])


def test_a_throttled_engine_says_so_and_goes_on_by_itself(pooled):
    pooled.publish((0, ROW))
    pooled.pool.start_all()
    pooled.until(lambda: pooled.rows() == [ROW])
    begun = time.monotonic()
    pooled.pool.throttle(pooled.item, 1.5)
    pooled.publish((0, OTHER))
    pooled.until(lambda: pooled.reported()["errorCode"])
    status, message = pooled.pool.status(pooled.item)
    assert (status, pooled.reported()["status"], pooled.reported()["errorMessage"]) == (
        status.RUNNING,
        "Running",
        message,
    )
    assert message.startswith("The replication is being throttled and expected to continue at 2")
    [unmet] = pooled.pool.unmet_conditions(pooled.item)
    assert (unmet.message, unmet.needs_attention) == (message, False)
    assert pooled.rows() == [ROW]
    pooled.until(lambda: pooled.rows() == [ROW, OTHER])
    assert time.monotonic() - begun >= 1.5
    pooled.until(lambda: not pooled.reported()["errorCode"])
    assert pooled.pool.status(pooled.item) == (DatabaseStatus.RUNNING, "")
    pooled.pool.throttle(pooled.item, 60)
    pooled.until(lambda: pooled.reported()["errorCode"])
    pooled.pool.stop(pooled.item)
    pooled.until(lambda: pooled.pool.status(pooled.item) == (DatabaseStatus.STOPPED, ""))


@pytest.mark.parametrize("reseeds", [False, True])
def test_a_paused_database_resumes_where_it_was_or_from_the_beginning(pooled, reseeds):
    """LZ-7.8."""
    first = pooled.publish((0, ROW))
    pooled.pool.start_all()
    pooled.until(lambda: pooled.rows() == [ROW])
    pooled.pool.pause(pooled.item, reseeds=reseeds)
    pooled.until(lambda: pooled.reported()["status"] == "Paused")
    assert pooled.pool.status(pooled.item) == (DatabaseStatus.PAUSED, "")
    assert [unmet.needs_attention for unmet in pooled.pool.unmet_conditions(pooled.item)] == [True]
    (pooled.root / "Files/LandingZone" / first).unlink()  # what a new start cannot read again
    pooled.publish((0, OTHER), name=f"{1 if reseeds else 2:020}.parquet")
    pooled.restart()
    assert (pooled.status(), pooled.rows()) == (DatabaseStatus.PAUSED, [ROW])
    pooled.pool.start(pooled.item)
    pooled.until(lambda: pooled.rows() == ([OTHER] if reseeds else [ROW, OTHER]))
    pooled.until(lambda: pooled.reported()["status"] == "Running")
    pooled.pool.pause(pooled.item, reseeds=False)
    pooled.until(lambda: not pooled.pool._engine(pooled.item).thread)
    pooled.pool.stop(pooled.item)
    assert (pooled.status(), pooled.reported()["status"]) == (DatabaseStatus.STOPPED, "Stopped")


@pytest.mark.parametrize("is_given_first", [True, False])
def test_faults_of_mirrored_databases_act_at_once_on_those_they_name(tmp_path, is_given_first):
    faults = ["paused path=shop/ord*", "replicator_throttled until=2100-01-01T00:00:00 path=shop/[a-n]*"]
    with faulty(tmp_path, *(faults if is_given_first else ())) as client:
        client.lake.items.ensure("shop", "new")
        pool = EnginePool(ServerPlan(tmp_path, has_engines=False), client.lake.items)
        pool.start_all()
        options = client.lake.options
        if is_given_first:
            Services(client.lake, pool)
        else:
            options.hold = partial(hold, pool)
            options.add([parse_fault(text) for text in faults])
        new, orders = map(pool.status, pool.items.all())
        assert (new[0], new[1][-20:]) == (DatabaseStatus.RUNNING, "2100-01-01T00:00:00.")
        assert orders == (DatabaseStatus.PAUSED, "")
        assert [fault for fault, *_ in client.reported][-2:] == faults
