"""Files come whole into their table's folder, and are found again there, without Spark."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from mirror_engine.errors import CommitConflict, SparkFailed, StorageUnavailable, TableDamaged
from mirror_engine.tables import passthrough as staging
from mirror_engine.tables.passthrough import PassthroughFile, copied, data_file

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_engine.errors import MirrorError


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
    landed, lengths = tmp_path / "landed.parquet", [10, 0]
    landed.write_bytes(content)
    real = os.copy_file_range
    monkeypatch.setattr(os, "copy_file_range", lambda source, target, _: real(source, target, lengths.pop(0)))
    with copied([original("copy.parquet", landed)], tmp_path):
        assert (tmp_path / "copy.parquet").read_bytes() == content
    assert not lengths


@pytest.mark.parametrize(
    ("failure", "left"),
    [
        (CommitConflict("other", "again"), {"part-1"}),
        (StorageUnavailable("disk", "check"), {"part-1"}),
        (SparkFailed("died", "start"), {"part-1", "part-2"}),
    ],
)
def test_copies_stay_only_where_they_were_committed_or_may_have_been(
    tmp_path: Path, failure: MirrorError, left: set[str]
) -> None:
    landed, table = tmp_path / "landed.parquet", tmp_path / "table"
    landed.write_bytes(b"rows")
    write_deltalake(table, pa.table({"id": [1]}))
    with pytest.raises(type(failure)), copied([original("part-1", landed), original("part-2", landed)], table):
        fail_after_commit_of("part-1", table, failure)
    assert {each.name for each in table.glob("part-?")} == left


def test_no_copy_is_left_where_one_cannot_be_made(tmp_path: Path) -> None:
    landed, table = tmp_path / "landed.parquet", tmp_path / "table"
    landed.write_bytes(b"rows")
    write_deltalake(table, pa.table({"id": [1]}))
    before = set(table.iterdir())
    good = original("part-1", landed)
    with (
        pytest.raises(StorageUnavailable),
        copied([good, replace(good, name="part-2", open=lambda: (tmp_path / "gone").open("rb"))], table),
    ):
        pass
    assert set(table.iterdir()) == before


def test_a_copy_that_does_not_reach_the_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landed, table = tmp_path / "landed.parquet", tmp_path / "table"
    landed.write_bytes(b"rows")

    def failing(_: Path) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(staging, "sync_file", failing)
    with pytest.raises(StorageUnavailable, match="brought to the disk"), copied([original("part-1", landed)], table):
        pass


def original(name: str, landed: Path) -> PassthroughFile:
    return PassthroughFile(name, landed.stat().st_size, None, lambda: landed.open("rb"), lambda: None)


def fail_after_commit_of(name: str, table: Path, failure: MirrorError) -> None:
    added = {"path": name, "partitionValues": {}, "size": 4, "modificationTime": 0, "dataChange": True}
    (table / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"add": added}))
    raise failure
