"""Makes the ledger agree with the Delta log, which is the truth about how far each table is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirror_engine.errors import TableDamaged, TransientError
from mirror_engine.events import DiagnosticRaised, ProgressRecovered
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.progress import AppliedFile
from mirror_engine.ledger import ANCHOR, MIRROR
from mirror_engine.places import owner_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror_engine.delta.base import DeltaState
    from mirror_engine.doors import Doors
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress


@dataclass(frozen=True)
class DeltaFolders:
    """What lies in `ROOT/Tables`.

    Attributes:
        seen: folders that hold a Delta table, whether it can be read or not.
        foreign: those of them with a table that no mirror made, or a copy of one.
        damaged: those whose log cannot be read, and why.
        unread: those that could not be looked at this time, and why; nothing is done with them before they are.
    """

    seen: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()
    damaged: Mapping[str, TableDamaged] = field(default_factory=dict)
    unread: Mapping[str, TransientError] = field(default_factory=dict)


def recover(doors: Doors) -> DeltaFolders:
    """Bring the ledger up to the Delta logs of all tables; run once before the first cycle."""
    found = _looked_at(doors, doors.writer.tables())
    for table in doors.ledger.tables():
        if doors.delta_folder(table) not in found.seen:
            agree(doors, table, None)
    return found


def look_again(doors: Doors, found: DeltaFolders, at_hand: Iterable[TableName] = ()) -> DeltaFolders:
    """The same, once more for those folders that were damaged or unread: somebody may have mended or removed them.

    Those of tables at hand are left as they are.
    """
    busy = {doors.delta_folder(table) for table in at_hand}
    unsure = {*found.damaged, *found.unread} - busy
    again = _looked_at(doors, unsure)
    for table in doors.ledger.tables():
        if doors.delta_folder(table) in unsure - again.seen:
            agree(doors, table, None)
    damaged = {**again.damaged, **{folder: found.damaged[folder] for folder in busy & found.damaged.keys()}}
    unread = {**again.unread, **{folder: found.unread[folder] for folder in busy & found.unread.keys()}}
    return DeltaFolders(found.seen | again.seen, found.foreign | again.foreign, damaged, unread)


def _looked_at(doors: Doors, folders: Iterable[str]) -> DeltaFolders:
    seen, foreign, damaged, unread = set(), set(), {}, {}
    for folder in folders:
        seen.add(folder)
        try:
            state = doors.writer.state(folder)
            if state is None:
                seen.remove(folder)
            elif not _is_ours(doors, folder, state):
                foreign.add(folder)
        except TableDamaged as error:
            damaged[folder] = error
        except TransientError as error:
            unread[folder] = error
    return DeltaFolders(frozenset(seen), frozenset(foreign), damaged, unread)


def _is_ours(doors: Doors, folder: str, state: DeltaState) -> bool:
    """Whether a table of this mirror lies there; the ledger then agrees with it."""
    _begin_from(doors, state)
    owner = owner_of(doors, folder, state)
    if owner is not None:
        agree(doors, owner, state)
    return owner is not None


def _begin_from(doors: Doors, state: DeltaState) -> None:
    """A ledger that knows nothing takes over who this mirror is."""
    if state.record and not doors.ledger.fact(MIRROR):
        doors.ledger.note(MIRROR, state.record.mirror)
    if state.record and not doors.ledger.fact(ANCHOR):
        doors.ledger.note(ANCHOR, state.record.anchor)


def agree(doors: Doors, table: TableName, state: DeltaState | None) -> None:
    """Make the ledger's progress of one table that of its Delta log; None where there is no Delta table.

    Raises:
        TableDamaged: the newest commits lost their data files with the power.
        StorageUnavailable: it is not certain that they are on the disk.
    """
    known = doors.ledger.progress(table)
    if state is None and known and known.has_table:
        _lost(doors, table, known)
    if state is None or state.record is None or state.record.folder != table.folder:
        return
    told = state.record.progress
    earlier = known if known and known.generation == told.generation else None
    if earlier and earlier.batch == told.batch:
        return
    folder = doors.delta_folder(table)
    doors.writer.make_durable(folder, told.delta_version)
    changed = doors.writer.changed_by_others(folder, told.delta_version)
    applied = {
        path: replace(file, version=state.record_version) if path in state.record.files else file
        for path, file in told.applied.items()
    }
    older = earlier.applied if earlier and earlier.batch < told.batch else {}
    applied = {**_moved_away(doors, table), **older, **applied}  # who knows least comes first
    told = replace(told, applied=applied, delta_version=state.record_version)
    told = replace(told, foreign_version=max(told.foreign_version, changed))
    if earlier:
        told = replace(told, waiting=earlier.waiting, latch=earlier.latch, diagnostics=earlier.diagnostics)
    doors.ledger.record(table, told)
    doors.tell(ProgressRecovered(table, state.record_version))


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
