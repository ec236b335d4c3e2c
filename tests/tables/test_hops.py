"""What one change file costs: how often its table's log is opened, and how much of the code is entered."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from shop import Shop, row

import mirror_engine
from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.tables.merge.spark import SparkDeltaWriter

PACKAGE = str(Path(mirror_engine.__file__).parent)
MAX_OPENS = 2
MAX_FUNCTIONS, MAX_MODULES = 345, 50  # of an insert


@pytest.fixture
def shop(tmp_path):
    """A shop on real tables whose files are added without Spark."""
    tables, scratch = tmp_path / TABLES, tmp_path / SCRATCH
    return Shop(tmp_path, SparkDeltaWriter(tables, scratch, lambda: pytest.fail("Spark was started")))


@pytest.mark.parametrize("change", ["insert", "delete"])
def test_a_change_file_opens_the_log_of_its_table_at_most_twice(shop, monkeypatch, change):
    orders = shop.orders()
    orders.insert(row(1))
    opened: Counter[str] = Counter()
    open_table = DeltaTable.__init__

    def count(self, *arguments, **options):
        opened["log"] += 1
        open_table(self, *arguments, **options)

    with shop.engine() as running:
        running.cycle(threading.Event())
        getattr(orders, change)(row(2))
        monkeypatch.setattr(DeltaTable, "__init__", count)
        running.cycle(threading.Event())
        assert running.report().commits == 2
    assert opened["log"] <= MAX_OPENS


def test_a_change_file_enters_few_functions_and_modules(shop):
    orders = shop.orders()
    orders.insert(row(1))
    entered: set[tuple[str, str, int]] = set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            code = frame.f_code
            entered.add((code.co_filename, code.co_name, code.co_firstlineno))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        with shop.engine() as running:
            running.cycle(threading.Event())
            entered.clear()
            orders.insert(row(2))
            running.cycle(threading.Event())
            found = set(entered)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    modules = {file for file, _, _ in found}
    functions = [name for _, name, _ in found if not name.startswith("<")]
    assert len(functions) <= MAX_FUNCTIONS
    assert len(modules) <= MAX_MODULES
