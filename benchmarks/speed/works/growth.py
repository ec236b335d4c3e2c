"""Time per batch as the table grows, and as the batch does; keys in the newest part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from speed import rows
from speed.figures import Goal, Line
from speed.turns import Changed

if TYPE_CHECKING:
    from speed.bench import Bench, Turn

ENGINES = ("arrow", "spark")
FLAT = 1.25  # what noise makes of 1


def growth(bench: Bench) -> Line:
    """The same changes into tables of several sizes, and several times the changes into the middle one."""
    sizes = bench.sizes
    smallest, largest = min(sizes.growth_files), max(sizes.growth_files)
    middle = sorted(sizes.growth_files)[len(sizes.growth_files) // 2]
    least, most = min(sizes.growth_changes), max(sizes.growth_changes)
    turns: dict[str, Turn] = {}
    for engine in ENGINES:
        for files in sizes.growth_files:
            turns |= _turns(bench, engine, files, sizes.growth_changes if files == middle else (least,))
    figures = bench.compare(turns)
    times = most / least
    goals = []
    for engine in ENGINES:
        low, high = _named(bench, engine, smallest, least), _named(bench, engine, largest, least)
        flat = figures.ratio(high, low)
        longer = figures.ratio(_named(bench, engine, middle, most), _named(bench, engine, middle, least))
        words = f"{engine}: {shown_count(most)} changes at most {times:.0f} x {shown_count(least)}"
        goals += [
            Goal(f"{engine}: flat (≤ {FLAT} x) from the smallest to the largest table", flat, at_most=FLAT),
            Goal(words, longer, at_most=times),
        ]
    return Line(figures, tuple(goals), "changes -> rows in the table; the product alone")


def _turns(bench: Bench, engine: str, files: int, counts: tuple[int, ...]) -> dict[str, Turn]:
    count = files * bench.sizes.growth_rows
    base = rows.initial_load(bench.home / "data" / f"load-{count}", count, files)
    newest = np.arange(count - bench.sizes.growth_rows, count) + 1
    turns = {}
    for changes in counts:
        folder = bench.home / "data" / f"growth-{count}-{changes}"
        change = rows.net_changes(folder, files + 1, newest, changes)
        name = _named(bench, engine, files, changes)
        turns[name] = Changed(bench, f"load-{count}", base, [change]).mirror(f"{engine}-engine", name)
    return turns


def _named(bench: Bench, engine: str, files: int, changes: int) -> str:
    return f"{engine} {shown_count(changes)} -> {shown_count(files * bench.sizes.growth_rows)}"


def shown_count(count: int) -> str:
    """`20M`, `400k`, `7`."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= size:
            return f"{count / size:g}{unit}"
    return str(count)
