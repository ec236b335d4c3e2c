"""The soak of days, in short: time passes for Python and Rust, what is due goes, and every row is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import soak
import soak_days
from moved_clock import COMPILER, environment
from soak_days import MAX_SLOPES, slopes

pytestmark = pytest.mark.slow
needs_moved_clock = pytest.mark.skipif(
    COMPILER is None or sys.platform != "linux", reason="a process's clock is moved on Linux, with a C compiler"
)
DAYS, FILES, TABLES, RETENTION_DAYS = 8, 30, 1, 1
LOOK = """
import time
from pathlib import Path
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from moved_clock import MovedClock
clock = MovedClock()
began = time.time()
clock.advance(86_400.5)
clock.advance(86_400.5)
write_deltalake("table", pa.table({"n": [1]}))
path = Path("table/_delta_log/00000000000000000000.json")
Path("own").write_text("")
at = [time.time(), DeltaTable("table").history()[0]["timestamp"] / 1_000]
print(*(each - began for each in [*at, path.stat().st_mtime, Path("own").stat().st_mtime]))
"""


@needs_moved_clock
def test_moved_clock_is_that_of_python_and_deltalake(tmp_path):
    around = {**environment(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LOOK]
    done = subprocess.run(command, cwd=tmp_path, env=around, check=True, capture_output=True, text=True)
    moved = [float(seconds) for seconds in done.stdout.split()]  # Python's clock, deltalake's, and their files'
    assert len(moved) == 4
    assert all(172_801 - 1 <= seconds < 172_801 + 60 for seconds in moved), moved


@needs_moved_clock
@pytest.mark.nightly
def test_retention_and_log_cleanup_take_place_on_a_moved_clock(tmp_path):
    given = {"days": DAYS, "files": FILES, "rounds": 15, "tables": TABLES, "retention-days": RETENTION_DAYS}
    given |= {"compact-after": 10, "json": tmp_path / "found.json"}
    command = [sys.executable, "-m", "soak_days", *(f"--{name}={value}" for name, value in given.items())]
    around = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=around, check=False, capture_output=True, text=True)
    assert (tmp_path / "found.json").exists(), done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert not [problem for problem in found["problems"] if problem.startswith("rows")]
    assert found["done"]["files_deleted"] > 0, "VACUUM"
    last = found["days"][-1]
    assert last["archived"] <= (RETENTION_DAYS + 1) * FILES + TABLES
    commits = sum(day["commits"] for day in found["days"])
    assert last["log_entries"] < commits, "the clean-up of logs"
    assert found["slopes"]["commit_bytes"] <= MAX_SLOPES["commit_bytes"]


@pytest.mark.parametrize("program", [soak, soak_days])
def test_help_is_shown_and_nothing_starts(program, capsys):
    with pytest.raises(SystemExit) as ended:
        program.main(["--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


def test_slope_is_per_cent_of_the_mean_per_ten_days():
    days = [dict.fromkeys(MAX_SLOPES, 99.0)] * 3 + [dict.fromkeys(MAX_SLOPES, 95.0 + day) for day in range(11)]
    assert slopes(days, 3) == pytest.approx(dict.fromkeys(MAX_SLOPES, 10.0))
    assert np.isfinite(slopes(days, 0)["memory_mb"])
