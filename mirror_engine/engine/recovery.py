"""Recovery: the ledger is reconciled with the Delta logs, which are the truth about each table's progress."""

from __future__ import annotations

import shlex
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from mirror_engine.engine.ledger import MIRROR, ROOT_IDENTITY
from mirror_engine.engine.root_identity import DeltaPlaces, are_tables_hidden
from mirror_engine.errors import REBUILD_COMMAND, TableDamaged, TransientError
from mirror_engine.events import DiagnosticRaised, ProgressRebuilt, TableDropped
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.layout import ENGINE, OLDER_ZONE, ZONE
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import Applied, Progress
from mirror_engine.storage.base import at_once
from mirror_engine.tables.base import BatchRecord, application_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.tables.base import TableSnapshot

# Of a table of a mirror whose progress nothing says any more
LATE_COMMIT = "its newest commit is of the table that was here before"
LATE_CHECKPOINT = "its log differs from the one in the ledger"
LOST_RECORD = "log cleanup removed the commit that lists the applied files, and the ledger does not have it"
LOST_ROWS = "ME069"
REMOVED = "its Delta table was removed, and only change files in its folder are read again"
_taking_over = threading.Lock()  # folders are read at once, and both properties come from one


def rows_lost(table: TableName, rows: object, reason: str) -> Diagnostic:
    """The diagnostic for rows that a rebuild does not restore (ME069)."""
    return diagnose(LOST_ROWS, table.folder, count=rows, reason=reason, table=shlex.quote(table.normalized))


@dataclass(frozen=True)
class DeltaFolders:
    """The folders of Delta tables in `ROOT/Tables`."""

    foreign: frozenset[str] = frozenset()  # those of another program, or copies of a mirrored table
    damaged: Mapping[str, TableDamaged] = field(default_factory=dict)  # those whose log cannot be read, and why
    # Those that could not be read this time, and why; their tables wait
    unread: Mapping[str, TransientError] = field(default_factory=dict)
    # Tables whose newest record is in no commit of their log, or in one that log cleanup may take
    unsaid: frozenset[TableName] = frozenset()


def recover(context: EngineContext, but: Collection[str] = ()) -> DeltaFolders:
    """Reconcile the ledger with the Delta logs of all tables, before the first plans; those of `but` are not read."""
    folders = {*context.delta.tables(), *map(context.delta_folder, context.ledger.tables())}
    return _read(context, folders.difference(but))


def unchanged_logs(context: EngineContext) -> set[str]:
    """Return the Delta folders whose newest commit is the one noted by `note_logs`."""
    stamps = _stamps(context)
    return {context.delta_folder(table) for table, stamp in stamps if stamp and stamp == _noted(context, table).stamp}


def intact_logs(context: EngineContext) -> set[str]:
    """Return the Delta folders of tables whose rows are known without opening their logs."""
    known = context.ledger.tables().items()
    return {context.delta_folder(table) for table, each in known if intact_rows(context, table, each) is not None}


def intact_rows(context: EngineContext, table: TableName, progress: Progress) -> int | None:
    """Return how many rows a table has, as noted, unless a file has changed that a reader of its log needs."""
    noted = _noted(context, table)
    is_same = noted.rows.isdecimal() and noted.stamp.startswith(f"{progress.generation} {progress.batch} ")
    is_intact = is_same and noted.files == context.delta.needed_stamp(context.delta_folder(table))
    return int(noted.rows) if is_intact else None


def for_readers(context: EngineContext, found: DeltaFolders) -> DeltaFolders:
    """For read-only commands: report an unreadable folder of an unknown table as damaged."""
    known = {context.delta_folder(table) for table, progress in context.ledger.tables().items() if progress.has_table}
    unread = {
        folder: TableDamaged(folder, error.message, error.help)
        for folder, error in found.unread.items()
        if folder not in known
    }
    return replace(found, damaged={**found.damaged, **unread})


class _Noted(NamedTuple):
    """The stored facts about a table's log."""

    stamp: str = ""  # generation, batch, and the newest commit's version, size and time
    files: str = ""  # a hash over the files that a reader needs; `-` where that is not known
    rows: str = ""  # how many the table has; `-` where that is not known


def note_logs(context: EngineContext) -> None:
    """Note the newest commit of every table that agrees with the ledger, its files and rows, for the next start.

    Raises nothing.
    """
    with suppress(TransientError):
        for table, stamp in _stamps(context):
            if stamp and stamp != _noted(context, table).stamp and _will_know(context, table, stamp):
                folder = context.delta_folder(table)
                files = context.delta.needed_stamp(folder)  # before its rows: a commit that comes between is noticed
                rows = context.delta.count_rows(folder) if files else None
                noted = _Noted(stamp, files or "-", "-" if rows is None else str(rows))
                context.ledger.set_property(f"log {folder}", " ".join(noted))


def _will_know(context: EngineContext, table: TableName, stamp: str) -> bool:
    """Whether the next start can skip a log: its record equals the ledger's, and will stay."""
    progress, folder = context.ledger.tables()[table], context.delta_folder(table)
    if int(stamp.split()[2]) == progress.delta_version:
        return True
    snapshot = context.delta.snapshot(folder)  # there is a commit of maintenance, or of another program
    if snapshot is None or snapshot.record is None or snapshot.may_lose_record():
        return False
    recorded = snapshot.record.progress
    return (recorded.generation, recorded.batch) == (progress.generation, progress.batch)


def _noted(context: EngineContext, table: TableName) -> _Noted:
    return _Noted(*context.ledger.get_property(f"log {context.delta_folder(table)}").rsplit(" ", 2))


def _stamps(context: EngineContext) -> Iterator[tuple[TableName, str]]:
    """Yield each table with the stamp of its newest commit; `""` if unknown."""
    known = {table: progress for table, progress in context.ledger.tables().items() if progress.has_table}

    def stamp(table: TableName) -> str:
        commit = context.delta.log_stamp(context.delta_folder(table), known[table].delta_version)
        return f"{known[table].generation} {known[table].batch} {commit}" if commit else ""

    return zip(known, at_once(context.storage, stamp, known), strict=True)


def rescan(context: EngineContext, found: DeltaFolders, folders: Collection[str]) -> DeltaFolders:
    """Read folders again that were damaged, unread or foreign: they may have been restored or removed.

    One that was foreign, and cannot be read, still is.
    """
    again = _read(context, folders)
    stay = found.foreign.difference(folders) | (found.foreign & {*again.damaged, *again.unread})
    damaged = {folder: error for folder, error in found.damaged.items() if folder not in folders}
    damaged |= {folder: error for folder, error in again.damaged.items() if folder not in stay}
    unread = {folder: error for folder, error in found.unread.items() if folder not in folders}
    unread |= {folder: error for folder, error in again.unread.items() if folder not in stay}
    return DeltaFolders(stay | again.foreign, damaged, unread, again.unsaid)


def _read(context: EngineContext, folders: Iterable[str]) -> DeltaFolders:
    def read(folder: str) -> None:
        try:
            owned, is_said = _reconcile_folder(context, folder)
            if not owned:
                foreign.add(folder)
            if not is_said:
                unsaid.update(context.owners(folder))
        except TableDamaged as error:
            damaged[folder] = error
        except TransientError as error:
            unread[folder] = error

    foreign: set[str] = set()
    unsaid: set[TableName] = set()
    damaged: dict[str, TableDamaged] = {}
    unread: dict[str, TransientError] = {}
    for _ in at_once(context.storage, read, sorted(folders)):
        pass
    return DeltaFolders(frozenset(foreign), damaged, unread, frozenset(unsaid))


def _reconcile_folder(context: EngineContext, folder: str) -> tuple[bool, bool]:
    """Reconcile the ledger with the log of a Delta folder, or its absence.

    Returns whether it is a table of this mirror, not another program's or a copy, and whether its record will stay.

    Raises:
        TableDamaged: a mirror made the table, and nothing says what was applied.
    """
    snapshot = context.delta.snapshot(folder)
    if snapshot is None:
        for table in context.owners(folder):
            reconcile(context, table, None)
        return True, True
    owner = owner_of(context, folder, snapshot)
    if snapshot.record is None and owner is None and context.delta.is_mirrored(folder):
        command = "`mirror-engine rebuild --replay --lose-rows --table TABLE`"
        help = f"restore {ENGINE} in ROOT from a backup, or rebuild the table from its archive: {command}"
        raise TableDamaged(folder, LOST_RECORD, help)
    if snapshot.record and owner:
        # an empty ledger takes over the identity of the mirror
        with _taking_over:
            for name, value in ((MIRROR, snapshot.record.mirror), (ROOT_IDENTITY, snapshot.record.root_identity)):
                if not context.ledger.get_property(name):
                    context.ledger.set_property(name, value)
    if owner:
        reconcile(context, owner, snapshot)
    return owner is not None, owner is None or not (snapshot.record is None or snapshot.may_lose_record())


def say_again(context: EngineContext, table: TableName) -> None:
    """Commit a table's newest record again, from the ledger, if its commit is gone or may be deleted (LZ-4.18).

    Raises:
        TransientError: it was not committed, or is not noted; the next start tries again.
    """
    known, ledger = context.ledger.progress(table), context.ledger
    if known is None or not known.has_table:
        return
    folder = context.delta_folder(table)
    changed, snapshot = context.latest_external_change(table, known), context.delta.snapshot(folder)
    columns = snapshot.schema.digest if snapshot else ""
    known = replace(known, external_change_version=changed, columns=columns)
    after = known.covered if known.segments else None
    earlier = Applied(ledger.applied(table, after=after), ledger.marks(table, after=after))
    root_identity = ledger.get_property(ROOT_IDENTITY)
    context.check_lock()
    record = BatchRecord(ledger.mirror, root_identity, known.in_commit, table.folder, Applied(), earlier=earlier)
    with context.fenced(folder, known):
        version = context.writer.say_again(folder, record)
    ledger.record(table, replace(known, delta_version=version))


def reconcile(context: EngineContext, table: TableName, snapshot: TableSnapshot | None) -> None:
    """Take over a table's progress from its Delta log into the ledger; None where there is no Delta table.

    Raises:
        TableDamaged: the newest commits lost their data files in a power failure, or came late (LZ-4.18).
        StorageUnavailable: it is not certain that they are durable.
    """
    known = context.ledger.progress(table)
    if (
        snapshot is None and known and known.has_table and not _is_hidden(context, table)
    ):  # it was removed: what is still in its folder is read again
        rows = _rows_gone(context, table, known)
        context.emit(TableDropped(table, "removed"))
        context.ledger.forget(table)
        if rows:
            lost = rows_lost(table, rows, REMOVED)
            context.ledger.record(table, Progress("", "", diagnostics={lost: 1}))  # stays until a rebuild
            context.emit(DiagnosticRaised(table, lost))
    if snapshot and snapshot.record is None and known and known.has_table:
        if is_as_recorded(known, snapshot):
            return
        # a checkpoint of the table that was here before hides the commits of this one
        raise TableDamaged(context.delta_folder(table), LATE_CHECKPOINT, f"rebuild the table: {REBUILD_COMMAND}")
    if snapshot is None or snapshot.record is None or snapshot.record.folder != table.folder:
        return
    recorded = snapshot.record.progress
    earlier = known if known and known.generation == recorded.generation else None
    if earlier and earlier.batch == recorded.batch:
        return
    folder = context.delta_folder(table)
    if known and not earlier and _is_at_batch(known, snapshot):  # an engine that lost the lease
        raise TableDamaged(folder, LATE_COMMIT, f"remove version {snapshot.record_version} of its Delta log")
    context.delta.make_durable(folder, recorded.delta_version)
    changed = context.latest_external_change(table, recorded)
    # a ledger from before ROOT was moved knows other etags
    is_behind = earlier and earlier.batch < recorded.batch and earlier.identity == recorded.identity
    applied = context.delta.applied_since(folder, snapshot, earlier if is_behind else None)
    recorded = replace(
        recorded, delta_version=snapshot.record_version, external_change_version=changed, segments=applied.segments
    )
    if earlier:
        recorded = replace(recorded, rejection=earlier.rejection, diagnostics=earlier.diagnostics)
    context.ledger.record(table, recorded, applied, is_whole=not is_behind)
    context.emit(ProgressRebuilt(table, snapshot.record_version))


def _is_hidden(context: EngineContext, table: TableName) -> bool:
    """Whether a Delta table that is gone may only be hidden: nobody removed it."""
    return are_tables_hidden(context) or DeltaPlaces(context).hidden(context.delta_folder(table)) is not None


def _rows_gone(context: EngineContext, table: TableName, known: Progress) -> int:
    """Count applied rows of files that are no longer in the table folder."""
    zone = ZONE if context.storage.stat(ZONE) else OLDER_ZONE
    applied = context.ledger.applied(table)

    def rows_there(path: str) -> int:
        found = context.storage.stat(f"{zone}/{table.folder}/{path}")
        is_there = found is not None and applied[path].is_same(found.etag, found.modified_ns)
        return applied[path].rows if is_there else 0

    return known.rows_processed - sum(at_once(context.storage, rows_there, [*applied]))


def owner_of(context: EngineContext, folder: str, snapshot: TableSnapshot) -> TableName | None:
    """Return the table that a Delta table belongs to; None for another program's, or a copy next to its original."""
    if snapshot.record is None:  # log cleanup took it
        return next(
            (each for each, known in context.owners(folder).items() if _is_at_batch(known, snapshot)),
            None,
        )
    table = TableName.from_folder(snapshot.record.folder)
    return table if table and context.delta_folder(table) == folder else None


def _is_at_batch(known: Progress, snapshot: TableSnapshot) -> bool:
    """Whether a log's transactions have the ledger's generation and batch, so that the log is complete."""
    return snapshot.batch_of(application_of(known.generation)) == known.batch


def is_as_recorded(known: Progress, snapshot: TableSnapshot | None) -> bool:
    """Whether a Delta table has the ledger's generation, or is absent if the ledger knows no table."""
    if snapshot is None:
        return not known.has_table
    if snapshot.record is None:
        return _is_at_batch(known, snapshot)
    return snapshot.record.progress.generation == known.generation
