"""Many changes a key become one: the product's reading and collapsing beside pyarrow's bare reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speed import equality, floor, rows
from speed.bench import Told
from speed.figures import Goal, Line
from speed.places import land, zone

if TYPE_CHECKING:
    from pathlib import Path

    from speed.bench import Bench

MIB = 1 << 20


def collapse(bench: Bench) -> Line:
    """Changes to a new table, five a key."""
    sizes = bench.sizes
    folder = bench.home / "data" / f"collapse-{sizes.collapse_files}"
    files = rows.histories(folder, 1, sizes.collapse_files, sizes.collapse_rows, keys=sizes.collapse_keys)
    expected = equality.of_query(floor.after([], files))
    peaks, arrow_bytes = [], []

    def mirror(place: Path) -> Told:
        zone(place)
        land(place, files)
        told = bench.ask("collapse", "once", root=place, target=place / "net")
        peaks.append(told["peak_bytes"])
        _check(place / "net", expected)
        return Told({"mirror": told["seconds"]})

    def read(_: Path) -> Told:
        told = bench.ask("floor", "read", files=files)
        arrow_bytes.append(told["arrow_bytes"])
        return Told({"pyarrow reads": told["seconds"]})

    def duckdb(place: Path) -> Told:
        target = place / "net.parquet"
        told = bench.ask("floor", "apply", base=[], changes=files, target=target)
        return Told({"DuckDB": told["seconds"]})

    figures = bench.compare({"mirror": mirror, "read": read, "DuckDB": duckdb})
    peak, size = max(peaks), arrow_bytes[0]
    return Line(
        figures,
        (
            Goal("≤ 1.0 x DuckDB", figures.ratio("mirror", "DuckDB"), at_most=1.0),
            Goal("memory ≤ 1.5 x their Arrow size", peak / size, at_most=1.5),
        ),
        "from files to net changes ready to be committed, without the commit",
        {"peak memory": f"{peak // MIB} MiB", "Arrow size": f"{size // MIB} MiB"},
    )


def _check(folder: Path, expected: equality.Fingerprint) -> None:
    """Into a new table all net changes are rows to be appended, and lie as its data files will."""
    found = equality.of_query(f"FROM read_parquet('{folder}/*')")
    if found != expected:
        raise equality.Unequal(f"mirror: {found.rows} net rows, expected {expected.rows}")
