"""Every work by name, with the title under which the table shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from speed.works import age, arrival, bulk, collapse, growth, idle, many, start

if TYPE_CHECKING:
    from collections.abc import Callable

    from speed.bench import Bench
    from speed.figures import Line

BENCHMARKS = Path(__file__).parents[1]
SCRIPTS = {
    "validate": ["--rounds", "1", "--files", "10", "--groups", "1"],
    "memory": ["--batches", "1", "--times", "2", "--batch-files", "1", "--millions", "1"],
    "uploads": ["--rounds", "1", "--files", "8", "--mib", "1"],
}


class Work(NamedTuple):
    """A work of the table.

    Attributes:
        title: under which the table shows it.
        run: does it.
        is_alone: whether it starts JVMs of its own, so that no peer's may run.
    """

    title: str
    run: Callable[[Bench], Line]
    is_alone: bool = False


WORKS = {
    "load": Work("initial load, 5M rows x 10 columns, 5 files, new table, whole process", bulk.load),
    "merge": Work("MERGE of 100,000 net changes, random keys, into those 5M", bulk.merge),
    "keys": Work("the same MERGE with text keys, and with compound keys", bulk.keys),
    "large": Work("the same MERGE into a larger table, `arrow`", bulk.large),
    "few": Work("100 net changes, random keys, into tables of several sizes, warm", bulk.few),
    "newest": Work("the same with keys in the newest 4 %", bulk.newest),
    "tiny": Work("3 changes into 1,000 rows, warm", many.tiny),
    "backlog": Work("backlog: 1,000 files x 100 rows, repeated keys, whole process", many.backlog),
    "collapse": Work("collapse of 5M changes over 1M keys x 10 columns in 50 files", collapse.collapse),
    "start": Work(
        "start to first applied file and first MERGE, whole processes, tiny zone", start.start, is_alone=True
    ),
    "arrival": Work("file lands -> row visible, `run`, one file a second", arrival.arrival, is_alone=True),
    "idle": Work("1,000 idle tables", idle.idle),
    "age": Work("age: a commit and an idle cycle after many files, partitions and commits", age.age, is_alone=True),
    "growth": Work("growth: 1M -> 5M -> 20M rows, keys in the newest part", growth.growth),
}


def run_script(name: str, results: Path, *, small: bool) -> None:
    """One of the older scripts, which measure whole processes."""
    given = SCRIPTS[name] if small else []
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--results", str(results), *given]
    subprocess.run(command, check=True)  # noqa: S603 - our own
