"""Exactly once in a store: requests throttled, refused and unanswered, tokens that expire, lists that are late.

`MIRROR_TEST_FAULTS` sets at how many positions of a run each fault is tried.
"""

from __future__ import annotations

import os
import random
import threading
import time

import pyarrow as pa
import pytest
from scripted_faults import Fault, Script, faulty
from shop import TYPES, row
from store_publisher import StorePublisher

import mirror_engine.engine.cycle
from mirror_engine import Config, Mirror, RunResult
from mirror_engine.onelake.faults import parse_fault
from mirror_engine.storage.stores import open_storage
from mirror_engine.tables.log.tables_folder import TablesFolder, _commit_unreadable

pytestmark = pytest.mark.slow

POSITIONS = int(os.environ.get("MIRROR_TEST_FAULTS", "1"))
SEED = int(os.environ.get("MIRROR_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
CONFIG = Config(merge_engine="deltalake", max_batch_files=2, workers=1, delete_processed_after_seconds=0)
NEVER = 999_999
SYNCS = 4  # a fault may take the first one, and what it left the second


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("MIRROR_ENGINE_STATE", str(tmp_path))
    monkeypatch.setattr(mirror_engine.engine.cycle, "FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(mirror_engine.engine.cycle, "MAX_SYNC_ATTEMPTS", 1)


class World:
    """A ROOT with tables that were synced, and pending work: changes, a drop, a recreate, a new table."""

    def __init__(self, server):
        self.root = server.new_root()
        publisher = StorePublisher(self.root)
        orders = publisher.table("Sales.Orders", keys=["id"], types=TYPES)
        orders.initial_load(row(1), row(2))
        gone, again = publisher.table("Gone", keys=["id"]), publisher.table("Again", keys=["id"])
        gone.initial_load({"id": 1})
        again.initial_load({"id": 1}, {"id": 2})
        self.sync()
        orders.insert(row(3))
        orders.delete({"id": 1})
        orders.upsert(row(4))
        gone.drop()
        again.drop()
        publisher.table("Again", keys=["id"]).initial_load({"id": 9})
        publisher.table("New", types={"n": pa.int64()}).initial_load({"n": 1})

    def sync(self, storage=None):
        with Mirror(self.root, CONFIG, storage=storage) as mirror:
            return mirror.sync()

    def check(self):
        """All is applied, nothing twice, within a few syncs."""
        results = []
        while RunResult.CAUGHT_UP not in results:
            assert len(results) < SYNCS, results
            results.append(self.sync().result)
        with Mirror(self.root, CONFIG) as mirror:
            assert mirror.tables() == ["Sales/Orders", "dbo/Again", "dbo/New"]
            assert sorted(mirror.read_table("Sales.Orders").column("id").to_pylist()) == [2, 3, 4]
            assert mirror.read_table("Again").to_pylist() == [{"id": 9}]
            assert mirror.read_table("New").to_pylist() == [{"n": 1}]
            for table in mirror.tables():
                files = [path for commit in mirror.history(table) for path in commit.files]
                assert len(files) == len(set(files)), f"{table}: a change file is in two commits"
            assert all(not table.pending_files for table in mirror.status().tables)


def positions(total):
    """Some of the numbers of calls, drawn from as many equal parts."""
    assert total > 20
    chance = random.Random(SEED)
    count = min(POSITIONS, total)
    return [1 + int((part + chance.random()) * total / count) for part in range(count)]


@pytest.fixture(scope="module")
def lengths():
    """How much a sync without a fault asks: `meet` counts it, once for each key."""
    known = {}
    return lambda key, meet: known.get(key) or known.setdefault(key, meet(NEVER))


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("onelake_server", "throttle status=429 retry-after=1"),
        ("adls_server", "throttle status=503 retry-after=1"),
        ("onelake_server", "token_expired"),
        ("adls_server", "lost_request"),
        ("onelake_server", "lost_response"),
    ],
)
def test_a_fault_of_any_request_loses_and_doubles_nothing(emulator, request, lengths, kind, fault):
    print(f"MIRROR_TEST_SEED={SEED}")
    options = emulator.plan.options
    with request.getfixturevalue(kind).in_use() as server:

        def meet(number):
            """A sync whose n-th request meets the fault; returns how many there were."""
            world, rule = World(server), parse_fault(f"{fault} nth={number}")
            options.faults = [rule]
            try:
                world.sync()
            finally:
                options.faults = []
            world.check()
            return rule.matched

        asked = "changes" if fault == "lost_response" else "requests"  # what can meet it
        for number in positions(lengths((asked, kind), meet)):
            assert meet(number) >= number


def test_names_that_lists_show_late_are_applied_once_and_in_order(emulator, onelake_server):
    with onelake_server.in_use():
        world = World(onelake_server)
        rule = parse_fault("delay_visibility seconds=1 from=lists path=*/LandingZone/*.parquet count=all")
        emulator.plan.options.faults = [rule]
        try:
            orders = StorePublisher(world.root).table("Sales.Orders", keys=["id"], types=TYPES)
            orders.skip_numbers(4)
            orders.update({**row(4), "city": "first"})
            orders.update({**row(4), "city": "second"})
            world.sync()
        finally:
            emulator.plan.options.faults = []
        time.sleep(1.1)
        world.check()
        with Mirror(world.root, CONFIG) as mirror:
            assert {"id": 4, "city": "second"} in mirror.read_table("Sales.Orders").to_pylist()


@pytest.mark.parametrize("gap", [1, 5])
def test_a_late_commit_of_a_drop_is_taken_back_from_an_idle_table(onelake_server, tmp_path, monkeypatch, gap):
    monkeypatch.setattr("mirror_engine.engine.planner.LOOK_SECONDS", 0.0)
    with onelake_server.in_use() as server:
        root = server.new_root()
        StorePublisher(root).table("Orders", keys=["id"], types=TYPES).initial_load(row(1), row(2))
        commit = TablesFolder(root / "Tables", tmp_path).path(f"dbo/Orders/_delta_log/{1 + gap:020}.json")
        with Mirror(root, CONFIG) as mirror:
            mirror.sync()
            with mirror._engine() as running:
                running.cycle(threading.Event())
                _commit_unreadable(commit, lambda: None)
                for _ in range(2):
                    running.cycle(threading.Event())
            assert mirror.read_table("Orders").num_rows == 2
            _commit_unreadable(commit, lambda: None)
            mirror.sync()
            assert mirror.read_table("Orders").num_rows == 2


@pytest.mark.parametrize("fault", list(Fault))
def test_a_call_of_the_storage_that_fails_loses_and_doubles_nothing(store, lengths, fault):
    print(f"MIRROR_TEST_SEED={SEED}")

    def meet(number):
        world, script = World(store), Script({number: fault})
        world.sync(faulty(open_storage(world.root), script))
        world.check()
        return len(script.calls)

    for number in positions(lengths(store.name, meet)):
        assert meet(number) >= number
