"""What one may wait for, all tables level or one file applied, and why it is not so yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import UnknownTable, UsageError
from mirror_engine.landing_zone.detection import number_of, sequence_of
from mirror_engine.landing_zone.names import find_table
from mirror_engine.landing_zone.states import Behind, CaughtUp, Empty, Loading, Unconfigured, needs_a_person
from mirror_engine.monitoring.words import START_ENGINE, advice, in_words, word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.landing_zone.states import TableState
    from mirror_engine.monitoring.status import MirrorStatus, TableStatus


NO_SUCH_FOLDER = "no table folder of that name lies in the landing zone yet"


@dataclass(frozen=True)
class UnmetCondition:
    """Why one table keeps a goal from being reached.

    Attributes:
        table: the table folder, or what was asked for where there is none; `""` for the zone as a whole.
        state: of the table in one word; `""` where there is none.
        reason: in words.
        advice: what to do; `""` where only time is needed.
        needs_a_person: whether no engine can reach the goal as things are.
    """

    table: str
    state: str
    reason: str
    advice: str = ""
    needs_a_person: bool = False

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {"table": self.table, "state": self.state, "reason": self.reason, "advice": self.advice}


def not_level(status: MirrorStatus, names: Sequence[str], default_schema: str) -> tuple[UnmetCondition, ...]:
    """The tables that are not level; none once everything that landed is in them.

    Args:
        status: how the mirror is now.
        names: of tables that must be there, however spelled; none: all there are, and at least one. Of those not
            named, a folder into which no change file has landed yet keeps nobody waiting.
        default_schema: the Delta schema of bare tables.
    """
    if not names:
        if not status.tables:
            return (UnmetCondition("", "", "no table folder lies in the landing zone yet"),)
        return tuple(_unfinished(table, status) for table in status.tables if not _is_done(table.state))
    found: list[UnmetCondition] = []
    for name in names:
        tables = _named(name, status, default_schema)
        found += [_unfinished(table, status) for table in tables if not isinstance(table.state, CaughtUp)]
        found += [] if tables else [UnmetCondition(name, "", NO_SUCH_FOLDER, _near(name, status, default_schema))]
    return tuple(found)


def not_applied(
    status: MirrorStatus, file: str, names: Sequence[str], default_schema: str
) -> tuple[UnmetCondition, ...]:
    """Why a change file is not in its table; nothing once it is.

    Args:
        status: how the mirror is now.
        file: from the landing zone, `Items/00000000000000000001.parquet`, or from the table folder, or its number.
        names: of tables in which it may lie; none: all.
        default_schema: the Delta schema of bare tables.

    Raises:
        UsageError: several tables have such a file.
    """
    among = [table for name in names for table in _named(name, status, default_schema)] if names else status.tables
    whole = [table for table in among if file.startswith(f"{table.name.folder}/")]
    knowing = whole or [table for table in among if _knows(table, _path_of(table, file))]
    knowing = knowing or list(among[:1] if len(among) == 1 else ())
    if len(knowing) > 1:
        folders = " and ".join(table.name.folder for table in knowing)
        raise UsageError(f"{file}: may be a file of {folders}", "Name the table, too: --table.")
    if not knowing:
        return (UnmetCondition("", "", f"{file} has not landed yet"),)
    (table,) = knowing
    reason = _reason(table, _path_of(table, file.removeprefix(f"{table.name.folder}/")), status)
    return (reason,) if reason else ()


def _named(name: str, status: MirrorStatus, default_schema: str) -> list[TableStatus]:
    try:
        wanted = find_table(name, _folders(status), default_schema)
    except UnknownTable:
        return []
    return [table for table in status.tables if table.delta_folder == wanted]


def _near(name: str, status: MirrorStatus, default_schema: str) -> str:
    """Which table may be meant by a name that none has."""
    try:
        find_table(name, _folders(status), default_schema)
    except UnknownTable as error:
        return error.help
    return ""


def _folders(status: MirrorStatus) -> list[str]:
    return list(dict.fromkeys(table.delta_folder for table in status.tables))


def _path_of(table: TableStatus, file: str) -> str:
    """A change file's path from the table folder; a bare number stands for the file of that number, landed or not."""
    if not (file.isascii() and file.isdigit()):
        return file
    numbered = [each.path for each in table.files if number_of(each.path) == int(file)]
    place, expected = next(iter(table.next_expected.items()), ("", ""))
    to_come = f"{place}/{int(file):020}.{expected.rpartition('.')[2]}".lstrip("/") if expected else file
    return numbered[0] if len(numbered) == 1 else to_come


def _is_done(state: TableState) -> bool:
    match state:
        case CaughtUp():
            return True
        case Empty(expired):
            return not expired
        case Unconfigured(_, files):
            return not files and not needs_a_person(state)
        case _:
            return False


def _unfinished(table: TableStatus, status: MirrorStatus) -> UnmetCondition:
    return UnmetCondition(
        table.name.folder,
        word(table.state),
        in_words(table.state),
        advice(table.state, engine_running=status.engine_running),
        needs_a_person(table.state),
    )


def _knows(table: TableStatus, path: str) -> bool:
    ignored = f"{table.name.folder}/{path}"
    return any(file.path == path for file in table.files) or any(found.path == ignored for found in table.ignored)


def _reason(table: TableStatus, path: str, status: MirrorStatus) -> UnmetCondition | None:
    """Why a file is not in its table; None once it is."""
    folder, state = table.name.folder, word(table.state)
    known = next((file for file in table.files if file.path == path), None)
    if known is not None and known.state == "applied" and not known.why:
        return None
    if known is not None:
        is_ready = known.state != "applied" and isinstance(table.state, (Behind, Loading))
        todo = advice(table.state, engine_running=status.engine_running)
        return UnmetCondition(folder, state, f"{path} is {known.state}: {known.why}", todo, needs_a_person=not is_ready)
    passed_over = next((found for found in table.ignored if found.path == f"{folder}/{path}"), None)
    if passed_over is not None:
        reason = f"{path}: {passed_over.coded_message}"
        return UnmetCondition(folder, state, reason, passed_over.help, needs_a_person=True)
    if _is_behind_watermark(table, path):
        return None
    return UnmetCondition(folder, state, f"{path} has not landed yet", "" if status.engine_running else START_ENGINE)


def _is_behind_watermark(table: TableStatus, path: str) -> bool:
    """Whether a file that nobody remembers by name must have been applied: its successors were (LZ-3.2)."""
    place, _, name = path.rpartition("/")
    extension = table.next_expected.get(place, "").rpartition(".")[2].casefold()
    is_ours = bool(extension) and name.rpartition(".")[2].casefold() == extension
    return is_ours and 0 < sequence_of(name) <= table.watermarks.get(place, 0)
