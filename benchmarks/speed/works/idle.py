"""A thousand tables with nothing to do: what a cycle takes, and how much of a core the waiting costs."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from speed import rows
from speed.bench import Told
from speed.figures import Goal, Line
from speed.places import fresh, land, prepared, zone

if TYPE_CHECKING:
    from pathlib import Path

    from speed.bench import Bench


def idle(bench: Bench) -> Line:
    """Tables that hold what was published, which is no rows; then one of them gets a file."""
    sizes = bench.sizes
    first, second = rows.initial_load(bench.home / "data" / "no-rows", 0, 2)
    tables = [f"Orders{number}" for number in range(sizes.idle_tables)]

    def make(root: Path) -> None:
        zone(root, tables)
        for table in tables:
            land(root, [first], table)
        bench.ask("waiting", "once", root=root)

    source = prepared(bench.home / "prepared" / f"idle-{sizes.idle_tables}", make)

    shares: list[float] = []

    def turn(place: Path) -> Told:
        fresh(source, place)
        told = bench.ask(
            "waiting",
            "idle",
            root=place,
            seconds=sizes.idle_seconds,
            poll_seconds=sizes.idle_poll_seconds,
            file=second,
            table=tables[-1],
        )
        shares.append(told.pop("share of a core"))
        return Told(told)

    figures = bench.compare({"mirror": turn}, 0)
    return Line(
        figures,
        (
            Goal("cycle ≤ 0.3 s", figures.median("a cycle"), " s", at_most=0.3),
            Goal("under 5 % of one core", 100 * statistics.median(shares), " %", at_most=5),
        ),
        f"looking every {sizes.idle_poll_seconds:g} s; a change is seen: until its batch begins",
    )
