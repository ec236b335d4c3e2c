"""`run` killed with SIGKILL at random moments, the ledger deleted now and then: the table ends as the changes say."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pytest

from mirror_engine import Config, Mirror
from mirror_engine.landing_zone.change import Change, RowMarker, replay
from mirror_engine.landing_zone.layout import ENGINE, LOGS, TABLES
from mirror_engine.testing.publisher import Publisher

KILLS = int(os.environ.get("MIRROR_TEST_KILLS", "3"))
SEED = int(os.environ.get("MIRROR_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
TYPES = {"id": pa.int64(), "n": pa.int64()}
COMMAND = [sys.executable, "-m", "mirror_engine.cli.main", "run"]


class Source:
    """Lands random changes and remembers them for the judge."""

    def __init__(self, root, chance):
        self._chance = chance
        self._table = Publisher(root).table("Orders", keys=["id"], types=TYPES)
        self.changes = []

    def land(self):
        drawn = [
            (self._chance.choice(list(RowMarker)), {"id": self._chance.randrange(20), "n": len(self.changes) + number})
            for number in range(self._chance.randrange(1, 30))
        ]
        self._table.change(*((int(marker), row) for marker, row in drawn))
        self.changes += [Change(marker, (row["id"],), row) for marker, row in drawn]


def start(root):
    return subprocess.Popen(
        [*COMMAND, str(root), "--poll-interval", "0.3", "--files-per-commit", "3"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def commits(root):
    return len(list((root / TABLES).rglob("_delta_log/*.json")))


def land_for(seconds, source, chance):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        source.land()
        time.sleep(chance.random() * 0.5)


@pytest.mark.spark
@pytest.mark.slow
def test_killed_at_random_moments_nothing_is_lost_or_doubled(tmp_path, mirror_writer):
    chance = random.Random(SEED)
    print(f"MIRROR_TEST_SEED={SEED}")
    root = tmp_path / "shop"
    source = Source(root, chance)
    source.land()
    for number in range(KILLS):
        engine = start(root)
        before = commits(root)
        # mostly among commits, now and then while the engine still starts
        while number and engine.poll() is None and commits(root) == before:
            land_for(0.5, source, chance)
        land_for(chance.random() * 4, source, chance)
        assert engine.poll() is None, "\n".join(log.read_text()[-2000:] for log in (root / LOGS).glob("*.log"))
        engine.send_signal(signal.SIGKILL)
        engine.wait()
        if number % 2:
            shutil.rmtree(root / ENGINE)
    with Mirror(root, Config(), writer=mirror_writer(root)) as mirror:
        mirror.once()
        mirror.once()
        found = sorted((row["id"], row["n"]) for row in mirror.rows("Orders").to_pylist())
        files = [path for entry in mirror.history("Orders") for path in entry.files]
    expected, _ = replay([], source.changes, ["id"])
    assert found == sorted((row["id"], row["n"]) for row in expected)
    assert len(files) == len(set(files))
