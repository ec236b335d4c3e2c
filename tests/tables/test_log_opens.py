"""What one change file costs: how often the log of its table is opened."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from deltalake import DeltaTable
from shop import Shop, row

from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.tables.merge.spark import SparkDeltaWriter

MAX_OPENS = 2


@pytest.fixture
def shop_without_spark(tmp_path):
    """A shop on real tables whose files are added without Spark."""
    tables, scratch = tmp_path / TABLES, tmp_path / SCRATCH
    return Shop(tmp_path, SparkDeltaWriter(tables, scratch, lambda: pytest.fail("Spark was started")))


@pytest.mark.parametrize("change", ["insert", "delete"])
def test_a_change_file_opens_the_log_of_its_table_at_most_twice(shop_without_spark, monkeypatch, change):
    orders = shop_without_spark.orders()
    orders.insert(row(1))
    opened: Counter[str] = Counter()
    open_table = DeltaTable.__init__

    def count(self, *arguments, **options):
        opened["log"] += 1
        open_table(self, *arguments, **options)

    with shop_without_spark.engine() as running:
        running.cycle(threading.Event())
        getattr(orders, change)(row(2))
        monkeypatch.setattr(DeltaTable, "__init__", count)
        running.cycle(threading.Event())
        assert running.applied.commits == 2
    assert opened["log"] <= MAX_OPENS
