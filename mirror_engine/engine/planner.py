"""Plans: what is to be done for each table, and why not more. Equal listings and progress give equal plans."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from mirror_engine.engine.hidden import HiddenFolders
from mirror_engine.engine.ledger import ROOT_IDENTITY
from mirror_engine.engine.root_identity import FolderChange, RootIdentityCheck
from mirror_engine.errors import StorageUnavailable, TableDamaged
from mirror_engine.landing_zone.detection import detect
from mirror_engine.landing_zone.diagnostics import Diagnostic, Severity, Trait, diagnose, tally
from mirror_engine.landing_zone.listing import (
    MetadataAbsent,
    MetadataUnusable,
    MetadataUsable,
    TableListing,
    size_of,
    time_of,
)
from mirror_engine.landing_zone.metadata import Metadata, Strategy, forbidden_change
from mirror_engine.landing_zone.names import MAX_FABRIC_TABLES, METADATA_FILE, TableName, conflicts, seems_metadata
from mirror_engine.landing_zone.progress import Applied, FolderProgress, Progress, Rejection
from mirror_engine.landing_zone.states import (
    Behind,
    Blocked,
    CaughtUp,
    Deleted,
    Empty,
    Halted,
    Loading,
    TableState,
    Unconfigured,
    Unlisted,
)
from mirror_engine.storage.base import at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from mirror_engine.config import Config
    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.recovery import DeltaFolders
    from mirror_engine.events import DropReason
    from mirror_engine.landing_zone.detection import Detection
    from mirror_engine.landing_zone.listing import Entry, ZoneListing

REFUSED_COMMIT, EXTERNAL_CHANGE = "ME086", "ME080"
EMPTY_FILE = "ME023"
LOOK_SECONDS = 600.0  # in a store, where a look for commits of other programs is a request for each table
FAILED_AFTER_SECONDS = 14 * 86_400.0  # LZ-7.1
ARRIVAL_SECONDS = 60.0  # from a file's creation, with 0 bytes, to its content
WARNED_AFTER_SECONDS = 7 * 86_400.0  # without data (ME067): folders are created before their first files land


@dataclass(frozen=True)
class DropTable:
    """Drop the Delta table and its progress (LZ-7.2, LZ-7.3)."""

    diagnostic: Diagnostic
    reason: DropReason


@dataclass(frozen=True)
class RecordProgress:
    """Record progress, without any effect on the Delta table."""

    kind: Literal["start_generation", "update_folder_identity", "record_folder_state", "mark_folder_missing"]
    # of the generation `""` where that begins with this plan; a plan that differs in its times alone is the same
    progress: Progress = field(compare=False)
    applied: Applied = field(default_factory=Applied, compare=False)  # with changed etags
    # Etags of files that wait, where they changed; None of those that wait no longer
    pending: Mapping[str, str | None] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class ApplyBatch:
    """Apply change files, in order; the replayer divides them into commits."""

    files: tuple[Entry, ...]
    metadata: Metadata


Step = DropTable | RecordProgress | ApplyBatch


@dataclass(frozen=True)
class Plan:
    """What is to be done for one table, and its state."""

    table: TableName
    state: TableState  # before the steps
    steps: tuple[Step, ...] = ()
    detection: Detection | None = None  # how its files were classified; None where they were not
    diagnostics: tuple[Diagnostic, ...] = ()  # all that hold now, except those of applied files
    is_timed: bool = field(default=False, compare=False)  # whether time alone may change it
    # What a plan without steps was made of: it holds as long as that is the same; None for one that is made each time
    basis: tuple[TableListing, Progress | None, Diagnostic | None] | None = field(default=None, compare=False)
    is_unseen: bool = field(default=False, compare=False)  # whether its Delta table could not be looked at

    def records(self, kind: str) -> Iterator[Progress]:
        """What steps of a kind record."""
        return (step.progress for step in self.steps if isinstance(step, RecordProgress) and step.kind == kind)


@dataclass(frozen=True)
class Circumstances:
    """What a plan depends on, besides the table folder and its progress."""

    config: Config
    now: float  # seconds since 1970, of what waits from one run to the next
    lead: float = 0.0  # of `now` over the clock, which files and people have
    # Why the table is halted whatever its folder holds (ME004, ME007 under strict, ME081); None mostly
    halt: Diagnostic | None = None
    change: FolderChange = FolderChange.NONE  # of the folder; by its identity where that is not known
    is_lasting: bool = False  # whether the engine goes on: what may still be arriving is not reported yet
    lead_seconds: float = 0.0  # by which the clock was moved forward: files have times of before that


def plan_missing(table: TableName, progress: Progress, circumstances: Circumstances) -> Plan:
    """Plan a known table whose folder is missing (LZ-7.2, LZ-7.4)."""
    effect = "its Delta table will be dropped" if progress.has_table else "it has no Delta table yet"
    missing = diagnose("ME065", table.folder, effect=effect)
    known, now = progress.missing_since, circumstances.now
    since = now if known is None or known > now else known  # the clock may have been set back
    if now - since >= circumstances.config.drop_delay(table.folder):
        return Plan(table, Deleted(missing), (DropTable(missing, "deleted"),), diagnostics=(missing,))
    record = RecordProgress("mark_folder_missing", replace(progress, missing_since=since))
    return Plan(table, Deleted(missing), () if since == known else (record,), diagnostics=(missing,))


def plan_listed(
    listing: TableListing, progress: Progress | None, known: FolderProgress, circumstances: Circumstances
) -> Plan:
    """Plan a table whose folder is listed; `progress` is None for a new folder, `known` is the state of its files."""
    if circumstances.halt:
        halted = Halted(circumstances.halt, len(listing.files))
        steps: tuple[Step, ...] = ()
        if progress and circumstances.change is FolderChange.MOVED:  # else it seems recreated once the halt is over
            steps = (_moved(progress, known, listing)[0],)
        return Plan(listing.name, halted, steps, diagnostics=(circumstances.halt,))
    return _TablePlanner(listing, progress, known, circumstances).plan()


def with_identity(progress: Progress, known: FolderProgress, listing: TableListing) -> tuple[Progress, FolderProgress]:
    """Return the progress of a folder that got a new identity, with the identities of its files.

    Commits know the former ones: the next one says again what was applied.
    """
    present = {file.path: file for file in listing.files}
    applied = {
        path: replace(file, etag=present[path].etag) if file.etag else file for path, file in known.applied.items()
    }
    rejection = progress.rejection
    if rejection and rejection.path in present:
        rejection = replace(rejection, identity=present[rejection.path].identity, etag=present[rejection.path].etag)
    moved = replace(progress, identity=listing.identity, rejection=rejection, segments=None)
    return moved, replace(known, applied=applied, pending={})


def _moved(progress: Progress, known: FolderProgress, listing: TableListing) -> tuple[RecordProgress, FolderProgress]:
    """Return the step that records the new identity of a folder, and the identities of its files."""
    gone = dict.fromkeys(known.pending)
    moved, known = with_identity(progress, known, listing)
    return RecordProgress("update_folder_identity", moved, Applied(known.applied), gone), known


def attempt_of(listing: TableListing, etag: str) -> str:
    """The inputs of a refused commit; it is retried when they change."""
    return f"{etag} {getattr(listing.metadata, 'etag', '')}"


class _TablePlanner:
    """A plan in the making: a table folder, its progress, and the steps and diagnostics so far."""

    def __init__(
        self, listing: TableListing, progress: Progress | None, known: FolderProgress, circumstances: Circumstances
    ) -> None:
        self._table = listing.name
        self._folder = listing.name.folder
        self._listing = listing
        self._config = circumstances.config
        self._now, self._lead = circumstances.now, circumstances.lead
        self._is_lasting = circumstances.is_lasting
        self._now_of_files = circumstances.now - circumstances.lead - circumstances.lead_seconds
        self._files = {file.path: file for file in listing.files}
        self._diagnostics = [*listing.diagnostics]
        self._steps: list[Step] = []
        self._is_timed = False
        self._known = known
        # of a table that others removed, ME069 stays
        lost = progress.diagnostics if progress and not progress.identity else {}
        self._begun = Progress("", listing.identity, diagnostics=lost)
        self._progress = self._of_this_generation(progress, circumstances.change)
        self._pending = {path: file.etag for path, file in self._files.items() if path not in self._known.applied}
        self._is_known = self._progress is not None and self._progress.configured_at > 0
        self._has_table = self._progress is not None and self._progress.has_table
        self._has_files = self._has_table or bool(self._known.marks)  # without a type there is no table yet (LZ-5.13)

    def _of_this_generation(self, progress: Progress | None, change: FolderChange) -> Progress | None:
        """Plan the steps after which the progress is that of the folder's present generation (LZ-7.3)."""
        identity = self._listing.identity
        if progress and progress.identity == identity and change is FolderChange.NONE:
            return progress
        if progress and change is FolderChange.MOVED:
            if progress.identity != identity:
                self._diagnostics.append(diagnose("ME076", self._folder))
            step, self._known = _moved(progress, self._known, self._listing)
            self._steps.append(step)
            return step.progress
        if progress and progress.configured_at > 0:
            rebuilt = diagnose("ME066", self._folder, count=len(self._files))
            self._steps.append(DropTable(rebuilt, "recreated"))
            self._diagnostics.append(rebuilt)
        self._steps.append(RecordProgress("start_generation", self._begun))
        self._known = FolderProgress()
        return None

    def plan(self) -> Plan:
        match self._listing.metadata:
            case MetadataUsable(_, metadata, diagnostics):
                self._diagnostics += diagnostics
                return self._configured(metadata)
            case MetadataUnusable(etag) if self._may_be_arriving(size_of(etag), time_of(etag)):  # all stays as it is
                rejection, notes = self._current_rejection()
                self._diagnostics += notes
                missing = Unconfigured(self._missing_metadata(), len(self._files))
                halted = Halted(rejection.diagnostic, len(self._pending)) if rejection else Behind(len(self._pending))
                return self._planned(halted if self._is_known else missing, rejection)
            case MetadataUnusable(etag, diagnostics):
                return self._without_metadata(diagnostics[0], etag, diagnostics[1:])
            case MetadataAbsent():
                known = self._progress
                was_described = known is not None and bool(known.key_columns or known.declared_columns)
                if self._config.missing_metadata == "insert-only" and not was_described:
                    return self._configured(Metadata())
                if self._is_known:
                    return self._without_metadata(diagnose("ME009", f"{self._folder}/{METADATA_FILE}"), "")
                return self._without_metadata(self._missing_metadata(), "")

    def _missing_metadata(self) -> Diagnostic:
        """ME008 for a folder that never had metadata, with the file that was probably meant as metadata (LZ-2.3)."""
        listed = [*self._files, *(found.path.rpartition("/")[2] for found in self._listing.diagnostics)]
        misspelled = next(filter(seems_metadata, listed), "")
        help = f"rename `{misspelled}` to `{METADATA_FILE}`" if misspelled else ""
        count = len(self._files.keys() - {misspelled})
        help = help or f"add `{METADATA_FILE}`; it may arrive after the files"
        return diagnose("ME008", self._folder, count=count, help=help, misspelled=misspelled)

    def _may_be_arriving(self, size: int, modified_ns: int) -> bool:
        """Whether a file is empty and was just created, for an engine that goes on (LZ-2.6, LZ-3.10)."""
        return self._is_lasting and not size and self._is_recent(modified_ns)

    def _is_recent(self, modified_ns: int) -> bool:
        """Whether a file was written less than a minute ago; a store's clock may be ahead."""
        age = self._now_of_files - modified_ns / 1e9
        self._is_timed |= age < ARRIVAL_SECONDS
        return abs(age) < ARRIVAL_SECONDS

    def _without_metadata(self, fault: Diagnostic, etag: str, others: Sequence[Diagnostic] = ()) -> Plan:
        """Plan a folder whose metadata is absent or unusable (LZ-2.3, LZ-2.5, LZ-2.6)."""
        may_follow = (
            self._is_lasting
            and not self._is_known
            and all(self._is_recent(file.modified_ns) for file in self._files.values())
        )
        if not may_follow:  # publishers begin with an empty folder, some with data
            self._diagnostics.append(fault)
        self._diagnostics += others
        if not self._is_known:
            return self._planned(Unconfigured(fault, len(self._files)))
        return self._planned(Halted(fault, len(self._files)), self._metadata_rejection(fault, etag))

    def _configured(self, metadata: Metadata) -> Plan:
        """Plan a folder with usable metadata."""
        change = forbidden_change(self._table, self._progress, metadata)
        if change:
            self._diagnostics.append(change)
            return self._planned(Halted(change, len(self._pending)), self._metadata_rejection(change, ""))
        first_file, strict = self._config.first_file, self._config.strict
        detection = detect(self._table, self._listing.files, metadata, self._known, first_file, strict=strict)
        self._diagnostics += [*detection.diagnostics, *self._overwritten_files()]
        rejection, notes = self._current_rejection()
        self._diagnostics += notes
        error = rejection.diagnostic if rejection else next(filter(is_error, self._diagnostics), None)
        batch = ApplyBatch(self._arrived(detection.ready, metadata), metadata)
        if error:
            state = Halted(error, len(detection.ready) + len(detection.later))
            work = () if rejection else self._before(error, batch)
            path = error.path.removeprefix(f"{self._folder}/")
            file = self._files.get(path)  # one that is wrong by its listing (`strict`) is rejected until it changes
            found = Rejection(error, path, file.identity if file else "", file.etag if file else "")
            return self._planned(state, rejection or found, detection, work)
        if detection.ready:
            count = len(detection.ready)
            work = (batch,) if batch.files else ()
            return self._planned(Behind(count) if self._has_table else Loading(count), None, detection, work)
        if detection.missing_file:
            return self._planned(Blocked(detection.missing_file, len(detection.later)), None, detection)
        return self._planned(CaughtUp() if self._has_files else self._empty(), None, detection)

    def _arrived(self, ready: Sequence[Entry], metadata: Metadata) -> tuple[Entry, ...]:
        """Return the readable files, without those that may still be arriving and files ordered after them."""
        waiting: set[str] = set()  # partitions
        arrived = []
        for file in ready:
            if self._may_be_arriving(file.size, file.modified_ns):
                waiting.add(file.partition)
            elif file.partition not in waiting or metadata.strategy is not Strategy.SEQUENTIAL:
                arrived.append(file)
        return tuple(arrived)

    def _empty(self) -> Empty:
        """State of a table without data: in Fabric `Snapshotting`, after 14 days `Failed` (LZ-7.1)."""
        self._is_timed = True
        since = (self._progress.configured_at if self._progress else 0) or self._now
        expired = self._now - since >= FAILED_AFTER_SECONDS
        if expired:
            self._diagnostics.append(diagnose("ME068", self._folder, time=f"{int((self._now - since) // 86_400)} days"))
        elif self._now - since >= WARNED_AFTER_SECONDS:
            failed_at = datetime.fromtimestamp(since + FAILED_AFTER_SECONDS - self._lead, tz=UTC)
            self._diagnostics.append(diagnose("ME067", self._folder, date=failed_at.date().isoformat()))
        return Empty(expired=expired)

    def _overwritten_files(self) -> Iterable[Diagnostic]:
        """Report pending files whose content changed since an earlier listing (LZ-3.13, ME071)."""
        known, progress = self._known, self._progress
        for file in self._listing.files:
            before = known.pending.get(file.path)
            is_lost = file.replaced and before is None and file.path not in known.applied
            is_changed = before and before != file.etag and size_of(before)  # an empty file has nothing to lose
            is_rejected = progress and progress.rejection and progress.rejection.path == file.path
            if (is_lost or is_changed) and not is_rejected:
                code = "ME071" if before and file.has_grown_since(before) else "ME025"
                yield diagnose(code, f"{self._folder}/{file.path}", strict=self._config.strict)

    def _current_rejection(self) -> tuple[Rejection | None, tuple[Diagnostic, ...]]:
        """Return the rejection of a file if it still holds (LZ-3.11), and its diagnostics."""
        known = self._progress.rejection if self._progress else None
        file = self._files.get(known.path) if known else None
        if not known or not file or not file.is_file_of(known.identity):
            return None, ()
        is_flushed = known.diagnostic.code == EMPTY_FILE and file.identity != known.identity
        if is_flushed and file.size:  # nothing was read of it: its upload took more than a minute
            return None, ()
        known = replace(known, identity=file.identity)
        if known.diagnostic.code == REFUSED_COMMIT:  # another file or other metadata may do (LZ-4.20)
            return (known, (known.diagnostic,)) if known.etag == attempt_of(self._listing, file.etag) else (None, ())
        if file.etag == known.etag:
            return known, (known.diagnostic,)
        return known, (known.diagnostic, diagnose("ME027", f"{self._folder}/{known.path}"))

    def _metadata_rejection(self, fault: Diagnostic, etag: str) -> Rejection:
        """Return the rejection for unusable metadata; that of a file continues to hold (LZ-3.11)."""
        current, _ = self._current_rejection()
        return current or Rejection(fault, METADATA_FILE, "", etag)

    def _before(self, error: Diagnostic, batch: ApplyBatch) -> tuple[Step, ...]:
        """Return the step for files before one that its listing rejects, which only `strict` does (LZ-4.17)."""
        places = [f"{self._folder}/{file.path}" for file in batch.files]
        before = batch.files[: places.index(error.path)] if error.path in places else ()
        return (replace(batch, files=before),) if before else ()

    def _planned(
        self,
        state: TableState,
        rejection: Rejection | None = None,
        detection: Detection | None = None,
        work: tuple[Step, ...] = (),
    ) -> Plan:
        """Return the plan, with a step that records what changed about the folder."""
        known = self._progress or self._begun
        sticky = [each for each in self._diagnostics if each.has(Trait.STICKY) and each not in known.diagnostics]
        noted = replace(
            known,
            configured_at=known.configured_at or (0.0 if isinstance(state, Unconfigured) else self._now),
            rejection=rejection,
            missing_since=None,
            diagnostics=tally(known.diagnostics, sticky),
        )
        before = self._known.pending
        gone: dict[str, str | None] = dict.fromkeys(before.keys() - self._pending.keys())
        pending = gone | {path: etag for path, etag in self._pending.items() if before.get(path) != etag}
        if pending or noted != self._progress:
            self._steps.append(RecordProgress("record_folder_state", noted, pending=pending))
        steps, diagnostics = (*self._steps, *work), tuple(self._diagnostics)
        return Plan(self._table, state, steps, detection, diagnostics, self._is_timed)


def keeps_archive(plan: Plan, progress: Progress) -> bool:
    """Whether a help may advise a rebuild; until that is over, archived files do not expire (LZ-8.3)."""
    is_advised = any(found.has(Trait.REBUILD) for found in (*plan.diagnostics, *progress.diagnostics))
    is_halted = isinstance(plan.state, Halted) or progress.rejection is not None
    return is_halted or plan.is_unseen or is_advised


def is_error(diagnostic: Diagnostic) -> bool:
    """Whether a diagnostic halts its table."""
    return diagnostic.severity is Severity.ERROR


class ZonePlanner:
    """Plans all tables of a listing; reads the landing zone and the tables, or raises `StorageUnavailable`.

    `before`: gives a table's last plan; that of one that is idle, blocked or halted is not made again.

    Attributes:
        zone: the listing; once tables are planned, with the folders that may be hidden among the unlisted ones.
        root: the identity of ROOT in it.
        damaged: what was found while planning, by Delta folder.
    """

    def __init__(
        self,
        context: EngineContext,
        folders: DeltaFolders,
        zone: ZoneListing,
        before: Callable[[TableName], Plan | None] = lambda _: None,
    ) -> None:
        self._before = before
        self._folders = folders
        self._context = context
        self.zone = zone
        self.damaged: dict[str, TableDamaged] = {}
        self._unplanned: set[TableName] = set()  # they may have moved, too
        self.root = RootIdentityCheck.at(context, zone)
        self._hidden = HiddenFolders(context, zone, self.root)

    def plans(
        self, except_for: Collection[TableName] = (), only: Collection[TableName] | None = None
    ) -> dict[TableName, Plan]:
        """Return the plans of all known and listed tables, except if their Delta folder overlaps a busy table's.

        `only`: the tables whose folders were listed, if not all were: no other idle table's log is looked at.
        """
        context, listings = self._context, {listing.name: listing for listing in self.zone.tables}
        known = context.ledger.tables()
        now, lead = context.known_time.and_lead() if context.known_time else (context.clock(), 0.0)
        circumstances = Circumstances(
            context.config, now, lead, is_lasting=context.is_lasting, lead_seconds=context.clock.lead_seconds
        )
        left_out = overlapping_tables(context, {*known, *listings}, except_for)
        self._unplanned = left_out.difference(except_for)
        if all_hidden := self._hidden.tables:  # nothing is written to what is in their place
            plans = {table: Plan(table, Unlisted(all_hidden)) for table in sorted({*known, *listings} - left_out)}
            self._leave_out(plans.values())
            return plans
        halts = ownership_conflicts(context, self._folders.foreign, [*listings])
        planned = [table for table in listings if table not in left_out]
        of_table = at_once(  # each may look into the table's log
            context.storage,
            lambda table: self._plan(
                listings[table], circumstances, halts.get(table), is_known=only is not None and table not in only
            ),
            planned,
        )
        plans = dict(zip(planned, of_table, strict=True))
        for table in (table for table in known if table not in listings and table not in left_out):
            hidden = self._hidden.of_delta(table) or self._hidden.missing(table, known[table])
            plans[table] = Plan(table, Unlisted(hidden)) if hidden else plan_missing(table, known[table], circumstances)
        self._leave_out(plans.values())
        return plans

    def _leave_out(self, plans: Iterable[Plan]) -> None:
        """Mark unlisted tables in the listing, and record each reason once."""
        states = {plan.table.folder: plan.state for plan in plans if isinstance(plan.state, Unlisted)}
        if not states:
            return
        reasons = dict.fromkeys(state.diagnostic for state in states.values())
        places = {reason.path for reason in reasons if reason.path}
        others = (found for found in self.zone.diagnostics if found.path not in places)  # a link is said once
        diagnostics = (*others, *reasons)
        self.zone = replace(self.zone, unlisted=self.zone.unlisted | states.keys(), diagnostics=diagnostics)

    def remember_root(self, plans: Iterable[Plan], in_progress: Iterable[str]) -> None:
        """Store the identity of ROOT as the known one, once the listing is certain and all moved folders are recorded.

        `in_progress`: the root identities that the tasks in progress were planned with. Raises `StorageUnavailable`.
        """
        ledger, root = self._context.ledger, self.root
        updates = {(plan.table, moved.identity) for plan in plans for moved in plan.records("update_folder_identity")}
        is_recorded = updates <= {(table, progress.identity) for table, progress in ledger.tables().items()}
        is_certain = self.zone.identity and not self.zone.unlisted and not self._unplanned
        if is_certain and is_recorded and {*in_progress} <= {str(root.now)}:
            ledger.set_property(ROOT_IDENTITY, str(root.now))
            self._hidden.remember()

    def _plan(
        self, listing: TableListing, circumstances: Circumstances, halt: Diagnostic | None, *, is_known: bool
    ) -> Plan:
        """Plan a table; `is_known`: the look at its Delta table for the last plan is still valid."""
        progress = self._context.ledger.progress(listing.name)
        if kept := self._kept(listing, progress, halt, is_known=is_known):
            return kept
        if hidden := self._hidden.of_delta(listing.name):
            return Plan(listing.name, Unlisted(hidden))
        known = self._context.ledger.folder(listing.name, [file.path for file in listing.files])
        change = self.root.change_of(listing, progress, known)
        if change is FolderChange.RECREATED and (hidden := self._hidden.remounted(listing.name)):
            if not self.root.is_mounted_again(listing, known):
                return Plan(listing.name, Unlisted(hidden))
            change = FolderChange.MOVED
        diagnostic, is_seen = halt, True
        if diagnostic is None and change is not FolderChange.RECREATED:
            diagnostic, is_seen = self._look(listing.name, progress)
        if diagnostic and is_error(diagnostic):
            halt = diagnostic
        planned = plan_listed(listing, progress, known, replace(circumstances, change=change, halt=halt))
        if diagnostic and diagnostic is not halt:
            planned = replace(planned, diagnostics=(*planned.diagnostics, diagnostic))
        is_kept = is_seen and not planned.steps and not planned.is_timed
        return replace(planned, basis=(listing, progress, diagnostic) if is_kept else None, is_unseen=not is_seen)

    def _kept(
        self, listing: TableListing, progress: Progress | None, halt: Diagnostic | None, *, is_known: bool
    ) -> Plan | None:
        """Return a table's last plan if it is still valid; None if a new plan is needed."""
        before = self._before(listing.name)
        # what is known of the files changes with the progress, the folder's identity with the listing
        if not (before and before.basis and before.basis[0] is listing and before.basis[1] is progress):
            return None
        diagnostic, is_seen = halt or before.basis[2], True
        if not halt and not (is_known and not isinstance(before.state, Halted)):
            diagnostic, is_seen = self._look(listing.name, progress)
        is_hidden = self._hidden.of_delta(listing.name) is not None
        return None if is_hidden or not is_seen or diagnostic != before.basis[2] else before

    def _look(self, table: TableName, progress: Progress | None) -> tuple[Diagnostic | None, bool]:
        """Report a Delta table that is damaged (ME081), or that another program changed (ME080).

        Also whether it could be read: else nothing is known of either.
        """
        folder = self._context.delta_folder(table)
        try:
            if folder in self._folders.damaged:
                raise self._folders.damaged[folder]
            known_for = LOOK_SECONDS if self._context.requests else 0.0
            version = self._context.latest_external_change(table, progress, known_for) if progress else None
        except TableDamaged as error:
            self.damaged[folder] = error
            help = error.help.rstrip(".").replace("--table TABLE", f"--table {shlex.quote(table.normalized)}")
            return diagnose("ME081", table.folder, fault=error.fault, help=help), True
        except StorageUnavailable:
            return None, False  # the next batch fails for the same reason, and reports it
        changed = None if version is None else diagnose(EXTERNAL_CHANGE, table.folder, version=version)
        return changed, folder not in self._folders.unread


def ownership_conflicts(
    context: EngineContext, foreign: Collection[str], names: Sequence[TableName]
) -> dict[TableName, Diagnostic]:
    """Return the tables whose Delta folder is another's (ME004), or that exceed the limit under `strict` (ME007).

    Known tables that are not among `names`, those of the listing, own their folders, too. `foreign`: Delta folders that
    hold a table of another program, as it was read last.
    """
    known = context.ledger.tables()
    owners = {name for name, progress in known.items() if progress.has_table}
    found: dict[TableName, Diagnostic] = {}
    for second, owner in conflicts({*names} | owners, context.config.delta_default_schema).items():
        loser, winner = (owner, second) if second in owners and owner not in owners else (second, owner)
        found[loser] = diagnose("ME004", loser.folder, table=context.delta_folder(loser), folder=winner.folder)
    for name in names:
        folder = context.delta_folder(name)
        if folder in foreign:
            found.setdefault(name, diagnose("ME004", name.folder, table=folder, folder="another program"))
    if context.config.strict and len(names) > MAX_FABRIC_TABLES:
        first_seen = {name: progress.configured_at for name, progress in known.items() if progress.configured_at}
        for name in sorted(names, key=lambda name: (first_seen.get(name, math.inf), name))[MAX_FABRIC_TABLES:]:
            found.setdefault(name, diagnose("ME007", name.folder, strict=True, count=len(names)))
    return found


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
