"""What is brought to the disk, and in which order; proved by what `fsync` was called for."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_scenario import SIMPLE, Scenario, schema_of
from deltalake import DeltaTable, write_deltalake

from mirror_engine.errors import CommitConflict, StorageUnavailable, TableDamaged
from mirror_engine.tables.log import durability as durable
from mirror_engine.tables.log.commit import moved, put_commit
from mirror_engine.tables.log.data_files import written_file
from mirror_engine.tables.log.durability import make_durable, sync_new
from mirror_engine.tables.log.tables_folder import TablesFolder
from mirror_engine.tables.merge.arrow import ArrowWriter


@pytest.fixture
def synced_paths(monkeypatch):
    """Every file and folder that is brought to the disk, in order."""
    found: list[Path] = []
    fsync = os.fsync

    def record(opened):
        found.append(Path(f"/proc/self/fd/{opened}").readlink())
        fsync(opened)

    def name(passing, target, link=os.link):
        assert found[-1] == Path(passing)  # its content first
        link(passing, target)
        found.append(Path(target))

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(os, "link", name)
    return found


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not name open files")


def append(folder, *days):
    write_deltalake(str(folder), pa.table({"n": range(len(days)), "day": days}), mode="append", partition_by=["day"])


def names(folder, paths):
    return [path.relative_to(folder).as_posix() for path in paths]


@needs_proc
def test_data_goes_before_the_log_and_both_before_the_folders_that_name_them(tmp_path, synced_paths):
    folder = tmp_path / "Tables" / "dbo" / "T"
    append(folder, "mon", "tue")
    DeltaTable(str(folder)).create_checkpoint()
    make_durable(folder, -1)
    kinds = [path.suffix if path.is_file() else "folder" for path in synced_paths]
    assert kinds == [".parquet", ".parquet", ".json", ".parquet", "", *["folder"] * 6]
    assert set((tmp_path / "Tables").rglob("*")) | {tmp_path / "Tables"} == set(synced_paths)
    assert names(tmp_path, synced_paths[-3:]) == ["Tables/dbo/T", "Tables/dbo", "Tables"]


@needs_proc
def test_only_what_came_since_is_brought_to_the_disk(tmp_path, synced_paths):
    append(tmp_path, "mon")
    before = set(tmp_path.rglob("*"))
    append(tmp_path, "tue")
    make_durable(tmp_path, 0)
    new = set(tmp_path.rglob("*")) - before
    assert new < set(synced_paths)
    assert set(names(tmp_path, list(set(synced_paths) - new))) == {".", "_delta_log"}


@needs_proc
def test_a_file_that_no_commit_named_is_fsynced_when_it_comes_again(tmp_path, synced_paths):
    """What was written to it last is another content than what was fsynced."""
    append(tmp_path, "mon")
    stray = tmp_path / "stray.parquet"
    stray.write_bytes(b"a commit that was not made")
    sync_new(tmp_path, [stray.name])
    make_durable(tmp_path, -1)
    assert is_fsynced_when_added(stray, synced_paths)


def is_fsynced_when_added(file, synced_paths):
    """Write another file in its place, and add it to its folder's table."""
    synced_paths.clear()
    file.write_bytes(b"another file")
    added = {"path": file.name, "size": file.stat().st_size, "modificationTime": 0, "dataChange": True}
    put_commit(file.parent, 1, [{"add": {**added, "partitionValues": {"day": "mon"}}}])
    make_durable(file.parent, 0)
    return file in synced_paths


@needs_proc
def test_a_file_of_a_refused_commit_is_fsynced_when_it_comes_again(tmp_path, synced_paths):
    part, file = tmp_path / "part.parquet", tmp_path / "T" / "new.parquet"
    pq.write_table(pa.table({"n": [1]}), part)
    with pytest.raises(CommitConflict), moved("T", file.parent, [written_file(part, file.name)]):
        raise CommitConflict("another writer was first")
    assert not file.exists()
    append(file.parent, "mon")
    assert is_fsynced_when_added(file, synced_paths)


def test_drop_whose_fsync_failed_leaves_the_table(tmp_path, monkeypatch):
    tables = TablesFolder(tmp_path / "Tables", tmp_path / "scratch")
    append(tmp_path / "Tables/dbo/T", "mon")

    def fail(_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("mirror_engine.tables.log.tables_folder.sync_folder", fail)
        with pytest.raises(StorageUnavailable, match=r"dbo/T: .*Input/output error"):
            tables.drop("dbo/T")
    assert tables.tables() == ["dbo/T"]
    tables.drop("dbo/T")
    tables.drop("dbo/T")
    assert tables.tables() == []


PARTS = [f"{0:020}.checkpoint.{part:010}.{2:010}.parquet" for part in (1, 2)]
OF_A_UUID = f"{0:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"


@needs_proc
@pytest.mark.parametrize(
    ("hint", "checkpoint"), [({"parts": 2}, PARTS), ({"v2Checkpoint": {"path": OF_A_UUID}}, [OF_A_UUID])]
)
def test_what_spark_leaves_beside_its_files_comes_with_them(tmp_path, synced_paths, hint, checkpoint):
    append(tmp_path, "mon")
    (data,) = tmp_path.glob("*/*.parquet")
    beside = [data.with_name(f".{data.name}.crc"), tmp_path / "_delta_log" / f".{0:020}.json.crc"]
    beside.append(tmp_path / "_delta_log" / f"{0:020}.crc")
    sidecars = tmp_path / "_delta_log" / "_sidecars"
    sidecars.mkdir()
    beside += [sidecars / "part.parquet", *(tmp_path / "_delta_log" / name for name in checkpoint)]
    for path in beside:
        path.write_bytes(b"crc")
    beside.append(tmp_path / "_delta_log/_last_checkpoint")
    beside[-1].write_text(json.dumps({"version": 0, "size": 1, **hint}))
    make_durable(tmp_path, -1)
    assert {*beside, sidecars} < set(synced_paths)


@needs_proc
def test_deletion_vectors_of_new_commits_alone_are_fsynced(tmp_path, synced_paths):
    """Their names are those of the example in Delta's protocol."""
    append(tmp_path, "mon")
    old, new = "deletion_vector_old.bin", "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    of_old, new = tmp_path / old, tmp_path / new
    new.parent.mkdir()
    for file in (of_old, new):
        file.write_bytes(b"rows")
    (data,) = tmp_path.glob("day=mon/*.parquet")
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}
    add = {"path": f"day=mon/{data.name}", "size": data.stat().st_size, "deletionVector": vector}
    put_commit(tmp_path, 1, [{"commitInfo": {}}, {"add": add}])
    make_durable(tmp_path, 0)
    assert {new, new.parent} < set(synced_paths)
    assert of_old not in synced_paths


def test_a_file_that_could_not_be_fsynced_is_written_anew(tmp_path, monkeypatch):
    """Linux calls pages clean that it could not write: a second fsync succeeds and means nothing."""
    append(tmp_path, "mon")
    (data,) = tmp_path.glob("*/*.parquet")
    content, before, fsync = data.read_bytes(), data.stat().st_ino, os.fsync
    failing = {before}

    def fail_once(opened):
        if os.fstat(opened).st_ino in failing:
            failing.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(opened)

    monkeypatch.setattr(os, "fsync", fail_once)
    with pytest.raises(StorageUnavailable, match="cannot be fsynced"):
        make_durable(tmp_path, -1)
    assert data.stat().st_ino == before
    for _ in range(2):
        make_durable(tmp_path, -1)
    assert (data.read_bytes(), failing) == (content, set())
    assert data.stat().st_ino != before
    assert len(list(data.parent.iterdir())) == 1


def test_nothing_is_kept_of_files_that_are_not_there(tmp_path):
    """Hadoop's checksums are absent for most files: what was kept of each would fill the memory with commits."""
    before = {*durable._failed}
    (tmp_path / "a.parquet").write_bytes(b"data")
    sync_new(tmp_path, ["a.parquet", "gone.parquet"])
    assert durable._failed == before


@pytest.mark.parametrize("left", [None, slice(0), slice(-1)], ids=["nothing", "an empty file", "a part"])
def test_a_commit_whose_data_went_with_the_power_is_told(tmp_path, left):
    append(tmp_path, "mon")
    (data,) = tmp_path.glob("*/*.parquet")
    content = data.read_bytes()
    data.unlink()
    if left is not None:
        data.write_bytes(content[left])
    with pytest.raises(TableDamaged, match=f"{data.name}, which the Delta log names, (is missing|has .* bytes of)"):
        make_durable(tmp_path, -1)
    make_durable(tmp_path, 0)


def test_fsync_error_is_raised_unless_folders_cannot_sync(tmp_path, monkeypatch):
    append(tmp_path, "mon")

    def refused(number):
        def fsync(opened):
            if number == errno.EIO or os.path.isdir(f"/proc/self/fd/{opened}"):  # noqa: PTH112 - it is open
                raise OSError(number, os.strerror(number))

        return fsync

    monkeypatch.setattr(durable.os, "fsync", refused(errno.EIO))
    with pytest.raises(StorageUnavailable, match="cannot be fsynced"):
        make_durable(tmp_path, -1)
    monkeypatch.setattr(durable.os, "fsync", refused(errno.EINVAL))
    make_durable(tmp_path, -1)


@needs_proc
def test_a_commit_of_our_own_has_its_content_on_the_disk_before_its_name(tmp_path, without_spark, synced_paths):
    table = Scenario(without_spark, SIMPLE, ["Id"])
    table.change()
    log = tmp_path / "Tables/dbo/T/_delta_log"
    made = names(tmp_path, synced_paths)
    assert made[1] == f"Tables/dbo/T/_delta_log/{0:020}.json"
    top = made.index("Tables")
    assert made[top - 3 : top] == ["Tables/dbo/T/_delta_log", "Tables/dbo/T", "Tables/dbo"]
    synced_paths.clear()
    table.change()
    entry, last = synced_paths[-2:]
    assert (entry, last) == (log / f"{2:020}.json", log)
    assert synced_paths.count(log / f"{2:020}.json") == 1


@needs_proc
def test_what_others_committed_meanwhile_comes_with_a_commit_of_ours(tmp_path, without_spark, synced_paths):
    """Were theirs torn by a power cut, nothing after it could be read either."""
    table = Scenario(without_spark, SIMPLE, ["Id"])
    table.create()
    table.change()
    folder = tmp_path / "Tables/dbo/T"
    rows = pa.table({"Id": pa.array([1], pa.int32()), "City": ["x"]})
    before = set(folder.rglob("*"))
    write_deltalake(str(folder), rows, mode="append")
    synced_paths.clear()
    table.change()
    assert set(folder.rglob("*")) - before <= set(synced_paths)


@needs_proc
def test_a_commit_is_brought_to_the_disk_where_log_cleanup_took_those_before_it(tmp_path, synced_paths):
    for day in ("mon", "tue", "wed"):
        append(tmp_path, day)
    DeltaTable(str(tmp_path)).create_checkpoint()
    (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
    make_durable(tmp_path, 0)
    assert tmp_path / "_delta_log" / f"{2:020}.json" in synced_paths


@needs_proc
def test_all_that_maintenance_commits_is_on_the_disk(tmp_path, synced_paths):
    folder = tmp_path / "Tables" / "T"
    append(folder, "mon")
    append(folder, "mon")
    before = set(folder.rglob("*"))
    done = ArrowWriter(tmp_path / "Tables", tmp_path / "scratch").maintain("T", 0.0)
    assert done["files_deleted"] == 2
    new = set(folder.rglob("*")) - before
    assert len(new) == 3  # a data file, and the commits of OPTIMIZE and VACUUM
    assert new <= set(synced_paths)


@needs_proc
def test_change_data_is_on_the_disk_with_its_commit_and_must_be_there_in_full(tmp_path, synced_paths):
    """But where VACUUM deleted it, which no commit says."""
    table = Scenario(ArrowWriter(tmp_path / "Tables", tmp_path / "scratch", "on"), SIMPLE, ["Id"])
    table.change((0, 1, "Linz"))
    table.change((1, 1, "Wels"))
    folder = tmp_path / "Tables" / "dbo" / "T"
    [change_data] = folder.glob("_change_data/*")
    assert {change_data, change_data.parent} <= set(synced_paths)
    change_data.write_bytes(b"")
    with pytest.raises(TableDamaged, match=change_data.name):
        make_durable(folder, 1)
    change_data.unlink()
    make_durable(folder, 1)


@needs_proc
@pytest.mark.spark
def test_files_written_by_spark_are_fsynced_before_return(spark_writer, synced_paths):
    table = Scenario(spark_writer, schema_of("Id", "day:string", partitions=["day"]), ["Id"], "dbo/Durable")
    folder = spark_writer.path("dbo/Durable")
    seen: set[Path] = set()
    appended = [(0, 1, "mon"), (0, 2, "tue")]  # by this process, which writes no checksums of Hadoop's
    merged = [(1, 1, "wed"), (2, 2, None), (0, 3, "mon")]
    for changes, checksums in ((appended, set()), (merged, {".crc"})):
        synced_paths.clear()
        table.change(*changes)
        now = set(folder.rglob("*")) | {folder}
        assert now - seen <= set(synced_paths)
        assert {path.suffix for path in now - seen} == {".parquet", ".json", ""} | checksums
        seen = now
    spark_writer.drop("dbo/Durable")
