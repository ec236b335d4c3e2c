"""`run` killed with SIGKILL at chosen moments, its ledger harmed now and then: the tables end as the oracle says.

`make torture` does it two hundred times.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest
from killer import Killer, QuietKiller

from mirror_engine import Config, Mirror
from mirror_engine.tables.merge.memory import MemoryDeltaWriter
from mirror_engine.tables.merge.spark import SparkDeltaWriter

KILLS = int(os.environ.get("MIRROR_TEST_KILLS", "10"))
SEED = int(os.environ.get("MIRROR_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)


def no_session():
    pytest.fail("Spark was started")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(max(300, 70 * KILLS))
def test_killed_at_chosen_moments_nothing_is_lost_doubled_or_reordered(tmp_path, mirror_writer):
    print(f"MIRROR_TEST_SEED={SEED}")
    killer = Killer(tmp_path, SEED)
    for _ in range(KILLS):
        print(killer.kill())
    writer = mirror_writer(killer.root)
    with Mirror(killer.root, Config(), writer=writer) as mirror:
        killer.judge(mirror.sync().result, writer)
        assert mirror.sync().commits == 0


@pytest.mark.slow
@pytest.mark.timeout(max(300, 70 * KILLS))
def test_killed_where_no_jvm_is_needed_every_file_is_in_one_commit(tmp_path):
    print(f"MIRROR_TEST_SEED={SEED}")
    killer, writer = QuietKiller(tmp_path, SEED), SparkDeltaWriter(tmp_path / "shop/Tables", tmp_path, no_session)
    for _ in range(KILLS):
        print(killer.kill())
    with Mirror(killer.root, Config(), writer=writer) as mirror:
        killer.judge(mirror.sync().result, writer)


@pytest.mark.slow
def test_whenever_the_engine_looks_the_publisher_of_the_kills_ends_the_same(tmp_path):
    killer, writer = Killer(tmp_path, 1), MemoryDeltaWriter()
    for number in range(60):
        killer.publisher.act() if number % 3 else killer.publisher.act_quietly()
        if number % 7 == 0:
            with Mirror(killer.root, Config(max_batch_files=3), writer=writer) as mirror:
                killer.judge(mirror.sync().result, writer)


@pytest.mark.parametrize(
    "harm",
    [
        lambda commits: [*commits[:-1], replace(commits[-1], rows=commits[-1].rows[1:])],
        lambda commits: [*commits[:-1], replace(commits[-1], rows=commits[-1].rows * 2)],
        lambda commits: [*commits, commits[-1]],
        lambda commits: commits[:-1],
    ],
    ids=["a row lost", "a row doubled", "a file in two commits", "a commit lost"],
)
def test_the_judge_of_the_kills_notices(tmp_path, harm):
    killer, writer = Killer(tmp_path, 2), MemoryDeltaWriter()
    for _ in range(10):
        killer.publisher.act()
    with Mirror(killer.root, Config(max_batch_files=1), writer=writer) as mirror:
        verdict = mirror.sync().result
    killer.judge(verdict, writer)
    writer._tables["dbo/Events"] = harm(writer._tables["dbo/Events"])
    with pytest.raises(AssertionError):
        killer.judge(verdict, writer)
