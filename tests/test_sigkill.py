"""`run` killed with SIGKILL at chosen moments, its ledger damaged now and then: the tables end as the oracle says.

`make torture` does it two hundred times.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from killer import Killer
from seed import SEED
from store_servers import ONE_BY_DAY

from mirror_engine import Config, Mirror
from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.merge.arrow import ArrowWriter

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("MIRROR_TEST_KILLS", "2"))
SPARK_KILLS = int(os.environ.get("MIRROR_TEST_KILLS", "2"))  # each starts a JVM
STORE_KILLS = int(os.environ.get("MIRROR_TEST_KILLS", "1"))
KILLS_BETWEEN_CHECKS = 25


def kill(killer, writer, kills):
    """Kill the engine again and again, and check the tables now and then and in the end."""
    print(f"MIRROR_TEST_SEED={SEED}")
    for number in range(1, kills + 1):
        print(f"kill {number}: {killer.kill()}", flush=True)
        if number % KILLS_BETWEEN_CHECKS == 0 or number == kills:
            with Mirror(killer.root, Config(), writer=writer) as mirror:
                killer.check(mirror.sync().result, writer)
                assert mirror.sync().commits == 0


@pytest.mark.spark
@pytest.mark.timeout(max(300, 70 * SPARK_KILLS))
def test_killed_at_chosen_moments_nothing_is_lost_doubled_or_reordered(tmp_path, mirror_writer):
    """LZ-4.18."""
    killer = Killer(tmp_path, SEED, "spark", "arrow", cheap_part=0.6)
    kill(killer, mirror_writer(killer.root), SPARK_KILLS)


@pytest.mark.timeout(max(300, 70 * KILLS))
def test_killed_without_spark_nothing_is_lost_doubled_or_reordered(tmp_path):
    killer = Killer(tmp_path, SEED, "arrow", cheap_part=0.3)
    kill(killer, ArrowWriter(killer.root / TABLES, killer.root / SCRATCH), KILLS)


@ONE_BY_DAY
@pytest.mark.timeout(max(300, 70 * STORE_KILLS))
def test_killed_in_a_store_nothing_is_lost_doubled_or_reordered(tmp_path, store, monkeypatch):
    monkeypatch.setenv("MIRROR_ENGINE_STATE", str(tmp_path / "state"))
    killer = Killer(tmp_path, SEED, "arrow", cheap_part=0.3, root=store.new_root())
    kill(killer, ArrowWriter(killer.root / TABLES, tmp_path / "scratch"), STORE_KILLS)


def test_whenever_the_engine_runs_the_publisher_of_the_kills_ends_the_same(tmp_path):
    killer, writer = Killer(tmp_path, 1, cheap_part=0.5), MemoryDeltaWriter()
    for number in range(60):
        killer.publisher.act() if number % 3 else killer.publisher.act_without_rows()
        if number % 7 == 0:
            with Mirror(killer.root, Config(max_batch_files=3), writer=writer) as mirror:
                killer.check(mirror.sync().result, writer)


@pytest.mark.parametrize(
    "damage",
    [
        lambda commits: [*commits[:-1], replace(commits[-1], rows=commits[-1].rows[1:])],
        lambda commits: [*commits[:-1], replace(commits[-1], rows=commits[-1].rows * 2)],
        lambda commits: [*commits, commits[-1]],
        lambda commits: commits[:-1],
    ],
    ids=["a row lost", "a row doubled", "a file in two commits", "a commit lost"],
)
def test_the_check_after_the_kills_finds_damage(tmp_path, damage):
    killer, writer = Killer(tmp_path, 2, cheap_part=0.5), MemoryDeltaWriter()
    for _ in range(10):
        killer.publisher.act()
    with Mirror(killer.root, Config(max_batch_files=1), writer=writer) as mirror:
        result = mirror.sync().result
    killer.check(result, writer)
    writer._tables["dbo/Events"] = damage(writer._tables["dbo/Events"])
    with pytest.raises(AssertionError):
        killer.check(result, writer)
