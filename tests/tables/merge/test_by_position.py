"""Merge by position: what becomes of data files."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from delta_protocol import protocol_faults, read_history
from delta_scenario import PARTITIONS, SIMPLE, Scenario, schema_of
from deltalake import DeltaTable, write_deltalake
from seed import by_night

from mirror_engine.errors import CommitFailed
from mirror_engine.tables.log import data_rows
from mirror_engine.tables.log.commit import put_commit
from mirror_engine.tables.merge import arrow, by_position, compaction
from mirror_engine.tables.merge.arrow import ArrowWriter


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


def test_small_tables_never_get_vectors(keyed, monkeypatch):
    monkeypatch.setattr(by_position, "_VECTOR_FILE_ROWS", 1)
    keyed.change(*((0, key, "Linz") for key in range(9)))
    keyed.change((1, 1, "Wels"))
    assert DeltaTable(str(keyed.folder)).protocol().min_reader_version == 1
    monkeypatch.setattr(by_position, "VECTORS_FROM_ROWS", 9)
    keyed.change((1, 2, "Enns"))
    assert [file.vector["cardinality"] for file in keyed.log().data_files() if file.vector] == [1]


@pytest.mark.usefixtures("marking")
@pytest.mark.parametrize("keys", [["Id"], ["Id", "City"]], ids=["number", "compound"])
def test_vector_is_read_once_by_a_batch(local, keys, monkeypatch):
    table, read = Scenario(local, SIMPLE, keys), []
    table.change(*((0, key, "Linz") for key in range(9)))
    table.change((2, 1, "Linz"))
    read_vector = data_rows.read_vector
    monkeypatch.setattr(data_rows, "read_vector", lambda *given: read.append(given) or read_vector(*given))
    table.change((2, 2, "Linz"), (1, 3, "Linz"))
    assert len(read) == 1
    assert [file.vector["cardinality"] for file in table.log().data_files() if file.vector] == [3]


@pytest.mark.usefixtures("marking")
def test_vectors_off_rewrites_files(local, keyed):
    local._vectors = "off"
    keyed.change(*((0, key, "Linz") for key in range(9)))
    keyed.change((1, 1, "Wels"))
    (file,) = keyed.log().data_files()
    assert file.vector is None
    assert DeltaTable(str(keyed.folder)).protocol().min_reader_version == 1


@pytest.mark.usefixtures("marking")
def test_file_without_rows_left_is_removed(keyed):
    keyed.change((0, 1, "Linz"), (0, 2, "Wels"))
    keyed.change((2, 1, None))
    keyed.change((2, 2, None))
    assert keyed.log().data_files() == []
    assert keyed.found() == []
    assert protocol_faults(keyed.folder) == []


def test_partition_folders_are_named_as_deltalake_names_them(local, tmp_path):
    """Polars reads partition values from these names."""
    table = Scenario(local, schema_of("Id", "ü.p:string", partitions=["ü.p"]), ["Id"])
    table.change(*((0, key, value) for key, value in enumerate(PARTITIONS)))
    write_deltalake(str(tmp_path / "other"), local.rows(table.table), partition_by=["ü.p"])
    ours, others = (
        {path.parent.name for path in folder.glob("*/*.parquet")} for folder in (table.folder, tmp_path / "other")
    )
    assert ours == others
    assert len(ours) == len(PARTITIONS)


@pytest.mark.usefixtures("marking")
def test_file_with_an_encoded_path_is_rewritten(local):
    """Polars does not find the vector of such a file."""
    table = Scenario(local, schema_of("Id", "p:string", partitions=["p"]), ["Id"])
    table.change(*((0, key, part) for key, part in enumerate(("a", "a", "ä", "ä", None, None))))
    table.change((2, 0, None), (2, 2, None), (2, 4, None))
    assert {file.partition["p"] for file in table.log().data_files() if file.vector} == {"a", None}
    assert len(table.found()) == 3


def test_rewritten_and_new_rows_are_one_file(keyed):
    for key in range(3):
        keyed.change((0, key, "Linz"))
    keyed.change((1, 0, "Wels"), (1, 2, "Enns"), (0, 9, "Ried"))
    assert sorted(file.rows for file in keyed.log().data_files()) == [1, 3]


@pytest.mark.slow
def test_small_files_are_compacted_without_maintenance(local, monkeypatch):
    monkeypatch.setattr(arrow, "_COMMITS", 3)
    monkeypatch.setattr(compaction, "_CROWD", 3)
    table, most = Scenario(local, SIMPLE, ["Id"]), 0
    commits = by_night(20, 200)
    for key in range(commits):
        table.change((0, key, "Linz"))
        most = max(most, len(table.log().data_files()))
    assert most <= 2 * compaction._CROWD + 1
    assert len(table.found()) == commits
    assert {commit.information["operation"] for commit in read_history(table.folder).commits} == {
        "CREATE TABLE",
        "WRITE",
        "OPTIMIZE",
    }
    assert protocol_faults(table.folder) == []


@pytest.mark.slow
def test_small_files_of_many_partitions_share_a_commit(local, monkeypatch):
    monkeypatch.setattr(arrow, "_COMMITS", 3)
    monkeypatch.setattr(compaction, "_CROWD", 3)
    table = Scenario(local, schema_of("Id", "p:string", partitions=["p"]), ["Id"])
    for key in range(3):
        table.change(*((0, 10 * key + part, f"{part}") for part in range(5)))
    operations = [commit.information["operation"] for commit in read_history(table.folder).commits]
    assert operations.count("OPTIMIZE") == 1
    assert sorted(file.partition["p"] for file in table.log().data_files()) == [f"{part}" for part in range(5)]
    assert len(table.found()) == 15


def test_fold_is_bounded_by_bytes_smallest_files_first(monkeypatch):
    mib = 2**20
    files = [SimpleNamespace(size=size, rows=9, partition={}) for size in [3 * mib] * 9 + [100] * 8 + [9 * mib] * 20]
    assert [len(group) for group in compaction.crowded(files)] == [8, 9], "small ones first, large ones never"
    monkeypatch.setattr(compaction, "_FOLDED_AT_ONCE", 25 * mib)
    assert [len(group) for group in compaction.crowded(files)] == [8, 8]
    monkeypatch.setattr(compaction, "_FOLDED_AT_ONCE", 20 * mib)
    assert [len(group) for group in compaction.crowded(files)] == [8]


@pytest.mark.parametrize("error", [None, MemoryError])
def test_small_files_that_cannot_be_put_together_stay(keyed, monkeypatch, caplog, error):
    """The batch is committed: what fails afterwards is no failure of it."""
    monkeypatch.setattr(arrow, "_COMMITS", 1)
    monkeypatch.setattr(compaction, "_CROWD", 2)
    keyed.change((0, 1, "Linz"))
    if error:
        monkeypatch.setattr(compaction, "write_together", Mock(side_effect=error))
    else:
        keyed.log().data_files()[0].path.unlink()
    assert keyed.change((0, 2, "Wels")).applied_by == "append"
    assert "small files stay" in caplog.text
    assert len(keyed.log().data_files()) == 2


def test_features_that_come_after_the_batch_stop_the_fold(keyed, monkeypatch):
    monkeypatch.setattr(arrow, "_COMMITS", 1)
    monkeypatch.setattr(compaction, "_CROWD", 2)
    keyed.change((0, 1, "Linz"))
    tidy = ArrowWriter.tidy

    def upgraded(writer, name, log, version):
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "domainMetadata"]}
        put_commit(log.folder, version + 1, [{"protocol": protocol}])
        tidy(writer, name, log, version)

    monkeypatch.setattr(ArrowWriter, "tidy", upgraded)
    keyed.change((0, 2, "Wels"))
    assert len(keyed.log().data_files()) == 2
    assert len(read_history(keyed.folder).commits) == 4, "created, two batches, upgraded"


def test_not_null_is_checked_before_anything_is_written(local):
    table = Scenario(local, schema_of("Id", "City:string!"), ["Id"])
    table.change((0, 1, "Linz"))
    with pytest.raises(CommitFailed, match="City"):
        table.change((1, 1, None))
    assert table.found() == [(1, "Linz")]
