"""A large table, a third of its rows marked, is compacted by `run` while changes arrive: nothing is lost.

`MIRROR_TEST_LARGE_ROWS` is its size; below a million the thresholds are lower.
"""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from peak_memory import KIB, peak_bytes
from seed import SEED

from mirror_engine import Config, Mirror, RunResult
from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.tables.merge import by_position
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

ROWS = int(os.environ.get("MIRROR_TEST_LARGE_ROWS", "200000"))
FILES, ROUNDS = 8, 3
WAIT_SECONDS = max(60, ROWS / 50_000)


class Twin:
    """The publisher, with its own account of the table: of each key whether it is there, and its value."""

    def __init__(self, root):
        self._choose = np.random.default_rng(SEED)
        self._table = LandingZoneWriter(root).table("Big", keys=["k"])
        self._is_there, self._value = np.zeros(ROWS, dtype=np.bool_), np.zeros(ROWS, dtype=np.int64)
        self.landed = 0

    def land(self, keys, marker=None):
        """Land a file of one marker, or without markers."""
        values = self._choose.integers(0, 1 << 40, len(keys))
        self._is_there[keys], self._value[keys] = marker != RowMarker.DELETE, values
        rows = pa.table({"k": keys, "v": values})
        if marker is not None:
            rows = rows.append_column(MARKER_COLUMN, pa.repeat(pa.scalar(int(marker), pa.int32()), len(keys)))
        self._table.land_parquet(rows)
        self.landed += 1

    def land_a_few(self):
        """Land a file of a few changes anywhere."""
        marker = self._choose.choice([RowMarker.UPDATE, RowMarker.DELETE, RowMarker.UPSERT])
        self.land(np.unique(self._choose.integers(0, ROWS, 300)), marker)

    def differs(self, found):
        """Whether rows are not those that were published: their count, or any key or value."""
        keys, values = (found[name].to_numpy() for name in ("k", "v"))
        order, there = np.argsort(keys), np.flatnonzero(self._is_there)
        return not (np.array_equal(keys[order], there) and np.array_equal(values[order], self._value[there]))


class Watched(ArrowWriter):
    """The writer, which says while it compacts."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.is_compacting, self.compactions = False, 0

    def maintain(self, *arguments):
        self.is_compacting = True
        try:
            return super().maintain(*arguments)
        finally:
            self.is_compacting, self.compactions = False, self.compactions + 1


@pytest.mark.slow
@pytest.mark.timeout(max(300, ROWS / 10_000))
def test_compaction_of_a_marked_table_loses_no_change(tmp_path, monkeypatch):
    if ROWS < by_position.VECTORS_FROM_ROWS:
        monkeypatch.setattr(by_position, "VECTORS_FROM_ROWS", 0)
        monkeypatch.setattr(by_position, "_VECTOR_FILE_ROWS", 1000)
    publisher = Twin(tmp_path)
    writer = Watched(tmp_path / TABLES, tmp_path / SCRATCH, key_index_size=1 << 30)
    keys = np.arange(ROWS)
    for part in np.array_split(keys, FILES):
        publisher.land(part)
    with Mirror(tmp_path, Config(max_batch_files=1), writer=writer) as mirror:
        assert mirror.sync().result is RunResult.CAUGHT_UP
        for part in np.array_split(keys[keys % 31 < 10], FILES):
            publisher.land(part[::2], RowMarker.UPDATE)
            publisher.land(part[1::2], RowMarker.DELETE)
        assert mirror.sync().result is RunResult.CAUGHT_UP
        assert marked_rows(writer) > 0.25 * ROWS
    meanwhile = arriving(tmp_path, writer, publisher)
    print(f"{ROWS} rows, {publisher.landed} files, {meanwhile} while compacting, {peak_bytes() // KIB**2} MiB")
    assert meanwhile > 0
    assert marked_rows(writer) < 0.1 * ROWS
    with Mirror(tmp_path, writer=writer) as mirror:
        assert not publisher.differs(mirror.read_table("Big"))
    table = DeltaTable(str(writer.path("dbo/Big")))
    assert not publisher.differs(pa.table(QueryBuilder().register("big", table).execute("SELECT k, v FROM big")))


def arriving(root, writer, publisher):
    """Have changes arrive at a running engine, above all while it compacts; how many files did."""
    stop, meanwhile = threading.Event(), 0
    with Mirror(root, Config(max_batch_files=1, auto_maintain=1, poll_interval_seconds=0.1), writer=writer) as mirror:
        running = threading.Thread(target=mirror.run, args=(stop,))
        running.start()
        try:
            for _ in range(ROUNDS):
                done, ends = writer.compactions, time.monotonic() + WAIT_SECONDS
                publisher.land_a_few()
                while writer.compactions == done:
                    assert time.monotonic() < ends
                    if writer.is_compacting:
                        publisher.land_a_few()
                        meanwhile += 1
                    time.sleep(0.02)
        finally:
            stop.set()
            running.join(WAIT_SECONDS)
        assert not running.is_alive()
        assert mirror.sync().result is RunResult.CAUGHT_UP
    return meanwhile


def marked_rows(writer):
    """How many rows the deletion vectors of the table mark."""
    files = writer.snapshot("dbo/Big").log.data_files()
    return sum(file.vector["cardinality"] for file in files if file.vector)
