"""Each event as a log knows it: a level, a name, and fields in a fixed order. Never a row's value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import assert_never

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

Level = Literal["debug", "info", "warning", "error"]
Words = tuple[Level, str, dict[str, Any]]

_LEVELS: dict[Severity, Level] = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "info"}


def words(event: Event) -> Words:  # noqa: PLR0911, PLR0912, C901 - one line for each of the closed set
    """Level, name and fields of an event."""
    match event:
        case CycleStarted(number):
            return "debug", "cycle_started", {"number": number}
        case CycleEnded(number, batches, seconds):
            level: Level = "info" if batches else "debug"  # a calm log says nothing where nothing happened
            return level, "cycle_ended", {"number": number, "batches": batches, "seconds": round(seconds, 3)}
        case BatchStarted(table, files, first, last):
            return "debug", "batch_started", {"table": table.folder, "files": files, "first": first, "last": last}
        case FileRead(table, path, rows):
            return "debug", "file_read", {"table": table.folder, "path": path, "rows": rows}
        case BatchCommitted():
            return "info", "batch_committed", _committed(event)
        case TableDropped(table, reason):
            return "warning", "table_dropped", {"table": table.folder, "reason": reason}
        case TableMaintained(table, done, seconds):
            return "info", "table_maintained", {"table": table.folder, **done, "seconds": round(seconds, 3)}
        case TableHalted(table, diagnostic):
            return "error", "table_latched", _said(table, diagnostic)
        case TableResumed(table):
            return "info", "table_released", {"table": table.folder}
        case DiagnosticRaised(table, diagnostic):
            return _LEVELS[diagnostic.severity], "diagnostic", _said(table, diagnostic)
        case RetryScheduled(table, message, retry_seconds):
            told = {"code": "ME072", "message": message, "retry_seconds": round(retry_seconds, 3)}
            return "warning", "operation_failed", {"table": table.folder if table else "", **told}
        case ProgressRebuilt(table, version):
            return "warning", "progress_recovered", {"table": table.folder, "version": version}
        case SetupProgress(what, done, total):
            return "info" if not done else "debug", "preparing", {"what": what, "done": done, "total": total}
        case _:
            assert_never(event)


def _committed(event: BatchCommitted) -> dict[str, Any]:
    return {
        "table": event.table.folder,
        "version": event.version,
        "files": len(event.files),
        "first": event.files[0] if event.files else "",
        "last": event.files[-1] if event.files else "",
        "rows": event.rows,
        "seconds": round(event.seconds, 3),
    }


def _said(table: TableName | None, diagnostic: Diagnostic) -> dict[str, Any]:
    return {
        "table": table.folder if table else "",
        "code": diagnostic.code,
        "message": diagnostic.full_message,
        "help": diagnostic.help,
    }
