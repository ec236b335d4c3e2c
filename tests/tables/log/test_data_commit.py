"""Data files are added without Spark where that can be, once, and every reader finds each row by its statistics."""

from __future__ import annotations

import math
import os
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_protocol import protocol_faults
from delta_scenario import SIMPLE, Scenario, schema_of
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from mirror_engine.errors import CommitConflict, CommitFailed, StorageUnavailable
from mirror_engine.tables.base import ChangeBatch
from mirror_engine.tables.log import commit as evolution
from mirror_engine.tables.log.commit import add_parts, put_commit
from mirror_engine.tables.log.record import ENGINE_INFO
from mirror_engine.tables.merge import spark as merge_module

TYPED = schema_of(
    "Id:long!",
    "Text:string",
    "At:timestamp",
    "Day:date",
    "Price:decimal(12,2)",
    "Large:decimal(38,0)",
    "Share:double",
    "On:timestamp_ntz",
)
LONG = "Donaudampfschifffahrtsgesellschaftskapitän"
INSTANT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
MOMENT = INSTANT.replace(tzinfo=None)
ROW = (LONG, INSTANT, date(2026, 1, 2), Decimal("9999999999.99"), Decimal(10**37 + 1), math.nan, MOMENT)
EDGES = [
    f"Text = '{LONG}'",
    f"Text >= '{LONG}'",
    "At = TIMESTAMP '2026-01-02T03:04:05.678901Z'",
    "At >= TIMESTAMP '2026-01-02T03:04:05.678901Z'",
    "`On` >= TIMESTAMP_NTZ '2026-01-02T03:04:05.678901'",
    "Day = DATE '2026-01-02'",
    "Price >= 9999999999.99",
    "Large >= 10000000000000000000000000000000000001",
    "Share > 1e300",
]


def maker(table):
    return table.writer.history(table.table, limit=1)[0].engine


@pytest.mark.spark
def test_every_row_is_found_by_the_edges_that_statistics_know(fresh, spark, monkeypatch):
    monkeypatch.setitem(evolution._PROPERTIES, "delta.checkpointInterval", "2")
    table = Scenario(fresh, TYPED, ["Id"])
    folder = fresh.path(table.table)
    table.change((0, 1, *ROW), (0, 2, *[None] * 7), (0, 3, "", *[None] * 4, -0.0, None))
    table.change((0, 4, *["A", *[None] * 6]))
    assert maker(table) == ENGINE_INFO
    assert protocol_faults(folder) == []
    assert (folder / "_delta_log" / "_last_checkpoint").exists()
    found = spark.read.format("delta").load(str(folder))
    assert [[row["Id"] for row in found.where(edge).collect()] for edge in EDGES] == [[1]] * len(EDGES)
    assert [row["Id"] for row in found.where("Share = 0.0").collect()] == [3]
    assert [row["Id"] for row in found.where("Text = ''").collect()] == [3]
    reading = QueryBuilder().register("t", DeltaTable(str(folder)))
    for edge in (f"\"Text\" >= '{LONG}'", "\"At\" >= '2026-01-02T03:04:05.678901Z'", "\"Day\" >= '2026-01-02'"):
        answer = pa.table(reading.execute(f'SELECT "Id" FROM t WHERE {edge}'))  # noqa: S608 - a fixed text
        assert answer.to_pylist() == [{"Id": 1}], edge


@pytest.mark.spark
def test_tables_with_features_that_deltalake_cannot_write_are_left_to_spark(fresh, spark):
    table = Scenario(fresh, schema_of("Id", "City:string"), ["Id"])
    table.create()
    target = f"delta.`{fresh.path(table.table)}`"
    spark.sql(f"ALTER TABLE {target} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
    spark.sql(f"ALTER TABLE {target} ADD CONSTRAINT known CHECK (Id > 0)")
    table.change((0, 1, "x"))
    assert maker(table).startswith("Apache-Spark")
    assert table.found() == [(1, "x")]


@pytest.fixture
def added_table(without_spark):
    return Scenario(without_spark, SIMPLE, ["Id"])


def add_a_part(table, log, schema=SIMPLE):
    part = log.folder.parent / "new.parquet"
    pq.write_table(pa.table({"Id": pa.array([9], pa.int32()), "City": ["Enns"]}), part)
    add_parts(table.table, log, table.writer.evolution(log, ChangeBatch((), schema)), [part], table.record())


@pytest.mark.slow
def test_checkpoints_come_with_rows_and_without(added_table, monkeypatch):
    monkeypatch.setitem(evolution._PROPERTIES, "delta.checkpointInterval", "2")
    added_table.change((0, 1, "Linz"))
    for _ in range(2):
        added_table.change((2, 9, None))
    log = added_table.log()
    found = sorted(path.name for path in (log.folder / "_delta_log").glob("*.checkpoint.parquet"))
    assert found == [f"{version:020}.checkpoint.parquet" for version in (1, 3)]
    assert protocol_faults(log.folder) == []
    assert added_table.found() == [(1, "Linz")]


@pytest.mark.parametrize(
    "other", [schema_of("Id:long", "City:string"), schema_of("id", "City:string"), schema_of("Id")]
)
def test_files_of_other_columns_or_types_are_not_added(added_table, other):
    """deltalake adds them without a word."""
    added_table.create()
    added_table.batch = 1
    with pytest.raises(CommitConflict, match="columns"):
        add_a_part(added_table, added_table.log(), other)
    assert added_table.log().version == 0


def test_an_append_that_fails_leaves_no_file(added_table, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    added_table.change((0, 1, "Linz"))
    monkeypatch.setattr(evolution, "create_file", fail)
    with pytest.raises(StorageUnavailable, match="No space left"):
        added_table.change((0, 2, "Wels"))
    assert len(list(added_table.log().folder.glob("*.parquet"))) == 1


def test_appends_to_any_table_but_odd_ones_need_no_spark(without_spark):
    """Partitioned and mapped ones, too: in the second batch no key of an update or upsert is there."""
    table = Scenario(without_spark, schema_of("Id!", "my v", "day:string", partitions=["day"]), ["Id"])
    table.change((0, 1, 1, "x"), (0, 2, 2, None))
    assert table.change((4, 3, 3, "x"), (1, 4, 4, "y"), (2, 9, None, None)).applied_by == "append"
    assert table.found() == [(1, 1, "x"), (2, 2, None), (3, 3, "x"), (4, 4, "y")]
    assert protocol_faults(table.log().folder) == []
    features = ["appendOnly", "invariants", "columnMapping", "rowTracking", "domainMetadata"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": features}
    put_commit(table.log().folder, table.log().version + 1, [{"protocol": protocol}])
    with pytest.raises(pytest.fail.Exception, match="Spark started"):
        table.change((0, 5, 5, "x"))


def test_no_data_file_bounds_floating_point_or_keeps_it_in_a_dictionary(without_spark):
    """Spark holds NaN for the highest value, and finds 0.0 where -0.0 is: it would pass over rows by either."""
    table = Scenario(without_spark, schema_of("a", "d:double", "f:float"), ["a"])
    table.change((0, 1, math.nan, 1.0), (0, 2, 1.0, math.nan))
    (file,) = table.log().data_files()
    group = pq.read_metadata(file.path).row_group(0)
    assert [group.column(at).is_stats_set for at in range(3)] == [True, False, False]
    assert [group.column(at).has_dictionary_page for at in range(3)] == [True, False, False]


LISTED = ["inCommitTimestamp", "rowTracking", "clustering", "icebergCompatV2", "allowColumnDefaults"]
USED = {  # versions without a list of features have these, too: what counts is their use
    "checkConstraints": ("delta.constraints.short", None),
    "generatedColumns": (None, "delta.generationExpression"),
    "identityColumns": (None, "delta.identity.start"),
    "invariants": (None, "delta.invariants"),
    "allowColumnDefaults": (None, "CURRENT_DEFAULT"),
}


@pytest.mark.parametrize(("feature", "use"), [*((each, None) for each in LISTED), *USED.items()])
def test_features_that_ask_more_of_a_writer_are_left_to_spark(keyed, without_spark, feature, use):
    """By name, and without the expression."""
    keyed.change((0, 1, "Linz"))
    log = keyed.log()
    if use is None:
        features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata", feature]}
        actions = [{"protocol": features}]
    else:
        setting, of_column = use
        fields = [{**field, "metadata": {of_column: "1"} if of_column else {}} for field in log.fields.values()]
        configuration = {**log.configuration, **({setting: "City <> 'Wels'"} if setting else {})}
        actions = evolution._described(log, fields, configuration)
        actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 6}}, *actions]
    put_commit(log.folder, 2, actions)
    keyed.version, log = 2, keyed.log()
    assert log.unknown_features - {"domainMetadata"} == {feature}
    assert not log.can_add_files(log.schema)
    with pytest.raises(CommitFailed, match=feature) as refused:
        keyed.change((1, 1, "Wels"))
    assert "Spark" in refused.value.help
    assert "Wels" not in str(refused.value)
    keyed.writer, keyed.batch = without_spark, 1
    with pytest.raises(pytest.fail.Exception, match="Spark started"):
        keyed.change((0, 5, "x"))


def test_features_of_every_writer_keep_no_file_out(added_table):
    added_table.create()
    log = added_table.log()
    for number, features in enumerate(({"minWriterVersion": 3}, {"minWriterVersion": 7, "writerFeatures": []}), 1):
        put_commit(log.folder, number, [{"protocol": {"minReaderVersion": 1, **features}}])
        assert added_table.log().can_add_files(log.schema)
    assert not log.can_add_files(schema_of("Id", "City:string", partitions=["City"]))
    assert not log.can_add_files(schema_of("Id", "my City:string"))


def test_who_commits_between_evolution_and_commit_is_a_conflict(added_table, monkeypatch):
    added_table.change((0, 1, "Linz"))
    folder = added_table.log().folder
    add_columns = merge_module.evolve

    def evolve_then_lose(*arguments):
        version = add_columns(*arguments)
        write_deltalake(folder, pa.table({"Id": pa.array([7], pa.int32())}), mode="append", schema_mode="merge")
        return version

    monkeypatch.setattr(merge_module, "evolve", evolve_then_lose)
    added_table.schema = schema_of("Id", "City:string", "Zip:string")
    with pytest.raises(CommitConflict):
        added_table.change((1, 1, "Wels", "4600"))  # a MERGE of Spark comes after a commit of its own


@pytest.mark.parametrize(
    "error", [FileExistsError(17, "File exists"), OSError(5, "Input/output error")], ids=["EEXIST", "EIO"]
)
def test_a_link_whose_answer_is_lost_is_a_commit(tmp_path, monkeypatch, error):
    """A share may make a link and answer with an error."""
    link = os.link

    def lost(source, target):
        link(source, target)
        raise error

    monkeypatch.setattr(os, "link", lost)
    put_commit(tmp_path, 0, [{"commitInfo": {}}])
    assert [path.name for path in (tmp_path / "_delta_log").iterdir()] == [f"{0:020}.json"]
