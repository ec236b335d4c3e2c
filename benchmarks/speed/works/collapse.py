"""Many changes of each key into a new table, beside pyarrow's bare reading and DuckDB."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine import Config, Mirror
from speed import floor, rows
from speed.bench import Goal, Line, Measured
from speed.places import land, mirrored, zone

if TYPE_CHECKING:
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
        seconds, peak = bench.ask("collapse", "once", root=place)
        peaks.append(peak)
        return Measured({"mirror": seconds}, mirrored(place), expected)

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
    return Line(figures, goals, f"peak memory {peak // MIB} MiB, Arrow size {size // MIB} MiB; into a new table")


class Collapsing:
    """The engine `collapse`: the product with one batch for all, and its peak memory."""

    def __init__(self) -> None:
        self._idle_bytes = _status_bytes("VmRSS")

    def once(self, root: Path) -> tuple[float, int]:
        """Apply everything that has landed as one batch; returns the seconds and the peak memory."""
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # begins a new peak
        with Mirror(root, Config(merge_engine="arrow", max_batch_size=ONE_BATCH)) as mirror:
            started = time.perf_counter()
            report = mirror.sync()
            seconds = time.perf_counter() - started
        assert report.commits == 1, "more than one batch"
        return seconds, _status_bytes("VmHWM") - self._idle_bytes


def _status_bytes(name: str) -> int:
    """A size in this process's status: `VmRSS`, `VmHWM` (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
