"""Data files that became part of a table as they lay are found again, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from mirror_engine.delta.staging import data_file
from mirror_engine.errors import TableDamaged

if TYPE_CHECKING:
    from pathlib import Path


def test_a_data_file_may_be_gone_once_its_table_needs_it_no_longer(tmp_path: Path) -> None:
    rows = pa.table({"id": [1]})
    write_deltalake(tmp_path, rows)
    [old] = tmp_path.glob("*.parquet")
    write_deltalake(tmp_path, rows, mode="overwrite")
    [new] = set(tmp_path.glob("*.parquet")) - {old}
    found = data_file(tmp_path, old.name)
    assert found is not None
    with found:
        assert found.read() == old.read_bytes()
    old.unlink()
    assert data_file(tmp_path, old.name) is None
    assert DeltaTable(tmp_path).version() == 1
    new.unlink()
    with pytest.raises(TableDamaged):
        data_file(tmp_path, new.name)
