"""Who owns which Delta folder, which table lies there, and how many there is room for (LZ-1.5, LZ-7.10)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mirror_engine.errors import CommitConflict, TransientError
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.names import TABLES_OF_THE_SERVICE, TableName, conflicts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.tables.base import DeltaState


def owner_of(context: EngineContext, folder: str, state: DeltaState) -> TableName | None:
    """The table whose Delta table this is; None for one of another program, or a copy laid beside its original."""
    table = TableName.from_folder(state.record.folder) if state.record else None
    return table if table and context.delta_folder(table) == folder else None


def is_as_known(known: Progress, state: DeltaState | None) -> bool:
    """Whether a Delta table is the one the ledger speaks of, or there is none where it speaks of none."""
    if state is None:
        return not known.has_table
    return state.record is not None and state.record.progress.generation == known.generation


def disagreement(table: TableName) -> CommitConflict:
    """What is raised where it is not: removed, put in its place by others, or unreadable when the engine started."""
    return CommitConflict(
        f"{table.folder}: its Delta table is another than the ledger knows",
        "The next cycle reads the table's state again; a table of another program must be taken away.",
    )


def changed_by_others(context: EngineContext, table: TableName, progress: Progress) -> int:
    """The newest Delta version of this generation in which another program changed rows or columns; -1 for none.

    Raises:
        TransientError: its log cannot be read.
    """
    since = context.writer.changed_by_others(context.delta_folder(table), progress.delta_version)
    return max(since, progress.foreign_version)


def taken_places(
    context: EngineContext, foreign: Collection[str], names: Sequence[TableName]
) -> dict[TableName, Diagnostic]:
    """Tables whose place is taken (ME004), or that there is no room for under `strict` (ME007).

    Args:
        context: the ledger knows who owns a place.
        foreign: Delta folders that held a table of another program when the engine started.
        names: the tables in the zone; those whose folders were not seen own their places all the same.
    """
    owners = {name for name in context.ledger.tables() if _owns(context, name)}
    refusals: dict[TableName, Diagnostic] = {}
    for second, owner in conflicts({*names} | owners, context.config.delta_default_schema).items():
        loser, winner = (owner, second) if second in owners and owner not in owners else (second, owner)
        refusals[loser] = _taken(context, loser, winner.folder)
    for name in names:
        if _is_foreign(context, foreign, context.delta_folder(name)):
            refusals.setdefault(name, _taken(context, name, "another program"))
    if context.config.strict and len(names) > TABLES_OF_THE_SERVICE:
        for name in sorted(names, key=lambda name: _first_seen(context, name))[TABLES_OF_THE_SERVICE:]:
            refusals.setdefault(name, diagnose("ME007", name.folder, strict=True, count=len(names)))
    return refusals


def around(context: EngineContext, names: Iterable[TableName], taken: Collection[TableName]) -> set[TableName]:
    """Of these tables, the taken ones, and those whose Delta folder is that of one, in it or around it (LZ-1.5)."""
    places = {context.delta_folder(name).casefold() for name in taken}
    outer = {place.rpartition("/")[0] for place in places}
    found = set()
    for name in names if taken else ():
        place = context.delta_folder(name).casefold()
        if place in places or place in outer or place.rpartition("/")[0] in places:
            found.add(name)
    return found


def _owns(context: EngineContext, table: TableName) -> bool:
    progress = context.ledger.progress(table)
    return progress is not None and progress.has_table


def _taken(context: EngineContext, table: TableName, owner: str) -> Diagnostic:
    return diagnose("ME004", table.folder, table=context.delta_folder(table), folder=owner)


def _is_foreign(context: EngineContext, foreign: Collection[str], folder: str) -> bool:
    """Whether a table that was not ours when the engine started still lies there."""
    if folder not in foreign:
        return False
    try:
        state = context.writer.state(folder)
    except TransientError:
        return True
    return state is not None and owner_of(context, folder, state) is None


def _first_seen(context: EngineContext, table: TableName) -> tuple[float, TableName]:
    progress = context.ledger.progress(table)
    return (progress.armed_at if progress and progress.armed_at else math.inf, table)
