"""Structured log on stderr: one line per event, as `key=value` or JSON. Never a row's value."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click

from mirror_engine import events
from mirror_engine.cli.options import Choice, verbosity
from mirror_engine.landing_zone.diagnostics import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
LogLevel = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warning", "error")
_LEVEL_OF: dict[Severity, LogLevel] = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "info"}
_BARE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:+@%,")
KINDS: dict[type, tuple[LogLevel, str]] = {
    events.CycleStarted: ("debug", "cycle_started"),
    events.CycleEnded: ("info", "cycle_finished"),
    events.BatchStarted: ("debug", "batch_started"),
    events.FileRead: ("debug", "file_read"),
    events.CommitStarted: ("debug", "commit_started"),
    events.BatchCommitted: ("info", "commit_finished"),
    events.TableDropped: ("warning", "table_dropped"),
    events.TableMaintained: ("info", "table_maintained"),
    events.TableHalted: ("error", "table_halted"),
    events.TableResumed: ("info", "table_resumed"),
    events.DiagnosticRaised: ("info", "diagnostic"),
    events.RetryScheduled: ("warning", "retry_scheduled"),
    events.ProgressRebuilt: ("warning", "progress_rebuilt"),
    events.SetupProgress: ("info", "setup_progress"),
}
RENAMED = {"batches": "commits", "seconds": "duration_seconds", "done": "completed"}


def log_options(*formats: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--log-format`, of which the first is the default, and `--log-level` to a command."""
    auto = " auto: text, but bars and sentences on a terminal." if "auto" in formats else ""
    shape = click.option(
        "--log-format", type=Choice(formats), default=formats[0], help=f"Format of log lines on stderr.{auto}"
    )
    levels = "Least level that is logged; see also -v and -q."
    least = click.option("--log-level", type=Choice(LEVELS), default="info", help=levels)
    return lambda function: shape(least(function))


def level_of(name: str) -> LogLevel:
    """The level of `--log-level`, lowered by each `-v` and raised by each `-q`."""
    return LEVELS[max(0, min(LEVELS.index(name) - verbosity(), len(LEVELS) - 1))]


class Log:
    """Listener that writes events; may be called from any thread."""

    def __init__(self, log_format: str = "text", level: LogLevel = "info", stream: TextIO | None = None) -> None:
        self._is_json = log_format == "json"
        self._levels = LEVELS[LEVELS.index(level) :]
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()

    def __call__(self, event: events.Event) -> None:
        """Write an event."""
        self.write(*log_record(event))

    def write(self, level: LogLevel, name: str, fields: dict[str, Any]) -> None:
        """Write one line, if its level is logged."""
        if level not in self._levels:
            return
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")[:-6] + "Z"
        record = {"time": now, "level": level, "event": name, **fields}
        text = json.dumps(record, ensure_ascii=False) if self._is_json else _text(record)
        with self._lock, suppress(OSError):  # a log on a full disk, or without a reader, stops no table
            self._stream.write(text + "\n")
            self._stream.flush()


def log_record(event: events.Event) -> tuple[LogLevel, str, dict[str, Any]]:
    """Level, name and fields of an event."""
    level, name = KINDS[type(event)]
    fields: dict[str, Any] = {}
    for attribute, value in _facts(event):
        match attribute:
            case "table":
                fields["table"] = value.normalized if value else None
            case "diagnostic":
                fields |= {"code": value.code, "name": value.name, "message": value.full_message}
                fields["help"] = value.help or None
            case "files" if isinstance(value, tuple):
                first, last = (value[0], value[-1]) if value else (None, None)
                fields |= {"files": len(value), "first": first, "last": last}
            case "done" if isinstance(value, Mapping):
                fields |= value
            case _:
                rounded = round(value, 3) if isinstance(value, float) else value
                fields[RENAMED.get(attribute, attribute)] = rounded
    match event:
        case events.CycleEnded(batches=0):
            level = "debug"
        case events.SetupProgress(done=done) if done:
            level = "debug"
        case events.DiagnosticRaised(_, diagnostic):
            level = _LEVEL_OF[diagnostic.severity]
        case events.RetryScheduled():
            fields["code"] = "ME072"
    return level, name, fields


def _facts(event: events.Event) -> Iterator[tuple[str, Any]]:
    """The event's attributes, but requests to a store where there is none."""
    return ((name, value) for name, value in vars(event).items() if value is not None or name != "scan_requests")


def _text(record: dict[str, Any]) -> str:
    shown = {name: str(value) for name, value in record.items() if value is not None and value != ""}
    return " ".join(
        f"{name}={text if _BARE.issuperset(text) else json.dumps(text, ensure_ascii=False)}"
        for name, text in shown.items()
    )
