"""Net changes of many changes: the product's reading and collapsing, beside pyarrow's bare reading and DuckDB."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from measure import status_bytes
from mirror_engine import Config, Mirror
from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.tables.changes.counted import count_changes
from mirror_engine.tables.log.commit import commit_batch
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.tables.merge.by_position import Merge
from speed import floor, rows
from speed.bench import Goal, Line, Measured
from speed.places import land, zone

if TYPE_CHECKING:
    from mirror_engine.tables.base import BatchRecord, ChangeBatch, MatchCounts
    from mirror_engine.tables.log.snapshot import DeltaLog
    from speed.bench import Bench

MIB = 1 << 20
ONE_BATCH = 1 << 40


def collapse(bench: Bench) -> Line:
    """Collapse changes to a new table, five per key."""
    sizes = bench.sizes
    folder = bench.home / "data" / f"collapse-{sizes.collapse_files}"
    files = rows.histories(folder, 1, sizes.collapse_files, sizes.collapse_rows, keys=sizes.collapse_keys)
    expected = floor.of_query(floor.after([], files))
    peaks, arrow_bytes = [], []

    def mirror(place: Path) -> Measured:
        zone(place)
        land(place, files)
        seconds, peak = bench.ask("collapse", "once", root=place, target=place / "net")
        peaks.append(peak)
        found = floor.of_query(f"FROM read_parquet('{place}/net/*')")  # into a new table all of them are appended
        if found != expected:
            raise floor.Unequal(f"mirror: {found.rows} net rows, expected {expected.rows}")
        return Measured({"mirror": seconds})

    def read(_: Path) -> Measured:
        seconds, size = bench.ask("floor", "read", files=files)
        arrow_bytes.append(size)
        return Measured({"pyarrow reads": seconds})

    def duckdb(place: Path) -> Measured:
        return Measured({"DuckDB": bench.ask("floor", "apply", base=[], changes=files, target=place / "net.parquet")})

    figures = bench.compare({"mirror": mirror, "read": read, "DuckDB": duckdb})
    peak, size = max(peaks), arrow_bytes[0]
    goals = (
        Goal("≤ 1.0 x DuckDB", figures.ratio("mirror", "DuckDB"), 1.0),
        Goal("memory ≤ 1.5 x their Arrow size", peak / size, 1.5),
    )
    notes = (
        f"peak memory {peak // MIB} MiB, Arrow size {size // MIB} MiB; from files to net changes, without the commit"
    )
    return Line(figures, goals, notes)


class Collapsing:
    """The engine `collapse`: the product up to the net changes of a commit."""

    def __init__(self) -> None:
        self._idle_bytes = status_bytes("VmRSS")

    def once(self, root: Path, target: Path) -> tuple[float, int]:
        """Collapse everything that has landed as one batch, and copy its net changes to `target`, untimed.

        Returns:
            the seconds until they were ready, and the peak memory.
        """
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # begins a new peak
        writer = _Ready(root, target)
        started = time.perf_counter()
        with Mirror(root, Config(max_batch_size=ONE_BATCH), writer=writer) as mirror:
            mirror.sync()
        assert writer.commits == 1, "more than one batch"
        return writer.at - started, writer.peak_bytes - self._idle_bytes


class _Ready(ArrowWriter):
    """Note when the net changes are ready, then commit without them."""

    def __init__(self, root: Path, target: Path) -> None:
        super().__init__(root / TABLES, root / SCRATCH)
        self._target = target
        self.commits = 0
        self.at = 0.0
        self.peak_bytes = 0

    def replay(
        self, _table: str, log: DeltaLog, batch: ChangeBatch, record: BatchRecord
    ) -> tuple[str, tuple[MatchCounts, ...]]:
        with self._scratch_folder() as folder:
            changes = count_changes(batch, log)
            plan = self.evolution(log, batch)
            merge = Merge(log, batch, changes, plan, touched=(), folder=folder)
            merge.actions()
            matches = changes.match_counts
            self.at, self.peak_bytes = time.perf_counter(), status_bytes("VmHWM")
            self.commits += 1
            for file in merge.files:
                file.put(self._target)
            commit_batch(log, record, plan)
            return "append", matches
