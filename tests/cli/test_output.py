"""Output for people and programs, and progress where somebody watches."""

from __future__ import annotations

import io
import json
from datetime import date, datetime, timezone
from decimal import Decimal

import pytest
from rich.console import Console

from mirror_engine.cli import progress
from mirror_engine.events import BatchCommitted, BatchStarted, CycleStarted, FileRead, SetupProgress
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.landing_zone.names import TableName
from mirror_engine.monitoring.words import cell, plain


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (Decimal("1.50"), "1.50"),
        (b"\x00\xff", "AP8="),
        (date(2026, 2, 1), "2026-02-01"),
        (datetime(2026, 2, 1, 3, tzinfo=timezone.utc), "2026-02-01T03:00:00+00:00"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (1.5, 1.5),
        (2**63 - 1, 2**63 - 1),
        (True, True),
        ("ä\n", "ä\n"),
    ],
)
def test_every_value_has_an_exact_form_in_json(value, expected) -> None:
    assert plain(value) == expected
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == expected


def test_a_cell_stays_on_its_line() -> None:
    assert cell("a\nb\x1b") == "a\\nb\\x1b"
    assert cell(None) == "NULL"


def test_nouns_are_counted() -> None:
    assert [count(1, "file"), count(0, "file"), count(1204, "file")] == ["1 file", "0 files", "1,204 files"]


def test_progress_is_silent_where_nobody_watches() -> None:
    with progress.shown() as listeners:
        assert listeners == ()


def test_progress_shows_files_and_rows_on_a_terminal(monkeypatch) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80)
    monkeypatch.setattr(progress, "stderr", lambda: console)
    table = TableName("Sales", "Orders")
    with progress.shown() as (listener,):
        listener(SetupProgress("jars", 3, 33))
        listener(CycleStarted(1))
        listener(BatchStarted(table, 2, "1", "2"))
        listener(FileRead(table, "1", 1200))
        listener(FileRead(TableName("", "unknown"), "1", 1))
        listener._progress.refresh()
        listener(BatchCommitted(table, 1, ("1", "2"), 1200, 0.1))
    assert "Sales.schema/Orders" in stream.getvalue()
    assert "1 of 2 files, 1,200 rows" in stream.getvalue()
