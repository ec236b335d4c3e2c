"""Whole processes are timed from outside: by what appears in a Delta log, and by the log of `run`."""

from __future__ import annotations

import sys
import time

import pytest

from speed import running
from speed.places import zone
from speed.programs import seconds_of, until_applied
from speed.rows import initial_load
from speed.running import Run

APPLY = """
import sys, time
from pathlib import Path
log = Path(sys.argv[1])
log.mkdir()
(log / "0.json").write_text('{"metaData":{}}')
time.sleep(0.3)
(log / "1.json").write_text('{"add":{}}')
time.sleep(0.4)
"""
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


@pytest.mark.slow
def test_a_file_counts_as_applied_when_a_commit_adds_data_and_not_before(tmp_path):
    applied, whole = until_applied([sys.executable, "-c", APPLY, str(tmp_path / "log")], tmp_path / "log")
    assert 0.3 <= applied <= whole - 0.3


def test_a_process_that_fails_is_no_time():
    with pytest.raises(RuntimeError, match="3 from"):
        seconds_of([sys.executable, "-c", "raise SystemExit(3)"])


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_the_wait_of_each_file_is_told_also_where_several_share_a_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "MIRROR", [sys.executable, "-c", COMMIT])
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
