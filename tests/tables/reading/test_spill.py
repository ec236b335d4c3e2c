"""Rows come back in order, from memory or from the scratch folder, which is left clean."""

from __future__ import annotations

import gc
from decimal import Decimal

import pyarrow as pa
import pytest

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.reading.spill import RowMemory, RowSpill, all_rows

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("a.b", pa.string()),
        ("at", arrow_type("timestamp")),
        ("sum", arrow_type("decimal(38,10)")),
        (MARKER_COLUMN, pa.int8()),
    ]
)


def batch(first, count):
    numbers = range(first, first + count)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(numbers, pa.int64()),
            pa.array([None if n % 3 else f"text {n}" for n in numbers]),
            pa.array(numbers, pa.int64()).view(arrow_type("timestamp")),
            pa.array([Decimal(n) / 8 for n in numbers], arrow_type("decimal(38,10)")),
            pa.array([n % 2 for n in numbers], pa.int8()),
        ],
        schema=SCHEMA,
    )


def filled(scratch, memory_bytes):
    rows = RowSpill(SCHEMA, scratch, RowMemory(memory_bytes))
    for first in range(0, 3000, 100):
        rows.add(batch(first, 100))
    rows.finish()
    return rows


@pytest.mark.parametrize("memory_bytes", [1, 50_000, 10_000_000])
def test_rows_come_back_in_order_as_often_as_asked_wherever_they_wait(tmp_path, memory_bytes):
    rows = filled(tmp_path / "scratch", memory_bytes)
    for _ in range(2):
        assert pa.Table.from_batches(rows.batches(), SCHEMA).equals(pa.Table.from_batches([batch(0, 3000)]))
    named = pa.Table.from_batches(rows.batches([MARKER_COLUMN, "a"]))
    assert named.equals(pa.Table.from_batches([batch(0, 3000)]).select([MARKER_COLUMN, "a"]))
    assert (tmp_path / "scratch").exists() == (memory_bytes < 10_000_000)


def test_no_rows_at_all_still_have_a_schema(tmp_path):
    rows = RowSpill(SCHEMA, tmp_path, RowMemory(0))
    rows.add(batch(0, 0))
    rows.finish()
    assert (list(rows.batches()), rows.schema) == ([], SCHEMA)


@pytest.mark.slow
@pytest.mark.parametrize("is_finished", [True, False])
def test_closed_or_forgotten_rows_give_the_disk_back(tmp_path, *, is_finished):
    closed, forgotten = RowSpill(SCHEMA, tmp_path, RowMemory(1)), RowSpill(SCHEMA, tmp_path, RowMemory(1))
    for rows in (closed, forgotten):
        rows.add(batch(0, 100))
        if is_finished:
            rows.finish()
    assert len(list(tmp_path.iterdir())) == 2
    closed.close()
    closed.close()
    del rows, forgotten
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_scratch_folder_that_fails_is_tried_again_later(tmp_path):
    (tmp_path / "file").touch()
    rows = RowSpill(SCHEMA, tmp_path / "file" / "scratch", RowMemory(1))
    with pytest.raises(StorageUnavailable, match="scratch folder"):
        rows.add(batch(0, 100))


def test_files_share_the_memory_until_it_is_given_back(tmp_path):
    store = all_rows(tmp_path, 2 * batch(100, 100).nbytes).store
    closed, forgotten, spilled, late = (store(SCHEMA, ["a"]) for _ in range(4))
    for rows in (closed, forgotten, spilled):
        rows.add(batch(0, 100))
    assert len(list(tmp_path.iterdir())) == 1
    closed.close()
    closed.close()
    del rows, forgotten
    late.add(batch(0, 100))
    late.add(batch(100, 100))
    assert len(list(tmp_path.iterdir())) == 1
    late.add(batch(200, 100))
    assert len(list(tmp_path.iterdir())) == 2
    late.finish()
    assert pa.Table.from_batches(late.batches()).equals(pa.Table.from_batches([batch(0, 300)]))


def test_rows_after_the_first_spilled_ones_stay_behind_them(tmp_path):
    memory = RowMemory(2 * batch(200, 100).nbytes)
    other, rows = RowSpill(SCHEMA, tmp_path, memory), RowSpill(SCHEMA, tmp_path, memory)
    other.add(batch(0, 100))
    for first in (0, 100):
        rows.add(batch(first, 100))
    other.close()
    rows.add(batch(200, 100))
    rows.finish()
    assert pa.Table.from_batches(rows.batches()).equals(pa.Table.from_batches([batch(0, 300)]))
