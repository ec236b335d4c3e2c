"""Many small files, and a few changes at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from speed import rows
from speed.figures import Goal, Line
from speed.turns import Changed

if TYPE_CHECKING:
    from speed.bench import Bench


def tiny(bench: Bench) -> Line:
    """A few changes into a small table, in a session that has seen this table and many before."""
    sizes = bench.sizes
    base = rows.initial_load(bench.home / "data" / f"tiny-{sizes.tiny_rows}", sizes.tiny_rows, 1)
    keys = np.arange(1, sizes.tiny_rows + 1)
    before, change = (
        rows.net_changes(
            bench.home / "data" / f"tiny-{sizes.tiny_rows}-{number}", number, keys + at, sizes.tiny_changes
        )
        for at, number in enumerate((2, 3))
    )
    work = Changed(bench, f"tiny-{sizes.tiny_rows}", base, [change], before=[before])
    turns = {peer: work.engine(peer) for peer in ("notebook", "delta-rs")}
    ours = {peer: work.mirror(peer) for peer in ("arrow-engine", "spark-engine")}
    figures = bench.compare({**ours, **turns}, sizes.tiny_warm_ups)
    goals = (
        Goal("arrow ≤ 0.02 s", figures.median("arrow-engine"), " s", at_most=0.02),
        Goal("≤ 1.0 x delta-rs", figures.ratio("arrow-engine", "delta-rs"), at_most=1),
        Goal("Spark ≤ 0.4 x the notebook", figures.ratio("spark-engine", "notebook"), at_most=0.4),
    )
    return Line(figures, goals, f"after {2 * sizes.tiny_warm_ups} commits, each two seconds after the one before")


def backlog(bench: Bench) -> Line:
    """A backlog of small files with repeated keys."""
    sizes = bench.sizes
    present = sizes.backlog_keys // 2
    base = rows.initial_load(bench.home / "data" / f"backlog-{present}", present, 1)
    changes = rows.histories(
        bench.home / "data" / f"backlog-{present}-{sizes.backlog_files}",
        2,
        sizes.backlog_files,
        sizes.backlog_rows,
        keys=sizes.backlog_keys,
        present=present,
    )
    work = Changed(bench, f"backlog-{present}", base, changes)
    figures = bench.compare(
        {
            "arrow-engine": work.process("arrow"),
            "spark-engine": work.process("spark"),
            "notebook": work.engine("notebook", sizes.backlog_sample),
            "delta-rs": work.engine("delta-rs", sizes.backlog_sample),
            "floor": work.floor(),
        }
    )
    scaled = f"notebook and delta-rs: {sizes.backlog_sample} of the files, scaled"
    arrow, spark = "arrow-engine, whole process", "spark-engine, whole process"
    goals = (
        Goal("arrow ≤ 1.5 s", figures.median(arrow), " s", at_most=1.5),
        Goal("≤ 0.08 x delta-rs", figures.ratio(arrow, "delta-rs"), at_most=0.08),
        Goal("Spark ≥ 200 x the notebook", figures.ratio("notebook", spark), at_least=200),
    )
    return Line(figures, goals, scaled)
