"""`run` with real Spark for half an hour, twenty tables, two files a second: does anything grow? `make soak`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from soak.samples import Sample, Trend, live_heap_mb, sample, trend, trends
from soak.traffic import Traffic

from mirror_engine.landing_zone.layout import TABLES
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
from mirror_engine.tables.log.snapshot import open_log, read_rows

MINUTES = float(os.environ.get("MIRROR_SOAK_MINUTES", "30"))
FILES_A_SECOND = float(os.environ.get("MIRROR_SOAK_FILES", "2"))
SEED = int(os.environ.get("MIRROR_TEST_SEED", "1"))
OPTIMIZE_AFTER = 10  # data files; by default it is 100, which no table comes to within half an hour
SAMPLE_SECONDS = 10.0
SAMPLES_BETWEEN_COLLECTIONS = 12
DRAIN_SECONDS = 300.0
REST_SECONDS = 75.0  # longer than an idle thread of any pool lives
RESULTS = Path("soak.json")
HEAP_MB = 2048  # --driver-memory
"""Bounds, each with its reason."""
PYTHON_GROWTH_MB = 24  # the ledger and the memory of applied files: 3,600 of them, below a kilobyte each, twice
JVM_HIGHEST_MB = HEAP_MB + 1024  # code, classes, threads and buffers beside the heap, which Java fills before it clears
HEAP_GROWTH_MB = 100  # live: Delta keeps the logs of twenty tables, which grow by their commits
FILES_GROWTH, THREADS_GROWTH = 12, 6  # a commit at hand holds some
MAX_READERS = 64  # as many as files of a few logs are read at once
MAX_POOLED = 100 + 100 + 128 + 1024 + 1024 + 16  # as Spark bounds its pools
MAX_AT_REST = 24  # threads of those pools, once nothing has happened for a while
LAG_GROWTH_SECONDS = 15.0
FULLEST_TABLE = 4 * OPTIMIZE_AFTER  # files: a commit leaves at most two, and a table waits its turn to be maintained


class Engine:
    """`mirror-engine run` as a process, and what its log says."""

    def __init__(self, root: Path, traffic: Traffic) -> None:
        self._traffic = traffic
        self.waits: list[tuple[float, float]] = []
        self.events: Counter[str] = Counter()
        self.committed = 0
        options = ["--poll-interval", "5", "--auto-maintain", str(OPTIMIZE_AFTER), "--log-format", "json"]
        command = [sys.executable, "-m", "mirror_engine.cli.main", "run", str(root), *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def end(self) -> int:
        """Ask it to stop; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(DRAIN_SECONDS)
        self._reader.join()
        return code

    def _read(self) -> None:
        for line in self.process.stderr or ():
            told: dict[str, Any] = json.loads(line)
            self.events[told["event"]] += 1
            if told["event"] == "batch_committed":
                self._note(told)
            elif (
                told["level"] in {"warning", "error"} and told.get("code") != "ME067"
            ):  # tables wait for their first file
                print(line, end="", flush=True)

    def _note(self, told: dict[str, Any]) -> None:
        at = datetime.fromisoformat(told["time"].replace("Z", "+00:00")).timestamp()
        first, _, extension = told["first"].partition(".")
        for number in range(int(first), int(told["last"][:20]) + 1):
            self.committed += 1
            self.waits.append((at, at - self._traffic.landed[told["table"], f"{number:020d}.{extension}"]))


def main() -> int:
    """Run it, write the results, say what grew; 1 where something did, or where a row is wrong."""
    root = Path(tempfile.mkdtemp(prefix="mirror-soak-")) / "shop"
    print(f"ROOT {root}, {MINUTES:g} minutes, {FILES_A_SECOND:g} files a second, MIRROR_TEST_SEED={SEED}", flush=True)
    traffic = Traffic(LandingZoneWriter(root), SEED, FILES_A_SECOND)
    engine = Engine(root, traffic)
    flow = threading.Thread(target=traffic.flow, args=(MINUTES * 60,))
    flow.start()
    samples: list[Sample] = []
    while flow.is_alive() and engine.process.poll() is None:
        time.sleep(SAMPLE_SECONDS)
        behind = len(traffic.landed) - engine.committed
        is_due = len(samples) % SAMPLES_BETWEEN_COLLECTIONS == SAMPLES_BETWEEN_COLLECTIONS - 1
        heap = live_heap_mb(engine.process.pid) if is_due else None
        samples.append(sample(engine.process.pid, root / TABLES, behind, heap))
        print(_line(samples[-1]), flush=True)
    flow.join()
    end = time.monotonic() + DRAIN_SECONDS
    while engine.committed < len(traffic.landed) and time.monotonic() < end:
        time.sleep(1.0)
    time.sleep(REST_SECONDS)
    rest = sample(engine.process.pid, root / TABLES, 0, None)
    rest = replace(rest, live_heap_mb=live_heap_mb(engine.process.pid))  # looking for garbage sets pools to work
    print(f"at rest: {_line(rest)}", flush=True)
    code = engine.end()
    wrong = [lane.name for lane in traffic.lanes if found(root, lane.name) != lane.expected]
    told = _told(samples, rest, engine, traffic, code, wrong)
    RESULTS.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(_table(told))
    return 1 if told["faults"] else 0


def found(root: Path, table: str) -> Counter[tuple[int, int]]:
    """The rows a table holds: `id` and `n`."""
    log = open_log(root / TABLES / "dbo" / table)
    rows = [] if log is None else read_rows(log).to_pylist()
    return Counter((row["id"], row["n"]) for row in rows)


def _told(  # noqa: PLR0913, PLR0917 - all that was seen
    samples: list[Sample], rest: Sample, engine: Engine, traffic: Traffic, code: int, wrong: list[str]
) -> dict[str, Any]:
    seen = trends(samples)
    lag = trend([at for at, _ in engine.waits], [seconds for _, seconds in engine.waits])
    assert lag is not None
    late = [seconds for _, seconds in engine.waits[len(engine.waits) // 3 :]]
    checks = {
        **_grown(seen, lag),
        f"{rest.pool_threads or 0:.0f} threads of pools are left": (rest.pool_threads or 0) > MAX_AT_REST,
        f"exit code {code}": code != 0,
        f"{len(traffic.landed) - engine.committed} files not applied": len(traffic.landed) != engine.committed,
        f"rows differ in {', '.join(wrong)}": bool(wrong),
    }
    return {
        "minutes": MINUTES,
        "auto_maintain": OPTIMIZE_AFTER,
        "seed": SEED,
        "landed": len(traffic.landed),
        "events": dict(engine.events),
        "lag_seconds": {**_rounded(lag), "p50": _percentile(late, 50), "p95": _percentile(late, 95)},
        "trends": {name: _rounded(each) for name, each in seen.items()},
        "at_rest": asdict(rest),
        "faults": [fault for fault, is_so in checks.items() if is_so],
        "samples": [asdict(each) for each in samples],
    }


def _grown(seen: dict[str, Trend], lag: Trend) -> dict[str, bool]:
    """What is said of each measure that is out of its bound."""
    growth = {name: each.growth for name, each in {**seen, "lag": lag}.items()}
    limits = {
        "python_mb": PYTHON_GROWTH_MB,
        "live_heap_mb": HEAP_GROWTH_MB,
        "python_files": FILES_GROWTH,
        "jvm_files": FILES_GROWTH,
        "python_threads": THREADS_GROWTH,
        "jvm_threads": THREADS_GROWTH,
        "lag": LAG_GROWTH_SECONDS,
    }
    tops = {
        "jvm_mb": JVM_HIGHEST_MB,
        "reader_threads": MAX_READERS,
        "pool_threads": MAX_POOLED,
        "fullest_table": FULLEST_TABLE,
    }
    return {
        **{
            f"{name} grows by {growth[name]:.1f}": growth[name] > most
            for name, most in limits.items()
            if name in growth
        },
        **{f"{name} reaches {seen[name].highest:.0f}": seen[name].highest > most for name, most in tops.items()},
    }


def _rounded(of: Any) -> dict[str, float]:
    return {name: round(value, 3) for name, value in asdict(of).items()}


def _percentile(values: list[float], part: int) -> float:
    return round(float(np.percentile(values, part)), 2)


def _line(seen: Sample) -> str:
    told = {name: value for name, value in asdict(seen).items() if name != "at" and value is not None}
    return f"{time.strftime('%H:%M:%S')} " + " ".join(f"{name}={value:.0f}" for name, value in told.items())


def _table(told: dict[str, Any]) -> str:
    lines = [f"{'second two thirds':16} {'mean':>9} {'highest':>9} {'growth':>9} {'a minute':>9}"]
    for name, each in {**told["trends"], "lag_seconds": told["lag_seconds"]}.items():
        shown = [each["mean"], each["highest"], each["growth"], each["growth_a_minute"]]
        lines.append(f"{name:16}" + "".join(f" {value:9.2f}" for value in shown))
    lag = told["lag_seconds"]
    lines.append(f"{told['landed']} files in {told['events'].get('batch_committed', 0)} commits, ")
    lines[-1] += f"{told['events'].get('table_maintained', 0)} times a table was maintained; "
    lines[-1] += f"from landing to commit p50 {lag['p50']} s, p95 {lag['p95']} s"
    lines += [f"FAULT: {fault}" for fault in told["faults"]] or ["nothing grows, and every row is right"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
