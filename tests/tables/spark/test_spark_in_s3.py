"""Spark on this machine writes tables in S3, by S3A and the modules of AWS' SDK that it loads."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow as pa
import pytest

from mirror_engine import Mirror
from mirror_engine.landing_zone.layout import TABLES
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
from mirror_engine.storage.stores import open_storage
from mirror_engine.tables.merge.deltalake import DeltalakeWriter
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_tables_in_s3_are_merged_by_spark(tmp_path, s3_server, store_jars):
    store_jars("s3")
    (tmp_path / "zone").mkdir()
    orders = LandingZoneWriter(tmp_path / "zone").table("Orders", keys=["no"])
    orders.land_parquet(pa.table({"no": range(1000), "qty": [1.5] * 1000}))
    orders.apply_changes((1, {"no": 1, "qty": 9.0}), (2, {"no": 2}), (4, {"no": 1001, "qty": 2.0}))
    root, files = s3_server.new_root(), (path for path in (tmp_path / "zone").rglob("*") if path.is_file())
    with s3_server.in_use():
        for file in sorted(files):
            open_storage(root).write(file.relative_to(tmp_path / "zone").as_posix(), file.read_bytes())
    command = ["-m", "mirror_engine", "sync", str(root), "--merge-engine", "spark", "--max-batch-files", "1"]
    environment = s3_server.around(os.environ) | {"MIRROR_ENGINE_STATE": str(tmp_path / "state")}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with Mirror(tmp_path / "zone", writer=MemoryDeltaWriter()) as mirror, s3_server.in_use():
        mirror.sync()
        tables = DeltalakeWriter(root / TABLES, tmp_path / "none")
        assert tables.history("dbo/Orders")[0].engine.startswith("Apache-Spark")
        found, expected = (
            each.sort_by("no").to_pylist() for each in (tables.rows("dbo/Orders"), mirror.read_table("Orders"))
        )
        assert found == expected
