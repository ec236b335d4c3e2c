"""The merge engine on deltalake refuses what it would write wrongly; its rows are held by the writer contract."""

from __future__ import annotations

import json
import math
import os
import time
from datetime import datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_scenario import Scenario, known_log, schema_of
from deltalake import DeltaTable, write_deltalake

from mirror_engine.errors import CommitConflict, CommitFailed, TableDamaged
from mirror_engine.tables import writer as table_writer
from mirror_engine.tables.log import commit as evolution
from mirror_engine.tables.log.commit import put_commit
from mirror_engine.tables.merge import deltalake as engine
from mirror_engine.tables.merge.deltalake import DeltalakeWriter

SIMPLE = schema_of("Id", "City:string")
LONG_DECIMALS = tuple(Decimal(f"123456789012345678901234567{digit}.5") for digit in range(3))


@pytest.fixture
def writer(local):
    return local


@pytest.mark.slow
@pytest.mark.parametrize("name", ["d", "my d"], ids=["unmapped", "mapped"])
@pytest.mark.parametrize(("kind", "values"), [("double", (math.nan, 1.0, 2.0)), ("decimal(38,10)", LONG_DECIMALS)])
def test_no_bounds_are_stated_where_they_mislead_readers(writer, name, kind, values):
    """Floating point (NaN) and long decimals: readers would skip the file. Mapped columns have names of their own."""
    table = Scenario(writer, schema_of("Id", f"{name}:{kind}"), ["Id"])
    table.change((0, 1, values[0]), (0, 2, values[1]))
    table.change((1, 2, values[2]))
    [data_file] = files_of(writer, table)
    column = pq.read_metadata(data_file).row_group(0).column(1)
    assert column.statistics is None or not column.statistics.has_min_max
    actions = pa.table(DeltaTable(str(writer.path(table.table))).get_add_actions(flatten=True))
    maxima = [found for found in actions.column_names if found.startswith("max.")]
    assert sum(actions[found].null_count < actions.num_rows for found in maxima) <= 1  # that of Id


def test_tables_below_a_folder_with_letters_that_need_escaping_are_merged(tmp_path):
    writer = DeltalakeWriter(tmp_path / "Käufe (x)+@,é" / "Tables", tmp_path / "scratch")
    table = Scenario(writer, SIMPLE, ["Id"])
    table.change((0, 1, "Linz"), (0, 2, "Wels"))
    table.change((1, 2, "Enns"))
    rows = writer.rows(table.table)
    assert sorted(tuple(row.values()) for row in rows.to_pylist()) == [(1, "Linz"), (2, "Enns")]
    assert list(writer.path(table.table).glob("*.parquet"))
    writer.maintain(table.table, 168.0)


def files_of(writer, table):
    folder = writer.path(table.table)
    names = {uri.rpartition("/")[2] for uri in DeltaTable(str(folder)).file_uris()}
    return [path for path in folder.rglob("*.parquet") if path.name in names]


@pytest.mark.slow
@pytest.mark.parametrize(
    "feature", ["inCommitTimestamp", "rowTracking", "clustering", "identityColumns", "icebergCompatV2"]
)
def test_tables_with_features_of_spark_are_refused_by_name(writer, feature):
    table = Scenario(writer, SIMPLE, ["Id"])
    table.change((0, 1, "Linz"))
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata", feature]}
    put_commit(writer.path(table.table), 2, [{"protocol": protocol}])
    table.version = 2
    with pytest.raises(CommitFailed, match=feature) as refused:
        table.change((1, 1, "Wels"))
    assert "Spark" in refused.value.help


def test_a_table_with_column_mapping_is_compacted_by_spark_alone(writer):
    table = Scenario(writer, schema_of("Id", "Unit Price"), ["Id"])
    table.change((0, 1, 2))
    with pytest.raises(CommitFailed, match="Column mapping") as refused:
        writer.maintain(table.table, 168.0)
    assert "Spark" in refused.value.help


def test_tables_with_int96_timestamps_are_refused(writer):
    """deltalake would rewrite the year 1 as 1754."""
    table = Scenario(writer, schema_of("Id", "At:timestamp"), ["Id"])
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    table.change((0, 1, moment))
    [data_file] = files_of(writer, table)
    pq.write_table(pq.read_table(data_file), data_file, use_deprecated_int96_timestamps=True)
    with pytest.raises(CommitFailed, match="INT96"):
        table.change((1, 1, moment))


def test_a_folder_that_deltalake_would_misread_is_refused(tmp_path):
    writer = DeltalakeWriter(tmp_path / "a%41" / "Tables", tmp_path / "a%41" / "scratch")
    table = Scenario(writer, SIMPLE, ["Id"])
    table.change((0, 1, "Linz"))
    with pytest.raises(CommitFailed, match="path"):
        table.change((1, 1, "Wels"))
    assert table.found() == [(1, "Linz")]


def test_a_merge_of_nothing_still_records_its_batch(writer, monkeypatch):
    """deltalake commits nothing where no row changes."""
    table = Scenario(writer, SIMPLE, ["Id"])
    table.change((0, 1, "Linz"))
    monkeypatch.setattr(engine, "_condition", lambda *_: "false")
    outcome = table.change((1, 1, "Wels"))
    assert outcome.version == 2
    assert table.found() == [(1, "Linz")]


def test_rows_added_since_the_snapshot_are_a_conflict(writer, monkeypatch):
    """Be they merged or added."""
    table = Scenario(writer, SIMPLE, ["Id"])
    table.change((0, 1, "Linz"))
    version = table.version
    check = table_writer.evolve

    def check_then_lose(*arguments):
        rows = pa.table({"Id": pa.array([1], pa.int32()), "City": ["Graz"]})
        write_deltalake(writer.path(table.table), rows, mode="append")
        return check(*arguments)

    monkeypatch.setattr(table_writer, "evolve", check_then_lose)
    for change in ((1, 1, "Wels"), (0, 2, "Wels"), (2, 9, None)):
        table.batch, table.version = 1, version
        with pytest.raises(CommitConflict):
            table.change(change)
        version += 1
    assert table.found() == [*[(1, "Graz")] * 3, (1, "Linz")]


@pytest.mark.slow
@pytest.mark.parametrize("change", [(1, 1, "Wels"), (0, 2, "Wels"), (2, 9, None)], ids=["merge", "append", "no rows"])
def test_a_commit_whose_checkpoint_failed_is_a_commit(writer, monkeypatch, change):
    monkeypatch.setitem(evolution._PROPERTIES, "delta.checkpointInterval", "3")
    table = Scenario(writer, SIMPLE, ["Id"])
    table.change((0, 1, "Linz"))
    (writer.path(table.table) / "_delta_log" / f"{2:020}.checkpoint.parquet" / "in the way").mkdir(parents=True)
    assert table.change(change).version == 2
    assert writer.snapshot(table.table).record_version == 2  # type: ignore[union-attr]


def test_a_missing_data_file_is_damage_whatever_is_done(writer):
    table = Scenario(writer, schema_of("Id", "At:timestamp"), ["Id"])
    table.change((0, 1, None))
    table.change((0, 9, None))
    gone = next(file for file in files_of(writer, table) if pq.read_table(file)["Id"].to_pylist() == [9])
    gone.unlink()
    with pytest.raises(TableDamaged, match=gone.name):
        table.change((1, 1, None))  # the other file's
    with pytest.raises(TableDamaged, match=gone.name):
        writer.maintain(table.table, 0.0)


def test_rows_that_a_constraint_refuses_are_told_without_their_values(writer):
    table = Scenario(writer, SIMPLE, ["Id"])
    table.change((0, 1, "Linz"))
    DeltaTable(str(writer.path(table.table))).alter.add_constraint({"short": "City <> 'Wels'"})
    with pytest.raises(CommitFailed, match="constraint") as refused:
        table.change((1, 1, "Wels"))
    assert "Spark" not in str(refused.value)
    assert "Wels" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [("Id", "City:string"), ("Id", "my City:string")], ids=["plain", "mapped"])
@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize("is_local", [True, False], ids=["local", "in a store"])
def test_vacuum_takes_what_no_commit_names_once_it_is_old_and_nothing_that_is_used(
    writer, monkeypatch, columns, is_partitioned, is_local
):
    monkeypatch.setattr(writer, "_feed", "on")
    if not is_local:
        monkeypatch.setattr(engine, "Path", type(None))
    schema = schema_of(*columns, partitions=[columns[1].partition(":")[0]] if is_partitioned else [])
    table = Scenario(writer, schema, ["Id"])
    table.change((0, 1, "St. Pölten %20"), (0, 2, "Wels"))
    table.change((1, 2, "Enns/Lorch"))
    folder = writer.path(table.table)
    used = sorted(set(folder.rglob("*.parquet")) - set((folder / "_change_data").rglob("*")))
    vector = folder / "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    orphans = [used[0].with_name("part-old.parquet"), folder / "part-old.parquet"]
    young = [path.with_name("part-young.parquet") for path in orphans]
    for path in (vector, *orphans, *young):
        path.touch()
    for path in {vector, *orphans, *used} - set((folder / "_change_data").rglob("*")):
        os.utime(path, (time.time() - 30 * 86_400,) * 2)
    assert list((folder / "_change_data").rglob("*.parquet"))
    with writer.maintenance(table.table, known_log(folder), 168.0) as (_, vacuum):
        vacuum()
    assert not any(path.exists() for path in orphans)
    assert all(path.exists() for path in (vector, *used, *young))
    assert sorted(row["Id"] for row in writer.rows(table.table).to_pylist()) == [1, 2]


def test_a_deletion_vector_is_never_vacuumed_nor_the_file_that_it_belongs_to(tmp_path, writer):
    folder = tmp_path / "Tables/dbo/T"
    write_deltalake(str(folder), pa.table({"Id": [1, 2, 3]}))
    first, second = (folder / "_delta_log" / f"{version:020}.json" for version in range(2))
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    for action in actions:
        action.get("protocol", {}).update({"minReaderVersion": 3, "minWriterVersion": 7, **features})
    first.write_text("\n".join(map(json.dumps, actions)) + "\n")
    (added,) = (action["add"] for action in actions if "add" in action)
    long_ago = time.time() - 30 * 86_400
    removed = {"path": added["path"], "dataChange": True, "deletionTimestamp": int(long_ago * 1000)}
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}
    again = {**added, "deletionVector": {**vector, "cardinality": 1}}
    information = {"timestamp": removed["deletionTimestamp"], "operation": "DELETE", "operationParameters": {}}
    made = [{"commitInfo": information}, {"remove": removed}, {"add": again}]
    second.write_text("\n".join(map(json.dumps, made)) + "\n")
    used = [folder / added["path"], folder / "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"]
    orphan = folder / "part-old.parquet"
    for path in (orphan, used[1]):
        path.touch()
    for path in (orphan, *used):
        os.utime(path, (long_ago, long_ago))
    with writer.maintenance("dbo/T", known_log(folder), 168.0) as (_, vacuum):
        vacuum()
    assert all(path.exists() for path in used)
    assert not orphan.exists()


def test_what_a_killed_deltalake_left_goes_once_it_is_old(writer):
    table = Scenario(writer, SIMPLE, ["Id"])
    table.change((0, 1, "Linz"))
    folder = writer.path(table.table)
    left = [folder / "part-1.parquet#1", folder / "_delta_log" / f"{9:020}.json#1"]
    for path in left:
        path.touch()
    writer.maintain(table.table, 1.0)
    assert all(path.exists() for path in left)
    writer.maintain(table.table, 0.0)
    assert not any(path.exists() for path in left)
