"""`run` with real Spark for half an hour, twenty tables, two files a second: does anything grow?

`make soak`, or `PYTHONPATH=tests python -m soak --minutes 5`.

Memory, files, threads and lag are sampled while the engine runs; bounds are checked over the second two thirds.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
from deltalake import DeltaTable
from killed_publisher import DECLARED, TYPES
from seed import SEED

from mirror_engine import Mirror
from mirror_engine.landing_zone.layout import TABLES
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

TABLE_COUNT, ROWS_PER_FILE, KEYS = 20, 10, 1000
MAINTAIN_AFTER = 10  # data files; by default it is 100, which no table reaches within half an hour
SAMPLE_SECONDS = 10.0
SAMPLES_BETWEEN_COLLECTIONS = 12
DRAIN_SECONDS = 300.0
REST_SECONDS = 75.0  # longer than an idle thread of any pool lives
RESULTS = Path("soak.json")
MAX_GROWTH = {
    "python_mb": 24,  # the ledger and applied files: 3,600 of them, below a kilobyte each, twice
    "live_heap_mb": 100,  # Delta keeps the logs of twenty tables, which grow by their commits
    "python_files": 12,
    "jvm_files": 12,
    "python_threads": 6,
    "jvm_threads": 6,
    "pending": 30,  # files: the lag of 15 seconds
}
MAX_VALUE = {
    "jvm_mb": 2048 + 1024,  # the heap, which Java fills before it clears, and code, classes, threads and buffers
    "fullest_table": 4 * MAINTAIN_AFTER,  # files: a commit leaves at most two, and a table waits to be maintained
}
MAX_POOLED_AT_REST = 24
# threads of pools that come and go: deltalake's readers, and Spark's own as the system cuts their names
POOLED = {"tokio-rt-worker", "block-manager-s", "block-manager-a", "shuffle-exchang", "broadcast-excha"}
POOLED |= {"ResultQueryStag", "QueryStageCreat"}


class Lane:
    """One table: half of them Parquet with keys, a quarter delimited text, a quarter keyless."""

    def __init__(self, writer, number, chance):
        self.name = f"Table{number:02d}"
        self.is_keyed = number % 4 != 3
        self._random = chance
        text = {"file_format": "CSV", "columns": DECLARED} if number % 4 == 2 else {}
        self._folder = writer.table(self.name, keys=["id"] if self.is_keyed else [], types=TYPES, **text)
        self._by_key = {}
        self._rows = Counter()
        self.files = self._changes = 0

    def land(self):
        changes = []
        for _ in range(ROWS_PER_FILE):
            self._changes += 1
            key, value = self._random.randrange(KEYS), self._changes
            marker = self._random.choice([1, 4, 4, 2]) if self.is_keyed else 0
            changes.append((marker, {"id": key, "n": value, "note": "x" * self._random.randrange(40)}))
            if not self.is_keyed:
                self._rows[key, value] += 1
            elif marker == 2:
                self._by_key.pop(key, None)
            else:
                self._by_key[key] = value
        self._folder.apply_changes(*changes)
        self.files += 1

    @property
    def expected(self):
        """`id` and `n` of the rows once all is applied."""
        return Counter(self._by_key.items()) if self.is_keyed else self._rows


def land_steadily(lanes, seconds, rate):
    """Land files in turn, so many a second; a late file is landed at once, so that the pace holds."""
    started, count = time.monotonic(), 0
    while (due := started + count / rate) < started + seconds:
        time.sleep(max(due - time.monotonic(), 0.0))
        lanes[count % len(lanes)].land()
        count += 1


def main(arguments=None):
    """Run it, write the results, print what grew; 1 if something did, or if a row is wrong."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=2.0, help="change files a second, in all tables together")
    options = parser.parse_args(arguments)
    root = Path(tempfile.mkdtemp(prefix="mirror-soak-")) / "shop"
    pace = f"{options.minutes:g} minutes, {options.rate:g} files a second"
    print(f"ROOT {root}, {pace}, MIRROR_TEST_SEED={SEED}", flush=True)
    writer, chance = LandingZoneWriter(root), random.Random(SEED)
    lanes = [Lane(writer, number, chance) for number in range(TABLE_COUNT)]
    command = [sys.executable, "-m", "mirror_engine.cli.main", "run", str(root)]
    engine = subprocess.Popen([*command, "--poll-interval", "5", "--auto-maintain", str(MAINTAIN_AFTER)])
    landing = threading.Thread(target=land_steadily, args=(lanes, options.minutes * 60, options.rate))
    landing.start()
    samples = []
    while landing.is_alive() and engine.poll() is None:
        time.sleep(SAMPLE_SECONDS)
        samples.append(sample(engine.pid, root, lanes))
        if len(samples) % SAMPLES_BETWEEN_COLLECTIONS == 0:
            samples[-1] |= live_heap(engine.pid)
        print(" ".join(f"{name}={value:.0f}" for name, value in samples[-1].items()), flush=True)
    landing.join()
    end = time.monotonic() + DRAIN_SECONDS
    while pending(root, lanes) and time.monotonic() < end:
        time.sleep(1.0)
    time.sleep(REST_SECONDS)
    at_rest = sample(engine.pid, root, lanes)
    engine.send_signal(signal.SIGTERM)
    code = engine.wait(DRAIN_SECONDS)
    with Mirror(root) as mirror:
        tables = {lane.name: mirror.read_table(lane.name).select(["id", "n"]).to_pylist() for lane in lanes}
    rows = {name: Counter((row["id"], row["n"]) for row in table) for name, table in tables.items()}
    wrong = [lane.name for lane in lanes if rows[lane.name] != lane.expected]
    trends = {name: trend for name in MAX_GROWTH | MAX_VALUE if (trend := trend_of(samples, name))}
    bounds = [(name, "growth", bound) for name, bound in MAX_GROWTH.items()]
    bounds += [(name, "max", bound) for name, bound in MAX_VALUE.items()]
    exceeded = [bound for bound in bounds if bound[0] in trends and trends[bound[0]][bound[1]] > bound[2]]
    problems = [f"{name}: {key} is {trends[name][key]:.1f}, at most {bound}" for name, key, bound in exceeded]
    problems += ["pools keep their threads at rest"] if at_rest.get("jvm_pooled", 0) > MAX_POOLED_AT_REST else []
    problems += [f"exit code {code}"] if code else []
    problems += [f"{at_rest['pending']:.0f} files not applied"] if at_rest["pending"] else []
    problems += [f"rows differ in {', '.join(wrong)}"] if wrong else []
    results = {**vars(options), "seed": SEED, "landed": sum(lane.files for lane in lanes), "problems": problems}
    results |= {"trends": trends, "at_rest": at_rest, "samples": samples}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for name, trend in trends.items():
        print(f"{name:16}" + "".join(f" {key} {value:9.2f}" for key, value in trend.items()))
    print("\n".join(problems or ["nothing grows, and every row is right"]))
    return 1 if problems else 0


def trend_of(samples, name):
    """Mean, maximum and growth of a measure in the second two thirds; None if it was hardly measured."""
    start, end = samples[0]["at"], samples[-1]["at"]
    late = [(it["at"], it[name]) for it in samples if name in it and it["at"] >= start + (end - start) / 3]
    if len(late) < 3:
        return None
    at, values = np.array(late).T
    slope = float(np.polyfit(at - at[0], values, 1)[0])
    return {"mean": float(values.mean()), "max": float(values.max()), "growth": slope * float(at[-1] - at[0])}


def pending(root, lanes):
    """Landed files that are in no commit yet."""
    with Mirror(root) as mirror:
        tables = mirror._status().tables
    return sum(lane.files for lane in lanes) - sum(sum(table.watermarks.values()) for table in tables)


def sample(engine, root, lanes):
    """Memory, open files and threads of both processes, pending files, and the files of the fullest table."""
    counts = [len(DeltaTable(str(log.parent)).file_uris()) for log in (root / TABLES).glob("*/*/_delta_log")]
    values = {"at": time.time(), "pending": pending(root, lanes), "fullest_table": max(counts, default=0)}
    for name, process in (("python", engine), ("jvm", jvm_of(engine))):
        if process:
            values |= {f"{name}_{key}": value for key, value in process_values(process).items()}
    return values


def process_values(process):
    home = Path(f"/proc/{process}")
    try:
        status = dict(line.split(":", 1) for line in (home / "status").read_text().splitlines())
        threads = [(task / "comm").read_text().strip() for task in (home / "task").iterdir()]
        files = sum(1 for _ in (home / "fd").iterdir())
    except (FileNotFoundError, ProcessLookupError):  # it, or one of its threads, has just ended
        return {}
    own = sum(name not in POOLED for name in threads)
    return {"mb": int(status["VmRSS"].split()[0]) / 1024, "files": files, "threads": own, "pooled": len(threads) - own}


def live_heap(engine):
    """The JVM's heap after two collections; nothing without a JVM, or without the JDK's jcmd."""
    jvm, tool = jvm_of(engine), shutil.which("jcmd")
    if not jvm or not tool:
        return {}
    output = ""
    for command in ("GC.run", "GC.run", "GC.heap_info"):
        output = subprocess.run([tool, str(jvm), command], capture_output=True, text=True, check=False).stdout
        time.sleep(3.0)  # Spark releases what a collection freed; the next one collects that
    used = output.partition(" used ")[2].partition("K")[0]
    return {"live_heap_mb": int(used) / 1024} if used.isdigit() else {}


def jvm_of(process):
    """The Java process below a process, however many shells are between them."""
    below = [process]
    while below:
        process = below.pop()
        home = Path(f"/proc/{process}")
        try:
            if (home / "comm").read_text().strip() == "java":
                return process
            below += [
                int(child) for task in (home / "task").iterdir() for child in (task / "children").read_text().split()
            ]
        except FileNotFoundError:
            continue
    return None


if __name__ == "__main__":
    sys.exit(main())
