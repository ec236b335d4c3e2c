"""From nothing to the first applied file and the first MERGE, as whole processes; runs that find nothing to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from speed import equality, floor, rows
from speed.bench import Told
from speed.figures import Goal, Line
from speed.places import TABLE, land, mirrored, zone
from speed.programs import MIRROR, NOTEBOOK, seconds_of, sync, until_applied

if TYPE_CHECKING:
    from pathlib import Path

    from speed.bench import Bench, Turn


def start(bench: Bench) -> Line:
    """One small file into a new table; a run that finds nothing; three changes; help and validate."""
    sizes = bench.sizes
    files = rows.initial_load(bench.home / "data" / "start", sizes.tiny_rows, 1)
    keys = np.arange(1, sizes.tiny_rows + 1)
    change = rows.net_changes(bench.home / "data" / "start-2", 2, keys, sizes.tiny_changes)
    expected = equality.of_query(floor.after(files, [change]))

    def mirror(engine: str) -> Turn:
        def turn(place: Path) -> Told:
            zone(place)
            land(place, files)
            first, _ = until_applied(sync(place, engine), mirrored(place) / "_delta_log")
            caught_up = seconds_of(sync(place, engine))
            land(place, [change])
            merged = seconds_of(sync(place, engine))
            found = {"first file": first, "caught up": caught_up, "first MERGE": merged}
            return Told({f"{engine}-engine, {name}": at for name, at in found.items()}, mirrored(place), expected)

        return turn

    def notebook(place: Path) -> Told:
        command = [*NOTEBOOK, str(place / TABLE), *map(str, files), str(change)]
        first, whole = until_applied(command, place / TABLE / "_delta_log")
        return Told({"notebook, first file": first, "notebook, first MERGE": whole}, place / TABLE, expected)

    def reading(place: Path) -> Told:
        zone(place)
        land(place, files)
        found = {"--help": seconds_of([*MIRROR, "--help"]), "validate": seconds_of([*MIRROR, "validate", str(place)])}
        return Told(found)

    turns = {"arrow": mirror("arrow"), "spark": mirror("spark"), "notebook": notebook, "reading": reading}
    figures = bench.compare(turns)
    of_notebook = figures.ratio("spark-engine, first MERGE", "notebook, first MERGE")
    return Line(
        figures,
        (
            Goal("first file ≤ 1.2 s", figures.median("arrow-engine, first file"), " s", at_most=1.2),
            Goal("caught up ≤ 0.4 s", figures.median("arrow-engine, caught up"), " s", at_most=0.4),
            Goal("Spark's first MERGE ≤ 0.5 x the notebook", of_notebook, at_most=0.5),
            Goal("`--help` ≤ 0.15 s", figures.median("--help"), " s", at_most=0.15),
            Goal("`validate` of a tiny zone ≤ 0.5 s", figures.median("validate"), " s", at_most=0.5),
        ),
        f"first MERGE: {sizes.tiny_changes} changes into {sizes.tiny_rows} rows; only it starts a JVM",
    )
