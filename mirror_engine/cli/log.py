"""Structured log on stderr: one line per event, as `key=value` or JSON. Never a row's value."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal, TextIO

from typing_extensions import assert_never

from mirror_engine.cli.options import choice_option
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
from mirror_engine.landing_zone.diagnostics import Severity

if TYPE_CHECKING:
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName

LogLevel = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
_LEVEL_OF: dict[Severity, LogLevel] = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "info"}
_BARE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:+@%,")

log_format_option = choice_option(
    "--log-format", choices=FORMATS, default="text", topic="Log", help="Format of log lines on stderr."
)
log_level_option = choice_option(
    "--log-level", choices=LEVELS, default="info", topic="Log", help="Least level that is logged; see also -v and -q."
)


def level_of(name: str, verbosity: int) -> LogLevel:
    """The level of `--log-level`, lowered by each `-v` and raised by each `-q`."""
    level = LEVELS.index(name) - verbosity
    return LEVELS[max(0, min(level, len(LEVELS) - 1))]


class Log:
    """Listener that writes events; may be called from any thread."""

    def __init__(self, log_format: str = "text", level: LogLevel = "info", stream: TextIO | None = None) -> None:
        self._render = _json if log_format == "json" else _text
        self._levels = LEVELS[LEVELS.index(level) :]
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Write an event."""
        self.write(*log_record(event))

    def write(self, level: LogLevel, name: str, fields: dict[str, Any]) -> None:
        """Write one line, if its level is logged."""
        if level not in self._levels:
            return
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")[:-6] + "Z"
        with self._lock, suppress(OSError):  # a log on a full disk, or without a reader, stops no table
            self._stream.write(self._render({"time": now, "level": level, "event": name, **fields}) + "\n")
            self._stream.flush()


def log_record(  # noqa: PLR0911, PLR0912, C901 - one case for each event
    event: Event,
) -> tuple[LogLevel, str, dict[str, Any]]:
    """Level, name and fields of an event."""
    fields: dict[str, Any]
    match event:
        case CycleStarted(number):
            return "debug", "cycle_started", {"number": number}
        case CycleEnded(number, commits, seconds):
            fields = {"number": number, "commits": commits, "duration_seconds": round(seconds, 3)}
            return "info" if commits else "debug", "cycle_finished", fields
        case BatchStarted(table, files, first, last):
            return "debug", "batch_started", {**_table(table), "files": files, "first": first, "last": last}
        case FileRead(table, path, rows):
            return "debug", "file_read", {**_table(table), "path": path, "rows": rows}
        case BatchCommitted(table, version, files, rows, seconds):
            fields = {"version": version, "files": len(files), "first": files[0] if files else None}
            fields |= {"last": files[-1] if files else None, "rows": rows, "duration_seconds": round(seconds, 3)}
            return "info", "commit_finished", {**_table(table), **fields}
        case TableDropped(table, reason):
            return "warning", "table_dropped", {**_table(table), "reason": reason}
        case TableMaintained(table, facts, seconds):
            return "info", "table_maintained", {**_table(table), **facts, "duration_seconds": round(seconds, 3)}
        case TableHalted(table, diagnostic):
            return "error", "table_halted", _diagnostic(table, diagnostic)
        case TableResumed(table):
            return "info", "table_resumed", _table(table)
        case DiagnosticRaised(table, diagnostic):
            return _LEVEL_OF[diagnostic.severity], "diagnostic", _diagnostic(table, diagnostic)
        case RetryScheduled(table, message, retry_seconds):
            fields = {"code": "ME072", "message": message, "retry_seconds": round(retry_seconds, 3)}
            return "warning", "retry_scheduled", {**_table(table), **fields}
        case ProgressRebuilt(table, version):
            return "warning", "progress_rebuilt", {**_table(table), "version": version}
        case SetupProgress(what, completed, total):
            fields = {"what": what, "completed": completed, "total": total}
            return "info" if not completed else "debug", "setup_progress", fields
        case _:
            assert_never(event)


def _table(table: TableName | None) -> dict[str, Any]:
    return {"table": table.normalized if table else None}


def _diagnostic(table: TableName | None, diagnostic: Diagnostic) -> dict[str, Any]:
    fields = {"code": diagnostic.code, "name": diagnostic.name, "message": diagnostic.full_message}
    return {**_table(table), **fields, "help": diagnostic.help or None}


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False)


def _text(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={_quoted(value)}" for name, value in fields.items() if value is not None and value != "")


def _quoted(value: object) -> str:
    text = str(value)
    return text if _BARE.issuperset(text) else json.dumps(text, ensure_ascii=False)
