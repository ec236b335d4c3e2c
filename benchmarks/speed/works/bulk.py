"""The initial load of a new table, and net changes merged into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from speed import equality, floor, rows
from speed.bench import Told
from speed.figures import Goal, Line
from speed.places import TABLE, land, mirrored, zone
from speed.turns import Changed

if TYPE_CHECKING:
    from pathlib import Path

    from speed.bench import Bench, Figures, Turn

NEWEST_PART = 25  # a twenty-fifth: 4 %


def loaded(bench: Bench) -> list[Path]:
    """The files of the initial load."""
    sizes = bench.sizes
    return rows.initial_load(bench.home / "data" / f"load-{sizes.load_rows}", sizes.load_rows, sizes.load_files)


def load(bench: Bench) -> Line:
    """Initial load of a new table."""
    files = loaded(bench)
    expected = equality.of_query(floor.after(files, []))

    def mirror(place: Path) -> Told:
        zone(place)
        land(place, files)
        told = bench.ask("mirror", "once", root=place)
        bench.ask("mirror", "close", root=place)
        times = {"mirror": told["readable"], "on the disk": told["durable"], "its whole `sync`": told["seconds"]}
        return Told(times, mirrored(place), expected)

    def engine(peer: str, command: str, shown: str) -> Turn:
        def turn(place: Path) -> Told:
            told = bench.ask(peer, command, table=place / TABLE, files=files)
            return Told({shown: told["seconds"]}, place / TABLE, expected)

        return turn

    figures = bench.compare(
        {
            "mirror": mirror,
            "delta-rs": engine("delta-rs", "append", "delta-rs"),
            "notebook": engine("notebook", "merge", "notebook"),
            "notebook that appends": engine("notebook", "append", "notebook that appends"),
            "read": lambda _: Told({"pyarrow reads": bench.ask("floor", "read", files=files)["seconds"]}),
            "copy": lambda place: Told({"copy": bench.ask("floor", "copy", files=files, target=place)["seconds"]}),
        }
    )
    return Line(
        figures,
        (
            Goal("≥ 5 x delta-rs", figures.ratio("delta-rs", "mirror"), at_least=5),
            Goal("≥ 20 x the notebook", figures.ratio("notebook", "mirror"), at_least=20),
        ),
        "mirror: until the rows are readable",
    )


def merge(bench: Bench) -> Line:
    """Net changes with random keys."""
    figures = _merged(bench, 1)
    return Line(
        figures,
        (
            Goal("≤ 0.5 x the notebook", figures.ratio("mirror", "notebook"), at_most=0.5),
            Goal("≤ 2.5 x delta-rs", figures.ratio("mirror", "delta-rs"), at_most=2.5),
        ),
        _warm(bench),
    )


def newest(bench: Bench) -> Line:
    """Net changes with keys in the newest 4 %."""
    figures = _merged(bench, NEWEST_PART)
    goal = Goal("≤ 0.4 x the notebook", figures.ratio("mirror", "notebook"), at_most=0.4)
    return Line(figures, (goal,), _warm(bench))


def _warm(bench: Bench) -> str:
    return f"after {bench.sizes.merge_warm_ups} such, by which Java has compiled what they need"


def _merged(bench: Bench, part: int) -> Figures:
    sizes = bench.sizes
    keys = np.arange(sizes.load_rows - sizes.load_rows // part, sizes.load_rows) + 1
    folder = bench.home / "data" / f"changes-{sizes.load_rows}-{part}"
    change = rows.net_changes(folder, sizes.load_files + 1, keys, sizes.merge_changes)
    work = Changed(bench, f"load-{sizes.load_rows}", loaded(bench), [change])
    return bench.compare(
        {
            "mirror": work.mirror(),
            "notebook": work.engine("notebook"),
            "delta-rs": work.engine("delta-rs"),
            "floor": work.floor(),
        },
        sizes.merge_warm_ups,
    )
