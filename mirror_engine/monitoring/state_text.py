"""A table's state as a sentence, the help for it, and how tables are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, assert_never

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
from mirror_engine.results import Count, Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirror_engine.events import DropReason
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.states import TableState

NO_FOLDERS = "The landing zone has no table folders."
START_ENGINE = "no engine is running: start `mirror-engine run`, or apply pending files once with `mirror-engine sync`"
DROPPED_BECAUSE: dict[DropReason | str, str] = {
    "deleted": "folder deleted",
    "recreated": "folder recreated",
    "rebuild": "to be rebuilt",
    "removed": "Delta table removed by others",
}
Urgency = Literal["stuck", "idle", "busy", "well"]  # most urgent first
URGENCY: dict[type[TableState], Urgency] = {  # `stuck` needs attention
    CaughtUp: "well",
    Loading: "busy",
    Behind: "busy",
    Deleted: "busy",
    Unconfigured: "idle",
    Empty: "idle",
    Halted: "stuck",
    Blocked: "stuck",
    Unlisted: "stuck",
}


class TableCounts(Part, frozen=True):
    """Numbers of tables; each table counts once.

    Attributes:
        need_attention: halted, blocked, unlisted, failed, or with lost files
        pending: with pending files or a pending drop alone
        empty: without a change file
        unconfigured: without metadata
    """

    caught_up: Count = 0
    need_attention: Count = 0
    pending: Count = 0
    empty: Count = 0
    unconfigured: Count = 0

    def __str__(self) -> str:
        """`11 tables: 4 caught up, 6 need attention, 1 pending.`; kinds without a table are left out."""
        counts = self.to_json()
        texts = [f"{number:,} {KINDS[kind][number > 1]}" for kind, number in counts.items() if number]
        return f"{count(sum(counts.values()), 'table')}: {', '.join(texts)}."


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
    """Further sentences: how many ignored paths look like data, and why the table waits for a retry."""
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


_KIND_OF = {
    CaughtUp.code: "caught_up",
    **dict.fromkeys((Behind.code, Loading.code, Deleted.code), "pending"),
    Empty.code: "empty",
    Unconfigured.code: "unconfigured",
}


def kind_of(state: str, *, is_stuck: bool) -> str:
    """The kind in `KINDS` that a table counts as; `is_stuck`: whether it needs attention, whatever its state is."""
    return "need_attention" if is_stuck else _KIND_OF.get(state, "need_attention")


def lost_rows(found: Iterable[Diagnostic]) -> str:
    """The note on rows that were lost when others removed their Delta table (ME069)."""
    return "".join(f"; {each.coded_message}" for each in found)


def ignored_data(paths: int) -> str:
    """The note on ignored data, for when all tables have caught up."""
    return f", but {count(paths, 'path')} with data {'is' if paths == 1 else 'are'} ignored" if paths else ""
