"""Memory grows with `--max-batch-size`, not with the backlog; `benchmarks/memory.py` measures it with the JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from quick_folder import quick_folder

pytestmark = pytest.mark.slow
MEBIBYTE = 1 << 20
# All of the engine but Spark: what it would have committed is staged, and its record committed alone.
RUN = """
import sys
from pathlib import Path
import numpy as np, pyarrow as pa
from peak_memory import peak_bytes
from mirror_engine import Config, Mirror
from mirror_engine.tables.merge.deltalake import DeltalakeWriter
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter

root, files, batch_bytes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
zone = LandingZoneWriter(root)
writer = DeltalakeWriter(root / "Tables", root / ".mirror-engine/scratch")
# deltalake's pool of threads grows for some dozens of commits, up to a bound: it is there in every run
warm = zone.table("Warm", keys=["id"])
for number in range(60):
    warm.land_parquet(pa.table({"id": [number]}))
with Mirror(root, Config(max_batch_files=1), writer=writer) as mirror:
    assert mirror.sync().commits == 60
orders = zone.table("Orders", keys=["id"])
draw = np.random.default_rng(3)
for number in range(files):
    orders.land_parquet(pa.table({"id": draw.integers(0, 10**9, 25_000), "x": draw.random(25_000)}))
with Mirror(root, Config(max_batch_size=batch_bytes), writer=writer) as mirror:
    report = mirror.sync()
assert report.files_applied == files and report.rows_applied == files * 25_000
print(report.commits, peak_bytes())
"""


def peak_bytes(files, batch_bytes):
    """How many batches a backlog took, and the most memory."""
    with quick_folder() as folder:
        command = [sys.executable, "-c", RUN, folder, str(files), str(batch_bytes)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    batches, peak = map(int, done.stdout.split())
    return batches, peak


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak counts in other units")
def test_a_backlog_twenty_times_as_long_takes_no_more_memory_and_a_larger_batch_does():
    with ThreadPoolExecutor() as pool:
        measured = pool.map(peak_bytes, (4, 80, 80), (MEBIBYTE, MEBIBYTE, 256 * MEBIBYTE))
    (few, short), (many, long), (one, large) = measured
    print(f"{few} batches: {short >> 20} MiB, {many}: {long >> 20} MiB, {one}: {large >> 20} MiB")
    assert (few > 2, many > 15 * few, one) == (True, True, 1)
    assert long < short + 32 * MEBIBYTE
    assert large > long + 64 * MEBIBYTE
