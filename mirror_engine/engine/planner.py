"""Plans: what is to be done for each table, and why not more. Equal listings and progress give equal plans."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from mirror_engine.engine.plan import (
    ApplyBatch,
    DropTable,
    MarkFolderMissing,
    Plan,
    RecordFolderState,
    StartGeneration,
    Step,
    UpdateFolderIdentity,
)
from mirror_engine.engine.recovery import latest_external_change, owner_of
from mirror_engine.engine.root_identity import RootIdentityCheck
from mirror_engine.errors import StorageUnavailable, TableDamaged, TransientError
from mirror_engine.landing_zone.detection import detect
from mirror_engine.landing_zone.diagnostics import Diagnostic, Severity, diagnose
from mirror_engine.landing_zone.listing import MetadataAbsent, MetadataUnusable, MetadataUsable, TableListing
from mirror_engine.landing_zone.metadata import Metadata, forbidden_change
from mirror_engine.landing_zone.names import MAX_FABRIC_TABLES, METADATA_FILE, SCHEMA_SUFFIX, TableName, conflicts
from mirror_engine.landing_zone.progress import Progress, Rejection
from mirror_engine.landing_zone.states import (
    Behind,
    Blocked,
    CaughtUp,
    Empty,
    Halted,
    Loading,
    TableState,
    Unconfigured,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from mirror_engine.config import Config
    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.recovery import DeltaFolders
    from mirror_engine.landing_zone.detection import Detection
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import LandedFile, TableListing, ZoneListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress

STICKY_CODES = frozenset({"ME025", "ME028", "ME029", "ME071"})  # reported once, true for good
FAILED_AFTER_SECONDS = 14 * 86_400.0  # LZ-7.1


@dataclass(frozen=True)
class Circumstances:
    """What a plan depends on, besides the table folder and its progress.

    Attributes:
        config: all options.
        now: seconds since 1970.
        refusal: why the zone has no room for this table (ME004, ME007 under strict); None mostly.
        moved: whether a new folder identity means a copied ROOT, not a recreated folder.
    """

    config: Config
    now: float
    refusal: Diagnostic | None = None
    moved: bool = False


@dataclass(frozen=True)
class _Draft:
    """A plan in the making: a table folder, its progress, and the steps and diagnostics so far."""

    listing: TableListing
    progress: Progress | None
    circumstances: Circumstances
    steps: tuple[Step, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def table(self) -> TableName:
        return self.listing.name

    @property
    def is_known(self) -> bool:
        return self.progress is not None and self.progress.configured_at > 0

    @property
    def pending(self) -> dict[str, str]:
        applied = self.progress.applied if self.progress else {}
        return {file.path: file.etag for file in self.listing.files if file.path not in applied}

    def file(self, path: str) -> LandedFile | None:
        return next((file for file in self.listing.files if file.path == path), None)

    def with_diagnostics(self, *diagnostics: Diagnostic) -> _Draft:
        return replace(self, diagnostics=(*self.diagnostics, *diagnostics))


def plan_missing(table: TableName, progress: Progress, circumstances: Circumstances) -> Plan:
    """Plan a known table whose folder is missing (LZ-7.2, LZ-7.4)."""
    missing = diagnose("ME065", table.folder)
    since = circumstances.now if progress.missing_since is None else progress.missing_since
    if circumstances.now - since >= circumstances.config.drop_delay_seconds:
        return Plan(table, CaughtUp(), (DropTable(missing),), diagnostics=(missing,))
    return Plan(table, CaughtUp(), (MarkFolderMissing(since),) if progress.missing_since is None else ())


def plan(listing: TableListing, progress: Progress | None, circumstances: Circumstances) -> Plan:
    """Plan a table whose folder is listed.

    Args:
        listing: the folder as the poller saw it.
        progress: how far it is; None for a new folder.
        circumstances: what else the plan depends on.
    """
    if circumstances.refusal:
        refused = Halted(circumstances.refusal, len(listing.files))
        return Plan(listing.name, refused, diagnostics=(circumstances.refusal,))
    draft = _with_generation(_Draft(listing, progress, circumstances, (), listing.diagnostics))
    match listing.metadata:
        case MetadataUsable() as usable:
            return _configured(draft.with_diagnostics(*usable.diagnostics), usable.metadata)
        case MetadataUnusable() as unusable:
            return _without_metadata(
                draft.with_diagnostics(*unusable.diagnostics[1:]), unusable.diagnostics[0], unusable.etag
            )
        case MetadataAbsent():
            if circumstances.config.missing_metadata == "insert-only" and not _was_described(draft):
                return _configured(draft, Metadata())
            folder = draft.table.folder
            if draft.is_known:
                return _without_metadata(draft, diagnose("ME009", f"{folder}/{METADATA_FILE}"), "")
            return _without_metadata(draft, diagnose("ME008", folder, count=len(listing.files)), "")


def _with_generation(draft: _Draft) -> _Draft:
    """Add the steps after which the progress is that of the folder's present generation (LZ-7.3)."""
    start = StartGeneration(draft.listing.identity)
    if draft.progress is None:
        return replace(draft, steps=(start,))
    if draft.progress.identity == draft.listing.identity:
        return draft
    if draft.circumstances.moved:
        moved = diagnose("ME076", draft.table.folder)
        learned = with_identity(draft.progress, draft.listing)
        return replace(draft, progress=learned, steps=(UpdateFolderIdentity(draft.listing.identity),)).with_diagnostics(
            moved
        )
    if not draft.is_known:
        return replace(draft, progress=None, steps=(start,))
    rebuilt = diagnose("ME066", draft.table.folder, count=len(draft.listing.files))
    return replace(draft, progress=None, steps=(DropTable(rebuilt), start)).with_diagnostics(rebuilt)


def with_identity(progress: Progress, listing: TableListing) -> Progress:
    """Return the progress of a folder that got a new identity, with the identities of its files."""
    present = {file.path: file for file in listing.files}
    applied = {
        path: replace(file, etag=present[path].etag) if path in present else file
        for path, file in progress.applied.items()
    }
    rejection = progress.rejection
    if rejection and rejection.path in present:
        rejection = replace(rejection, identity=present[rejection.path].identity, etag=present[rejection.path].etag)
    return replace(progress, identity=listing.identity, applied=applied, pending_etags={}, rejection=rejection)


def _without_metadata(draft: _Draft, fault: Diagnostic, etag: str) -> Plan:
    """Plan a folder whose metadata is absent or unusable (LZ-2.3, LZ-2.5, LZ-2.6)."""
    files = len(draft.listing.files)
    if not draft.is_known:
        return _planned(draft.with_diagnostics(fault), Unconfigured(fault, files), None)
    return _planned(draft.with_diagnostics(fault), Halted(fault, files), _metadata_rejection(draft, fault, etag))


def _configured(draft: _Draft, metadata: Metadata) -> Plan:
    """Plan a folder with usable metadata."""
    config = draft.circumstances.config
    change = forbidden_change(draft.table, draft.progress, metadata)
    if change:
        refused = Halted(change, len(draft.pending))
        return _planned(draft.with_diagnostics(change), refused, _metadata_rejection(draft, change, ""))
    detection = detect(
        draft.table, draft.listing.files, metadata, draft.progress, config.first_file, strict=config.strict
    )
    draft = draft.with_diagnostics(*detection.diagnostics, *_overwritten_files(draft))
    rejection, notes = _current_rejection(draft)
    draft = draft.with_diagnostics(*notes)
    error = rejection.diagnostic if rejection else _first_error(draft.diagnostics)
    if error:
        pending = len(detection.ready) + len(detection.later)
        work = () if rejection else _before(error, draft, ApplyBatch(detection.ready, metadata))
        return _planned(draft, Halted(error, pending), rejection or _rejection_of(draft, error), detection, work)
    return _readable(draft, metadata, detection)


def _readable(draft: _Draft, metadata: Metadata, detection: Detection) -> Plan:
    """Plan a table that is not halted."""
    if detection.ready:
        count = len(detection.ready)
        state: TableState = Behind(count) if draft.progress and draft.progress.has_table else Loading(count)
        return _planned(draft, state, None, detection, (ApplyBatch(detection.ready, metadata),))
    if detection.missing_file:
        return _planned(draft, Blocked(detection.missing_file, len(detection.later)), None, detection)
    if draft.progress and draft.progress.has_table:
        return _planned(draft, CaughtUp(), None, detection)
    return _without_data(draft, detection)


def _without_data(draft: _Draft, detection: Detection) -> Plan:
    """Plan a table without data: in Fabric `Snapshotting`, after 14 days `Failed` (LZ-7.1)."""
    since = draft.progress.configured_at if draft.progress and draft.progress.configured_at else draft.circumstances.now
    if draft.circumstances.now - since < FAILED_AFTER_SECONDS:
        note = diagnose("ME067", draft.table.folder, date=date_of(since + FAILED_AFTER_SECONDS))
        return _planned(draft.with_diagnostics(note), Empty(expired=False), None, detection)
    days = int((draft.circumstances.now - since) // 86_400)
    note = diagnose("ME068", draft.table.folder, time=f"{days} days")
    return _planned(draft.with_diagnostics(note), Empty(expired=True), None, detection)


def date_of(seconds: float) -> str:
    """The UTC date of a time in seconds since 1970, as ISO 8601 writes it."""
    return datetime.fromtimestamp(seconds, tz=timezone.utc).date().isoformat()


def _overwritten_files(draft: _Draft) -> Iterable[Diagnostic]:
    """Report pending files whose content changed since an earlier listing (LZ-3.13, ME071)."""
    if not draft.progress:
        return
    rejection = draft.progress.rejection
    for file in draft.listing.files:
        before = draft.progress.pending_etags.get(file.path, file.etag)
        if before == file.etag or (rejection and rejection.path == file.path):
            continue
        code = "ME071" if file.has_grown_since(before) else "ME025"
        yield diagnose(code, f"{draft.table.folder}/{file.path}", strict=draft.circumstances.config.strict)


def _current_rejection(draft: _Draft) -> tuple[Rejection | None, tuple[Diagnostic, ...]]:
    """Return the rejection of a file if it still holds (LZ-3.11), and its diagnostics."""
    known = draft.progress.rejection if draft.progress else None
    if not known or known.path == METADATA_FILE:
        return None, ()
    file = draft.file(known.path)
    if not file or file.identity != known.identity:
        return None, ()
    if file.etag == known.etag:
        return known, (known.diagnostic,)
    return known, (known.diagnostic, diagnose("ME027", f"{draft.table.folder}/{known.path}"))


def _metadata_rejection(draft: _Draft, fault: Diagnostic, etag: str) -> Rejection:
    """Return the rejection for unusable metadata; that of a file continues to hold (LZ-3.11)."""
    current, _ = _current_rejection(draft)
    return current or Rejection(fault, METADATA_FILE, "", etag)


def _first_error(diagnostics: Iterable[Diagnostic]) -> Diagnostic | None:
    return next((diagnostic for diagnostic in diagnostics if diagnostic.severity is Severity.ERROR), None)


def _before(refused: Diagnostic, draft: _Draft, batch: ApplyBatch) -> tuple[Step, ...]:
    """Return the step for files before one that its listing rejects, which only `strict` does (LZ-4.17)."""
    places = [f"{draft.table.folder}/{file.path}" for file in batch.files]
    before = batch.files[: places.index(refused.path)] if refused.path in places else ()
    return (replace(batch, files=before),) if before else ()


def _rejection_of(draft: _Draft, refused: Diagnostic) -> Rejection:
    """Return the rejection of a file that is wrong by its listing (`strict`); it ends when the file changes."""
    path = refused.path.removeprefix(f"{draft.table.folder}/")
    present = draft.file(path)
    return Rejection(refused, path, present.identity if present else "", present.etag if present else "")


def _planned(
    draft: _Draft,
    state: TableState,
    rejection: Rejection | None,
    detection: Detection | None = None,
    work: tuple[Step, ...] = (),
) -> Plan:
    """Return the plan, with a step that records what changed about the folder."""
    record = _folder_state(draft, rejection, is_configured=not isinstance(state, Unconfigured))
    return Plan(draft.table, state, (*draft.steps, *record, *work), detection, draft.diagnostics)


def _folder_state(draft: _Draft, rejection: Rejection | None, *, is_configured: bool) -> tuple[Step, ...]:
    """Return a step that records what changed about the folder; none where nothing did."""
    known = draft.progress
    recorded = known.diagnostics if known else {}
    new = tuple(
        diagnostic for diagnostic in draft.diagnostics if diagnostic.code in STICKY_CODES and diagnostic not in recorded
    )
    is_recorded = (
        known is not None
        and (draft.is_known or not is_configured)
        and known.missing_since is None
        and known.rejection == rejection
        and known.pending_etags == draft.pending
    )
    return () if is_recorded and not new else (RecordFolderState(is_configured, draft.pending, rejection, new),)


def _was_described(draft: _Draft) -> bool:
    """Whether files were applied under metadata with a key or columns."""
    known = draft.progress
    return known is not None and bool(known.key_columns or known.declared_columns)


@dataclass(frozen=True)
class MirrorSnapshot:
    """Read-only view of a mirror: landing zone, progress and plans.

    Attributes:
        context: storage, tables, and a copy of the ledger that is reconciled with the Delta logs.
        zone: the listing.
        plans: per table.
    """

    context: EngineContext
    zone: ZoneListing
    plans: Mapping[TableName, Plan]


class ZonePlanner:
    """Plans all tables of a listing; reads the landing zone and the tables, changes nothing.

    Args:
        context: storage, tables, ledger and options.
        folders: the folders of Delta tables, with those of other programs and damaged ones.
        zone: the listing.

    Raises:
        StorageUnavailable: ROOT cannot be listed.
    """

    def __init__(self, context: EngineContext, folders: DeltaFolders, zone: ZoneListing) -> None:
        self._folders = folders
        self._context = context
        self._zone = zone
        self.root = RootIdentityCheck.at(context, zone)

    def plans(self, except_for: Collection[TableName] = ()) -> dict[TableName, Plan]:
        """Return the plan of every table there is or was.

        Args:
            except_for: tables in progress; tables whose Delta folder overlaps one of theirs are left out, too.

        Raises:
            StorageUnavailable: a folder's content could not be read.
        """
        context, names = self._context, [listing.name for listing in self._zone.tables]
        known = context.ledger.tables()
        refusals = ownership_conflicts(context, self._folders.foreign, names)
        planned = {*known, *names} - overlapping_tables(context, {*known, *names}, except_for)
        plans = {
            listing.name: self._plan(listing, refusals.get(listing.name))
            for listing in self._zone.tables
            if listing.name in planned
        }
        circumstances = Circumstances(context.config, context.clock())
        plans |= {
            table: plan_missing(table, known[table], circumstances) for table in self._missing() if table in planned
        }
        return plans

    def _plan(self, listing: TableListing, refusal: Diagnostic | None) -> Plan:
        progress = self._context.ledger.progress(listing.name)
        moved = self.root.has_moved(listing, progress)
        is_new_generation = progress is not None and progress.identity != listing.identity and not moved
        diagnostic = None if is_new_generation or refusal else self._delta_table_diagnostic(listing.name, progress)
        if diagnostic and diagnostic.severity is Severity.ERROR:
            refusal = diagnostic
        planned = plan(listing, progress, Circumstances(self._context.config, self._context.clock(), refusal, moved))
        return (
            replace(planned, diagnostics=(*planned.diagnostics, diagnostic)) if diagnostic and not refusal else planned
        )

    def _delta_table_diagnostic(self, table: TableName, progress: Progress | None) -> Diagnostic | None:
        """Report a Delta table that cannot be read (ME081), or that another program changed (ME080)."""
        folder = self._context.delta_folder(table)
        try:
            if folder in self._folders.damaged:
                raise self._folders.damaged[folder]
            version = latest_external_change(self._context, table, progress) if progress else None
        except TableDamaged as error:
            return diagnose("ME081", table.folder, fault=error.fault, help=error.help.rstrip("."))
        except StorageUnavailable:
            return None  # the next batch fails for the same reason, and reports it
        return None if version is None else diagnose("ME080", table.folder, version=version)

    def _missing(self) -> Iterator[TableName]:
        """Known tables whose folders are certainly missing: an unlisted or unmounted zone proves nothing."""
        zone = self._zone
        if not zone.identity or self.root.is_mount_lost or "" in zone.unlisted:
            return
        listed = {listing.name for listing in zone.tables}
        for table in self._context.ledger.tables():
            schema_folder = f"{table.schema}{SCHEMA_SUFFIX}" if table.schema else ""
            if table not in listed and not zone.unlisted & {schema_folder, table.folder}:
                yield table


def ownership_conflicts(
    context: EngineContext, foreign: Collection[str], names: Sequence[TableName]
) -> dict[TableName, Diagnostic]:
    """Return the tables whose Delta folder is another's (ME004), or that exceed the limit under `strict` (ME007).

    Args:
        context: its ledger knows the owners.
        foreign: Delta folders that held a table of another program when the engine started.
        names: tables in the listing; known tables that are missing there own their folders, too.
    """
    known = context.ledger.tables()
    owners = {name for name, progress in known.items() if progress.has_table}
    refusals: dict[TableName, Diagnostic] = {}
    for second, owner in conflicts({*names} | owners, context.config.delta_default_schema).items():
        loser, winner = (owner, second) if second in owners and owner not in owners else (second, owner)
        refusals[loser] = diagnose("ME004", loser.folder, table=context.delta_folder(loser), folder=winner.folder)
    for name in names:
        folder = context.delta_folder(name)
        if folder in foreign and _is_foreign(context, folder):
            refusals.setdefault(name, diagnose("ME004", name.folder, table=folder, folder="another program"))
    if context.config.strict and len(names) > MAX_FABRIC_TABLES:
        first_seen = {name: progress.configured_at for name, progress in known.items() if progress.configured_at}
        for name in sorted(names, key=lambda name: (first_seen.get(name, math.inf), name))[MAX_FABRIC_TABLES:]:
            refusals.setdefault(name, diagnose("ME007", name.folder, strict=True, count=len(names)))
    return refusals


def overlapping_tables(
    context: EngineContext, names: Iterable[TableName], others: Collection[TableName]
) -> set[TableName]:
    """Return those of `names` whose Delta folder is that of one of `others`, inside it or around it (LZ-1.5)."""
    places = {context.delta_folder(name).casefold() for name in others}
    outer = {place.rpartition("/")[0] for place in places}
    overlapping = set()
    for name in names if others else ():
        place = context.delta_folder(name).casefold()
        if place in places or place in outer or place.rpartition("/")[0] in places:
            overlapping.add(name)
    return overlapping


def _is_foreign(context: EngineContext, folder: str) -> bool:
    """Whether a Delta table that was not ours when the engine started is still there."""
    try:
        state = context.writer.snapshot(folder)
    except TransientError:
        return True
    return state is not None and owner_of(context, folder, state) is None
