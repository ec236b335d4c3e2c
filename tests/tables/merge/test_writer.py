"""What only the Spark writer has to get right: names on disk, foreign writers, failures."""

from __future__ import annotations

import pytest
from delta_scenario import AWKWARD_NAMES, SIMPLE, Scenario, commit_without_rows, known_log, schema_of
from deltalake import DeltaTable
from independent_readers import by_deltalake

from mirror_engine.errors import CommitConflict, ConcurrentModification
from mirror_engine.landing_zone.layout import ENGINE, SCRATCH
from mirror_engine.tables.base import ChangeBatch, MatchCounts
from mirror_engine.tables.log.tables_folder import PROCESS
from mirror_engine.tables.merge import spark as merge_module
from mirror_engine.tables.spark.session import child_session


@pytest.mark.spark
def test_a_table_of_any_name_can_be_written(fresh):
    """LZ-1.10: as spelled, with Spark itself reading the same rows there."""
    name = f"Sch ema.%/{AWKWARD_NAMES[0]}"
    table = Scenario(fresh, SIMPLE, ["Id"], name)
    table.change((0, 1, "a"), (0, 2, "b"))
    table.change((1, 1, "c"), (0, 3, "d"))
    assert fresh.tables() == [name]
    assert [entry.operation for entry in fresh.history(name)] == ["MERGE", "WRITE", "CREATE TABLE"]
    assert fresh.maintain(name, 0)["files_deleted"] >= 1
    assert table.found() == [(1, "c"), (2, "b"), (3, "d")]
    fresh.drop(name)
    assert fresh.tables() == []


@pytest.mark.spark
def test_rows_a_foreign_writer_deleted_with_a_vector_are_gone(fresh, spark):
    """LZ-1.11; deltalake adds files to such a table."""
    table = Scenario(fresh, SIMPLE, ["Id"])
    table.change(*[(0, number, "x") for number in range(8)])
    path = fresh.path("dbo/T")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE Id IN (0, 5, 7)")  # noqa: S608 - a path of our own
    assert list(path.glob("deletion_vector*.bin"))
    assert [row[0] for row in table.found()] == [1, 2, 3, 4, 6]
    state = fresh.snapshot("dbo/T")
    assert (state.count_rows(), state.record.progress.batch, state.record_version) == (5, 1, 1)
    outcome = table.change((0, 5, "new"), (0, 1, "second"), (2, 7, None))
    assert outcome.matches == (MatchCounts(1, 0),)
    table.change((0, 8, "x"))
    assert fresh.history("dbo/T", limit=1)[0].engine.startswith("mirror_engine/")
    assert sorted(row[0] for row in table.found()) == [1, 1, 2, 3, 4, 5, 6, 8]


@pytest.mark.spark
def test_a_batch_somebody_else_committed_meanwhile_is_not_committed_again(fresh):
    """The snapshot says nothing of it; the commit sees it."""
    table = Scenario(fresh, SIMPLE, ["Id"])
    table.change((0, 1, "a"))
    snapshot = fresh.snapshot("dbo/T")
    file = table.file(SIMPLE.names, (1, 1, "merge"))
    table.batch = 2
    commit_without_rows(known_log(fresh.path("dbo/T")), table.record())
    with pytest.raises(CommitConflict):
        fresh.apply("dbo/T", ChangeBatch((file,), SIMPLE, ("Id",), snapshot), table.record(file))
    assert table.found() == [(1, "a")]


@pytest.mark.spark
def test_nothing_is_left_behind_a_commit(fresh, spark):
    plain = child_session(spark).conf
    table = Scenario(fresh, SIMPLE, ["Id"])
    table.change((0, 1, "a"))
    table.change((4, 1, "b"), (4, 2, "b"))
    assert not list(fresh._scratch.glob("batch-*"))
    assert fresh.sessions._idle
    for session in fresh.sessions._idle:
        for name in ("write.txnAppId", "write.txnVersion", "commitInfo.userMetadata"):
            assert session.conf.get(f"spark.databricks.delta.{name}", None) is None
        for name in (*merge_module._MERGE_SETTINGS, *merge_module._SMALL_SETTINGS):
            assert session.conf.get(name, None) == plain.get(name, None)


@pytest.mark.spark
def test_small_merge_takes_five_jobs(fresh, spark):
    """Snapshot, two to choose files, the join, the write: each is planned and scheduled, whatever it reads."""

    def jobs():
        return spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()

    table = Scenario(fresh, SIMPLE, ["Id"])
    table.change((0, 1, "a"), (0, 2, "b"))
    table.change((1, 1, "A"))  # its first one also reads what Spark does not know yet
    before = jobs()
    table.change((1, 1, "B"), (2, 2, None), (0, 3, "c"))
    assert jobs() - before <= 5
    assert table.found() == [(1, "B"), (3, "c")]


def test_a_file_that_cannot_be_read_after_all_leaves_the_table_as_it_was(without_spark):
    table = Scenario(without_spark, SIMPLE, ["Id"])
    table.change((0, 1, "a"))
    before = without_spark.snapshot("dbo/T")

    class Vanishing:
        schema = None

        def batches(self, _columns=None):
            raise ConcurrentModification("the file went away")

        def close(self): ...

    file = table.file(SIMPLE.names, (1, 1, "b"))
    table.schema = schema_of("Id", "City:string", "new")
    object.__setattr__(file, "rows", Vanishing())
    with pytest.raises(ConcurrentModification):
        table.apply(file)
    assert without_spark.snapshot("dbo/T") == before


def test_what_a_killed_process_left_is_cleared_by_the_next_commit(tmp_path, without_spark):
    for left in (f"{ENGINE}/trash/1234", f"{SCRATCH}/batch-1234"):
        (tmp_path / left).mkdir(parents=True)
    names = [f"rows-{process}-1234.arrow" for process in ("another", PROCESS)]
    for name in ("copy-another-1234.parquet", *names):
        (tmp_path / SCRATCH / name).touch()
    Scenario(without_spark, SIMPLE, ["Id"]).change()
    assert [path.name for path in (tmp_path / ENGINE).rglob("*")] == ["scratch", names[1]]


@pytest.mark.spark
def test_a_large_tables_rows_are_marked_instead_of_rewritten(fresh, monkeypatch):
    """Spark is set differently for it, too."""
    monkeypatch.setattr(merge_module, "VECTORS_FROM_ROWS", 4)
    monkeypatch.setattr(merge_module, "SMALL_ROWS", 0)
    table = Scenario(fresh, SIMPLE, ["Id"])
    table.change((0, 1, "a"), (0, 2, "b"), (0, 3, "c"))
    table.change((1, 1, "A"))  # of three rows: the file is written anew
    table.change((0, 4, "d"), (0, 4, "e"))
    table.change((1, 2, "B"), (2, 3, None), (2, 9, None))
    table.change((4, 4, "D"), (4, 5, "E"))
    assert table.found() == [(1, "A"), (2, "B"), (4, "D"), (4, "D"), (5, "E")]
    assert fresh.snapshot(table.table).count_rows() == 5
    plans = {entry.operation: entry.merge_plan for entry in reversed(fresh.history(table.table)) if entry.merge_plan}
    assert plans == {"MERGE": "broadcast; rows are marked; with inserts; bounds on Id"}
    folder = fresh.path(table.table)
    log = known_log(folder)
    assert any(file.vector for file in log.data_files())
    marked = sorted((row["Id"], row["City"]) for row in by_deltalake(DeltaTable(str(folder))))
    assert marked == table.found(), "what others read"
    fresh.maintain(table.table, 168)
    assert table.found() == marked
