"""Decides the steps: pure, the same sight gives the same plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from mirror_engine.engine.ownership import around, changed_by_others, taken_places
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
from mirror_engine.engine.root_identity import RootIdentityCheck
from mirror_engine.errors import StorageUnavailable, TableDamaged
from mirror_engine.landing_zone.detection import detect
from mirror_engine.landing_zone.diagnostics import Diagnostic, Severity, diagnose
from mirror_engine.landing_zone.listing import MetadataAbsent, MetadataUnusable, MetadataUsable, TableListing
from mirror_engine.landing_zone.metadata import Metadata, forbidden_change
from mirror_engine.landing_zone.names import METADATA_FILE, SCHEMA_SUFFIX, TableName
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
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from mirror_engine.config import Config
    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.recovery import DeltaFolders
    from mirror_engine.landing_zone.detection import Detection
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import LandedFile, TableListing, ZoneListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress

PASSING = frozenset({"ME025", "ME028", "ME029", "ME071"})  # seen once, true for good
FAILED_AFTER_SECONDS = 14 * 86_400.0  # LZ-7.1


@dataclass(frozen=True)
class Circumstances:
    """What the planner must know beside the table folder and its progress.

    Attributes:
        config: all options.
        now: seconds since 1970.
        refusal: why the zone leaves no place for this table (ME004, ME007 under strict); None mostly.
        moved: whether a new folder identity means a copied ROOT, not a recreated folder.
    """

    config: Config
    now: float
    refusal: Diagnostic | None = None
    moved: bool = False


@dataclass(frozen=True)
class _Sight:
    """One table folder, with what is known of it, under way through the planner."""

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
        return self.progress is not None and self.progress.armed_at > 0

    @property
    def waiting(self) -> dict[str, str]:
        applied = self.progress.applied if self.progress else {}
        return {file.path: file.etag for file in self.listing.files if file.path not in applied}

    def file(self, path: str) -> LandedFile | None:
        return next((file for file in self.listing.files if file.path == path), None)

    def saying(self, *diagnostics: Diagnostic) -> _Sight:
        return replace(self, diagnostics=(*self.diagnostics, *diagnostics))


def plan_gone(table: TableName, progress: Progress, circumstances: Circumstances) -> Plan:
    """Plan for a known table whose folder is no longer there (LZ-7.2, LZ-7.4)."""
    gone = diagnose("ME065", table.folder)
    since = progress.gone_at or circumstances.now
    if circumstances.now - since >= circumstances.config.drop_delay_seconds:
        return Plan(table, CaughtUp(), (DropTable(gone),), diagnostics=(gone,))
    return Plan(table, CaughtUp(), () if progress.gone_at else (MarkFolderMissing(since),))


def plan(listing: TableListing, progress: Progress | None, circumstances: Circumstances) -> Plan:
    """Plan for a table folder that is there.

    Args:
        listing: the folder as the poller saw it.
        progress: what is known of it; None at first sight.
        circumstances: what else bears on it.
    """
    if circumstances.refusal:
        refused = Halted(circumstances.refusal, len(listing.files))
        return Plan(listing.name, refused, diagnostics=(circumstances.refusal,))
    sight = _in_its_generation(_Sight(listing, progress, circumstances, (), listing.diagnostics))
    match listing.metadata:
        case MetadataUsable() as usable:
            return _armed(sight.saying(*usable.diagnostics), usable.metadata)
        case MetadataUnusable() as unusable:
            return _without_metadata(sight.saying(*unusable.diagnostics[1:]), unusable.diagnostics[0], unusable.etag)
        case MetadataAbsent():
            if circumstances.config.missing_metadata == "insert-only" and not _has_been_described(sight):
                return _armed(sight, Metadata())
            folder = sight.table.folder
            if sight.is_known:
                return _without_metadata(sight, diagnose("ME009", f"{folder}/{METADATA_FILE}"), "")
            return _without_metadata(sight, diagnose("ME008", folder, count=len(listing.files)), "")


def _in_its_generation(sight: _Sight) -> _Sight:
    """The sight with the steps that make its progress that of the folder's present life (LZ-7.3)."""
    begin = StartGeneration(sight.listing.identity)
    if sight.progress is None:
        return replace(sight, steps=(begin,))
    if sight.progress.identity == sight.listing.identity:
        return sight
    if sight.circumstances.moved:
        moved = diagnose("ME076", sight.table.folder)
        learned = with_identity(sight.progress, sight.listing)
        return replace(sight, progress=learned, steps=(UpdateFolderIdentity(sight.listing.identity),)).saying(moved)
    if not sight.is_known:
        return replace(sight, progress=None, steps=(begin,))
    rebuilt = diagnose("ME066", sight.table.folder, count=len(sight.listing.files))
    return replace(sight, progress=None, steps=(DropTable(rebuilt), begin)).saying(rebuilt)


def with_identity(progress: Progress, listing: TableListing) -> Progress:
    """The progress of a folder that is the same under a new identity: its applied files are known anew, too."""
    lying = {file.path: file for file in listing.files}
    applied = {
        path: replace(file, etag=lying[path].etag) if path in lying else file for path, file in progress.applied.items()
    }
    latch = progress.latch
    if latch and latch.path in lying:
        latch = replace(latch, identity=lying[latch.path].identity, etag=lying[latch.path].etag)
    return replace(progress, identity=listing.identity, applied=applied, waiting={}, latch=latch)


def _without_metadata(sight: _Sight, fault: Diagnostic, etag: str) -> Plan:
    """A folder whose metadata is absent or unusable (LZ-2.3, LZ-2.5, LZ-2.6)."""
    files = len(sight.listing.files)
    if not sight.is_known:
        return _planned(sight.saying(fault), Unconfigured(fault, files), None)
    return _planned(sight.saying(fault), Halted(fault, files), _metadata_latch(sight, fault, etag))


def _armed(sight: _Sight, metadata: Metadata) -> Plan:
    """A folder with usable metadata: a table."""
    config = sight.circumstances.config
    change = forbidden_change(sight.table, sight.progress, metadata)
    if change:
        refused = Halted(change, len(sight.waiting))
        return _planned(sight.saying(change), refused, _metadata_latch(sight, change, ""))
    detection = detect(
        sight.table, sight.listing.files, metadata, sight.progress, config.first_file, strict=config.strict
    )
    sight = sight.saying(*detection.diagnostics, *_overwritten(sight))
    latch, notes = _standing_latch(sight)
    sight = sight.saying(*notes)
    error = latch.diagnostic if latch else _first_error(sight.diagnostics)
    if error:
        waiting = len(detection.ready) + len(detection.later)
        work = () if latch else _before(error, sight, ApplyBatch(detection.ready, metadata))
        return _planned(sight, Halted(error, waiting), latch or _latch_at(sight, error), detection, work)
    return _readable(sight, metadata, detection)


def _readable(sight: _Sight, metadata: Metadata, detection: Detection) -> Plan:
    """A table that nothing keeps from reading on."""
    if detection.ready:
        count = len(detection.ready)
        state: TableState = Behind(count) if sight.progress and sight.progress.has_table else Loading(count)
        return _planned(sight, state, None, detection, (ApplyBatch(detection.ready, metadata),))
    if detection.waits_for:
        return _planned(sight, Blocked(detection.waits_for, len(detection.later)), None, detection)
    if sight.progress and sight.progress.has_table:
        return _planned(sight, CaughtUp(), None, detection)
    return _without_data(sight, detection)


def _without_data(sight: _Sight, detection: Detection) -> Plan:
    """Metadata without data: `Snapshotting`, after 14 days `Failed` (LZ-7.1)."""
    since = sight.progress.armed_at if sight.progress and sight.progress.armed_at else sight.circumstances.now
    if sight.circumstances.now - since < FAILED_AFTER_SECONDS:
        note = diagnose("ME067", sight.table.folder, date=date_of(since + FAILED_AFTER_SECONDS))
        return _planned(sight.saying(note), Empty(expired=False), None, detection)
    days = int((sight.circumstances.now - since) // 86_400)
    note = diagnose("ME068", sight.table.folder, time=f"{days} days")
    return _planned(sight.saying(note), Empty(expired=True), None, detection)


def date_of(seconds: float) -> str:
    """The UTC date of a time in seconds since 1970, as ISO 8601 writes it."""
    return datetime.fromtimestamp(seconds, tz=timezone.utc).date().isoformat()


def _overwritten(sight: _Sight) -> Iterable[Diagnostic]:
    """Waiting files whose content is another than the poller saw before (LZ-3.13, ME071)."""
    if not sight.progress:
        return
    latch = sight.progress.latch
    for file in sight.listing.files:
        before = sight.progress.waiting.get(file.path, file.etag)
        if before == file.etag or (latch and latch.path == file.path):
            continue
        code = "ME071" if file.has_grown_since(before) else "ME025"
        yield diagnose(code, f"{sight.table.folder}/{file.path}", strict=sight.circumstances.config.strict)


def _standing_latch(sight: _Sight) -> tuple[Rejection | None, tuple[Diagnostic, ...]]:
    """The file latch if it still holds (LZ-3.11), and what to say beside."""
    latch = sight.progress.latch if sight.progress else None
    if not latch or latch.path == METADATA_FILE:
        return None, ()
    lying = sight.file(latch.path)
    if not lying or lying.identity != latch.identity:
        return None, ()
    if lying.etag == latch.etag:
        return latch, (latch.diagnostic,)
    return latch, (latch.diagnostic, diagnose("ME027", f"{sight.table.folder}/{latch.path}"))


def _metadata_latch(sight: _Sight, fault: Diagnostic, etag: str) -> Rejection:
    """What to remember of unusable metadata: a file's latch stands on beneath it (LZ-3.11)."""
    standing, _ = _standing_latch(sight)
    return standing or Rejection(fault, METADATA_FILE, "", etag)


def _first_error(diagnostics: Iterable[Diagnostic]) -> Diagnostic | None:
    return next((found for found in diagnostics if found.severity is Severity.ERROR), None)


def _before(refused: Diagnostic, sight: _Sight, batch: ApplyBatch) -> tuple[Step, ...]:
    """The files that come before one refused at sight, which is only done under `strict` (LZ-4.17)."""
    places = [f"{sight.table.folder}/{file.path}" for file in batch.files]
    before = batch.files[: places.index(refused.path)] if refused.path in places else ()
    return (replace(batch, files=before),) if before else ()


def _latch_at(sight: _Sight, refused: Diagnostic) -> Rejection:
    """A latch for what is wrong with a sighted file under `strict`; it is judged anew when the file changes."""
    path = refused.path.removeprefix(f"{sight.table.folder}/")
    lying = sight.file(path)
    return Rejection(refused, path, lying.identity if lying else "", lying.etag if lying else "")


def _planned(
    sight: _Sight,
    state: TableState,
    latch: Rejection | None,
    detection: Detection | None = None,
    work: tuple[Step, ...] = (),
) -> Plan:
    """The plan, with a step to remember what has changed about the folder."""
    remember = _to_remember(sight, latch, armed=not isinstance(state, Unconfigured))
    return Plan(sight.table, state, (*sight.steps, *remember, *work), detection, sight.diagnostics)


def _to_remember(sight: _Sight, latch: Rejection | None, *, armed: bool) -> tuple[Step, ...]:
    """What has changed about the folder; no step where nothing has."""
    known = sight.progress
    said = tuple(found for found in sight.diagnostics if found.code in PASSING and found not in _kept(known))
    is_remembered = (
        known is not None
        and (sight.is_known or not armed)
        and not known.gone_at
        and known.latch == latch
        and known.waiting == sight.waiting
    )
    return () if is_remembered and not said else (RecordFolderState(armed, sight.waiting, latch, said),)


def _kept(progress: Progress | None) -> Mapping[Diagnostic, int]:
    return progress.diagnostics if progress else {}


def _has_been_described(sight: _Sight) -> bool:
    """Whether files were applied under metadata that said more than none at all says."""
    known = sight.progress
    return known is not None and bool(known.key_columns or known.declared_columns)


@dataclass(frozen=True)
class MirrorSnapshot:
    """Consistent, read-only view of a mirror: listing, progress and plan of every table.

    Attributes:
        context: both, and a copy of the ledger that agrees with the Delta logs.
        zone: what the poller saw.
        plans: per table.
    """

    context: EngineContext
    zone: ZoneListing
    plans: Mapping[TableName, Plan]


class ZonePlanner:
    """Plans all tables of a listing; reads the landing zone and the tables, changes nothing.

    Args:
        context: storage, tables, ledger and options.
        found: Delta tables of other programs, and damaged ones, as `recover` found them.
        zone: the listing.

    Raises:
        StorageUnavailable: ROOT cannot be listed.
    """

    def __init__(self, context: EngineContext, found: DeltaFolders, zone: ZoneListing) -> None:
        self._found = found
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
        refusals = taken_places(context, self._found.foreign, names)
        planned = {*known, *names} - around(context, {*known, *names}, except_for)
        plans = {
            listing.name: self._plan(listing, refusals.get(listing.name))
            for listing in self._zone.tables
            if listing.name in planned
        }
        circumstances = Circumstances(context.config, context.clock())
        plans |= {table: plan_gone(table, known[table], circumstances) for table in self._gone() if table in planned}
        return plans

    def _plan(self, listing: TableListing, refusal: Diagnostic | None) -> Plan:
        progress = self._context.ledger.progress(listing.name)
        moved = self.root.has_moved(listing, progress)
        begins_anew = progress is not None and progress.identity != listing.identity and not moved
        said = None if begins_anew or refusal else self._said_of_its_delta_table(listing.name, progress)
        if said and said.severity is Severity.ERROR:
            refusal = said
        made = plan(listing, progress, Circumstances(self._context.config, self._context.clock(), refusal, moved))
        return replace(made, diagnostics=(*made.diagnostics, said)) if said and not refusal else made

    def _said_of_its_delta_table(self, table: TableName, progress: Progress | None) -> Diagnostic | None:
        """That it cannot be read (ME081), or that its rows are not ours alone (ME080)."""
        folder = self._context.delta_folder(table)
        try:
            if folder in self._found.damaged:
                raise self._found.damaged[folder]
            version = changed_by_others(self._context, table, progress) if progress else -1
        except TableDamaged as error:
            return diagnose("ME081", table.folder, fault=error.fault, help=error.help.rstrip("."))
        except StorageUnavailable:
            return None  # who needs the table meets the same, and says so
        return diagnose("ME080", table.folder, version=version) if version >= 0 else None

    def _gone(self) -> Iterator[TableName]:
        """Known tables whose folders are surely gone: a zone that is away or could not be listed proves nothing."""
        zone = self._zone
        if not zone.identity or self.root.is_mount_lost or "" in zone.unlisted:
            return
        sighted = {listing.name for listing in zone.tables}
        for table in self._context.ledger.tables():
            schema_folder = f"{table.schema}{SCHEMA_SUFFIX}" if table.schema else ""
            if table not in sighted and not zone.unlisted & {schema_folder, table.folder}:
                yield table
