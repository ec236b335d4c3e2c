"""A structured log of events on stderr, one line each, as `key=value` or JSON. No row's value."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click

from mirror_engine import events
from mirror_engine.cli.options import Choice
from mirror_engine.cli.output import verbosity
from mirror_engine.landing_zone.diagnostics import Diagnostic, Severity
from mirror_engine.landing_zone.names import TableName

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror_engine.events import Event

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
    events.FolderMoved: ("warning", "folder_moved"),
    events.FilesArchived: ("debug", "files_archived"),
    events.ArchivedFilesDeleted: ("info", "archived_files_deleted"),
    events.TableMaintained: ("info", "table_maintained"),
    events.TableHalted: ("error", "table_halted"),
    events.TableResumed: ("info", "table_resumed"),
    events.DiagnosticRaised: ("info", "diagnostic"),
    events.RetryScheduled: ("warning", "retry_scheduled"),
    events.ProgressRebuilt: ("warning", "progress_rebuilt"),
    events.SetupProgress: ("info", "setup_progress"),
}
_TEMPORARY = "ME082"  # hidden names: a correct publisher writes each file under one first
RENAMED = {"batches": "commits", "seconds": "duration_seconds", "done": "completed"}


def log_options(*formats: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--log-format`, of which the first is the default, and `--log-level` to a command."""
    auto = " auto: text, but bars and sentences on a terminal." if "auto" in formats else ""
    shape = click.option(
        "--log-format", type=Choice(formats), default=formats[0], help=f"Format of log lines on stderr.{auto}"
    )
    levels = "Lowest level to log; see also -v and -q."
    least = click.option("--log-level", type=Choice(LEVELS), default="info", help=levels)
    return lambda function: shape(least(function))


def level_of(name: str) -> LogLevel:
    """The level of `--log-level`, lowered by each `-v` and raised by each `-q`."""
    return LEVELS[max(0, min(LEVELS.index(name) - verbosity(), len(LEVELS) - 1))]


class Log:
    """Listener that writes events; may be called from any thread.

    A halt is an error once: of the two events about it the second is an info.
    """

    def __init__(self, log_format: str = "text", level: LogLevel = "info", stream: TextIO | None = None) -> None:
        self._is_json = log_format == "json"
        self._levels = LEVELS[LEVELS.index(level) :]
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()
        self._halts: dict[tuple[str, TableName], Diagnostic] = {}  # with one event of two

    def __call__(self, event: Event, mirror: str = "") -> None:
        """Write an event, with the mirror's name if there are several mirrors."""
        level, name, fields = log_record(event)
        fields = {"mirror": mirror, **fields} if mirror else fields
        self.write("info" if self._is_repeated(event, mirror) else level, name, fields)

    def _is_repeated(self, event: Event, mirror: str) -> bool:
        """Whether an event repeats that a table is halted, with the same reason."""
        match event:
            case events.TableHalted(table, diagnostic):
                pass
            case events.DiagnosticRaised(TableName() as table, diagnostic) if diagnostic.severity is Severity.ERROR:
                pass
            case events.TableResumed(table) | events.TableDropped(table):
                self._halts.pop((mirror, table), None)
                return False
            case _:
                return False
        is_repeated = self._halts.pop((mirror, table), None) == diagnostic
        if not is_repeated:
            self._halts[mirror, table] = diagnostic
        return is_repeated

    def write(self, level: LogLevel, name: str, fields: dict[str, Any]) -> None:
        """Write one line, if its level is logged."""
        if level not in self._levels:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
        record = {"time": now, "level": level, "event": name, **fields}
        text = json.dumps(record, ensure_ascii=False) if self._is_json else _text(record)
        with self._lock, suppress(OSError):  # a log on a full disk, or without a reader, stops no table
            self._stream.write(text + "\n")
            self._stream.flush()


def log_record(event: Event) -> tuple[LogLevel, str, dict[str, Any]]:
    """Level, name and fields of an event."""
    level, name = KINDS[type(event)]
    fields: dict[str, Any] = {}
    facts = {name: value for name, value in vars(event).items() if value is not None or name != "scan_requests"}
    for attribute, value in facts.items():
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
            level = "debug" if diagnostic.code == _TEMPORARY else _LEVEL_OF[diagnostic.severity]
        case events.RetryScheduled():
            fields["code"] = "ME072"
    return level, name, fields


def _text(record: dict[str, Any]) -> str:
    shown = {name: str(value) for name, value in record.items() if value is not None and value != ""}
    return " ".join(
        f"{name}={text if _BARE.issuperset(text) else json.dumps(text, ensure_ascii=False)}"
        for name, text in shown.items()
    )
