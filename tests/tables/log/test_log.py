"""Delta tables as their logs tell them, without a JVM."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from delta_protocol import rewrite
from delta_scenario import (
    AWKWARD_NAMES,
    SIMPLE,
    Scenario,
    add_rows,
    commit_without_rows,
    evolved,
    known_log,
    schema_of,
    without_statistics,
)
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

import mirror_engine.tables.log.snapshot
from mirror_engine.errors import CommitConflict, StorageUnavailable, TableDamaged, UsageError
from mirror_engine.results import utc
from mirror_engine.tables.log.commit import create_table, put_commit
from mirror_engine.tables.log.record import history_entry, now_ms
from mirror_engine.tables.log.snapshot import open_log
from mirror_engine.tables.log.tables_folder import TablesFolder


def test_the_folder_of_a_schema_stays_when_its_last_table_is_dropped(tmp_path):
    """An empty schema stays visible in Fabric, too (LZ-7.2)."""
    (tmp_path / "Tables/S/T/_delta_log").mkdir(parents=True)
    TablesFolder(tmp_path / "Tables", tmp_path / "engine/scratch").drop("S/T")
    assert [path.name for path in (tmp_path / "Tables").rglob("*")] == ["S"]


def record(batch=0):
    table = Scenario(None, SIMPLE, ["Id"])
    table.batch = batch
    return table.record()


def made(folder):
    assert create_table(folder, SIMPLE, record())
    return folder


def commit(folder, number):
    return folder / "_delta_log" / f"{number:020}.json"


@pytest.mark.parametrize("name", AWKWARD_NAMES)
def test_a_table_folder_of_any_name_can_be_read(without_spark, name):
    """LZ-1.10."""
    table = Scenario(without_spark, SIMPLE, ["Id"], f"dbo/{name}")
    table.create()
    table.change()
    state = without_spark.snapshot(f"dbo/{name}")
    assert (state.version, state.record_version) == (1, 1)
    assert without_spark.tables() == [f"dbo/{name}"]
    assert len(without_spark.history(f"dbo/{name}")) == 2
    without_spark.drop(f"dbo/{name}")
    assert without_spark.snapshot(f"dbo/{name}") is None


@pytest.mark.parametrize("name", ["..", "dbo/../../T", "", "dbo//T", "/etc", "dbo/.", "a\0b"])
def test_no_name_leads_out_of_the_tables_folder(without_spark, name):
    with pytest.raises(UsageError):
        without_spark.snapshot(name)
    with pytest.raises(UsageError):
        without_spark.drop(name)


def test_a_folder_without_commits_is_no_table(tmp_path):
    assert open_log(tmp_path) is None
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / ".passing.tmp").touch()
    assert open_log(tmp_path) is None
    (tmp_path / "file").touch()
    assert open_log(tmp_path / "file") is None


def test_a_version_is_written_by_one_writer_only(tmp_path):
    folder = made(tmp_path / "T")
    log = known_log(folder)
    commit_without_rows(log, record(1))
    with pytest.raises(CommitConflict):
        commit_without_rows(log, record(1))
    with pytest.raises(CommitConflict):
        evolved(log, schema_of("Id", "City:string", "new"))
    assert not create_table(folder, SIMPLE, record())
    assert [path.name for path in (folder / "_delta_log").iterdir() if path.suffix != ".json"] == []


def test_a_file_system_without_hard_links_takes_no_commit_and_the_error_says_so(tmp_path, monkeypatch):
    def no_links(*_):
        raise PermissionError(errno.EPERM, "no links here")

    folder = made(tmp_path / "T")
    log = known_log(folder)
    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(StorageUnavailable, match="hard links"):
        commit_without_rows(log, record(1))
    assert [path.name for path in (folder / "_delta_log").iterdir()] == [f"{0:020}.json"]


def test_in_commit_timestamps_rise_whatever_the_clock_says(tmp_path):
    folder, ahead = made(tmp_path / "T"), now_ms() + 60_000
    metadata = json.loads(commit(folder, 0).read_text().splitlines()[2])["metaData"]
    metadata["configuration"]["delta.enableInCommitTimestamps"] = "true"
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
    put_commit(
        folder, 1, [{"commitInfo": {"inCommitTimestamp": ahead}}, {"protocol": features}, {"metaData": metadata}]
    )
    commit_without_rows(known_log(folder), record(1))
    evolved(known_log(folder), schema_of("Id", "City:string", "new"))
    said = [json.loads(commit(folder, version).read_text().splitlines()[0]) for version in (2, 3)]
    assert [each["commitInfo"]["inCommitTimestamp"] for each in said] == [ahead + 1, ahead + 2]


def test_a_key_far_to_the_right_has_statistics(tmp_path):
    wide = schema_of(*(f"c{place}" for place in range(39)), "Id")
    create_table(tmp_path, wide, record())
    log = known_log(tmp_path)
    assert evolved(log, wide, ["c3"]) == 0
    assert evolved(log, wide, ["Id", "c3"]) == 1
    log = known_log(tmp_path)
    assert log.table.metadata().configuration["delta.dataSkippingNumIndexedCols"] == "40"
    assert log.schema == wide
    assert evolved(log, wide, ["Id", "c3"]) == 1


def test_a_missing_data_file_is_told_by_name(without_spark):
    folder = without_spark.path("dbo/T")
    write_deltalake(str(folder), pa.table({"Id": [1]}))
    (gone,) = folder.glob("*.parquet")
    gone.unlink()
    with pytest.raises(TableDamaged, match=gone.name):
        without_spark.rows("dbo/T")
    gone.write_bytes(b"PAR1 but no Parquet")
    with pytest.raises(TableDamaged, match=gone.name):
        without_spark.rows("dbo/T")


def test_rows_are_counted_in_footers_where_the_log_has_no_statistics(without_spark):
    folder = without_spark.path("dbo/T")
    write_deltalake(str(folder), pa.table({"Id": [1, 2, 3]}))
    rewrite(0, without_statistics, folder)
    assert without_spark.snapshot("dbo/T").count_rows() == 3


def test_a_table_that_cannot_be_renamed_away_stays_whole(without_spark, monkeypatch):
    Scenario(without_spark, SIMPLE, ["Id"]).create()

    def refused(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(StorageUnavailable, match="cannot be removed") as failed:
        without_spark.drop("dbo/T")
    assert "file system" in failed.value.help
    assert without_spark.snapshot("dbo/T").count_rows() == 0


@pytest.mark.parametrize(
    "line",
    [
        b'{"commitInfo": 7}',
        b'["commitInfo"]',
        b'{"commitInfo": {"userMetadata": {"mirror_engine": 1}, "inCommitTimestamp": null}}',
    ],
)
def test_a_commit_of_another_program_may_say_anything_of_itself(without_spark, line):
    folder = made(without_spark.path("dbo/T"))
    add_rows(folder, SIMPLE, [(1, "x")])
    kept = [each for each in commit(folder, 1).read_bytes().splitlines() if b"commitInfo" not in each]
    write_checkpoint(folder)  # deltalake reads no further back
    commit(folder, 1).write_bytes(b"\n".join([*kept, line]))
    state = without_spark.snapshot("dbo/T")
    assert (state.version, state.record_version) == (1, 0)


def test_an_empty_newest_commit_is_damage_to_all_who_read(without_spark):
    folder = made(without_spark.path("dbo/T"))
    commit(folder, 1).write_bytes(b"")
    for read in (without_spark.snapshot, without_spark.rows, without_spark.history):
        with pytest.raises(TableDamaged, match="commit 1 of its Delta log is cut off or damaged"):
            read("dbo/T")


def test_a_log_that_cannot_be_looked_into_is_told_of_the_table(without_spark):
    folder = made(without_spark.path("dbo/T"))
    shutil.rmtree(folder / "_delta_log")
    (folder / "_delta_log").symlink_to(folder / "_delta_log")
    for read in (without_spark.snapshot, without_spark.rows, without_spark.history):
        with pytest.raises(StorageUnavailable, match="T: the Delta table cannot be read"):
            read("dbo/T")


@pytest.mark.slow
def test_wrong_byte_in_checkpoint_footer_is_table_damage(without_spark):
    folder = made(without_spark.path("dbo/T"))
    write_checkpoint(folder)
    (checkpoint,) = folder.glob("_delta_log/*.checkpoint.parquet")
    good = checkpoint.read_bytes()
    footer = int.from_bytes(good[-8:-4], "little") + 8
    told = set()
    for at in range(len(good) - footer, len(good), 60):
        checkpoint.write_bytes(good[:at] + bytes([good[at] ^ 0xCE]) + good[at + 1 :])
        try:
            without_spark.snapshot("dbo/T")
        except TableDamaged as damaged:
            told.add(damaged.fault)
    assert "checkpoint 0 of its Delta log is damaged" in told


def test_a_panic_of_deltalake_over_a_damaged_log_is_damage(without_spark, monkeypatch):
    """As it meets a checkpoint whose footer tells a negative offset; its class is no Exception and cannot be named."""
    made(without_spark.path("dbo/T"))

    def panicking(*_, **__):
        raise type("PanicException", (BaseException,), {})("crashed")

    monkeypatch.setattr(mirror_engine.tables.log.snapshot, "DeltaTable", panicking)
    with pytest.raises(TableDamaged, match="its Delta log cannot be read: crashed"):
        without_spark.snapshot("dbo/T")


def test_a_table_that_goes_while_it_is_read_is_unavailable(without_spark, monkeypatch):
    """`status` looks on while the engine drops tables."""
    folder = made(without_spark.path("dbo/T"))

    def gone(*_, **__):
        shutil.rmtree(folder)
        raise TableNotFoundError

    monkeypatch.setattr(mirror_engine.tables.log.snapshot, "DeltaTable", gone)
    with pytest.raises(StorageUnavailable, match="cannot be read"):
        without_spark.snapshot("dbo/T")


def write_checkpoint(folder):
    DeltaTable(str(folder)).create_checkpoint()


@pytest.mark.parametrize("said", [1_764_000_000_000_000, -(10**18), 10**400, None, "now"])
def test_a_time_that_no_calendar_has_is_the_first_one(said):
    """Another program's commit may say microseconds, or anything."""
    assert history_entry(3, {"timestamp": said}).committed_at == utc(0)
    assert history_entry(3, {"timestamp": 1_764_000_000_500}).committed_at == utc(1_764_000_000.5)
