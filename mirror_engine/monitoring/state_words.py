"""A table's state in words: what it is, why it does not move, and what a person can do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import assert_never

from mirror_engine.landing_zone.diagnostics import printable
from mirror_engine.landing_zone.states import (
    Behind,
    Blocked,
    Latched,
    Level,
    Loading,
    TableState,
    Unarmed,
    Waiting,
)

if TYPE_CHECKING:
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.monitoring.status import TableStatus

START_ENGINE = "No engine is running: start `mirror-engine run`, or apply once with `mirror-engine once`."


def word(state: TableState) -> str:
    """The state in one lower-case word, as programs read it: `latched`."""
    return type(state).__name__.lower()


def in_words(state: TableState) -> str:  # noqa: PLR0911 - one sentence for each of the closed set
    """The state in one sentence, for a person."""
    match state:
        case Unarmed(diagnostic):
            return f"not a table yet: {diagnostic.finding}"
        case Waiting(expired):
            return "failed: no change file came within 14 days" if expired else "empty: waits for its first change file"
        case Loading(files):
            return f"loading: {_files(files)} ready, nothing committed yet"
        case Level():
            return "level: everything landed is in the table"
        case Behind(files):
            return f"behind: {_files(files)} ready"
        case Blocked(waits_for, files):
            return f"blocked: waits for {printable(waits_for)}, {_files(files)} unread"
        case Latched(diagnostic, files):
            return f"latched: {_said(diagnostic)}, {_files(files)} unread"
        case _:
            assert_never(state)


def advice(state: TableState, *, engine_running: bool) -> str:
    """What to do about it, in one sentence; `""` where nothing is to be done."""
    match state:
        case Unarmed(diagnostic) | Latched(diagnostic):
            remedy = _sentence(diagnostic.remedy)
        case Blocked(waits_for):
            remedy = (
                f"Land {printable(waits_for)}, or rename the later files to close the gap; "
                "if that number will never come, drop the folder and land the table anew."
            )
        case Waiting(expired):
            remedy = "Land a change file (one without rows will do), or delete the folder." if expired else ""
        case Loading() | Behind():
            return "" if engine_running else START_ENGINE
        case Level():
            return ""
        case _:
            assert_never(state)
    return remedy


def tone(state: TableState) -> str:
    """How urgent a state is: `well`, `busy`, `idle`, or `stuck` where somebody must act."""
    match state:
        case Level():
            return "well"
        case Loading() | Behind():
            return "busy"
        case Unarmed() | Waiting():
            return "idle"
        case Latched() | Blocked():
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
    return f"{place}{row}: {diagnostic.finding}"


def _sentence(remedy: str) -> str:
    return f"{remedy[:1].upper()}{remedy[1:]}." if remedy else ""


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
