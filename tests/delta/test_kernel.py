"""Appends without a job of Spark: who may be appended to so, and that every reader finds each row by its edges."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from delta_protocol import protocol_faults
from delta_scenario import Scenario, schema_of
from deltalake import DeltaTable, QueryBuilder

from mirror_engine.tables.log import commit as evolution

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from mirror_engine.tables.merge.spark import SparkDeltaWriter

pytestmark = pytest.mark.spark

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
INSTANT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=timezone.utc)
MOMENT = INSTANT.replace(tzinfo=None)
ROW = (
    LONG,
    INSTANT,
    date(2026, 1, 2),
    Decimal("9999999999.99"),
    Decimal(10**37 + 1),
    math.nan,
    MOMENT,
)
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


@pytest.fixture
def fresh(spark_writer: SparkDeltaWriter) -> Iterator[SparkDeltaWriter]:
    for table in spark_writer.tables():
        spark_writer.drop(table)
    yield spark_writer
    for table in spark_writer.tables():
        spark_writer.drop(table)


def maker(table: Scenario) -> str:
    return table.writer.history(table.table, limit=1)[0].engine


def test_every_row_is_found_by_the_edges_that_statistics_know(
    fresh: SparkDeltaWriter, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(evolution._PROPERTIES, "delta.checkpointInterval", "2")
    table = Scenario(fresh, TYPED, ["Id"])
    folder = fresh._tables.path(table.table)
    table.change((0, 1, *ROW), (0, 2, *[None] * 7), (0, 3, "", *[None] * 4, -0.0, None))
    table.change((0, 4, *["A", *[None] * 6]))
    assert maker(table).startswith("Kernel-")
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


def test_tables_that_ask_nothing_of_added_rows_are_appended_to_without_a_job(
    fresh: SparkDeltaWriter, spark: SparkSession
) -> None:
    table = Scenario(fresh, schema_of("Id", "On:timestamp_ntz"), ["Id"])
    table.create()
    folder = fresh._tables.path(table.table)
    features = "'delta.enableDeletionVectors' = 'true', 'delta.enableInCommitTimestamps' = 'true'"
    spark.sql(f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES ({features})")
    table.change((0, 1, MOMENT))
    assert maker(table).startswith("Kernel-")
    table.change((2, 1, None))
    table.change((0, 2, MOMENT))
    assert table.found() == [(2, MOMENT)]
    assert spark.read.format("delta").load(str(folder)).count() == 1


@pytest.mark.parametrize(
    ("columns", "properties"),
    [
        (["Id", "day:string"], ""),
        (["Id", "a b:string"], ""),
        (["Id", "City:string"], "SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"),
        (["Id", "City:string"], "ADD CONSTRAINT known CHECK (Id > 0)"),
    ],
    ids=["partitioned", "mapped", "change data feed", "constraint"],
)
def test_tables_that_ask_more_are_left_to_spark(
    fresh: SparkDeltaWriter, spark: SparkSession, columns: list[str], properties: str
) -> None:
    table = Scenario(fresh, schema_of(*columns, partitions=["day"] if "day:string" in columns else []), ["Id"])
    table.create()
    if properties:
        spark.sql(f"ALTER TABLE delta.`{fresh._tables.path(table.table)}` {properties}")
    table.change((0, 1, "x"))
    assert maker(table).startswith("Apache-Spark")
    assert table.found() == [(1, "x")]
