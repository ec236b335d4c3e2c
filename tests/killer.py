"""Kills `run` with SIGKILL at chosen moments while a publisher lands files, and harms the ledger now and then."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import oracle
from agreement import compare
from killed_publisher import KINDS, KilledPublisher

from mirror_engine.landing_zone.layout import ENGINE, LEDGER, LOGS, SCRATCH, TABLES, ZONE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mirror_engine import RunResult
    from mirror_engine.tables.base import DeltaWriter

COMMAND = [sys.executable, "-m", "mirror_engine.cli.main", "run"]
OPTIONS = ["--poll-interval", "0.3", "--max-batch-files", "3", "--workers", str(len(KINDS))]
# a killed engine's JVM is a new one each time: it is to be warm soon
ENVIRONMENT = {**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"}
MAX_WAIT_SECONDS = 40.0
LOOK_SECONDS = 0.003
# what comes to lie there tells the moment; then so many seconds, at most, are waited
SIGNS = {
    "batch staged": (f"{SCRATCH}/batch-*", 0.4),
    "data file written": (f"{TABLES}/*/*/**/*.snappy.parquet", 0.15),
    "committed": (f"{TABLES}/*/*/_delta_log/*.json", 0.03),
    "file moved away": (f"{ZONE}/**/_FilesReadyToDelete/*.*", 0.005),
}
START = "starting"
DEAR = ["batch staged", "data file written", "committed", "committed", "file moved away"]


class Killer:
    """One ROOT, killed again and again; cheaply where no JVM is waited for.

    Args:
        home: an empty folder, for ROOT and the oracle's copy of the zone.
        seed: brings the same acts and moments again, as far as the machine does.
    """

    optimize = "4"
    cheap_part = 0.75
    cheap_moments: Sequence[str] = (START, "committed")

    def __init__(self, home: Path, seed: int) -> None:
        self.root = home / "shop"
        self.counts: Counter[str] = Counter()
        self._copy = home / "copy"
        self._stash = home / "older-ledger"
        self._chance = random.Random(seed)
        self.publisher = KilledPublisher(self.root, self._copy, self._chance)
        for _ in range(6):
            self._drawn_act()()

    def kill(self) -> str:
        """Start the engine, kill it at some moment, and perhaps harm its ledger; returns what was done."""
        act = self._drawn_act()
        is_cheap = act == self.publisher.act_quietly
        moment = self._chance.choice(self.cheap_moments if is_cheap else DEAR)
        for _ in range(self._chance.randrange(1, 5)):
            act()
        before = self._lying(moment)
        engine = subprocess.Popen(
            [*COMMAND, str(self.root), *OPTIONS, "--auto-maintain", self.optimize],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT,
        )
        wanted = 1 if is_cheap else self._chance.randrange(1, 3)
        is_reached = self._await(moment, before, wanted, act)
        assert engine.poll() is None, self._last_words()
        engine.send_signal(signal.SIGKILL)
        engine.wait()
        self.counts["kills"] += 1
        self.counts[moment if is_reached else f"{moment} (not reached)"] += 1
        return ", ".join([moment, *self._harm()])

    def _drawn_act(self) -> Callable[[], None]:
        return self.publisher.act_quietly if self._chance.random() < self.cheap_part else self.publisher.act

    def judge(self, verdict: RunResult, writer: DeltaWriter) -> None:
        """Hold the tables to the oracle, and every change file to one commit; the engine must have caught up.

        Raises:
            AssertionError: something is lost, doubled or out of order.
        """
        said = oracle.Oracle(self._copy / ZONE)
        said.once(Counter())
        compare(said, verdict, writer)
        self.counts["compactions in the last logs"] = 0
        for table in writer.tables():
            commits = writer.history(table)
            self.counts["compactions in the last logs"] += sum(entry.operation == "OPTIMIZE" for entry in commits)
            files = [path for entry in commits for path in entry.files]
            assert len(files) == len(set(files)), f"{table}: a change file is in two commits"

    def commits(self) -> int:
        """Commits in the logs of the tables there are."""
        return len(self._lying("committed"))

    def _await(self, moment: str, before: set[Path], wanted: int, act: Callable[[], None]) -> bool:
        if moment == START:
            time.sleep(self._chance.random() * 3.0)
            return True
        end = time.monotonic() + MAX_WAIT_SECONDS
        next_act = time.monotonic() + 0.5
        while len(self._lying(moment) - before) < wanted and time.monotonic() < end:
            if time.monotonic() > next_act:
                act()
                next_act = time.monotonic() + 0.2 + self._chance.random()
            time.sleep(LOOK_SECONDS)
        time.sleep(self._chance.random() * SIGNS[moment][1])
        return time.monotonic() < end

    def _lying(self, moment: str) -> set[Path]:
        try:
            return set() if moment == START else set(self.root.glob(SIGNS[moment][0]))
        except FileNotFoundError:  # the engine removed a table while it was looked into
            return self._lying(moment)

    def _harm(self) -> list[str]:
        """Every second time, or so, the ledger is lost in some way."""
        if self._chance.random() < 0.3:
            shutil.rmtree(self._stash, ignore_errors=True)
            self._stash.mkdir()
            for file in self._ledger_files():
                shutil.copy(file, self._stash)
        harms = [self._lose_all, self._lose_ledger, self._truncate, self._put_back]
        if self._chance.random() < 0.5:
            return []
        harm = self._chance.choice(harms)
        harm()
        self.counts["ledger losses"] += 1
        self.counts[harm.__name__.strip("_").replace("_", " ")] += 1
        return [harm.__name__.strip("_").replace("_", " ")]

    def _ledger_files(self) -> list[Path]:
        ledger = self.root / LEDGER
        return sorted(ledger.parent.glob(f"{ledger.name}*"))

    def _lose_all(self) -> None:
        shutil.rmtree(self.root / ENGINE, ignore_errors=True)  # a JVM may still be about to end
        self._lose_ledger()

    def _lose_ledger(self) -> None:
        for file in self._ledger_files():
            file.unlink()

    def _truncate(self) -> None:
        for file in self._ledger_files():
            os.truncate(file, self._chance.randrange(file.stat().st_size + 1))

    def _put_back(self) -> None:
        self._lose_ledger()
        (self.root / LEDGER).parent.mkdir(exist_ok=True)
        for file in self._stash.glob("*"):
            shutil.copy(file, (self.root / LEDGER).parent)

    def _last_words(self) -> str:
        return "\n".join(log.read_text(errors="replace")[-2000:] for log in (self.root / LOGS).glob("*.log"))


class QuietKiller(Killer):
    """Kills where nothing needs a JVM: folders come and go, files change no row, and each is in one commit."""

    optimize = "off"  # it needs Spark
    cheap_part = 1.0
    cheap_moments = (START, "committed", "file moved away")
