"""The log: one line an event, calm, readable by people and by programs."""

from __future__ import annotations

import io
import json
from typing import get_args

from mirror_engine.cli.event_words import words
from mirror_engine.cli.log import Log, LogFormat
from mirror_engine.events import (
    BatchCommitted,
    BatchStarted,
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

ORDERS = TableName("Sales", "Orders")
EMPTY = diagnose("ME023", "Sales.schema/Orders/2.parquet")
EVENTS: list[Event] = [
    CycleStarted(1),
    CycleEnded(1, 0, 0.1),
    CycleEnded(2, 3, 0.12345),
    BatchStarted(ORDERS, 2, "1.parquet", "2.parquet"),
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


def logged(log_format: LogFormat) -> list[str]:
    stream = io.StringIO()
    log = Log(log_format, stream)
    for event in EVENTS:
        log(event)
    return stream.getvalue().splitlines()


def test_every_kind_of_event_has_words() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))
    assert [words(event)[1] for event in EVENTS][:3] == ["cycle_started", "cycle_ended", "cycle_ended"]


def test_details_and_idle_cycles_are_not_logged() -> None:
    assert [json.loads(line)["event"] for line in logged(LogFormat.JSON)] == [
        "cycle_ended",
        "batch_committed",
        "table_dropped",
        "table_maintained",
        "table_latched",
        "table_released",
        "diagnostic",
        "operation_failed",
        "progress_recovered",
        "preparing",
    ]


def test_a_text_line_is_key_and_value_and_quotes_what_needs_it() -> None:
    line = logged(LogFormat.TEXT)[4]
    assert line.partition("level=")[2] == (
        'error event=table_latched table=Sales.schema/Orders code=ME023 message="Sales.schema/Orders/2.parquet: '
        'file is empty (0 bytes) [ME023]" help="delete it, write under a temporary name, then rename"'
    )


def test_no_name_can_forge_a_line() -> None:
    stream = io.StringIO()
    Log(LogFormat.TEXT, stream)(TableResumed(TableName("", "a\nlevel=error event=forged\x1b[2J")))
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()


def test_every_level_is_one_a_reader_knows() -> None:
    assert {words(event)[0] for event in EVENTS} <= {"debug", "info", "warning", "error"}
