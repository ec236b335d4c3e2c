"""`run` killed with SIGKILL at chosen moments, its ledger damaged now and then: the tables end as the oracle says.

`make torture` does it two hundred times.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from killed_publisher import KINDS, KilledPublisher
from oracle_comparison import compare_caught_up
from seed import SEED
from store_publisher import everything
from store_servers import ONE_BY_DAY

from mirror_engine import Config, Mirror
from mirror_engine.landing_zone.layout import ENGINE, LEASE, LEDGER, LOGS, SCRATCH, TABLES, ZONE
from mirror_engine.storage.roots import state_folder
from mirror_engine.storage.store_url import StoreUrl
from mirror_engine.storage.stores import open_storage
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.merge.arrow import ArrowWriter

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, str(Path(__file__).with_name("marking.py")), "run"]
OPTIONS = ["--poll-interval", "0.3", "--max-batch-files", "3", "--workers", str(len(KINDS)), "--auto-maintain", "4"]
# a killed engine's JVM is a new one each time: it must be warm soon
JVM = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"}
MAX_WAIT_SECONDS = 40.0
POLL_SECONDS = 0.003
# the file that appears at a moment, and the seconds to wait after it, at most
MOMENTS = {
    "batch staged": (f"{SCRATCH}/batch-*", 0.4),
    "rows marked": (f"{TABLES}/*/*/deletion_vector_*.bin", 0.1),
    "data file written": (f"{TABLES}/*/*/**/*.parquet", 0.15),
    "committed": (f"{TABLES}/*/*/_delta_log/*.json", 0.03),
    "file moved away": (f"{ZONE}/**/_FilesReadyToDelete/*.*", 0.005),
}
START = "starting"
WITHOUT_ROWS = [START, "committed", "file moved away"]
WITH_ROWS = ["batch staged", "rows marked", "data file written", "committed", "committed", "file moved away"]


class Killer:
    """One ROOT, killed again and again.

    Args:
        home: an empty folder, for ROOT and the oracle's copy of the zone.
        seed: brings the same acts and moments again, as far as the machine does.
        merge_engines: each start takes the next one.
        cheap_part: how often files change no row, so that no JVM is needed.
        root: a URL that this process reaches; `home / "shop"` by default.
    """

    def __init__(self, home, seed, *merge_engines, cheap_part, root=None):
        self._merge_engine = itertools.cycle(merge_engines)
        self._cheap_part = cheap_part
        self.root = home / "shop" if root is None else root
        self.state = state_folder(self.root)
        self._copy = home / "copy"
        self._stash = home / "older-ledger"
        self._random = random.Random(seed)
        self.publisher = KilledPublisher(self.root, self._copy, self._random)
        for _ in range(6):
            self._drawn_act()()

    def kill(self):
        """Start the engine, kill it at some moment, and perhaps damage its ledger; returns what was done."""
        act = self._drawn_act()
        is_cheap = act == self.publisher.act_without_rows
        moment = self._random.choice(WITHOUT_ROWS if is_cheap else WITH_ROWS)
        for _ in range(self._random.randrange(1, 5)):
            act()
        before = self._files_at(moment)
        merge_engine = next(self._merge_engine)
        engine = subprocess.Popen(
            [*COMMAND, str(self.root), *OPTIONS, "--merge-engine", merge_engine],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **JVM},
        )
        new_files = 1 if is_cheap else self._random.randrange(1, 3)
        is_reached = self._await(moment, before, new_files, act)
        assert engine.poll() is None, "\n".join(
            log.read_text(errors="replace")[-2000:] for log in (self.state / LOGS).glob("*.log")
        )
        engine.send_signal(signal.SIGKILL)
        engine.wait()
        return ", ".join([merge_engine, moment if is_reached else f"{moment} (not reached)", *self._damage()])

    def check(self, result, writer):
        """Compare the tables with the oracle, and every change file with one commit; the engine must have caught up.

        Raises:
            AssertionError: something is lost, duplicate or out of order.
        """
        compare_caught_up(self._copy / ZONE, result, writer)

    def _drawn_act(self):
        is_cheap = self._random.random() < self._cheap_part
        return self.publisher.act_without_rows if is_cheap else self.publisher.act

    def _await(self, moment, before, new_files, act):
        if moment == START:
            time.sleep(self._random.random() * 3.0)
            return True
        end = time.monotonic() + MAX_WAIT_SECONDS
        next_act = time.monotonic() + 0.5
        while len(self._files_at(moment) - before) < new_files and time.monotonic() < end:
            if time.monotonic() > next_act:
                act()
                next_act = time.monotonic() + 0.2 + self._random.random()
            time.sleep(POLL_SECONDS)
        time.sleep(self._random.random() * MOMENTS[moment][1])
        return time.monotonic() < end

    def _files_at(self, moment):
        if moment == START:
            return set()
        pattern = MOMENTS[moment][0]
        if isinstance(self.root, StoreUrl) and not pattern.startswith(ENGINE):
            patterns = [pattern.replace("**/", some) for some in ("", "*/")]
            return {path for path in everything(self.root) if any(fnmatchcase(path, one) for one in patterns)}
        try:
            return set(self.state.glob(pattern))
        except FileNotFoundError:  # the engine removed a table meanwhile
            return self._files_at(moment)

    def _damage(self):
        """Every second time, or so, lose the ledger in some way."""
        folder = (self.state / LEDGER).parent
        files = sorted(folder.glob(f"{(self.state / LEDGER).name}*"))
        if self._random.random() < 0.3:
            shutil.rmtree(self._stash, ignore_errors=True)
            self._stash.mkdir()
            for file in files:
                shutil.copy(file, self._stash)
        if self._random.random() < 0.5:
            return []
        damage = self._random.choice(["state folder lost", "ledger lost", "ledger truncated", "older ledger restored"])
        for file in files:
            if damage == "ledger truncated":
                os.truncate(file, self._random.randrange(file.stat().st_size + 1))
            else:
                file.unlink()
        if damage == "state folder lost":
            shutil.rmtree(self.state / ENGINE, ignore_errors=True)  # a JVM may still be about to end
            if isinstance(self.root, StoreUrl):  # nobody knows then that the engine of the lease is gone
                open_storage(self.root).delete(LEASE)
        if damage == "older ledger restored":
            folder.mkdir(exist_ok=True)
            for file in self._stash.glob("*"):
                shutil.copy(file, folder)
        return [damage]


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
