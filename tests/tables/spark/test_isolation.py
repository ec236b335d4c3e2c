"""Concurrent readers see whole batches, in order; one that holds a version keeps it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from delta_protocol import protocol_faults, read_history
from independent_readers import by_duckdb
from quick_folder import quick_folder
from seed import SEED

from mirror_engine import Config, Mirror
from mirror_engine.landing_zone.change import Change, RowMarker, replay
from mirror_engine.landing_zone.layout import TABLES
from mirror_engine.tables.log import commit as evolution
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

COMMITS = int(os.environ.get("MIRROR_TEST_COMMITS", "3"))
BEFORE = 2  # commits that are there when the readers come
WAYS = ("poll", "hold", "travel")
RETENTION_HOURS = 24.0
TEN_DAYS_SECONDS = 10 * 24 * 3600
START_SECONDS = 60
# reads a table until stdin ends: `poll` its newest version, `hold` the one it opened first, `travel` that by its number
READ = """
import json, select, sys
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
folder, way = sys.argv[1:]
first = table = DeltaTable(folder)
ended = False
while not ended:
    found = pa.table(QueryBuilder().register("mirrored", table).execute("SELECT id, batch FROM mirrored"))
    print(json.dumps([table.version(), [list(row.values()) for row in found.to_pylist()]]), flush=True)
    ended = select.select([sys.stdin], [], [], 0.15)[0]  # without a pause the engine has no time on a small machine
    if way == "poll":
        table = DeltaTable(folder)
    elif way == "travel":
        table = DeltaTable(folder, version=first.version())
"""


class Source:
    """Lands files of three changes with their batch's number, and knows the rows after each prefix of them."""

    def __init__(self, root):
        self._chance = random.Random(SEED)
        self._table = LandingZoneWriter(root).table(
            "Orders", keys=["id"], types={"id": pa.int64(), "batch": pa.int64()}
        )
        self._changes = []
        self.prefixes = [Counter()]

    def change(self):
        """Any markers, few keys."""
        self._land([(self._chance.choice(list(RowMarker)), self._chance.randrange(12)) for _ in range(3)])

    def append(self):
        """New keys: their commit adds a data file."""
        self._land([(RowMarker.INSERT, 100 * len(self.prefixes) + number) for number in range(3)])

    def _land(self, drawn):
        batch = len(self.prefixes)
        changes = [Change(marker, (key,), {"id": key, "batch": batch}) for marker, key in drawn]
        self._table.apply_changes(*((int(change.marker), change.row) for change in changes))
        self._changes += changes
        self.prefixes.append(counted(replay([], self._changes, ["id"])[0]))


class Reader:
    """A process that reads a table until it is stopped."""

    def __init__(self, folder, way, readings):
        self.way = way
        self._readings = readings
        command = [sys.executable, "-c", READ, folder, way]
        with readings.open("w") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.PIPE)
        end = time.monotonic() + START_SECONDS
        while not readings.read_text().endswith("\n") and self._process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)

    def stop(self):
        """Its exit code and stderr."""
        _, errors = self._process.communicate(timeout=START_SECONDS)
        return self._process.returncode, errors

    def seen(self):
        """Every reading in order: version and rows."""
        read = [json.loads(line) for line in self._readings.read_text().splitlines()]
        return [(version, Counter(map(tuple, rows))) for version, rows in read]


def counted(rows):
    return Counter((row["id"], row["batch"]) for row in rows)


def batches_by_version(folder):
    """How many batches each version contains, by its transaction."""
    return {
        state.version: max(transaction["version"] for transaction in state.transactions.values())
        for state in read_history(folder).states
    }


@pytest.fixture
def quick_root():
    with quick_folder() as folder:
        yield Path(folder)


@pytest.mark.spark
def test_readers_see_whole_batches_and_keep_the_version_they_opened(quick_root, mirror_writer, monkeypatch):
    """While the engine commits file by file, then OPTIMIZE and VACUUM; checkpoints are written."""
    print(f"MIRROR_TEST_SEED={SEED}")
    monkeypatch.setitem(evolution._PROPERTIES, "delta.checkpointInterval", "4")
    source, folder, writer = Source(quick_root), quick_root / TABLES / "dbo" / "Orders", mirror_writer(quick_root)
    with Mirror(quick_root, Config(max_batch_files=1), writer=writer) as mirror, ExitStack() as ending:
        for _ in range(BEFORE):
            source.change()
        mirror.sync()
        readers = [Reader(folder, way, quick_root / f"reader-{number}") for number, way in enumerate(WAYS)]
        for reader in readers:
            ending.callback(reader.stop)
        for _ in range(COMMITS - 2):
            source.change()
        source.append()
        source.append()
        mirror.sync()
        (folder / "left.parquet").touch()
        os.utime(folder / "left.parquet", (time.time() - TEN_DAYS_SECONDS,) * 2)
        done = writer.maintain("dbo/Orders", RETENTION_HOURS)
        time.sleep(0.5)  # they read what VACUUM left
        ending.pop_all()
        assert [reader.stop() for reader in readers] == [(0, b"")] * len(WAYS)
    assert (done["files_removed"] > 1, done["files_added"], done["files_deleted"]) == (True, 1, 1)
    assert protocol_faults(folder) == []
    assert list(folder.glob("_delta_log/*.checkpoint.parquet"))
    expected = {version: source.prefixes[batch] for version, batch in batches_by_version(folder).items()}
    assert expected[max(expected)] == source.prefixes[BEFORE + COMMITS]
    for state in read_history(folder).states:
        assert counted(by_duckdb(folder, state)) == expected[state.version], state.version
    for reader in readers:
        versions = [version for version, _ in reader.seen()]
        assert versions == sorted(versions)
        assert [version for version, rows in reader.seen() if rows != expected[version]] == []
        assert reader.way == "poll" or set(versions) == {BEFORE}
    assert len({version for reader in readers for version, _ in reader.seen()}) > COMMITS // 2
    print([(reader.way, len(reader.seen()), len({version for version, _ in reader.seen()})) for reader in readers])
