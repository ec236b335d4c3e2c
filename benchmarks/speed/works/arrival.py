"""`run` at its daily work: from a file's landing to its rows' being visible, one file a second and table."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

from speed import equality, floor, rows
from speed.bench import Told
from speed.figures import Goal, Line
from speed.places import mirrored, zone
from speed.running import Run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from speed.bench import Bench, Turn

CHANGES_A_FILE = 100
KEYS = 1_000


def arrival(bench: Bench) -> Line:
    """One table alone, then several at once, with each merge engine; whole runs of the command line."""
    sizes = bench.sizes
    many = f"{sizes.arrival_tables} tables"
    turns = {
        f"{engine}-engine, {name}": _turn(bench, engine, name, tables)
        for engine in ("arrow", "spark")
        for name, tables in (("one table", 1), (many, sizes.arrival_tables))
    }
    figures = bench.compare(turns, 0)
    return Line(
        figures,
        (
            Goal("arrow: p50 ≤ 0.15 s", figures.median("arrow-engine, one table, p50"), " s", at_most=0.15),
            Goal("p95 ≤ 0.25 s", figures.median("arrow-engine, one table, p95"), " s", at_most=0.25),
            Goal(f"{many}: p50 ≤ 0.2 s", figures.median(f"arrow-engine, {many}, p50"), " s", at_most=0.2),
            Goal(f"{many}: p95 ≤ 0.4 s", figures.median(f"arrow-engine, {many}, p95"), " s", at_most=0.4),
            Goal("Spark: p50 ≤ 2.5 s", figures.median("spark-engine, one table, p50"), " s", at_most=2.5),
        ),
        f"a file of {CHANGES_A_FILE} changes a second into each table, {sizes.arrival_seconds} a round after"
        f" {sizes.arrival_warm_up_files} that warm up",
    )


def _turn(bench: Bench, engine: str, name: str, count: int) -> Turn:
    first, seconds = bench.sizes.arrival_warm_up_files, bench.sizes.arrival_seconds
    folder = bench.home / "data" / f"arrival-{first + seconds}"
    files = rows.histories(folder, 1, first + seconds, CHANGES_A_FILE, keys=KEYS)
    expected = equality.of_query(floor.after([], files))
    tables = [f"Orders{number}" for number in range(count)]

    def turn(place: Path) -> Told:
        zone(place, tables)
        with Run(place, engine) as run:
            for file in files[:first]:
                for table in tables:
                    run.land(table, file)
                run.await_all()
            _at_a_steady_pace(run, files[first:], tables)
            run.await_all()
        for table in tables[1:]:
            equality.check(name, mirrored(place, table), expected)
        waits = run.waits(files[first:])
        found = {"p50": statistics.median(waits), "p95": float(np.percentile(waits, 95))}
        return Told(
            {f"{engine}-engine, {name}, {part}": seconds for part, seconds in found.items()},
            mirrored(place, tables[0]),
            expected,
        )

    return turn


def _at_a_steady_pace(run: Run, files: Sequence[Path], tables: Sequence[str]) -> None:
    """A file a second into each table, each at a moment of its own; who is late goes on at once."""
    begun = time.monotonic()
    for second, file in enumerate(files):
        for at, table in enumerate(tables):
            time.sleep(max(begun + second + at / len(tables) - time.monotonic(), 0))
            run.land(table, file)
