"""Traces of real Delta tables: versions, time travel, and the rows of Parquet."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from shop import Shop

from mirror_engine.errors import SetupError
from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.tables.merge.spark import SparkDeltaWriter
from mirror_engine.tools.difference import DifferentCell
from mirror_engine.tools.trace.file import trace_what_if
from mirror_engine.tools.trace.row import trace_row

pytestmark = pytest.mark.slow
TYPES = {"Key no": pa.decimal128(9, 2), "Paid at": pa.timestamp("us", "UTC"), "Name": pa.string()}


def no_jvm():
    raise SetupError("a trace starts no JVM")


def test_a_delta_table_has_the_versions_and_the_row_after_deleted_files(tmp_path):
    shop = Shop(tmp_path, ArrowWriter(tmp_path / TABLES, tmp_path / SCRATCH))
    table = shop.publisher.table("Sales.Bills", keys=["Key no"], types=TYPES)
    for city in ("a", "b", "c"):
        rows = [{"Key no": Decimal(number), "Name": f"{city}{number}"} for number in range(5)]
        table.upsert(*rows)
        table.update(rows[3])
        table.delete(rows[4])
        shop.sync()
    shop.writer = SparkDeltaWriter(tmp_path / TABLES, tmp_path / SCRATCH, no_jvm)
    with shop.trace("Sales.Bills") as trace:
        whole = trace_row(trace, ["3"])
    assert whole.matches_delta is True
    assert [change.delta_version for change in whole.changes] == [1, 1, 2, 2, 3, 3]
    assert whole.result == ({"Key no": Decimal("3.00"), "Paid at": None, "Name": "c3"},)

    for number in (1, 3):
        shop.lose(number, "Sales.schema/Bills")
    with shop.trace("Sales.Bills") as trace:
        rest = trace_row(trace, ["3.00"])
        otherwise = trace_what_if(trace, ["skip=7"])
    start = rest.replay_start
    assert (start.deleted_files, start.delta_version, len(start.not_replayed)) == (2, 1, 1)
    assert rest.rows_at_start == ({"Key no": Decimal("3.00"), "Paid at": None, "Name": "a3"},)
    assert [change.effect for change in rest.changes] == ["updated", "nothing", "updated", "nothing"]
    assert rest.matches_delta is True
    assert otherwise.counts.different == 3
    assert otherwise.different[0].cells == [DifferentCell("Name", "c0", "b0")]
