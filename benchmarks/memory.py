"""Memory of `sync` with each merge engine: a backlog and twenty times as much, changes into large tables."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from measure import family, lines_of, machine
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter
from speed import rows
from speed.places import land, zone

RESULTS = Path(__file__).parent / "results"
ROWS_PER_FILE = 25_000  # 1 MiB
KEYS = 200_000  # the table grows no further, so that the backlog alone makes the difference
SECONDS_BETWEEN_LOOKS = 0.05
ENGINES = ("arrow", "spark")
MIRROR = [sys.executable, "-m", "mirror_engine.cli.main"]


def backlog(root: Path, files: int) -> Path:
    """One table with so many files of upserts, a mebibyte each."""
    draw = np.random.default_rng(9)
    orders = LandingZoneWriter(root).table("Orders", keys=["Id"])
    for _ in range(files):
        numbers = {f"Number{at}": draw.random(ROWS_PER_FILE) for at in range(4)}
        markers = pa.array(np.full(ROWS_PER_FILE, 4), pa.int32())
        orders.land_parquet(
            pa.table({"Id": draw.integers(0, KEYS, ROWS_PER_FILE), **numbers, "__rowMarker__": markers})
        )
    return root


def peaks(command: list[str]) -> dict[str, int]:
    """The highest resident memory of a command's own process, of its JVM, and of both at one moment, in MiB."""
    highest = {"python": 0, "jvm": 0, "together": 0}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 - our own command
    while process.poll() is None:
        others = [_resident(pid) for pid in family(process.pid) if pid != process.pid]
        now = {"python": _resident(process.pid), "jvm": max(others, default=0)}  # what a JVM starts begins as its copy
        now["together"] = sum(now.values())
        highest = {kind: max(most, now[kind]) for kind, most in highest.items()}
        time.sleep(SECONDS_BETWEEN_LOOKS)
    if process.returncode:
        sys.exit(f"failed: {command}")
    return {kind: most // 2**20 for kind, most in highest.items()}


def _resident(pid: int) -> int:
    facts = dict(line.partition(":")[::2] for line in lines_of(Path(f"/proc/{pid}/status")))
    return int((facts.get("VmRSS") or "0").split()[0]) * 1024


def sync(root: Path, engine: str, driver_memory: str, *options: str) -> list[str]:
    """The command that brings a ROOT up to date with an engine; `arrow` has no driver."""
    heap = ["--driver-memory", driver_memory] if engine == "spark" else []
    return [*MIRROR, "sync", str(root), "--merge-engine", engine, *heap, *options]


def of_backlog(engine: str, batch_files: int, batches: int, driver_memory: str) -> dict[str, Any]:
    """One run over so many batches, each of so many files."""
    with tempfile.TemporaryDirectory(prefix="mirror-engine-bench-") as folder:
        root = backlog(Path(folder), batch_files * batches)
        lying = sum(file.stat().st_size for file in root.rglob("*.parquet"))
        size = str(lying // batches + 1)
        found = peaks(sync(root, engine, driver_memory, "--max-batch-size", size))
        history = [*MIRROR, "history", "-C", str(root), "Orders", "--limit", "0", "--json"]
        told = json.loads(subprocess.run(history, check=True, capture_output=True).stdout)  # noqa: S603 - our own
    return {
        "batch_mib": round(int(size) / 2**20, 1),
        "backlog_mib": lying // 2**20,
        "batches": len(told["commits"]),
        **found,
    }


def of_merge(engine: str, millions: int, changes: int, driver_memory: str) -> dict[str, Any]:
    """The load of a table of so many million rows, and net changes with random keys merged into it."""
    with tempfile.TemporaryDirectory(prefix="mirror-engine-bench-") as folder:
        home = Path(folder)
        files = rows.initial_load(home / "data", millions * 1_000_000, millions)
        change = rows.net_changes(home / "change", millions + 1, np.arange(millions * 1_000_000) + 1, changes)
        zone(home)
        land(home, files)
        found = {"load": peaks(sync(home, engine, driver_memory))}
        land(home, [change])
        return {**found, "merge": peaks(sync(home, engine, driver_memory))}


def main() -> None:
    """Measure, print, and keep the figures."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--batches", type=int, default=3)
    given.add_argument("--times", type=int, default=20)
    given.add_argument("--batch-files", type=int, default=4)
    given.add_argument("--driver-memory", default="512m")
    given.add_argument("--millions", type=int, nargs="*", default=[5, 20], help="rows of the large tables")
    given.add_argument("--changes", type=int, default=100_000, help="merged into them")
    given.add_argument("--merge-driver-memory", default="2g")
    given.add_argument("--results", type=Path, default=RESULTS)
    options = given.parse_args()
    small, large = (options.batch_files, options.batches), (options.batch_files, options.batches * options.times)
    wide = (options.batch_files * 8, options.batches)
    runs: dict[str, Any] = {}
    for engine in ENGINES:
        for name, size in (("backlog", small), (f"backlog x {options.times}", large), ("batch x 8", wide)):
            runs[f"{engine}, {name}"] = of_backlog(engine, *size, options.driver_memory)
        for millions in options.millions:
            name = f"{engine}, {options.changes:,} changes into {millions}M rows"
            runs[name] = of_merge(engine, millions, options.changes, options.merge_driver_memory)
    told = {"machine": machine(), "driver_memory": options.driver_memory, "peak_mib": runs}
    options.results.mkdir(exist_ok=True)
    (options.results / "memory.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
