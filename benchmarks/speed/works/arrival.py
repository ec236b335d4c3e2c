"""The latency of `run`: from landing to visible rows, one file a second and table."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

from speed import floor, rows
from speed.bench import Goal, Line, Measured
from speed.places import mirrored, zone
from speed.programs import Run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from speed.bench import Bench, Turn

CHANGES_A_FILE = 100
KEYS = 1_000
LIMITS = ((0.15, 0.25), (0.2, 0.4), (0.4, 1.0))  # seconds for `arrow`: p50 and p95 of each number of tables


def arrival(bench: Bench) -> Line:
    """Run one table alone, then several at once, with each merge engine."""
    sizes = bench.sizes
    # two cores merge fewer than ten tables a second on Spark
    cases = [("arrow", tables) for tables in sizes.arrival_tables]
    cases += [("spark", tables) for tables in sizes.arrival_tables[:2]]
    figures = bench.compare({_named(*case): _turn(bench, *case) for case in cases}, 0)
    limits = {
        f"{_named('arrow', tables)}, {part}": limit
        for tables, both in zip(sizes.arrival_tables, LIMITS, strict=False)
        for part, limit in zip(("p50", "p95"), both, strict=True)
    }
    limits["spark-engine, one table, p50"] = 2.5
    goals = tuple(Goal(f"{name} ≤ {limit:g} s", figures.median(name), limit, " s") for name, limit in limits.items())
    return Line(
        figures,
        goals,
        f"a file of {CHANGES_A_FILE} changes a second into each table, {sizes.arrival_seconds} a round after"
        f" {sizes.arrival_warm_up_files} that warm up",
    )


def _named(engine: str, tables: int) -> str:
    return f"{engine}-engine, {'one table' if tables == 1 else f'{tables} tables'}"


def _turn(bench: Bench, engine: str, count: int) -> Turn:
    first, seconds = bench.sizes.arrival_warm_up_files, bench.sizes.arrival_seconds
    folder = bench.home / "data" / f"arrival-{first + seconds}"
    files = rows.histories(folder, 1, first + seconds, CHANGES_A_FILE, keys=KEYS)
    expected = floor.of_query(floor.after([], files))
    tables, name = [f"Orders{number}" for number in range(count)], _named(engine, count)

    def turn(place: Path) -> Measured:
        zone(place, tables)
        with Run(place, engine) as run:
            for file in files[:first]:
                for table in tables:
                    run.land(table, file)
                run.await_all()
            _land_steadily(run, files[first:], tables)
            run.await_all()
        for table in tables:
            floor.check(name, mirrored(place, table), expected)
        waits = run.waits(files[first:])
        return Measured({f"{name}, p50": statistics.median(waits), f"{name}, p95": float(np.percentile(waits, 95))})

    return turn


def _land_steadily(run: Run, files: Sequence[Path], tables: Sequence[str]) -> None:
    """Land a file a second in each table, each at a moment of its own; late ones at once."""
    begun = time.monotonic()
    for second, file in enumerate(files):
        for at, table in enumerate(tables):
            time.sleep(max(begun + second + at / len(tables) - time.monotonic(), 0))
            run.land(table, file)
