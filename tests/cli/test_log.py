"""The log: one line an event, calm, readable by people and by programs."""

from __future__ import annotations

import io
import json
from typing import get_args

import click
import pytest
from json_schemas import faults

from mirror_engine.cli.log import LEVELS, Log, level_of, lines
from mirror_engine.cli.schema import schema_of
from mirror_engine.events import (
    BatchCommitted,
    BatchStarted,
    CommitStarted,
    CycleEnded,
    CycleStarted,
    DiagnosticRaised,
    Event,
    FileRead,
    ProgressRebuilt,
    RetryScheduled,
    SetupProgress,
    TableDropped,
    TableHalted,
    TableMaintained,
    TableResumed,
)
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.names import TableName
from mirror_engine.onelake.middleware import RejectedRequest

ORDERS = TableName("Sales", "Orders")
EMPTY = diagnose("ME023", "Sales.schema/Orders/2.parquet")
EVENTS = [
    CycleStarted(1),
    CycleEnded(1, 0, 0.1),
    CycleEnded(2, 3, 0.12345),
    BatchStarted(ORDERS, 2, "1.parquet", "2.parquet"),
    CommitStarted(ORDERS, 2),
    FileRead(ORDERS, "1.parquet", 5),
    BatchCommitted(ORDERS, 3, ("1.parquet", "2.parquet"), 10, 1.5),
    TableDropped(ORDERS, "folder gone, table dropped"),
    TableMaintained(ORDERS, {"files_added": 1, "files_removed": 9, "files_deleted": 0}, 1.5),
    TableHalted(ORDERS, EMPTY),
    TableResumed(ORDERS),
    DiagnosticRaised(None, diagnose("ME001", "")),
    RetryScheduled(None, "cannot list", 2.0),
    ProgressRebuilt(ORDERS, 4),
    SetupProgress("the Spark session"),
    SetupProgress("jars", 3, 33),
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
    by_commands = {"started", "no_landing_zone", "stopped", "fault_injected", "emulator_error"}
    assert known == {line["event"] for line in lines} | by_commands
    assert faults({**lines[0], "row": "x"})
    assert faults({**lines[0], "event": "unknown"})


def test_on_a_terminal_every_event_has_lines_or_a_bar():
    texts = {type(event): [str(part) for part in lines(event)] for event in EVENTS}
    silent = {kind for kind, parts in texts.items() if not parts}
    assert silent == {CycleStarted, CycleEnded, BatchStarted, FileRead, CommitStarted, SetupProgress}
    assert texts[TableResumed] == ["Sales.Orders goes on."]
    assert texts[TableMaintained] == ["Sales.Orders: files added 1, files removed 9, files deleted 0 (1.5s)"]


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
