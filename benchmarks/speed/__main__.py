"""Measure the works side by side with their peers, and print the lines of the table in docs/performance.md."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from measure import machine
from speed.bench import Bench
from speed.peers import Peers
from speed.sizes import FULL, SMALL
from speed.works import age, arrival, bulk, collapse

if TYPE_CHECKING:
    from collections.abc import Callable

    from speed.bench import Line

ROUNDS = 5
# short-lived JVMs spend their time on compiling
QUICK = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1", "MIRROR_ENGINE_SPARK_PROFILE": "ci"}


class Work(NamedTuple):
    """A line of the table; `is_alone` if it starts JVMs of its own, so that no peer's may run."""

    title: str
    run: Callable[[Bench], Line]
    is_alone: bool = False


WORKS = {
    "load": Work("initial load, 5M rows x 10 columns, 5 files, new table, whole process", bulk.load),
    "merge": Work("MERGE of 100,000 net changes, random keys, into those 5M", bulk.merge),
    "newest": Work("the same with keys in the newest 4 %", bulk.newest),
    "tiny": Work("3 changes into 1,000 rows, warm", bulk.tiny),
    "backlog": Work("backlog: 1,000 files x 100 rows, repeated keys, whole process", bulk.backlog),
    "collapse": Work("collapse of 5M changes over 1M keys x 10 columns in 50 files", collapse.collapse),
    "arrival": Work("file lands -> row visible, `run`, one file a second", arrival.arrival, is_alone=True),
    "age": Work("age: a commit and an idle cycle after many files, partitions and commits", age.age, is_alone=True),
}


def main() -> None:
    """Measure the works that are asked for."""
    parser = argparse.ArgumentParser(prog="speed", description=__doc__)
    parser.add_argument("work", nargs="*", help=f"of {', '.join(WORKS)}; all by default")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds that count (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="only check that all run and end with equal rows")
    parser.add_argument("--home", type=Path, help="keeps data and prepared tables for the next run")
    options = parser.parse_args()
    if unknown := set(options.work) - set(WORKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(WORKS)}")
    if options.small:
        os.environ |= QUICK
    given = nullcontext(options.home) if options.home else tempfile.TemporaryDirectory(prefix="mirror-engine-bench-")
    with given as home, Peers(Path(home).absolute() / "logs") as peers:
        Path(home).mkdir(parents=True, exist_ok=True)
        bench = Bench(Path(home).absolute(), SMALL if options.small else FULL, options.rounds, peers)
        print(json.dumps(machine()), flush=True)
        for name in options.work or sorted(WORKS, key=lambda name: WORKS[name].is_alone):
            print(f"{name} …", file=sys.stderr, flush=True)
            title, run, is_alone = WORKS[name]
            if is_alone:
                peers.end()
            line = run(bench)
            print(
                f"{name}: runs, and all end with the same rows" if options.small else f"| {title} | {line}", flush=True
            )
            if not options.small:
                peers.end()  # the next work begins with JVMs that have seen nothing else
        print(f"load average: {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
