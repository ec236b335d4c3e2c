"""Wait conditions: all tables have caught up, or one change file is applied; and why they are not met yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.errors import UnknownTable, UsageError
from mirror_engine.landing_zone.detection import number_of, sequence_of
from mirror_engine.landing_zone.names import find_table
from mirror_engine.landing_zone.states import Behind, CaughtUp, Empty, Loading, Unconfigured, Unlisted, needs_attention
from mirror_engine.monitoring.state_text import START_ENGINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.monitoring.status import MirrorStatus, TableStatus


@dataclass(frozen=True)
class UnmetCondition:
    """Why a wait condition is not met."""

    table: str  # its name, or the name that was asked for; `""` for the zone as a whole
    state: str  # the table's code; `""` without one
    message: str  # the reason
    help: str = ""  # what to do; `""` if only time is needed
    needs_attention: bool = False  # whether no engine can meet the condition as things are
    is_final: bool = False  # whether no publisher can, either


def tables_not_caught_up(status: MirrorStatus, names: Sequence[str], default_schema: str) -> tuple[UnmetCondition, ...]:
    """The tables that have not caught up, of those named in any spelling; without names of all, and at least one.

    A folder without change files counts only if it is named; one that could not be listed is unmet.
    """
    unmet: list[UnmetCondition] = []
    if not names:
        unmet = [_unfinished(table, status) for table in status.tables if not _is_done(table)]
        said = {table.state.diagnostic for table in status.tables if isinstance(table.state, Unlisted)}
        others = (found for found in status.unlisted if found not in said)
        unmet += [UnmetCondition("", "", found.full_message, found.help) for found in others]
        if not (status.tables or unmet):
            unmet = [UnmetCondition("", "", "the landing zone has no table folder yet")]
    for name in names:
        tables, suggestion = _named(name, status, default_schema)
        unmet += [
            _unfinished(table, status) for table in tables if not isinstance(table.state, CaughtUp) or table.lost_files
        ]
        if not tables:
            unmet.append(UnmetCondition(name, "", f"{name}: the landing zone has no such table folder yet", suggestion))
    if unmet and (failure := status.last_failure):
        unmet.append(UnmetCondition("", "", f"last failure: {failure.message}", failure.help or ""))
    return tuple(unmet)


def file_not_applied(
    status: MirrorStatus, file: str, names: Sequence[str], default_schema: str
) -> tuple[UnmetCondition, ...]:
    """Why a change file is not in its table; empty once it is.

    `file` is its path from the landing zone (`Items/00000000000000000001.parquet`) or table folder, or its number;
    `names` are those of tables that may own it, all by default. Raises `UsageError` where several tables have it.
    """
    tables = list(status.tables)
    if names:
        tables = [table for name in names for table in _named(name, status, default_schema)[0]]
    owners = (
        [table for table in tables if file.startswith(f"{table.name.folder}/")]
        or [table for table in tables if _has(table, _path_of(table, file))]
        or (tables if len(tables) == 1 else [])
    )
    if len(owners) > 1:
        folders = " and ".join(table.name.folder for table in owners)
        raise UsageError(f"{file}: may be a file of {folders}", "Name the table, too: --table.")
    if not owners:
        return (UnmetCondition("", "", f"{file} has not landed yet"),)
    (table,) = owners
    reason = _reason(table, _path_of(table, file.removeprefix(f"{table.name.folder}/")), status)
    return (reason,) if reason else ()


def _named(name: str, status: MirrorStatus, default_schema: str) -> tuple[list[TableStatus], str]:
    """The tables of a name; where there is none, which one may be meant."""
    folders = list(dict.fromkeys(table.delta_folder for table in status.tables))
    try:
        folder = find_table(name, folders, default_schema)
    except UnknownTable as error:
        return [], error.help
    return [table for table in status.tables if table.delta_folder == folder], ""


def _path_of(table: TableStatus, file: str) -> str:
    """A change file's path from the table folder; a bare number means the file of that number, landed or not."""
    if not (file.isascii() and file.isdigit()):
        return file
    numbered = [known.path for known in table.files if number_of(known.path) == int(file)]
    place, expected = next(iter(table.next_files.items()), ("", ""))
    to_come = f"{place}/{int(file):020}.{expected.rpartition('.')[2]}".lstrip("/") if expected else file
    return numbered[0] if len(numbered) == 1 else to_come


def _is_done(table: TableStatus) -> bool:
    match table.state:
        case CaughtUp() | Empty(expired=False):
            return not table.lost_files
        case Unconfigured(_, files):
            return not files and not needs_attention(table.state)
        case _:
            return False


def _unfinished(table: TableStatus, status: MirrorStatus) -> UnmetCondition:
    help_text = table.help(engine_running=status.is_worked_on)
    is_lost = isinstance(table.state, CaughtUp)  # and nothing more comes
    attention = is_lost or needs_attention(table.state)
    return UnmetCondition(table.name.normalized, table.state.code, table.message, help_text, attention, is_lost)


def _has(table: TableStatus, path: str) -> bool:
    from_zone = f"{table.name.folder}/{path}"
    return any(file.path == path for file in table.files) or any(found.path == from_zone for found in table.ignored)


def _reason(table: TableStatus, path: str, status: MirrorStatus) -> UnmetCondition | None:
    name, state = table.name.normalized, table.state.code
    known = next((file for file in table.files if file.path == path), None)
    if known is not None:
        if known.state == "applied" and not known.reason:
            return None
        is_ready = known.state != "applied" and isinstance(table.state, (Behind, Loading))
        help_text = table.help(engine_running=status.is_worked_on)
        failed = f"; last failure: {table.last_failure.message}" if table.last_failure else ""
        message = f"{name}: {path} is {known.state}: {known.reason}{failed}"
        return UnmetCondition(name, state, message, help_text, needs_attention=not is_ready)
    ignored = next((found for found in table.ignored if found.path == f"{table.name.folder}/{path}"), None)
    if ignored is not None:
        return UnmetCondition(name, state, f"{name}: {path}: {ignored.coded_message}", ignored.help, True)
    # a file that is no longer known by name must have been applied if its successors were (LZ-3.2)
    place, _, file = path.rpartition("/")
    extension = table.next_files.get(place, "").rpartition(".")[2].casefold()
    has_extension = bool(extension) and file.rpartition(".")[2].casefold() == extension
    if has_extension and 0 < sequence_of(file) <= table.watermarks.get(place, 0):
        return None
    return UnmetCondition(
        name, state, f"{name}: {path} has not landed yet", "" if status.is_worked_on else START_ENGINE
    )
