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
    engines = {
        "arrow": sizes.arrival_tables,
        "spark": sizes.arrival_tables[:2],
    }  # two cores merge fewer than ten a second
    turns = {
        f"{engine}-engine, {_named(tables)}": _turn(bench, engine, _named(tables), tables)
        for engine, counts in engines.items()
        for tables in counts
    }
    figures = bench.compare(turns, 0)
    limits = zip(sizes.arrival_tables, ((0.15, 0.25), (0.2, 0.4), (0.4, 1.0)), strict=False)
    return Line(
        figures,
        (
            *(
                Goal(
                    f"arrow, {_named(tables)}: {part} ≤ {limit:g} s",
                    figures.median(f"arrow-engine, {_named(tables)}, {part}"),
                    " s",
                    at_most=limit,
                )
                for tables, both in limits
                for part, limit in zip(("p50", "p95"), both, strict=True)
            ),
            Goal("Spark: p50 ≤ 2.5 s", figures.median("spark-engine, one table, p50"), " s", at_most=2.5),
        ),
        f"a file of {CHANGES_A_FILE} changes a second into each table, {sizes.arrival_seconds} a round after"
        f" {sizes.arrival_warm_up_files} that warm up",
    )


def _named(tables: int) -> str:
    return "one table" if tables == 1 else f"{tables} tables"


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
