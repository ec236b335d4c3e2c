"""Makes the ledger agree with the Delta log, which is the truth about how far each table is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirror_engine.errors import TransientError
from mirror_engine.events import DiagnosticRaised
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.progress import AppliedFile
from mirror_engine.ledger import ANCHOR, MIRROR
from mirror_engine.places import owner_of

if TYPE_CHECKING:
    from mirror_engine.delta.base import DeltaState
    from mirror_engine.doors import Doors
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress


def recover(doors: Doors) -> frozenset[str]:
    """Bring the ledger up to the Delta logs of all tables; run once before the first cycle.

    Returns:
        Delta folders that hold a table no mirror made, a copy of one, or one whose history cannot be read.
    """
    foreign, ours, unreadable = set(), set(), set()
    for folder in doors.writer.tables():
        try:
            state = doors.writer.state(folder)
        except TransientError:
            unreadable.add(folder)  # which proves nothing
            continue
        if state:
            _begin_from(doors, state)
            owner = owner_of(doors, folder, state)
            if owner:
                ours.add(folder)
            if not owner or not _agreed(doors, owner, state):
                foreign.add(folder)
    for table in doors.ledger.tables():
        if doors.delta_folder(table) not in ours | unreadable:
            agree(doors, table, None)
    return frozenset(foreign)


def _agreed(doors: Doors, table: TableName, state: DeltaState) -> bool:
    try:
        agree(doors, table, state)
    except TransientError:
        return False
    return True


def _begin_from(doors: Doors, state: DeltaState) -> None:
    """A ledger that knows nothing takes over who this mirror is."""
    if state.record and not doors.ledger.fact(MIRROR):
        doors.ledger.note(MIRROR, state.record.mirror)
    if state.record and not doors.ledger.fact(ANCHOR):
        doors.ledger.note(ANCHOR, state.record.anchor)


def agree(doors: Doors, table: TableName, state: DeltaState | None) -> None:
    """Make the ledger's progress of one table that of its Delta log; None where there is no Delta table."""
    known = doors.ledger.progress(table)
    if state is None and known and known.has_table:
        _lost(doors, table, known)
    if state is None or state.record is None or state.record.folder != table.folder:
        return
    told = state.record.progress
    earlier = known if known and known.generation == told.generation else None
    if earlier and earlier.batch == told.batch:
        return
    applied = {
        path: replace(file, version=state.record_version) if path in state.record.files else file
        for path, file in told.applied.items()
    }
    older = earlier.applied if earlier and earlier.batch < told.batch else {}
    applied = {**_moved_away(doors, table), **older, **applied}  # who knows least comes first
    told = replace(told, applied=applied, delta_version=state.record_version)
    if earlier:
        told = replace(told, waiting=earlier.waiting, latch=earlier.latch, diagnostics=earlier.diagnostics)
    doors.ledger.record(table, told)


def _moved_away(doors: Doors, table: TableName) -> dict[str, AppliedFile]:
    """Applied files by their commits: the newest record holds only those that lay in the folder (LZ-3.6)."""
    history = doors.writer.history(doors.delta_folder(table))
    return {path: AppliedFile("", "", commit.version, 0, 0) for commit in history for path in commit.files}


def _lost(doors: Doors, table: TableName, progress: Progress) -> None:
    """A table somebody removed: it is rebuilt from what still lies in its folder."""
    doors.ledger.forget(table)
    if progress.rows_processed:
        lost = diagnose("ME069", table.folder, count=progress.rows_processed)
        doors.tell(DiagnosticRaised(table, lost))
