"""How fast `validate` is: a thousand small files, and one large one beside a bare scan of the columns it needs."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from measure import interleaved, machine
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

RESULTS = Path(__file__).parent / "results"
SCAN = """import sys, pyarrow.parquet as pq
for batch in pq.ParquetFile(sys.argv[1]).iter_batches(columns=sys.argv[2:] or None):
    pass
"""
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def small_files(root: Path, files: int) -> Path:
    """One table of so many files of 100 upserts each, keys repeating."""
    draw = np.random.default_rng(7)
    orders = LandingZoneWriter(root).table("Orders", keys=["Id"])
    for _ in range(files):
        ids = draw.integers(0, 50_000, 100)
        columns = {f"Number{at}": draw.random(100) for at in range(6)}
        cities = [LETTERS[at % 26] * 8 for at in ids]
        markers = pa.array(np.full(100, 4), pa.int32())
        orders.land_parquet(pa.table({"Id": ids, **columns, "City": cities, "__rowMarker__": markers}))
    return root


def large_file(root: Path, groups: int, *, ordered: bool) -> Path:
    """An initial load of 10 columns, a million rows a row group; 14 of them take a gigabyte."""
    draw = np.random.default_rng(8)
    LandingZoneWriter(root).table("Orders", keys=["Id"])
    path = root / "Files/LandingZone/Orders/00000000000000000001.parquet"
    ids = np.arange(groups * 1_000_000)
    if not ordered:
        draw.shuffle(ids)
    writer = None
    for group in np.split(ids, groups):
        columns = {f"Number{at}": draw.random(len(group)) for at in range(7)}
        names = pa.array([f"city{number}" for number in draw.integers(0, 1_000_000, len(group))])
        rows = pa.table({"Id": group, **columns, "City": names, "Count": draw.integers(0, 1000, len(group))})
        writer = writer or pq.ParquetWriter(path, rows.schema)
        writer.write_table(rows)
    if writer:
        writer.close()
    return path


def main() -> None:
    """Measure, print, and keep the figures."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--rounds", type=int, default=5)
    given.add_argument("--files", type=int, default=1000)
    given.add_argument("--groups", type=int, default=14)
    given.add_argument("--results", type=Path, default=RESULTS)
    options = given.parse_args()
    with tempfile.TemporaryDirectory(prefix="mirror-engine-bench-") as folder:
        home = Path(folder)
        # in a process of their own: a child's peak of memory begins at its parent's
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            small = pool.submit(small_files, home / "small", options.files).result()
            ordered = pool.submit(large_file, home / "ordered", options.groups, ordered=True).result()
            pool.submit(large_file, home / "shuffled", options.groups, ordered=False).result()
        validate = [sys.executable, "-m", "mirror_engine.cli.main", "validate"]
        figures = interleaved(
            {
                "small files": [*validate, str(small)],
                "whole": [*validate, str(home / "ordered")],
                "whole, shuffled": [*validate, str(home / "shuffled")],
                "scan of all": [sys.executable, "-c", SCAN, str(ordered)],
            },
            options.rounds,
        )
        size = ordered.stat().st_size
    scans = {
        "whole": "scan of all",
        "whole, shuffled": "scan of all",
    }
    told = {
        "machine": machine(),
        "rounds": options.rounds,
        "bytes_of_the_large_file": size,
        "seconds": {name: round(found.median_seconds, 3) for name, found in figures.items()},
        "peak_mib": {name: round(found.most_bytes / 2**20) for name, found in figures.items()},
        "ratio_to_scan": {
            name: round(figures[name].median_seconds / figures[scan].median_seconds, 2) for name, scan in scans.items()
        },
    }
    options.results.mkdir(exist_ok=True)
    (options.results / "validate.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
