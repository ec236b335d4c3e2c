"""`run` killed with SIGKILL at chosen moments, its ledger damaged now and then: the tables end as the oracle says.

`make torture` does it two hundred times.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest
from killer import Killer, KillerWithoutRows, KillerWithoutSpark

from mirror_engine import Config, Mirror
from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.tables.merge.deltalake import DeltalakeWriter
from mirror_engine.tables.merge.memory import MemoryDeltaWriter
from mirror_engine.tables.merge.spark import SparkDeltaWriter

KILLS = int(os.environ.get("MIRROR_TEST_KILLS", "10"))
KILLS_BETWEEN_CHECKS = 25
SEED = int(os.environ.get("MIRROR_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)


def no_session():
    pytest.fail("Spark was started")


def kill(killer, writer):
    """Kill the engine again and again, and check the tables now and then and in the end."""
    print(f"MIRROR_TEST_SEED={SEED}")
    for number in range(1, KILLS + 1):
        print(f"kill {number}: {killer.kill()}", flush=True)
        if number % KILLS_BETWEEN_CHECKS == 0 or number == KILLS:
            with Mirror(killer.root, Config(), writer=writer) as mirror:
                killer.check(mirror.sync().result, writer)
                assert mirror.sync().commits == 0


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(max(300, 70 * KILLS))
def test_killed_at_chosen_moments_nothing_is_lost_doubled_or_reordered(tmp_path, mirror_writer):
    """Each start takes the other merge engine."""
    killer = Killer(tmp_path, SEED)
    kill(killer, mirror_writer(killer.root))


@pytest.mark.slow
@pytest.mark.timeout(max(300, 70 * KILLS))
def test_killed_without_spark_nothing_is_lost_doubled_or_reordered(tmp_path):
    killer = KillerWithoutSpark(tmp_path, SEED)
    kill(killer, DeltalakeWriter(killer.root / TABLES, killer.root / SCRATCH))


@pytest.mark.slow
@pytest.mark.timeout(max(300, 70 * KILLS))
def test_killed_where_no_jvm_is_needed_every_file_is_in_one_commit(tmp_path):
    writer = SparkDeltaWriter(tmp_path / "shop/Tables", tmp_path, no_session)
    kill(KillerWithoutRows(tmp_path, SEED), writer)


@pytest.mark.slow
def test_whenever_the_engine_runs_the_publisher_of_the_kills_ends_the_same(tmp_path):
    killer, writer = Killer(tmp_path, 1), MemoryDeltaWriter()
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
    killer, writer = Killer(tmp_path, 2), MemoryDeltaWriter()
    for _ in range(10):
        killer.publisher.act()
    with Mirror(killer.root, Config(max_batch_files=1), writer=writer) as mirror:
        result = mirror.sync().result
    killer.check(result, writer)
    writer._tables["dbo/Events"] = damage(writer._tables["dbo/Events"])
    with pytest.raises(AssertionError):
        killer.check(result, writer)
