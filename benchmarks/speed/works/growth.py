"""Time per batch as the table grows, and as the batch does; keys in the newest part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from speed import rows
from speed.figures import Goal, Line
from speed.turns import Changed

if TYPE_CHECKING:
    from speed.bench import Bench, Turn

FLAT = 1.25  # what noise makes of 1


def growth(bench: Bench) -> Line:
    """The same changes into tables of several sizes, and several times the changes into the middle one."""
    sizes = bench.sizes
    smallest, largest = min(sizes.growth_files), max(sizes.growth_files)
    middle = sorted(sizes.growth_files)[len(sizes.growth_files) // 2]
    least, most = min(sizes.growth_changes), max(sizes.growth_changes)
    turns: dict[str, Turn] = {}
    for files in sizes.growth_files:
        turns |= _turns(bench, files, sizes.growth_changes if files == middle else (least,))
    figures = bench.compare(turns)
    flat = figures.ratio(_named(bench, largest, least), _named(bench, smallest, least))
    times, longer = most / least, figures.ratio(_named(bench, middle, most), _named(bench, middle, least))
    return Line(
        figures,
        (
            Goal(f"flat (≤ {FLAT} x) from the smallest to the largest table", flat, at_most=FLAT),
            Goal(f"{shown_count(most)} changes at most {times:.0f} x {shown_count(least)}", longer, at_most=times),
        ),
        "changes -> rows in the table; the product alone, with Spark",
    )


def _turns(bench: Bench, files: int, counts: tuple[int, ...]) -> dict[str, Turn]:
    count = files * bench.sizes.growth_rows
    base = rows.initial_load(bench.home / "data" / f"load-{count}", count, files)
    newest = np.arange(count - bench.sizes.growth_rows, count) + 1
    turns = {}
    for changes in counts:
        folder = bench.home / "data" / f"growth-{count}-{changes}"
        change = rows.net_changes(folder, files + 1, newest, changes)
        name = _named(bench, files, changes)
        turns[name] = Changed(bench, f"load-{count}", base, [change]).mirror("spark-engine", name)
    return turns


def _named(bench: Bench, files: int, changes: int) -> str:
    return f"{shown_count(changes)} -> {shown_count(files * bench.sizes.growth_rows)}"


def shown_count(count: int) -> str:
    """`20M`, `400k`, `7`."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= size:
            return f"{count / size:g}{unit}"
    return str(count)
