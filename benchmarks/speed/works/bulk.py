"""The initial load of a new table, and net changes merged into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from speed import equality, floor, rows
from speed.bench import Told
from speed.figures import Goal, Line
from speed.places import TABLE, land, mirrored, zone
from speed.programs import DELTA_RS, seconds_of, sync
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

    def mirror(engine: str) -> Turn:
        def turn(place: Path) -> Told:
            zone(place)
            land(place, files)
            return Told({f"{engine}-engine": seconds_of(sync(place, engine))}, mirrored(place), expected)

        return turn

    def script(place: Path) -> Told:
        seconds = seconds_of([*DELTA_RS, str(place / TABLE), *map(str, files)])
        return Told({"delta-rs script": seconds}, place / TABLE, expected)

    def engine(peer: str, command: str, shown: str) -> Turn:
        def turn(place: Path) -> Told:
            told = bench.ask(peer, command, table=place / TABLE, files=files)
            return Told({shown: told["seconds"]}, place / TABLE, expected)

        return turn

    figures = bench.compare(
        {
            "arrow-engine": mirror("arrow"),
            "spark-engine": mirror("spark"),
            "delta-rs script": script,
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
            Goal("≤ 0.75 x a delta-rs script", figures.ratio("arrow-engine", "delta-rs script"), at_most=0.75),
            Goal("Spark, too", figures.ratio("spark-engine", "delta-rs script"), at_most=0.75),
        ),
        "ours and the script as whole processes, the others warm; neither engine starts a JVM for it",
    )


def merge(bench: Bench) -> Line:
    """Net changes with random keys."""
    figures = _merged(bench, 1)
    return Line(
        figures,
        (
            Goal("arrow ≤ 0.25 x delta-rs", figures.ratio("arrow-engine", "delta-rs"), at_most=0.25),
            Goal("Spark ≤ 0.5 x the notebook", figures.ratio("spark-engine", "notebook"), at_most=0.5),
        ),
        _warm(bench),
    )


def keys(bench: Bench) -> Line:
    """Net changes with random keys of other kinds than a whole number."""
    sizes, made, turns = bench.sizes, bench.home / "data", {}
    for name, columns in (("text", rows.TEXT), ("compound", rows.COMPOUND)):
        base = rows.initial_load(made / f"load-{sizes.load_rows}-{name}", sizes.load_rows, sizes.load_files, columns)
        newest = np.arange(sizes.load_rows) + 1
        folder = made / f"changes-{sizes.load_rows}-{name}"
        change = rows.net_changes(folder, sizes.load_files + 1, newest, sizes.merge_changes, columns)
        work = Changed(bench, f"load-{sizes.load_rows}-{name}", base, [change], keys=columns)
        turns[f"arrow-engine, {name}"] = work.mirror("arrow-engine", f"arrow-engine, {name}")
        turns[f"delta-rs, {name}"] = work.engine("delta-rs", shown=f"delta-rs, {name}")
    figures = bench.compare(turns)
    return Line(
        figures,
        tuple(
            Goal(
                f"{name} ≤ 0.35 x delta-rs",
                figures.ratio(f"arrow-engine, {name}", f"delta-rs, {name}"),
                at_most=0.35,
            )
            for name in ("text", "compound")
        ),
        "text: twelve characters, in no order; compound: a whole number of 1,000 values and the key of the line above",
    )


def large(bench: Bench) -> Line:
    """The same net changes with random keys into a table, and into one that is several times as large."""
    sizes, turns = bench.sizes, {}
    for files in sizes.large_files:
        count = files * sizes.growth_rows
        base = rows.initial_load(bench.home / "data" / f"load-{count}", count, files)
        before, change = (
            rows.net_changes(bench.home / "data" / f"large-{count}-{at}", files + at, keys, sizes.merge_changes)
            for at, keys in ((1, np.arange(count) + 1), (2, np.arange(count) + 1 + sizes.merge_changes))
        )
        work = Changed(bench, f"load-{count}", base, [change], before=[before])
        turns[_into(count)] = work.mirror("arrow-engine", _into(count))
    figures = bench.compare(turns)
    smallest, largest = (_into(files * sizes.growth_rows) for files in (min(sizes.large_files), max(sizes.large_files)))
    goal = Goal("the largest ≤ 1.5 x the smallest", figures.ratio(largest, smallest), at_most=1.5)
    return Line(figures, (goal,), f"{sizes.merge_changes:,} changes, after as many that make the indexes of keys")


def few(bench: Bench) -> Line:
    """A few changes with random keys into tables of several sizes."""
    sizes = bench.sizes
    turns = {}
    for count in sizes.few_rows:
        files = max(count // (sizes.load_rows // sizes.load_files), 1)
        base = rows.initial_load(bench.home / "data" / f"few-{count}", count, files)
        keys, made = np.arange(count - sizes.few_changes) + 1, bench.home / "data"
        before, change = (
            rows.net_changes(made / f"few-{count}-{number}", files + number, keys + add, sizes.few_changes)
            for number, add in ((1, sizes.few_changes), (2, 2 * sizes.few_changes))
        )
        work = Changed(bench, f"few-{count}", base, [change], before=[before])
        turns[_into(count)] = work.mirror("arrow-engine", _into(count))
    figures = bench.compare(turns, sizes.warm_ups)
    medians = [figures.median(_into(count)) for count in sizes.few_rows]
    return Line(
        figures,
        (
            *(
                Goal(f"{_into(count)} ≤ 0.1 s", figures.median(_into(count)), " s", at_most=0.1)
                for count in sizes.few_rows
            ),
            Goal("the largest ≤ 2 x the smallest", medians[-1] / medians[0], at_most=2),
        ),
        "after one such change, in which the indexes of keys are made",
    )


def _into(count: int) -> str:
    return f"into {count:,} rows"


def newest(bench: Bench) -> Line:
    """Net changes with keys in the newest 4 %."""
    figures = _merged(bench, NEWEST_PART)
    goal = Goal("Spark ≤ 0.4 x the notebook", figures.ratio("spark-engine", "notebook"), at_most=0.4)
    return Line(figures, (goal,), _warm(bench))


def _warm(bench: Bench) -> str:
    warm_ups = bench.sizes.merge_warm_ups
    return f"after one such into the same table, and {warm_ups} into others, by which Java has compiled what they need"


def _merged(bench: Bench, part: int) -> Figures:
    sizes = bench.sizes
    keys = np.arange(sizes.load_rows - sizes.load_rows // part, sizes.load_rows) + 1
    folder, count = bench.home / "data", sizes.merge_changes
    before, change = (
        rows.net_changes(folder / f"changes-{sizes.load_rows}-{part}-{at}", sizes.load_files + at, keys + add, count)
        for at, add in ((1, 0), (2, count))
    )
    work = Changed(bench, f"load-{sizes.load_rows}", loaded(bench), [change], before=[before])
    return bench.compare(
        {
            "arrow-engine": work.mirror("arrow-engine"),
            "spark-engine": work.mirror("spark-engine"),
            "notebook": work.engine("notebook"),
            "delta-rs": work.engine("delta-rs"),
            "floor": work.floor(),
        },
        sizes.merge_warm_ups,
    )
