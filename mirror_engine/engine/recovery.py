"""Makes the ledger reconcile with the Delta log, which is the truth about how far each table is."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirror_engine.engine.ledger import MIRROR, ROOT_IDENTITY
from mirror_engine.engine.ownership import owner_of
from mirror_engine.errors import TableDamaged, TransientError
from mirror_engine.events import DiagnosticRaised, ProgressRebuilt
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.progress import AppliedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.cycle import Engine
    from mirror_engine.landing_zone.listing import ZoneListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.tables.base import TableSnapshot


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


def recover(context: EngineContext, *, skip_unchanged: bool = False) -> DeltaFolders:
    """Bring the ledger up to the Delta logs of all tables; run once before the first cycle.

    Args:
        context: of the engine.
        skip_unchanged: whether a log is believed unread whose newest commit is the one noted by `note_logs`.
    """
    folders = context.writer.tables()
    unchanged = _unchanged(context) & {*folders} if skip_unchanged else set()
    found = _looked_at(context, {*folders} - unchanged)
    found = replace(found, seen=found.seen | unchanged)
    for table in context.ledger.tables():
        if context.delta_folder(table) not in found.seen:
            reconcile(context, table, None)
    return found


def note_logs(context: EngineContext) -> None:
    """Note the newest commit of every table that is as the ledger says, for the next start. Raises nothing."""
    with suppress(TransientError):
        for table, progress in context.ledger.tables().items():
            name, stamp = _stamp(context, table, progress)
            if stamp and stamp != context.ledger.get_property(name):
                context.ledger.set_property(name, stamp)


def _unchanged(context: EngineContext) -> set[str]:
    """The Delta folders whose newest commit is the one that was noted last."""
    stamps = {table: _stamp(context, table, progress) for table, progress in context.ledger.tables().items()}
    return {
        context.delta_folder(table)
        for table, (name, stamp) in stamps.items()
        if stamp and stamp == context.ledger.get_property(name)
    }


def _stamp(context: EngineContext, table: TableName, progress: Progress) -> tuple[str, str]:
    """The name under which a table's newest commit is noted, and that commit; `""` where there is none."""
    folder = context.delta_folder(table)
    commit = context.writer.log_stamp(folder, progress.delta_version) if progress.has_table else ""
    return f"log {folder}", f"{progress.generation} {progress.batch} {commit}" if commit else ""


def rescan(context: EngineContext, found: DeltaFolders, at_hand: Iterable[TableName] = ()) -> DeltaFolders:
    """The same, once more for those folders that were damaged or unread: somebody may have mended or removed them.

    Those of tables at hand are left as they are.
    """
    busy = {context.delta_folder(table) for table in at_hand}
    unsure = {*found.damaged, *found.unread} - busy
    again = _looked_at(context, unsure)
    for table in context.ledger.tables():
        if context.delta_folder(table) in unsure - again.seen:
            reconcile(context, table, None)
    damaged = {**again.damaged, **{folder: found.damaged[folder] for folder in busy & found.damaged.keys()}}
    unread = {**again.unread, **{folder: found.unread[folder] for folder in busy & found.unread.keys()}}
    return DeltaFolders(found.seen | again.seen, found.foreign | again.foreign, damaged, unread)


def _looked_at(context: EngineContext, folders: Iterable[str]) -> DeltaFolders:
    seen, foreign, damaged, unread = set(), set(), {}, {}
    for folder in folders:
        seen.add(folder)
        try:
            state = context.writer.state(folder)
            if state is None:
                seen.remove(folder)
            elif not _is_ours(context, folder, state):
                foreign.add(folder)
        except TableDamaged as error:
            damaged[folder] = error
        except TransientError as error:
            unread[folder] = error
    return DeltaFolders(frozenset(seen), frozenset(foreign), damaged, unread)


def _is_ours(context: EngineContext, folder: str, state: TableSnapshot) -> bool:
    """Whether a table of this mirror lies there; the ledger then agrees with it."""
    _begin_from(context, state)
    owner = owner_of(context, folder, state)
    if owner is not None:
        reconcile(context, owner, state)
    return owner is not None


def _begin_from(context: EngineContext, state: TableSnapshot) -> None:
    """A ledger that knows nothing takes over who this mirror is."""
    if state.record and not context.ledger.get_property(MIRROR):
        context.ledger.set_property(MIRROR, state.record.mirror)
    if state.record and not context.ledger.get_property(ROOT_IDENTITY):
        context.ledger.set_property(ROOT_IDENTITY, state.record.anchor)


def reconcile(context: EngineContext, table: TableName, state: TableSnapshot | None) -> None:
    """Make the ledger's progress of one table that of its Delta log; None where there is no Delta table.

    Raises:
        TableDamaged: the newest commits lost their data files with the power.
        StorageUnavailable: it is not certain that they are on the disk.
    """
    known = context.ledger.progress(table)
    if state is None and known and known.has_table:
        _lost(context, table, known)
    if state is None or state.record is None or state.record.folder != table.folder:
        return
    told = state.record.progress
    earlier = known if known and known.generation == told.generation else None
    if earlier and earlier.batch == told.batch:
        return
    folder = context.delta_folder(table)
    context.writer.make_durable(folder, told.delta_version)
    changed = context.writer.changed_by_others(folder, told.delta_version)
    applied = {
        path: replace(file, version=state.record_version) if path in state.record.files else file
        for path, file in told.applied.items()
    }
    older = earlier.applied if earlier and earlier.batch < told.batch else {}
    applied = {**_moved_away(context, table), **older, **applied}  # who knows least comes first
    told = replace(told, applied=applied, delta_version=state.record_version)
    told = replace(told, external_change_version=max(told.external_change_version, changed))
    if earlier:
        told = replace(
            told, pending_etags=earlier.pending_etags, rejection=earlier.rejection, diagnostics=earlier.diagnostics
        )
    context.ledger.record(table, told)
    context.tell(ProgressRebuilt(table, state.record_version))


def _moved_away(context: EngineContext, table: TableName) -> dict[str, AppliedFile]:
    """Applied files by their commits: the newest record holds only those that lay in the folder (LZ-3.6)."""
    history = context.writer.history(context.delta_folder(table))
    return {path: AppliedFile("", "", commit.version, 0, 0) for commit in history for path in commit.files}


def _lost(context: EngineContext, table: TableName, progress: Progress) -> None:
    """A table somebody removed: it is rebuilt from what still lies in its folder."""
    context.ledger.forget(table)
    if progress.rows_processed:
        lost = diagnose("ME069", table.folder, count=progress.rows_processed)
        context.tell(DiagnosticRaised(table, lost))


def restart(context: EngineContext, engine: Engine, zone: ZoneListing) -> list[TableName]:
    """Drop all, and tell of each table how many rows cannot be rebuilt from what still lies in the zone (ME069).

    Returns:
        The tables that had a Delta table.

    Raises:
        TransientError: a table could not be dropped; the others before it are.
    """
    recover(context)
    known = context.ledger.tables()
    lying = {listing.name: {file.path for file in listing.files} for listing in zone.tables}
    for table, progress in known.items():
        rows = sum(file.rows for path, file in progress.applied.items() if path not in lying.get(table, ()))
        if rows:
            context.tell(DiagnosticRaised(table, diagnose("ME069", table.folder, count=rows)))
        engine.drop(table, diagnose("ME065", table.folder))
    return sorted(table for table, progress in known.items() if progress.has_table)
