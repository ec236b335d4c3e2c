"""Changes to one table: the initial load, MERGEs of many and of a few changes, a backlog of small files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from speed import floor, rows
from speed.bench import Goal, Line, Measured
from speed.changes import Changes
from speed.places import TABLE, land, mirrored, zone
from speed.programs import DELTA_RS, seconds_of, sync

if TYPE_CHECKING:
    from pathlib import Path

    from speed.bench import Bench, Figures, Turn

NEWEST_PART = 25  # a twenty-fifth: 4 %


def _load(bench: Bench) -> list[Path]:
    sizes = bench.sizes
    return rows.initial_load(bench.home / "data" / f"load-{sizes.load_rows}", sizes.load_rows, sizes.load_files)


def load(bench: Bench) -> Line:
    """Load a new table."""
    files = _load(bench)
    expected = floor.of_query(floor.after(files, []))

    def mirror(engine: str) -> Turn:
        def turn(place: Path) -> Measured:
            zone(place)
            land(place, files)
            return Measured({f"{engine}-engine": seconds_of(sync(place, engine))}, mirrored(place), expected)

        return turn

    def script(place: Path) -> Measured:
        seconds = seconds_of([*DELTA_RS, str(place / TABLE), *map(str, files)])
        return Measured({"delta-rs script": seconds}, place / TABLE, expected)

    def engine(peer: str, command: str, shown: str) -> Turn:
        def turn(place: Path) -> Measured:
            return Measured(
                {shown: bench.ask(peer, command, table=place / TABLE, files=files)}, place / TABLE, expected
            )

        return turn

    figures = bench.compare(
        {
            "arrow-engine": mirror("arrow"),
            "spark-engine": mirror("spark"),
            "delta-rs script": script,
            "delta-rs": engine("delta-rs", "append", "delta-rs"),
            "notebook": engine("notebook", "merge", "notebook"),
            "notebook that appends": engine("notebook", "append", "notebook that appends"),
            "read": lambda _: Measured({"pyarrow reads": bench.ask("floor", "read", files=files)[0]}),
        }
    )
    goals = (
        Goal("≤ 0.75 x a delta-rs script", figures.ratio("arrow-engine", "delta-rs script"), 0.75),
        Goal("Spark, too", figures.ratio("spark-engine", "delta-rs script"), 0.75),
    )
    return Line(figures, goals, "ours and the script as whole processes, the others warm; neither engine starts a JVM")


def merge(bench: Bench) -> Line:
    """Merge net changes with random keys."""
    figures = _merged(bench, 1)
    goals = (
        Goal("arrow ≤ 0.25 x delta-rs", figures.ratio("arrow-engine", "delta-rs"), 0.25),
        Goal("Spark ≤ 0.5 x the notebook", figures.ratio("spark-engine", "notebook"), 0.5),
    )
    return Line(figures, goals, _warm(bench))


def newest(bench: Bench) -> Line:
    """Merge net changes with keys in the newest 4 %."""
    figures = _merged(bench, NEWEST_PART)
    goal = Goal("Spark ≤ 0.4 x the notebook", figures.ratio("spark-engine", "notebook"), 0.4)
    return Line(figures, (goal,), _warm(bench))


def _warm(bench: Bench) -> str:
    return f"after one such into the same table, and {bench.sizes.merge_warm_ups} into others, which warm up Java"


def _merged(bench: Bench, part: int) -> Figures:
    sizes = bench.sizes
    work = _in_turn(
        bench,
        f"load-{sizes.load_rows}",
        _load(bench),
        range(sizes.load_rows - sizes.load_rows // part, sizes.load_rows),
        sizes.merge_changes,
    )
    ours = {peer: work.mirror(peer) for peer in ("arrow-engine", "spark-engine")}
    others = {peer: work.engine(peer) for peer in ("notebook", "delta-rs")}
    return bench.compare({**ours, **others, "floor": work.floor()}, sizes.merge_warm_ups)


def _in_turn(bench: Bench, name: str, base: list[Path], keys: range, count: int) -> Changes:
    """`count` changes with random keys, after as many others."""
    folder, ids = bench.home / "data", np.arange(keys.start, keys.stop) + 1
    before, change = (
        rows.net_changes(
            folder / f"{name}-{len(keys)}-{count}-{number}", len(base) + number, ids + (number - 1) * count, count
        )
        for number in (1, 2)
    )
    return Changes(bench, name, base, [change], [before])


def tiny(bench: Bench) -> Line:
    """Merge a few changes into a small table, in a process that has merged many."""
    sizes = bench.sizes
    base = rows.initial_load(bench.home / "data" / f"tiny-{sizes.tiny_rows}", sizes.tiny_rows, 1)
    work = _in_turn(bench, f"tiny-{sizes.tiny_rows}", base, range(sizes.tiny_rows), sizes.tiny_changes)
    ours = {peer: work.mirror(peer) for peer in ("arrow-engine", "spark-engine")}
    others = {peer: work.engine(peer) for peer in ("notebook", "delta-rs")}
    figures = bench.compare({**ours, **others}, sizes.tiny_warm_ups)
    goals = (
        Goal("arrow ≤ 0.02 s", figures.median("arrow-engine"), 0.02, " s"),
        Goal("≤ 1.0 x delta-rs", figures.ratio("arrow-engine", "delta-rs"), 1),
        Goal("Spark ≤ 0.4 x the notebook", figures.ratio("spark-engine", "notebook"), 0.4),
    )
    return Line(figures, goals, f"after {2 * sizes.tiny_warm_ups} commits, two seconds apart")


def backlog(bench: Bench) -> Line:
    """Apply a backlog of small files with repeated keys."""
    sizes, data = bench.sizes, bench.home / "data"
    keys, present = sizes.backlog_keys, sizes.backlog_keys // 2
    base = rows.initial_load(data / f"backlog-{present}", present, 1)
    folder = data / f"backlog-{present}-{sizes.backlog_files}"
    changes = rows.histories(folder, 2, sizes.backlog_files, sizes.backlog_rows, keys=keys, present=present)
    work = Changes(bench, f"backlog-{present}", base, changes)
    ours = {f"{engine}-engine": work.process(engine) for engine in ("arrow", "spark")}
    others = {peer: work.engine(peer, sizes.backlog_sample) for peer in ("notebook", "delta-rs")}
    figures = bench.compare({**ours, **others, "floor": work.floor()})
    arrow, spark = "arrow-engine, whole process", "spark-engine, whole process"
    goals = (
        Goal("arrow ≤ 1.5 s", figures.median(arrow), 1.5, " s"),
        Goal("≤ 0.08 x delta-rs", figures.ratio(arrow, "delta-rs"), 0.08),
        Goal("Spark ≥ 200 x the notebook", figures.ratio("notebook", spark), 200, is_least=True),
    )
    return Line(figures, goals, f"notebook and delta-rs: {sizes.backlog_sample} of the files, scaled")
