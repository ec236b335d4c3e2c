"""Merge by position: what becomes of data files, and that every reader sees the same rows after every commit."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pyarrow as pa
import pytest
from delta_protocol import protocol_faults, read_history
from delta_scenario import Scenario, known_log, passthrough_rows, schema_of
from deltalake import DeltaTable
from independent_readers import by_deltalake, by_duckdb

from mirror_engine.errors import CommitFailed
from mirror_engine.landing_zone.change import same_rows
from mirror_engine.tables.log import commit as log_commit
from mirror_engine.tables.log.commit import put_commit
from mirror_engine.tables.merge import arrow, by_position, compaction
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

SIMPLE = schema_of("Id", "City:string")


def files_of(table):
    return known_log(table.writer.path(table.table)).data_files()


@pytest.mark.parametrize(
    ("rows", "gone", "expected"),
    [
        (49_999, 1, False),
        (50_000, 1, True),
        (60_000, 20_000, True),
        (60_000, 20_001, False),
        (10_000_000, 10_000_000, False),
    ],
)
def test_data_file_is_marked_or_rewritten_by_its_rows(rows, gone, expected):
    assert by_position.is_marked(rows, gone) is expected


def test_small_tables_never_get_vectors(local, monkeypatch):
    monkeypatch.setattr(by_position, "_VECTOR_FILE_ROWS", 1)
    table = Scenario(local, SIMPLE, ["Id"])
    table.change(*((0, key, "Linz") for key in range(9)))
    table.change((1, 1, "Wels"))
    assert DeltaTable(str(local.path(table.table))).protocol().min_reader_version == 1
    monkeypatch.setattr(by_position, "VECTORS_FROM_ROWS", 9)
    table.change((1, 2, "Enns"))
    assert [file.vector["cardinality"] for file in files_of(table) if file.vector] == [1]


@pytest.mark.usefixtures("marking")
def test_vectors_off_rewrites_files(local):
    local._vectors = "off"
    table = Scenario(local, SIMPLE, ["Id"])
    table.change(*((0, key, "Linz") for key in range(9)))
    table.change((1, 1, "Wels"))
    (file,) = files_of(table)
    assert file.vector is None
    assert DeltaTable(str(local.path(table.table))).protocol().min_reader_version == 1


@pytest.mark.usefixtures("marking")
def test_file_without_rows_left_is_removed(local):
    table = Scenario(local, SIMPLE, ["Id"])
    table.change((0, 1, "Linz"), (0, 2, "Wels"))
    table.change((2, 1, None))
    table.change((2, 2, None))
    assert files_of(table) == []
    assert table.found() == []
    assert protocol_faults(local.path(table.table)) == []


def test_rewritten_and_new_rows_are_one_file(local):
    table = Scenario(local, SIMPLE, ["Id"])
    for key in range(3):
        table.change((0, key, "Linz"))
    table.change((1, 0, "Wels"), (1, 2, "Enns"), (0, 9, "Ried"))
    assert sorted(file.rows for file in files_of(table)) == [1, 3]


def test_small_files_stay_few_without_maintenance(local):
    table, most = Scenario(local, SIMPLE, ["Id"]), 0
    for key in range(200):
        table.change((0, key, "Linz"))
        most = max(most, len(files_of(table)))
    assert most <= 2 * compaction._CROWD + 1
    assert len(table.found()) == 200
    assert {commit.information["operation"] for commit in read_history(local.path(table.table)).commits} == {
        "CREATE TABLE",
        "WRITE",
        "OPTIMIZE",
    }
    assert protocol_faults(local.path(table.table)) == []


def test_small_files_of_many_partitions_share_a_commit(local, monkeypatch):
    monkeypatch.setattr(arrow, "_COMMITS", 3)
    monkeypatch.setattr(compaction, "_CROWD", 3)
    table = Scenario(local, schema_of("Id", "p:string", partitions=["p"]), ["Id"])
    for key in range(3):
        table.change(*((0, 10 * key + part, f"{part}") for part in range(5)))
    operations = [commit.information["operation"] for commit in read_history(local.path(table.table)).commits]
    assert operations.count("OPTIMIZE") == 1
    assert sorted(file.partition["p"] for file in files_of(table)) == [f"{part}" for part in range(5)]
    assert len(table.found()) == 15


def test_fold_is_bounded_by_bytes_smallest_files_first(monkeypatch):
    mib = 2**20
    files = [SimpleNamespace(size=size, rows=9, partition={}) for size in [3 * mib] * 9 + [100] * 8 + [9 * mib] * 20]
    assert [len(group) for group in compaction.crowded(files)] == [8, 9], "small ones first, large ones never"
    monkeypatch.setattr(compaction, "_FOLDED_AT_ONCE", 25 * mib)
    assert [len(group) for group in compaction.crowded(files)] == [8, 8]
    monkeypatch.setattr(compaction, "_FOLDED_AT_ONCE", 20 * mib)
    assert [len(group) for group in compaction.crowded(files)] == [8]


def test_passthrough_files_are_put_together_too(local, monkeypatch, tmp_path):
    monkeypatch.setattr(arrow, "_COMMITS", 1)
    monkeypatch.setattr(compaction, "_CROWD", 3)
    table = Scenario(local, SIMPLE, ["Id"])
    for key in range(4):
        table.apply(passthrough_rows(tmp_path, table.file(SIMPLE.names, (0, key, "Linz"))))
    assert sorted(file.rows for file in files_of(table)) == [1, 3]
    assert len(table.found()) == 4


@pytest.mark.parametrize("error", [None, MemoryError])
def test_small_files_that_cannot_be_put_together_stay(local, monkeypatch, caplog, error):
    """The batch is committed: what fails afterwards is no failure of it."""
    monkeypatch.setattr(arrow, "_COMMITS", 1)
    monkeypatch.setattr(compaction, "_CROWD", 2)
    table = Scenario(local, SIMPLE, ["Id"])
    table.change((0, 1, "Linz"))
    if error:
        monkeypatch.setattr(compaction, "write_together", Mock(side_effect=error))
    else:
        files_of(table)[0].path.unlink()
    assert table.change((0, 2, "Wels")).applied_by == "append"
    assert "small files stay" in caplog.text
    assert len(files_of(table)) == 2


def test_features_that_come_after_the_batch_stop_the_fold(local, monkeypatch):
    monkeypatch.setattr(arrow, "_COMMITS", 1)
    monkeypatch.setattr(compaction, "_CROWD", 2)
    table = Scenario(local, SIMPLE, ["Id"])
    table.change((0, 1, "Linz"))
    tidy = ArrowWriter.tidy

    def upgraded(writer, name, log, version):
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "domainMetadata"]}
        put_commit(log.folder, version + 1, [{"protocol": protocol}])
        tidy(writer, name, log, version)

    monkeypatch.setattr(ArrowWriter, "tidy", upgraded)
    table.change((0, 2, "Wels"))
    assert len(files_of(table)) == 2
    assert len(read_history(local.path(table.table)).commits) == 4, "created, two batches, upgraded"


def test_not_null_is_checked_before_anything_is_written(local):
    table = Scenario(local, schema_of("Id", "City:string!"), ["Id"])
    table.change((0, 1, "Linz"))
    with pytest.raises(CommitFailed, match="City"):
        table.change((1, 1, None))
    assert table.found() == [(1, "Linz")]


def random_changes(choose, keys, columns, count):
    """Rows of one file: any marker, few keys, values or NULL."""
    return [
        (
            choose.choice((0, 1, 1, 2, 4)),
            choose.choice([*range(keys), None]),
            *(choose.choice([None, number, -number]) for number in range(1, columns)),
        )
        for _ in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "parts"), [(1, []), pytest.param(2, [], marks=pytest.mark.nightly), (3, ["p"])])
def test_readers_agree_after_each_of_many_commits(local, monkeypatch, seed, parts):
    """Vectors, rewrites, new columns, compaction and checkpoints in any order."""
    monkeypatch.setitem(log_commit._PROPERTIES, "delta.checkpointInterval", "7")
    monkeypatch.setattr(arrow, "_COMMITS", 5)
    monkeypatch.setattr(compaction, "_CROWD", 3)
    choose, columns = random.Random(seed), ["k:long", "a:long"]
    twin = Scenario(MemoryDeltaWriter(), None, ["k"])
    table = Scenario(local, None, ["k"])
    for number in range(120):
        if number in {30, 60, 90}:
            columns.append(f"c{number}:long")
        for each in (table, twin):
            each.schema = schema_of(*columns, *(f"{part}:string" for part in parts), partitions=parts)
        monkeypatch.setattr(by_position, "VECTORS_FROM_ROWS", choose.choice([0, 0, 10**6]))
        monkeypatch.setattr(by_position, "_VECTOR_FILE_ROWS", choose.choice([1, 5, 10**6]))
        rows = random_changes(choose, 40, len(columns), choose.choice([1, 3, 30]))
        rows = [(*row, *(choose.choice(["x", "y z", "ä/ö", None]) for _ in parts)) for row in rows]
        outcomes = [each.change(*rows) for each in (table, twin)]
        assert outcomes[0].matches == outcomes[1].matches
        if choose.random() < 0.1:
            local.maintain("dbo/T", choose.choice([0.0, 168.0]))
            table.version = known_log(local.path("dbo/T")).version
        folder = local.path("dbo/T")
        expected = twin.writer.rows("dbo/T").to_pylist()
        assert same_rows(local.rows("dbo/T").to_pylist(), expected), number
        assert same_rows(by_deltalake(DeltaTable(str(folder))), expected), number
        assert local.snapshot("dbo/T").count_rows() == len(expected)
    assert same_rows(by_duckdb(folder, read_history(folder).states[-1]), expected)
    assert any(commit.of("add") and "deletionVector" in str(commit.actions) for commit in read_history(folder).commits)


def scanned_by_polars(folder):
    polars = pytest.importorskip("polars", reason="the extra `readers` is not installed")
    return polars.scan_delta(folder).collect().to_arrow()


def scanned_by_sail(folder):
    pytest.importorskip("pysail", reason="the extra `readers` is not installed")
    program = Path(__file__).with_name("read_with_sail.py")
    done = subprocess.run([sys.executable, program, folder], capture_output=True, check=True, timeout=120)
    return pa.ipc.open_stream(done.stdout).read_all()


@pytest.mark.slow
@pytest.mark.parametrize("scanned", [scanned_by_polars, scanned_by_sail])
@pytest.mark.usefixtures("marking")
def test_other_programs_read_marked_tables(local, scanned):
    table = Scenario(local, SIMPLE, ["Id"])
    table.change(*((0, key, "Linz") for key in range(20)))
    table.change((2, 3, None), (1, 4, "Wels"), (0, 30, "Enns"))
    table.change((2, 5, None))
    found = pa.table(scanned(str(local.path(table.table))))
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == sorted(table.found())
