"""Output for people and programs, progress, and the log: one line an event, readable by people and by programs."""

from __future__ import annotations

import io
import json
import re
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import get_args

import click
import pytest
from json_schemas import faults
from rich.console import Console
from rich.text import Text

from mirror_engine.cli import progress
from mirror_engine.cli.log import LEVELS, Log, level_of
from mirror_engine.cli.output import report
from mirror_engine.cli.progress import lines
from mirror_engine.cli.schema import schema_of
from mirror_engine.config import Config
from mirror_engine.display import PIPE_WIDTH, Grid, bullet, cell, elapsed, plain, short_span
from mirror_engine.errors import UnknownTable
from mirror_engine.events import (
    ArchivedFilesDeleted,
    BatchCommitted,
    BatchStarted,
    CommitStarted,
    CycleEnded,
    CycleStarted,
    DiagnosticRaised,
    Event,
    FileRead,
    FilesArchived,
    FolderMoved,
    ProgressRebuilt,
    RetryScheduled,
    SetupProgress,
    TableDropped,
    TableHalted,
    TableMaintained,
    TableResumed,
    ignore,
)
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.names import TableName
from mirror_engine.mirror import Mirror
from mirror_engine.onelake.middleware import RejectedRequest
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

ORDERS = TableName("Sales", "Orders")
EMPTY = diagnose("ME023", "Sales.schema/Orders/2.parquet")


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [["a", "1", Text("well", "green")], ["東京", "", "e\u0301"], ["", "1,234", "[bold]x[/]"]],
        [["two\nlines", "1", ""]],
        [["two", "1", Text("lines\nhere")]],
        [["", "", bullet("help:", "read on")]],
        [["x" * PIPE_WIDTH, "1", "y"]],
    ],
)
def test_grid_in_a_pipe_is_what_rich_prints(rows, capsys):
    grid, expected = Grid(["Table", ">Rows", "State"], rows), io.StringIO()
    Console(file=expected, width=PIPE_WIDTH, soft_wrap=True).print(grid, crop=False)
    with click.Context(click.Command("status")):
        report({}, [grid])
    assert capsys.readouterr().out == expected.getvalue()


def test_grid_of_single_lines_takes_no_rich():
    assert Grid(["Table", ">Rows"], [["a", "1"]]).plain() == "Table  Rows\na         1\n"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (Decimal("1.50"), "1.50"),
        (b"\x00\xff", "AP8="),
        (date(2026, 2, 1), "2026-02-01"),
        (datetime(2026, 2, 1, 3, tzinfo=UTC), "2026-02-01T03:00:00+00:00"),
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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0s"), (5.94, "5.9s"), (42, "42s"), (119, "1m"), (240, "4m"), (7200, "2h"), (172_800, "2d")],
)
def test_spans_are_short(seconds, text):
    assert short_span(seconds) == text


@pytest.fixture
def click_context():
    with click.Context(click.Command("x")) as entered:
        yield entered


def test_progress_is_off_with_none_and_with_q(click_context):
    with progress.shown("none") as listener:
        assert listener is ignore
    click_context.params["quiet"] = 1
    with progress.shown("plain") as listener:
        assert listener is ignore


@pytest.mark.usefixtures("click_context")
def test_progress_without_a_terminal_is_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.02)
    with progress.shown() as listener:
        listener(SetupProgress("jars", 3, 33))
        assert listener.line().endswith("preparing jars: 3 of 33")
        listener(SetupProgress("jars", 33, 33))
        listener(BatchStarted(ORDERS, 2, "1", "2"))
        listener(FileRead(ORDERS, "1", 1200))
        assert listener.line().endswith("] Sales.Orders: reading 1 of 2 files, 1,200 rows")
        time.sleep(0.1)
        listener(BatchCommitted(ORDERS, 1, ("1", "2"), 1200, 0.1))
        assert listener.line().endswith("] 1 commit so far")
    assert "Sales.Orders: reading 1 of 2 files" in capsys.readouterr().err


def test_a_bar_follows_reading_and_committing_and_is_full_only_once_all_is_committed():
    def bar():
        (cells, *_) = zip(*(column._cells for column in listener.bars().columns), strict=True)
        return cells[1].completed / cells[1].total, cells[2]

    listener = progress.ProgressTracker()
    listener(BatchStarted(ORDERS, 4, "1", "4"))
    listener(FileRead(ORDERS, "1", 1200))
    assert bar() == (1 / 8, "reading 1 of 4 files, 1,200 rows")
    listener(FileRead(ORDERS, "2", 1))
    listener(SetupProgress("the Spark session"))
    listener(CommitStarted(ORDERS, 2))
    assert len(listener.bars().rows) == 2
    listener(SetupProgress("the Spark session", 1, 1))
    assert bar() == (2 / 8, "committing 2 files, 1,201 rows")
    listener(BatchCommitted(ORDERS, 1, ("1", "2"), 1201, 0.1))
    listener(BatchStarted(ORDERS, 2, "3", "4"))
    assert bar() == (4 / 8, "reading 2 of 4 files, 0 rows")
    listener(FileRead(TableName("", "unknown"), "1", 1))
    listener(BatchCommitted(ORDERS, 2, ("3", "4"), 7, 0.1))
    assert listener.bars().rows == []


@pytest.mark.parametrize(
    "over", [TableHalted(ORDERS, EMPTY), RetryScheduled(ORDERS, "no", 1.0), TableDropped(ORDERS, "deleted")]
)
def test_a_table_that_stops_has_no_bar(over):
    listener = progress.ProgressTracker(is_lasting=True)
    listener(RetryScheduled(None, "no", 1.0))
    listener(BatchStarted(ORDERS, 2, "1", "2"))
    listener(over)
    assert "waiting for change files; 0 commits so far" in str(listener.bars().columns[0]._cells[0])


@pytest.mark.usefixtures("click_context")
def test_a_terminal_shows_a_line_for_each_commit_above_the_bars(terminal):
    with progress.shown() as listener:
        listener(BatchStarted(ORDERS, 2, "1", "2"))
        listener(BatchCommitted(ORDERS, 3, ("1", "2"), 1200, 0.1))
        listener(TableHalted(ORDERS, EMPTY))  # is in the report
    shown = terminal.file.getvalue()
    assert "Sales.Orders v3: 2 files, 1,200 rows (0.1s)" in shown
    assert "ME023" not in shown


@pytest.mark.usefixtures("click_context")
def test_what_goes_on_until_it_is_stopped_says_more(terminal):
    with progress.shown(least="warning") as listener:
        for event in (
            TableHalted(ORDERS, EMPTY),
            RetryScheduled(ORDERS, "no room\n  -> make some", 2.0),
            BatchCommitted(ORDERS, 3, ("1", "2"), 1200, 0.1),
        ):
            listener(event)
    shown = terminal.file.getvalue()
    for text in (
        "Sales.Orders is halted.",
        "Sales.Orders: no room; retry in 2.0s",
        "make some",
        "waiting for change files",
    ):
        assert text in shown
    assert "Sales.Orders v3" not in shown  # an info


EVENTS = [
    CycleStarted(1),
    CycleEnded(1, 0, 0.1),
    CycleEnded(2, 3, 0.12345),
    BatchStarted(ORDERS, 2, "1.parquet", "2.parquet"),
    CommitStarted(ORDERS, 2),
    FileRead(ORDERS, "1.parquet", 5),
    BatchCommitted(ORDERS, 3, ("1.parquet", "2.parquet"), 10, 1.5),
    TableDropped(ORDERS, "deleted"),
    TableMaintained(ORDERS, {"files_added": 1, "files_removed": 9, "files_deleted": 0}, 1.5),
    TableHalted(ORDERS, EMPTY),
    TableResumed(ORDERS),
    DiagnosticRaised(None, diagnose("ME001", "")),
    RetryScheduled(None, "cannot list", 2.0),
    ProgressRebuilt(ORDERS, 4),
    SetupProgress("the Spark session"),
    SetupProgress("jars", 3, 33),
    FolderMoved(ORDERS),
    FilesArchived(ORDERS, 2),
    ArchivedFilesDeleted(ORDERS, 3),
]


def logged(log_format, level="info"):
    stream = io.StringIO()
    log = Log(log_format, level, stream)
    for event in EVENTS:
        log(event)
    return stream.getvalue().splitlines()


def test_every_line_is_of_the_schema_and_the_schema_has_no_other_event():
    stream = io.StringIO()
    log = Log("json", "debug", stream)
    for event in (*EVENTS, CycleEnded(3, 0, 0.1, 4)):
        log(event)
    for request in (("X", ""), ("X", "--lenient"), ("X", "", True)):
        log.write(*RejectedRequest("PUT", "h", "/p", 411, *request).record())
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [found for line in lines for found in faults(line)] == []
    assert {type(event) for event in EVENTS} == set(get_args(Event))
    known = {each["properties"]["event"]["const"] for each in schema_of("log")["anyOf"]}
    by_commands = {"started", "no_landing_zone", "quicker_merge_engine", "stopped", "fault_injected", "emulator_error"}
    assert known == {line["event"] for line in lines} | by_commands
    assert faults({**lines[0], "row": "x"})
    assert faults({**lines[0], "event": "unknown"})


def test_on_a_terminal_every_event_has_lines_or_a_bar():
    texts = {type(event): [str(part) for part in lines(event)] for event in EVENTS}
    silent = {kind for kind, parts in texts.items() if not parts}
    assert silent == {CycleStarted, CycleEnded, BatchStarted, FileRead, CommitStarted, SetupProgress}
    assert texts[TableResumed] == ["Sales.Orders goes on."]
    assert texts[TableMaintained] == ["Sales.Orders: files added 1, files removed 9, files deleted 0 (1.5s)"]


def test_halt_is_logged_once_as_an_error():
    said, halted, resumed = DiagnosticRaised(ORDERS, EMPTY), TableHalted(ORDERS, EMPTY), TableResumed(ORDERS)
    other = diagnose("ME024", "Sales.schema/Orders/2.parquet", reason="cut", help="land it again")
    for stream, written in (
        ((halted, said), "error info"),
        ((said, halted), "error info"),
        ((said,), "error"),
        ((halted, said, resumed, halted, said), "error info info error info"),
        ((halted, said, TableHalted(ORDERS, other), DiagnosticRaised(ORDERS, other)), "error info error info"),
        ((DiagnosticRaised(None, EMPTY), DiagnosticRaised(None, EMPTY)), "error error"),
    ):
        file = io.StringIO()
        log = Log("json", stream=file)
        for event in stream:
            log(event)
        assert " ".join(json.loads(line)["level"] for line in file.getvalue().splitlines()) == written
    file = io.StringIO()
    log = Log("json", stream=file)
    for mirror in ("ws/a", "ws/b"):
        log(halted, mirror)
    assert [json.loads(line)["mirror"] for line in file.getvalue().splitlines() if '"error"' in line] == [
        "ws/a",
        "ws/b",
    ]


def test_details_and_idle_cycles_are_not_logged():
    assert [json.loads(line)["event"] for line in logged("json")] == [
        "cycle_finished",
        "commit_finished",
        "table_dropped",
        "table_maintained",
        "table_halted",
        "table_resumed",
        "diagnostic",
        "retry_scheduled",
        "progress_rebuilt",
        "setup_progress",
        "folder_moved",
        "archived_files_deleted",
    ]


def test_a_text_line_is_key_and_value_and_quotes_what_needs_it():
    line = logged("text")[4]
    assert line.partition("level=")[2] == (
        "error event=table_halted table=Sales.Orders code=ME023 name=empty-file "
        'message="Sales.schema/Orders/2.parquet: file is empty (0 bytes) [ME023]" '
        'help="delete it, write under a temporary name, then rename"'
    )


@pytest.mark.parametrize(
    ("level", "verbosity", "lowest"),
    [
        ("info", 0, "info"),
        ("info", 1, "debug"),
        ("info", 3, "debug"),
        ("info", -1, "warning"),
        ("warning", -5, "error"),
    ],
)
def test_the_level_is_lowered_by_v_and_raised_by_q(level, verbosity, lowest):
    with click.Context(click.Command("x")) as context:
        context.params["verbose"] = verbosity
        assert level_of(level) == lowest
    levels = {json.loads(line)["level"] for line in logged("json", lowest)}
    assert levels <= set(LEVELS[LEVELS.index(lowest) :])


def test_no_name_can_forge_a_line():
    stream = io.StringIO()
    Log("text", stream=stream)(TableResumed(TableName("", "a\nlevel=error event=forged\x1b[2J")))
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(5.94, "5.9s"), (42.5, "42s"), (60, "1m 00s"), (167, "2m 47s"), (3900, "1h 05m")]
)
def test_how_long_work_takes_is_shown_to_the_second(seconds, text):
    assert elapsed(seconds) == text


def without_times(text):
    return re.sub(r"\d+(\.\d)?s\b", "", text)


@pytest.mark.slow
def test_python_results_print_as_commands(sales, cli, tmp_path):
    (tmp_path / "expected.csv").write_text("Id,Name\n7,x\n9,y\n")
    cli("sync", sales.root)
    sales.halt()
    sales.block()
    (sales.root / ZONE / "Items/stray.parquet").touch()
    at = ("-C", sales.root, "Items")
    with Mirror(sales.root, Config(), writer=sales.writer) as mirror:
        mirror.sync()
        for words, result in (
            (("sync", sales.root), mirror.sync()),
            (("status", sales.root), mirror.status()),
            (("validate", sales.root), mirror.validate()),
            (("history", *at), mirror.history("Items", limit=20)),
            (("history", "-C", sales.root), mirror.history(limit=20)),
            (("trace", "row", *at, "7"), mirror.trace("Items", 7)),
            (("diff", *at, tmp_path / "expected.csv"), mirror.diff("Items", tmp_path / "expected.csv")),
        ):
            assert without_times(cli(*words).out) == without_times(f"{result}\n"), words
            document = json.loads(cli(*words, "--json").out)
            assert [*document] == ["schema_version", "command", *result.to_json()], words


@pytest.mark.slow
def test_comparison_of_python_prints_as_the_command(tmp_path, cli):
    LandingZoneWriter(tmp_path).table("Items", keys=["Id"]).insert({"Id": 1}, {"Id": 2})
    with Mirror(tmp_path, Config(merge_engine="arrow")) as mirror:
        mirror.sync()
        assert f"{mirror.compare()}\n" == cli("compare", tmp_path).out
        assert mirror.compare(["items"]).tables[0].verdict == "equal"
        with pytest.raises(UnknownTable):
            mirror.compare(["Nothing"])
