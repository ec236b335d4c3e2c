"""Output for people and programs, and progress."""

from __future__ import annotations

import io
import json
import time
from datetime import date, datetime, timezone
from decimal import Decimal

import click
import pytest
from rich.console import Console

from mirror_engine.cli import progress
from mirror_engine.cli.output import short_span
from mirror_engine.events import BatchCommitted, BatchStarted, CycleStarted, FileRead, SetupProgress
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.landing_zone.names import TableName
from mirror_engine.monitoring.words import cell, plain

ORDERS = TableName("Sales", "Orders")


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
def test_every_value_has_an_exact_form_in_json(value, expected):
    assert plain(value) == expected
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == expected


def test_a_cell_stays_on_its_line():
    assert cell("a\nb\x1b") == "a\\nb\\x1b"
    assert cell(None) == "NULL"


def test_nouns_are_counted():
    assert [count(1, "file"), count(0, "file"), count(1204, "file")] == ["1 file", "0 files", "1,204 files"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0s"), (5.94, "5.9s"), (42, "42s"), (119, "1m"), (240, "4m"), (7200, "2h"), (172_800, "2d")],
)
def test_spans_are_short(seconds, text):
    assert short_span(seconds) == text


@pytest.fixture
def context():
    with click.Context(click.Command("x")) as entered:
        yield entered


def test_progress_is_off_with_none_and_with_q(context):
    with progress.shown("none") as listeners:
        assert listeners == ()
    context.params["quiet"] = 1
    with progress.shown("plain") as listeners:
        assert listeners == ()


@pytest.mark.usefixtures("context")
def test_progress_without_a_terminal_is_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.02)
    with progress.shown() as (listener,):
        listener(SetupProgress("jars", 3, 33))
        assert listener.line().endswith("preparing jars (3 of 33)")
        listener(BatchStarted(ORDERS, 2, "1", "2"))
        listener(FileRead(ORDERS, "1", 1200))
        assert listener.line().endswith("] Sales.Orders: 1 of 2 files, 1,200 rows")
        time.sleep(0.1)
        listener(BatchCommitted(ORDERS, 1, ("1", "2"), 1200, 0.1))
        assert listener.line().endswith("] 1 commit so far")
    assert "Sales.Orders: 1 of 2 files" in capsys.readouterr().err


@pytest.mark.usefixtures("context")
def test_progress_on_a_terminal_shows_files_and_rows(monkeypatch):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80)
    monkeypatch.setattr(progress, "stderr", lambda: console)
    with progress.shown() as (listener,):
        listener(SetupProgress("jars", 3, 33))
        listener(CycleStarted(1))
        listener(BatchStarted(ORDERS, 2, "1", "2"))
        listener(FileRead(ORDERS, "1", 1200))
        listener(FileRead(TableName("", "unknown"), "1", 1))
        console.print(listener.bars())
        listener(BatchCommitted(ORDERS, 1, ("1", "2"), 1200, 0.1))
    assert "Sales.Orders" in stream.getvalue()
    assert "1 of 2 files, 1,200 rows" in stream.getvalue()
