"""The merge engine on Arrow: what its commits consist of; its rows are held by the writer contract."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_scenario import SIMPLE, Scenario, aged, known_log, schema_of
from deltalake import DeltaTable, write_deltalake

from mirror_engine.errors import CommitConflict, TableDamaged
from mirror_engine.tables.merge import arrow
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.tables.merge.compaction import vacuum


def test_tables_below_a_folder_with_letters_that_need_escaping_are_merged(tmp_path):
    writer = ArrowWriter(tmp_path / "Käufe (x)+@,é" / "Tables", tmp_path / "scratch")
    table = Scenario(writer, SIMPLE, ["Id"])
    table.change((0, 1, "Linz"), (0, 2, "Wels"))
    table.change((1, 2, "Enns"))
    rows = writer.rows(table.table)
    assert sorted(tuple(row.values()) for row in rows.to_pylist()) == [(1, "Linz"), (2, "Enns")]
    assert list(writer.path(table.table).glob("*.parquet"))
    writer.maintain(table.table, 168.0)


def files_of(table):
    folder = table.folder
    names = {uri.rpartition("/")[2] for uri in DeltaTable(str(folder)).file_uris()}
    return [path for path in folder.rglob("*.parquet") if path.name in names]


def test_int96_timestamps_are_rewritten_as_they_are(local):
    """Other engines rewrite the year 1 as 1754."""
    table = Scenario(local, schema_of("Id", "At:timestamp"), ["Id"])
    moments = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
    table.change((0, 1, moments[0]), (0, 2, moments[1]), (0, 3, None))
    [data_file] = files_of(table)
    rows = pq.read_table(data_file)
    pq.write_table(rows, data_file, use_deprecated_int96_timestamps=True)
    table.change((2, 3, None))
    assert table.found() == [(1, moments[0]), (2, moments[1])]
    [data_file] = files_of(table)
    assert pq.ParquetFile(data_file).schema.column(1).physical_type == "INT64"


@pytest.mark.slow
def test_rows_added_since_the_snapshot_are_a_conflict(keyed, monkeypatch):
    """Be they merged or added."""
    keyed.change((0, 1, "Linz"))
    version = keyed.version
    check = arrow.evolution

    def check_then_lose(*arguments, **options):
        rows = pa.table({"Id": pa.array([1], pa.int32()), "City": ["Graz"]})
        write_deltalake(keyed.folder, rows, mode="append")
        return check(*arguments, **options)

    monkeypatch.setattr(arrow, "evolution", check_then_lose)
    for change in ((1, 1, "Wels"), (0, 2, "Wels"), (2, 9, None)):
        keyed.batch, keyed.version = 1, version
        with pytest.raises(CommitConflict):
            keyed.change(change)
        version += 1
    assert keyed.found() == [*[(1, "Graz")] * 3, (1, "Linz")]
    assert set(keyed.folder.glob("*.parquet")) == set(files_of(keyed)), "no file is left behind"


def test_missing_data_file_is_damage_where_it_is_needed(local):
    table = Scenario(local, schema_of("Id", "At:timestamp"), ["Id"])
    table.change((0, 1, None))
    table.change((0, 9, None))
    gone = next(file for file in files_of(table) if pq.read_table(file)["Id"].to_pylist() == [9])
    gone.unlink()
    with pytest.raises(TableDamaged, match=gone.name):
        table.change((1, 9, None))
    with pytest.raises(TableDamaged, match=gone.name):
        local.maintain(table.table, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [("Id", "City:string"), ("Id", "my City:string")], ids=["plain", "mapped"])
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_vacuum_takes_what_no_version_needs_once_it_is_old(local, columns, is_partitioned):
    local._feed = "on"
    schema = schema_of(*columns, partitions=[columns[1].partition(":")[0]] if is_partitioned else [])
    table = Scenario(local, schema, ["Id"])
    table.change((0, 1, "St. Pölten %20"), (0, 2, "Wels"))
    table.change((1, 2, "Enns/Lorch"))
    folder = table.folder
    changes = set((folder / "_change_data").rglob("*.parquet"))
    used = sorted(set(folder.rglob("*.parquet")) - changes)
    vector = folder / "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    orphans = [used[0].with_name("part-old.parquet"), folder / "part-old.parquet", vector]
    young = [path.with_name("young" + path.suffix) for path in orphans[:2]]
    for path in (*orphans, *young):
        path.touch()
    aged({*orphans, *used})
    vacuum("dbo/T", known_log(folder), 168.0)
    assert not any(path.exists() for path in orphans)
    assert all(path.exists() for path in (*used, *young, *changes))
    assert sorted(row["Id"] for row in local.rows(table.table).to_pylist()) == [1, 2]


def test_what_a_killed_deltalake_left_goes_once_it_is_old(local, keyed):
    keyed.change((0, 1, "Linz"))
    folder = keyed.folder
    left = [folder / "part-1.parquet#1", folder / "_delta_log" / f"{9:020}.json#1"]
    for path in left:
        path.touch()
    local.maintain(keyed.table, 1.0)
    assert all(path.exists() for path in left)
    local.maintain(keyed.table, 0.0)
    assert not any(path.exists() for path in left)
