"""Thirty days of `run` on a clock that is moved forward, 1,000 files a day: does a change cost more with age?

`make days`, or `PYTHONPATH=tests python -m soak_days --days 30`. One process runs the engine and its publisher.
Clean-up, retention, compaction, VACUUM and the clean-up of logs take place when they are due: the wall clock of the
whole process is moved (`moved_clock`), by which its files are dated, too.

A line is fitted to the processor time, bytes and memory of each day, from the day on when retention deletes as much as
is written. The slopes are printed in per cent of the mean per ten days; one above its bound fails the soak.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from moved_clock import COMPILER, VARIABLE, MovedClock, environment

from mirror_engine import Config, Mirror
from mirror_engine.events import BatchCommitted, CycleEnded, TableMaintained
from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.landing_zone.layout import LEDGER, TABLES, ZONE
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

DAY_SECONDS = 86_400
WAIT_SECONDS = 300.0
REST_SECONDS = 2.0  # for maintenance that is due to begin and end
# per cent of the mean, per ten days
MAX_SLOPES = {
    "cpu_ms_per_file": 15.0,  # other programs use the same caches and cores
    "bytes_written_per_file": 5.0,
    "commit_bytes": 3.0,
    "log_entries": 5.0,
    "disk_mb": 5.0,
    "memory_mb": 5.0,
}


@dataclass(frozen=True)
class Pace:
    """How much happens.

    Attributes:
        days: how many pass.
        files: change files a day, in all tables together.
        rounds: how often a day they land and are applied; a round is a commit of each table.
        tables: how many there are.
        retention_days: how long applied files, replaced data files and commits are kept.
        compact_after: data files of a table after which it is compacted.
    """

    days: int = 30
    files: int = 1_000
    rounds: int = 50
    tables: int = 4
    retention_days: int = 7
    compact_after: int = 50

    @property
    def settled(self):
        """The first day from which on as much is deleted as is written: VACUUM and checkpoints come a day late."""
        return self.retention_days + 3


class Lane:
    """A table, and the rows that it must have."""

    def __init__(self, zone, number, chance, keys):
        self.name, self._keys = f"Table{number}", keys
        self._folder = zone.table(self.name, keys=["id"])
        self._chance = chance
        self._changes = 0
        self.rows = {}

    def land(self):
        """Land one change: an upsert, or the deletion of a key, one in ten."""
        self._changes += 1
        key, is_delete = self._chance.randrange(self._keys), self._chance.random() < 0.1
        marker = RowMarker.DELETE if is_delete else RowMarker.UPSERT
        if is_delete:
            self.rows.pop(key, None)
        else:
            self.rows[key] = self._changes
        changes = {"id": [key], "n": [self._changes], MARKER_COLUMN: pa.array([int(marker)], pa.int32())}
        self._folder.land_parquet(pa.table(changes), modified_ns=time.time_ns())


class Heard:
    """Counts what the engine did, and lets others wait for it."""

    def __init__(self):
        self._changed = threading.Condition()
        self.files = self.cycles = 0
        self.commits = []  # table and version of each
        self.done = Counter()

    def __call__(self, event):
        with self._changed:
            if isinstance(event, BatchCommitted):
                self.files += len(event.files)
                self.commits.append((event.table.table, event.version))
            elif isinstance(event, CycleEnded):
                self.cycles += 1
            elif isinstance(event, TableMaintained):
                self.done.update({"maintained": 1, **event.done})
            self._changed.notify_all()

    def wait_for(self, is_so, seconds=None):
        """Wait until a condition holds.

        Raises:
            TimeoutError: it does not for so long, by default minutes.
        """
        with self._changed:
            if not self._changed.wait_for(is_so, seconds or WAIT_SECONDS):
                raise TimeoutError(f"{self.files} files, {len(self.commits)} commits, {self.cycles} cycles")


class Days:
    """A ROOT whose days pass."""

    def __init__(self, root, pace, seed=1):
        self.root, self.pace = root, pace
        self._clock = MovedClock()
        zone, chance = LandingZoneWriter(root), random.Random(seed)
        keys = pace.files  # so few that a table has nearly all of them once the days are settled
        self.lanes = [Lane(zone, number, chance, keys) for number in range(pace.tables)]
        self.heard = Heard()
        self._landed = 0

    def run(self):
        """Run the engine through all days; gives the measures of each."""
        days, stop = [], threading.Event()
        config = Config(
            merge_engine="arrow",
            timing="fabric",  # no file-system events: it looks when it is told to
            poll_interval_seconds=DAY_SECONDS,
            delete_processed_after_seconds=self.pace.retention_days * DAY_SECONDS,
            vacuum_retention_days=self.pace.retention_days,
            auto_maintain=self.pace.compact_after,
        )
        mirror = Mirror(str(self.root), config, listeners=[self.heard], clock=self._clock.of_mirror())
        engine = threading.Thread(target=mirror.run, args=(stop,))
        engine.start()
        try:
            self.heard.wait_for(lambda: self.heard.cycles)
            for _ in range(self.pace.days):
                days.append(self._day(mirror))
                print(" ".join(f"{name}={value:.6g}" for name, value in days[-1].items()), file=sys.stderr, flush=True)
        finally:
            stop.set()
            engine.join()
        with mirror:
            self.wrong = [lane.name for lane in self.lanes if rows_of(mirror, lane.name) != lane.rows]
        return days

    def _day(self, mirror):
        commits, written, used = len(self.heard.commits), bytes_written(), time.process_time()
        of_publisher = [0, 0.0]
        for _ in range(self.pace.rounds):
            before = bytes_written(), time.process_time()
            for _ in range(self.pace.files // self.pace.rounds):
                self.lanes[self._landed % len(self.lanes)].land()
                self._landed += 1
            of_publisher[0] += bytes_written() - before[0]
            of_publisher[1] += time.process_time() - before[1]
            self._apply(mirror)
            self._clock.advance(DAY_SECONDS / self.pace.rounds)
        self._rest(mirror)
        written, used = bytes_written() - written - of_publisher[0], time.process_time() - used - of_publisher[1]
        return {
            "cpu_ms_per_file": 1_000 * used / self.pace.files,
            "bytes_written_per_file": written / self.pace.files,
            "commits": len(self.heard.commits) - commits,
            "commit_bytes": statistics.median(map(self._commit_bytes, self.heard.commits[commits:])),
            **self._sizes(),
            "memory_mb": resident_mb(),
        }

    def _apply(self, mirror):
        """Have all that landed applied, and the folders cleaned by a cycle after that."""
        cycles = self.heard.cycles
        mirror.wake()
        self.heard.wait_for(lambda: self.heard.files == self._landed and self.heard.cycles > cycles)
        cycles = self.heard.cycles
        mirror.wake()
        self.heard.wait_for(lambda: self.heard.cycles > cycles)

    def _rest(self, mirror):
        """Let maintenance end while nothing lands: VACUUM is left to the next time where a change waits."""
        done, before = self.heard.done, -1
        while before < done["maintained"]:
            before, cycles = done["maintained"], self.heard.cycles
            mirror.wake()
            self.heard.wait_for(lambda cycles=cycles: self.heard.cycles > cycles)
            with suppress(TimeoutError):  # none is due
                self.heard.wait_for(lambda before=before: done["maintained"] > before, REST_SECONDS)

    def _commit_bytes(self, commit):
        table, version = commit
        return (self.root / TABLES / "dbo" / table / f"_delta_log/{version:020}.json").stat().st_size

    def _sizes(self):
        logs = [entry for log in (self.root / TABLES).glob("*/*/_delta_log") for entry in os.scandir(log)]
        ledger = sum(file.stat().st_size for file in (self.root / LEDGER).parent.glob(f"{Path(LEDGER).name}*"))
        return {
            "log_entries": len(logs),
            "disk_mb": (sum(size for _, size in sizes(self.root)) - ledger) / 2**20,
            "ledger_bytes_per_file": ledger / self._landed,
            "archived": sum(1 for path, _ in sizes(self.root / ZONE) if path.endswith(".parquet")),
        }


def sizes(folder):
    """Every file below a folder with its size in bytes."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # maintenance deletes meanwhile
                yield f"{parent}/{name}", Path(parent, name).stat().st_size


def rows_of(mirror, table):
    """`n` by key."""
    rows = mirror.read_table(table)
    return dict(zip(rows.column("id").to_pylist(), rows.column("n").to_pylist(), strict=True))


def bytes_written():
    """All that this process has given to `write` so far."""
    return int(Path("/proc/self/io").read_text().partition("wchar: ")[2].split()[0])


def resident_mb():
    """Resident memory after a collection."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def slopes(days, settled):
    """Per cent of the mean per ten days of each measure, by the line that fits the days from `settled` on best."""
    late = days[settled:]
    found = {}
    for name in MAX_SLOPES:
        values = np.array([day[name] for day in late])
        found[name] = float(np.polyfit(np.arange(len(late)), values, 1)[0]) * 10 / float(values.mean()) * 100
    return found


def soak(root, pace):
    """Let the days pass; gives all that was found."""
    days = Days(root, pace)
    measured = days.run()
    found = slopes(measured, pace.settled)
    problems = [f"{name}: {found[name]:+.1f} % per 10 days, at most {bound} %" for name, bound in MAX_SLOPES.items()]
    problems = [text for text, name in zip(problems, MAX_SLOPES, strict=True) if found[name] > MAX_SLOPES[name]]
    problems += [f"rows differ in {', '.join(days.wrong)}"] if days.wrong else []
    return {"days": measured, "slopes": found, "done": days.heard.done, "problems": problems}


def main(arguments=None):
    """Let the days pass in a process whose clock can be moved; 1 if a change costs more with age, or a row is wrong."""
    parser = argparse.ArgumentParser(prog="soak_days", description=__doc__)
    for name, default in vars(Pace()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--json", type=Path, default=Path("soak_days.json"), help="where all measures go")
    options = parser.parse_args(arguments)
    pace = Pace(**{name: getattr(options, name) for name in vars(Pace())})
    if pace.days < pace.settled + 2:
        parser.error(f"--days {pace.days}: at least {pace.settled + 2}, as a line needs days after the retention")
    with tempfile.TemporaryDirectory(prefix="mirror-soak-") as folder:
        if VARIABLE not in os.environ:
            if COMPILER is None or sys.platform != "linux":
                parser.error("the clock is moved on Linux, with a C compiler (cc)")
            command = [sys.executable, "-m", "soak_days", *(sys.argv[1:] if arguments is None else arguments)]
            return subprocess.run(command, env=environment(Path(folder)), check=False).returncode
        found = soak(Path(folder) / "shop", pace)
    options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for name, slope in found["slopes"].items():
        mean = statistics.mean(day[name] for day in found["days"][pace.settled :])
        print(f"{name:24} mean {mean:10.4g}  {slope:+7.2f} % per 10 days, at most {MAX_SLOPES[name]} %")
    print(", ".join(f"{name} {count}" for name, count in found["done"].items()))
    print("\n".join(found["problems"] or ["a change costs the same on every day, and every row is right"]))
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
