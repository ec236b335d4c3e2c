"""Measure the works side by side with their peers, and print the lines of the table in docs/performance.md."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mirror_engine.tables.spark.java import find_java
from speed.bench import Bench
from speed.peers import Peers
from speed.sizes import FULL, SMALL
from speed.works import age, arrival, bulk, collapse, stores

if TYPE_CHECKING:
    from collections.abc import Callable

    from speed.bench import Line

PACKAGES = ("mirror-engine", "pyspark", "delta-spark", "deltalake", "duckdb", "pyarrow", "numpy")
# short-lived JVMs spend their time on compiling
QUICK = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1", "MIRROR_ENGINE_SPARK_PROFILE": "ci"}


class Work(NamedTuple):
    """A line of the table."""

    title: str
    run: Callable[[Bench], Line]


WORKS = {
    "load": Work("initial load, 5M rows x 10 columns, 5 files, new table, whole process", bulk.load),
    "merge": Work("MERGE of 100,000 net changes, random keys, into those 5M", bulk.merge),
    "newest": Work("the same with keys in the newest 4 %", bulk.newest),
    "tiny": Work("3 changes into 1,000 rows, warm", bulk.tiny),
    "backlog": Work("backlog: 1,000 files x 100 rows, repeated keys, whole process", bulk.backlog),
    "collapse": Work("collapse of 5M changes over 1M keys x 10 columns in 50 files", collapse.collapse),
    "arrival": Work("file lands -> row visible, `run`, one file a second", arrival.arrival),
    "stores": Work("a ROOT in a store: a small file, and tables without work", stores.stores),
    "age": Work("age: a commit and an idle cycle after many files, partitions and commits", age.age),
}


def machine() -> dict[str, Any]:
    """Describe this machine and its software."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "java": find_java().version,
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "load": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


@click.command(help=__doc__)
@click.argument("work", nargs=-1, type=click.Choice(list(WORKS)))
@click.option("--rounds", default=5, show_default=True, help="Rounds that count.")
@click.option("--small", is_flag=True, help="Only check that all run and end with equal rows.")
@click.option("--home", type=click.Path(path_type=Path), help="Keeps data and prepared tables for the next run.")
def main(work: tuple[str, ...], rounds: int, small: bool, home: Path | None) -> None:  # noqa: FBT001 - as click calls it
    """Measure the works that are asked for."""
    if small:
        os.environ |= QUICK
    with tempfile.TemporaryDirectory(prefix="mirror-engine-bench-") as temporary:
        folder = (home or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        with Peers(folder / "logs") as peers:
            bench = Bench(folder, SMALL if small else FULL, rounds, peers)
            print(json.dumps(machine()), flush=True)
            for name in work or WORKS:
                print(f"{name} …", file=sys.stderr, flush=True)
                line = WORKS[name].run(bench)
                if small:
                    print(f"{name}: runs, and all end with the same rows", flush=True)
                else:
                    print(f"| {WORKS[name].title} | {line}", flush=True)
                    peers.end()  # the next work begins with JVMs that have seen nothing else
            print(f"load average: {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
