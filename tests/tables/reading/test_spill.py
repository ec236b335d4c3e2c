"""Rows come back in order, from memory or from the scratch folder, which is left clean."""

from __future__ import annotations

import gc
from decimal import Decimal

import pyarrow as pa
import pytest

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.reading.spill import RowSpill

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
    rows = RowSpill(SCHEMA, scratch, memory_bytes)
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
    rows = RowSpill(SCHEMA, tmp_path)
    rows.add(batch(0, 0))
    rows.finish()
    assert (list(rows.batches()), rows.schema) == ([], SCHEMA)


@pytest.mark.parametrize("is_finished", [True, False])
def test_closed_or_forgotten_rows_give_the_disk_back(tmp_path, *, is_finished):
    closed, forgotten = RowSpill(SCHEMA, tmp_path, 1), RowSpill(SCHEMA, tmp_path, 1)
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
    rows = RowSpill(SCHEMA, tmp_path / "file" / "scratch", 1)
    with pytest.raises(StorageUnavailable, match="scratch folder"):
        rows.add(batch(0, 100))
