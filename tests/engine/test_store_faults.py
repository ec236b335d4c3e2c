"""Exactly once in a store: requests throttled, refused and unanswered, tokens that expire, commits that are late.

`MIRROR_TEST_FAULTS` sets at how many positions of a run each fault is tried.
"""

from __future__ import annotations

import os
import random
import threading

import pytest
from eventful_zone import EventfulZone, check
from seed import SEED
from shop import TYPES, row
from store_publisher import StorePublisher

from mirror_engine import Config, Mirror, RunResult
from mirror_engine.onelake.faults import parse_fault
from mirror_engine.tables.log.tables_folder import TablesFolder, _commit_unreadable

pytestmark = pytest.mark.slow

POSITIONS = int(os.environ.get("MIRROR_TEST_FAULTS", "1"))
CONFIG = Config(merge_engine="arrow", max_batch_files=2, workers=1, delete_processed_after_seconds=0)
VARYING = 8
NEVER = 999_999
SYNCS = 4  # a fault may take the first one, and what it left the second


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch, one_attempt):  # noqa: ARG001 - a run is short
    monkeypatch.setenv("MIRROR_ENGINE_STATE", str(tmp_path))


class World:
    """An eventful zone whose history was synced: pending are appends, changes, a drop, a recreate and a new table."""

    def __init__(self, server):
        self.root = server.new_root()
        zone = EventfulZone(StorePublisher(self.root))
        self.sync()
        zone.go_on()

    def sync(self):
        with Mirror(self.root, CONFIG) as mirror:
            return mirror.sync()

    def check(self):
        """All is applied, nothing twice, within a few syncs."""
        results = []
        while RunResult.CAUGHT_UP not in results:
            assert len(results) < SYNCS, results
            results.append(self.sync().result)
        with Mirror(self.root, CONFIG) as mirror:
            check(mirror)


def positions(total):
    """Some of the numbers of calls, drawn from as many equal parts."""
    assert total > 20
    chance = random.Random(SEED)
    count = min(POSITIONS, total)
    return [1 + int((part + chance.random()) * total / count) for part in range(count)]


@pytest.fixture
def faults(emulator):
    """Gives the emulator faults; in the end it has none."""

    def inject(*faults):
        emulator.plan.options.faults = rules = [parse_fault(fault) for fault in faults]
        return rules

    yield inject
    inject()


@pytest.mark.parametrize(
    "fault",
    [
        "lost_response",
        *(
            pytest.param(fault, marks=pytest.mark.nightly)
            for fault in (
                "token_expired",
                "throttle status=429 retry-after=1",
                "throttle status=503 retry-after=1",
                "lost_request",
            )
        ),
    ],
)
def test_failed_request_loses_and_doubles_nothing(onelake_server, faults, lengths, fault):
    print(f"MIRROR_TEST_SEED={SEED}")
    with onelake_server.in_use():
        if not lengths:  # how often a sync without a fault could meet one; requests at once make it vary by a few
            world = World(onelake_server)
            rules = faults(f"lost_request nth={NEVER}", f"lost_response nth={NEVER}")
            world.sync()
            lengths.extend(rule.matched - VARYING for rule in rules)
        for number in positions(lengths[fault == "lost_response"]):
            world = World(onelake_server)
            (rule,) = faults(f"{fault} nth={number}")
            world.sync()
            faults()
            world.check()
            assert rule.matched >= number


@pytest.fixture(scope="module")
def lengths():
    return []


@pytest.mark.parametrize("gap", [1, pytest.param(5, marks=pytest.mark.nightly)])
def test_late_drop_commit_is_taken_back_from_an_idle_table(onelake_server, tmp_path, monkeypatch, gap):
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
