"""Files come whole into their table's folder, and are found again there, without Spark."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from mirror_engine.delta.original import Original
from mirror_engine.delta.staging import copy_all, data_file
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


@pytest.mark.skipif(not hasattr(os, "copy_file_range"), reason="the system copies no files itself")
def test_a_copy_that_the_file_system_ends_early_without_a_word_is_made_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(range(256)) * 4
    landed, copied = tmp_path / "landed.parquet", [10, 0]
    landed.write_bytes(content)
    real = os.copy_file_range
    monkeypatch.setattr(os, "copy_file_range", lambda source, target, _: real(source, target, copied.pop(0)))
    copy_all([Original("copy.parquet", len(content), None, lambda: landed.open("rb"), lambda: None)], tmp_path)
    assert (tmp_path / "copy.parquet").read_bytes() == content
    assert not copied
