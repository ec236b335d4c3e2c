"""Rows in Parquet files that every node sees."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.tables.spark.executors import ParquetRows, file_name

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.table(
    {
        "_metadata": ["a", None, "c"],
        "marker": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
        "d": pa.array([None, None, None], pa.decimal128(38, 10)),
        MARKER_COLUMN: pa.array([0, 1, 4], pa.int8()),
    }
)


def store(folder: Path, number: int = 7) -> ParquetRows:
    return ParquetRows(ROWS.schema, folder / file_name(number, "token"), number)


def test_rows_come_back_in_order_under_their_own_names_and_types(tmp_path: Path) -> None:
    written = store(tmp_path)
    for batch in ROWS.to_batches(max_chunksize=2):
        written.add(batch)
    written.finish()
    rows: ParquetRows = pickle.loads(pickle.dumps(written))  # noqa: S301 - as from an executor
    assert pa.Table.from_batches(rows.batches()).equals(ROWS)
    assert pa.Table.from_batches(rows.batches([MARKER_COLUMN, "marker"])).equals(ROWS.select([MARKER_COLUMN, "marker"]))
    assert (rows.number, rows.path.name) == (7, "rows-00000007-token.parquet")
    rows.close()
    rows.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_rows_can_be_read(tmp_path: Path) -> None:
    rows = store(tmp_path)
    rows.finish()
    assert rows.schema == ROWS.schema
    assert sum(batch.num_rows for batch in rows.batches()) == 0


def test_closing_unfinished_rows_deletes_their_file(tmp_path: Path) -> None:
    rows = store(tmp_path)
    rows.add(ROWS.to_batches()[0])
    rows.close()
    assert list(tmp_path.iterdir()) == []


def test_a_scratch_folder_that_is_not_there_is_the_machines_fault(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="scratch folder"):
        store(tmp_path / "gone")
