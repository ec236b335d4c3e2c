"""Memory grows with `--max-batch-size`, not with the backlog or the table."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from quick_folder import quick_folder

pytestmark = pytest.mark.slow
MEBIBYTE = 1 << 20
# Applies backlogs one after the other, each in a table of its own, and prints for each its batches and the most memory
# so far.
RUN = """
import sys
from pathlib import Path
import numpy as np, pyarrow as pa
from peak_memory import peak_bytes
from mirror_engine import Config, Mirror
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

root, backlogs = Path(sys.argv[1]), [word.split(":") for word in sys.argv[2:]]
zone = LandingZoneWriter(root)
writer = ArrowWriter(root / "Tables", root / ".mirror-engine/scratch")
# pools of threads and of memory grow for some dozens of commits, up to a bound: they are there in every run
warm, draw = zone.table("Warm", keys=["id"]), np.random.default_rng(2)
for number in range(60):
    warm.land_parquet(pa.table({"id": draw.integers(0, 10**9, 25_000), "x": draw.random(25_000)}))
with Mirror(root, Config(max_batch_files=1), writer=writer) as mirror:
    assert mirror.sync().commits == 60
for number, (files, batch_bytes) in enumerate(backlogs):
    orders, files, draw = zone.table(f"Orders{number}", keys=["id"]), int(files), np.random.default_rng(3)
    for _ in range(files):
        orders.land_parquet(pa.table({"id": draw.integers(0, 10**9, 25_000), "x": draw.random(25_000)}))
    with Mirror(root, Config(max_batch_size=int(batch_bytes)), writer=writer) as mirror:
        report = mirror.sync()
    assert report.files_applied == files and report.rows_applied == files * 25_000
    print(report.commits, peak_bytes())
"""


# Lands large files of random keys, applies them, and says how, with the most memory.
ADD = """
import sys
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from peak_memory import peak_bytes
from mirror_engine import Config, Mirror
from mirror_engine.tables.merge.arrow import ArrowWriter

root, first, files = Path(sys.argv[1]), *map(int, sys.argv[2:])
folder = root / "Files/LandingZone/Orders"
folder.mkdir(parents=True, exist_ok=True)
(folder / "_metadata.json").write_text('{"keyColumns": ["id"]}')
draw = np.random.default_rng(first)
for number in range(first, first + files):
    rows = pa.table({"id": draw.integers(0, 10**18, 600_000), "x": np.zeros(600_000)})
    pq.write_table(rows, folder / f"{number:020}.parquet", store_schema=False)
writer = ArrowWriter(root / "Tables", root / ".mirror-engine/scratch")
with Mirror(root, Config(), writer=writer) as mirror:
    assert mirror.sync().files_applied == files
    assert {entry.applied_by for entry in mirror.history("Orders")} == {"passthrough"}
print(peak_bytes())
"""


def output_of(program, *arguments):
    """The numbers that a program prints, run in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return map(int, subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split())


def peak_with_table_of(files):
    """The most memory that one file takes that is added to a table of others."""
    with quick_folder() as folder:
        output_of(ADD, folder, 1, files)
        (peak,) = output_of(ADD, folder, files + 1, 1)
    return peak


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak counts in other units")
def test_a_backlog_twenty_times_as_long_takes_no_more_memory_and_a_larger_batch_does():
    with quick_folder() as folder:
        backlogs = f"4:{MEBIBYTE}", f"80:{MEBIBYTE}", f"80:{256 * MEBIBYTE}"
        few, short, many, long, one, large = output_of(RUN, folder, *backlogs)
    print(f"{few} batches: {short >> 20} MiB, {many}: {long >> 20} MiB, {one}: {large >> 20} MiB")
    assert (few > 2, many > 15 * few, one) == (True, True, 1)
    assert long < short + 32 * MEBIBYTE
    assert large > long + 64 * MEBIBYTE


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak counts in other units")
def test_passthrough_memory_does_not_grow_with_the_table():
    with ThreadPoolExecutor() as pool:
        small, large = pool.map(peak_with_table_of, (2, 12))
    print(f"into 1.2M rows: {small >> 20} MiB, into 7.2M rows: {large >> 20} MiB")  # whose keys are 55 MiB
    assert large < small + 32 * MEBIBYTE
