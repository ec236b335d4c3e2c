"""Who owns which Delta folder, which table lies there, and how many there is room for (LZ-1.5, LZ-7.10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.errors import CommitConflict
from mirror_engine.landing_zone.names import TableName

if TYPE_CHECKING:
    from mirror_engine.engine.context import EngineContext
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.tables.base import TableSnapshot


def owner_of(context: EngineContext, folder: str, state: TableSnapshot) -> TableName | None:
    """The table whose Delta table this is; None for one of another program, or a copy laid beside its original."""
    table = TableName.from_folder(state.record.folder) if state.record else None
    return table if table and context.delta_folder(table) == folder else None


def is_as_known(known: Progress, state: TableSnapshot | None) -> bool:
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
    return max(since, progress.external_change_version)
