"""A table's state as a sentence, the help for it, and how tables are counted."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from mirror_engine.landing_zone.detection import never_arrives
from mirror_engine.landing_zone.diagnostics import CATALOG
from mirror_engine.landing_zone.names import METADATA_FILE
from mirror_engine.landing_zone.states import (
    Behind,
    Blocked,
    CaughtUp,
    Deleted,
    Empty,
    Halted,
    Loading,
    Unconfigured,
    Unlisted,
)
from mirror_engine.landing_zone.text import count, printable
from mirror_engine.results import CountedFinding, iso_text, utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror_engine.events import DropReason
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.states import TableState

START_ENGINE = "no engine is running: start `mirror-engine run`, or apply pending files once with `mirror-engine sync`"
DROPPED_BECAUSE: dict[DropReason | str, str] = {
    "deleted": "folder deleted",
    "recreated": "folder recreated",
    "rebuild": "to be rebuilt",
    "removed": "Delta table removed by others",
}
URGENCY: dict[type[TableState], str] = {  # `stuck` needs attention
    CaughtUp: "well",
    **dict.fromkeys((Loading, Behind, Deleted), "busy"),
    **dict.fromkeys((Unconfigured, Empty), "idle"),
    **dict.fromkeys((Halted, Blocked, Unlisted), "stuck"),
}
_Result = TypeVar("_Result")


class Readable:
    """A result whose `str` is text for people; a notebook shows it as it is printed."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class Lines(Readable, list[_Result]):
    """Results, each of which is a line of text."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))


def describe(table: TableName, state: TableState) -> str:  # noqa: PLR0911 - one sentence for each of the closed set
    """A table's state as a sentence that begins with its name."""
    name = printable(table.normalized)
    match state:
        case Unconfigured(diagnostic, files):
            is_absent = diagnostic.code == "ME008"  # which counts the files itself
            lacks, more = (
                ("", "") if is_absent else (f"no usable `{METADATA_FILE}`: ", f"; {count(files, 'file')} pending")
            )
            return f"{name} has {lacks}{diagnostic.coded_message}{more}"
        case Empty(expired):
            return f"{name} has metadata but no change files{' for 14 days' if expired else ''}"
        case Loading(files):
            return f"{name}: {count(files, 'file')} pending, first commit not made yet"
        case CaughtUp():
            return f"{name} has caught up"
        case Behind(files):
            return f"{name} is behind by {count(files, 'file')}"
        case Blocked(missing, files):
            return f"{name} is blocked: {printable(missing)} is missing; {count(files, 'later file')} pending"
        case Halted(diagnostic, files):
            place = printable(diagnostic.path.rpartition("/")[2])
            row = "" if diagnostic.row is None else f", row {diagnostic.row}"
            return f"{name} is halted: {place}{row}: {diagnostic.coded_message}; {count(files, 'file')} pending"
        case Deleted(diagnostic):
            return f"{name}: its {diagnostic.coded_message}"
        case Unlisted(diagnostic):
            place = "its folder" if diagnostic.path == table.folder else printable(diagnostic.path)
            return f"{name}: {f'{place} {diagnostic.coded_message}'.strip()}"
        case _:
            assert_never(state)


def notes(ignored: Iterable[Diagnostic], failure: str = "") -> str:
    """What follows it: how many ignored paths look like data, and why the table is to be tried again."""
    lost = sum(map(never_arrives, ignored))
    data = f"; {count(lost, 'ignored path')} with data" if lost else ""
    return data + (f"; last failure: {printable(failure)}" if failure else "")


def help_for(state: TableState, *, engine_running: bool, lost: Sequence[Diagnostic] = ()) -> str:
    """What to do about a state; empty if nothing is to be done. `lost`: rows whose loss blocks a table."""
    match state:
        case Unconfigured(diagnostic) | Halted(diagnostic) | Deleted(diagnostic) | Unlisted(diagnostic):
            return diagnostic.help
        case Blocked():
            return lost[0].help if lost else CATALOG["ME019"].help
        case Empty(expired):
            return "land a change file (it may be empty), or delete the folder" if expired else ""
        case Loading() | Behind():
            return "" if engine_running else START_ENGINE
        case CaughtUp():
            return ""
        case _:
            assert_never(state)


# how tables are counted: the words for one and for several
KINDS = {
    "caught_up": ("caught up", "caught up"),
    "need_attention": ("needs attention", "need attention"),
    "pending": ("pending", "pending"),
    "empty": ("empty", "empty"),
    "unconfigured": ("unconfigured", "unconfigured"),
}


def kind_of(state: TableState, *, is_stuck: bool) -> str:
    """The kind in `KINDS` that a table counts as; `is_stuck`: whether it needs attention, whatever its state is."""
    match state:
        case CaughtUp() if not is_stuck:
            return "caught_up"
        case Behind() | Loading() | Deleted() if not is_stuck:
            return "pending"
        case Empty() if not is_stuck:
            return "empty"
        case Unconfigured() if not is_stuck:
            return "unconfigured"
        case _:
            return "need_attention"


def tally(kinds: Iterable[str]) -> dict[str, int]:
    """How many tables there are of each kind."""
    counts = dict.fromkeys(KINDS, 0)
    for kind in kinds:
        counts[kind] += 1
    return counts


def tally_text(counts: Mapping[str, int]) -> str:
    """`11 tables: 4 caught up, 6 need attention, 1 pending.`; kinds without a table are left out."""
    texts = [f"{number:,} {KINDS[kind][number > 1]}" for kind, number in counts.items() if number]
    return f"{count(sum(counts.values()), 'table')}: {', '.join(texts)}."


def iso(seconds: float | None) -> str | None:
    """`2026-11-02T08:15:29.500Z`; None stays None."""
    return None if seconds is None else iso_text(utc(seconds))


def lost_rows(diagnostics: Sequence[Diagnostic]) -> str:
    """What is to be added for rows that went with a Delta table that others removed (ME069)."""
    return "".join(f"; {found.message} [{found.code}]" for found in diagnostics)


def counted_json(diagnostics: Iterable[tuple[Diagnostic, int]]) -> list[dict[str, Any]]:
    """Diagnostics as plain values, each with its number of occurrences."""
    return [CountedFinding.of(found, times).to_json() for found, times in diagnostics]
