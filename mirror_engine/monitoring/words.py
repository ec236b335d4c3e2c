"""A table's state in words: what it is, why it does not move, and what a person can do about it."""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from typing_extensions import assert_never

from mirror_engine.landing_zone.diagnostics import printable
from mirror_engine.landing_zone.states import (
    Behind,
    Blocked,
    CaughtUp,
    Empty,
    Halted,
    Loading,
    TableState,
    Unconfigured,
)

if TYPE_CHECKING:
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.monitoring.status import TableStatus

START_ENGINE = "No engine is running: start `mirror-engine run`, or apply once with `mirror-engine once`."


def word(state: TableState) -> str:
    """The state in one lower-case word, as programs read it: `latched`."""
    return state.code


def in_words(state: TableState) -> str:  # noqa: PLR0911 - one sentence for each of the closed set
    """The state in one sentence, for a person."""
    match state:
        case Unconfigured(diagnostic):
            return f"not a table yet: {diagnostic.coded_message}"
        case Empty(expired):
            return "failed: no change file came within 14 days" if expired else "empty: waits for its first change file"
        case Loading(files):
            return f"loading: {_files(files)} ready, nothing committed yet"
        case CaughtUp():
            return "level: everything landed is in the table"
        case Behind(files):
            return f"behind: {_files(files)} ready"
        case Blocked(waits_for, files):
            return f"blocked: waits for {printable(waits_for)}, {_files(files)} unread"
        case Halted(diagnostic, files):
            return f"latched: {_said(diagnostic)}, {_files(files)} unread"
        case _:
            assert_never(state)


def advice(state: TableState, *, engine_running: bool) -> str:
    """What to do about it, in one sentence; `""` where nothing is to be done."""
    match state:
        case Unconfigured(diagnostic) | Halted(diagnostic):
            remedy = _sentence(diagnostic.help)
        case Blocked(waits_for):
            remedy = (
                f"Land {printable(waits_for)}, or rename the later files to close the gap; "
                "if that number will never come, drop the folder and land the table anew."
            )
        case Empty(expired):
            remedy = "Land a change file (one without rows will do), or delete the folder." if expired else ""
        case Loading() | Behind():
            return "" if engine_running else START_ENGINE
        case CaughtUp():
            return ""
        case _:
            assert_never(state)
    return remedy


def tone(state: TableState) -> str:
    """How urgent a state is: `well`, `busy`, `idle`, or `stuck` where somebody must act."""
    match state:
        case CaughtUp():
            return "well"
        case Loading() | Behind():
            return "busy"
        case Unconfigured() | Empty():
            return "idle"
        case Halted() | Blocked():
            return "stuck"
        case _:
            assert_never(state)


def watermark(table: TableStatus) -> str:
    """The watermark, or how many partitions have one; `-` for none."""
    match len(table.watermarks):
        case 0:
            return "-"
        case 1:
            return str(next(iter(table.watermarks.values())))
        case several:
            return f"{several} partitions"


def _said(diagnostic: Diagnostic) -> str:
    """The diagnostic without its folder, which stands beside it already."""
    place = printable(diagnostic.path.rpartition("/")[2])
    row = "" if diagnostic.row is None else f", row {diagnostic.row}"
    return f"{place}{row}: {diagnostic.coded_message}"


def _sentence(remedy: str) -> str:
    return f"{remedy[:1].upper()}{remedy[1:]}." if remedy else ""


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


NEVER = "0001-01-01T00:00:00"  # .NET's DateTime.MinValue, which Fabric shows for a time that has not been
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def iso(seconds: float | None) -> str | None:
    """`2026-11-02T08:15:29.500Z`; None stays None."""
    return None if seconds is None else f"{_at(seconds).isoformat(timespec='milliseconds')[:-6]}Z"


def dotnet(seconds: float) -> str:
    """`2026-11-02T08:15:29.5000000`, without a zone: ticks of 100 ns, always seven digits (LZ-9.1)."""
    ticks = round(seconds * 10_000_000)
    whole, fraction = divmod(ticks, 10_000_000)
    return f"{_at(whole).isoformat(timespec='seconds')[:-6]}.{fraction:07d}"


def _at(seconds: float) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


def span(seconds: float) -> str:
    """A length of time as a person says it: `9 s`, `4 min`, `3 h`, `12 days`; rounded down."""
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length or (unit != "days" and seconds >= length):
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


def cell(value: object) -> str:
    """One value of a row, on one line."""
    return "NULL" if value is None else printable(str(plain(value)))


def plain(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """A value as JSON can say it exactly: decimals as text, bytes in Base64, times in ISO 8601, NaN as text."""
    match value:
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case float() if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case _:
            return value
