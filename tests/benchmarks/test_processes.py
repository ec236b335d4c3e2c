"""Whole processes are timed from outside, and by the log of `run`."""

from __future__ import annotations

import sys
import time

import pytest

from speed import programs
from speed.places import zone
from speed.programs import Run, seconds_of
from speed.rows import initial_load

COMMIT = """
import datetime, json, signal, sys, time
later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=100)
told = {"time": later.isoformat(timespec="milliseconds")[:-6] + "Z", "table": "Orders"}
print(json.dumps({"event": "started"} | told), file=sys.stderr)
for first, last in ((1, 1), (2, 3)):
    names = {"first": f"{first:020}.parquet", "last": f"{last:020}.parquet"}
    print(json.dumps({"event": "commit_finished"} | told | names), file=sys.stderr, flush=True)
signal.pause()
"""


def test_a_process_that_fails_is_no_time():
    with pytest.raises(RuntimeError, match="exit code 3"):
        seconds_of([sys.executable, "-c", "raise SystemExit(3)"])


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_the_wait_of_each_file_is_told_also_where_several_share_a_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "MIRROR", [sys.executable, "-c", COMMIT])
    files = initial_load(tmp_path / "data", 3, 3)
    zone(tmp_path)
    with Run(tmp_path, "arrow") as run:
        for file in files:
            run.land("Orders", file)
        begun = time.time()
        run.await_all()
    waits = run.waits(files[1:])
    assert len(waits) == 2
    assert all(90 < wait < 101 + time.time() - begun for wait in waits)
