"""Status of a mirrored database: per table its state, files, lag and diagnostics (LZ-9.7)."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from mirror_engine.engine.ledger import NEXT_POLL, SCAN_REQUESTS
from mirror_engine.engine.recovery import LOST_ROWS, intact_rows
from mirror_engine.errors import TransientError
from mirror_engine.landing_zone.detection import DIGITS, never_arrives
from mirror_engine.landing_zone.diagnostics import Trait
from mirror_engine.landing_zone.listing import UNLISTED
from mirror_engine.landing_zone.states import (
    CaughtUp,
    Halted,
    TableState,
    Unconfigured,
    Unlisted,
    needs_attention,
)
from mirror_engine.landing_zone.text import count
from mirror_engine.monitoring.fabric_errors import FabricTable, fabric_error
from mirror_engine.monitoring.fabric_files import fabric_status, last_heartbeat
from mirror_engine.monitoring.fabric_mirror import FabricTables
from mirror_engine.monitoring.state_text import (
    URGENCY,
    TableCounts,
    Urgency,
    describe,
    help_for,
    kind_of,
    lost_rows,
    notes,
)
from mirror_engine.monitoring.status_results import (
    FileStatus,
    LeaseHolder,
    Partner,
    Status,
    StatusSummary,
    StatusTable,
)
from mirror_engine.results import CountedFinding, Failure, Finding, TableReference, utc
from mirror_engine.storage.base import at_once

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.planner import Plan
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import Entry, ZoneListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import AppliedFile, Mark
    from mirror_engine.results import Column
    from mirror_engine.storage.lease import Holder
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.base import Way

LOST_FILE = "ME025"


@dataclass(frozen=True)
class TableStatus:
    """One table folder at one moment."""

    name: TableName
    delta_folder: str  # its Delta table, from `ROOT/Tables`
    state: TableState
    fabric_status: str | None  # Fabric's word for it (LZ-9.6); None if Fabric does not list it
    fabric_error: str | None  # the message that Fabric shows; None if there is none
    watermarks: Mapping[str, int]  # per partition (`""` without) the highest sequence applied
    # Per partition the name that comes next, or of the rejected file; empty where time orders files
    next_files: Mapping[str, str]
    # The path, from the landing zone, that must change before it can go on; None if nothing must
    blocked_by: str | None
    # Rejected and pending files in reading order, then applied ones by path, as far as they are still in the folder
    files: tuple[FileStatus, ...]
    ignored: tuple[Diagnostic, ...]  # a diagnostic for each ignored path
    diagnostics: tuple[tuple[Diagnostic, int], ...]  # all diagnostics with their counts, oldest first
    rows_processed: int  # of the generation (LZ-9.2, LZ-9.3)
    bytes_processed: int  # of the generation, too
    files_processed: int  # the same
    row_count: int | None  # of the Delta table now; None without one
    delta_version: int | None  # of the last commit; None before the first
    last_commit_at: float | None  # seconds since 1970; None before the first commit
    lag_seconds: float  # age of the oldest file that is not in the table; 0 if all are
    last_failure: Failure | None = None  # why it is tried again; None if nothing failed since
    # Why Fabric, which mirrors it, would reject a pending file; None where none, or none was read
    would_reject: Diagnostic | None = None
    columns: Sequence[Column] | None = None  # of the Delta table; None if there is none, or nobody asked

    @property
    def message(self) -> str:
        is_bare = isinstance(self.state, CaughtUp) and self.delta_version is None
        bare = "; no table yet: no file gives a column a type" if is_bare else ""
        lost = f"; {count(self.lost_files, 'lost file')} [{LOST_FILE}]" if self.lost_files else ""
        failure = self.last_failure.message if self.last_failure else ""
        rows = lost_rows(self.rows_lost)
        return describe(self.name, self.state) + bare + lost + rows + notes(self.ignored, failure)

    def help(self, *, engine_running: bool) -> str:
        """What to do about the last failure, or else the state, lost files or rows; empty if nothing is to be done."""
        help = (self.last_failure.help if self.last_failure else "") or ""
        help = help or help_for(self.state, engine_running=True, lost=self.rows_lost)
        help = help or ("send the lost changes again, then rebuild the table" if self.lost_files else "")
        help = help or next((found.help for found in self.rows_lost), "")
        return help or help_for(self.state, engine_running=engine_running)

    @property
    def rows_lost(self) -> Sequence[Diagnostic]:
        """The rows that were lost when others removed its Delta table (ME069)."""
        return [found for found, _ in self.diagnostics if found.code == LOST_ROWS]

    @property
    def lost_files(self) -> int:
        """Files that were overwritten before they were read, in this generation (LZ-3.13)."""
        return sum(count for diagnostic, count in self.diagnostics if diagnostic.code == LOST_FILE)

    @property
    def needs_attention(self) -> bool:
        """Whether someone must act: the table cannot continue, or lacks rows that the publisher landed."""
        return needs_attention(self.state) or self.lost_files > 0 or self.would_reject is not None

    @property
    def urgency(self) -> Urgency:
        """The state's urgency; `stuck` if it failed, lost files or would halt, `idle` if it ignored data."""
        state: Urgency = (
            "stuck" if self.last_failure or self.lost_files or self.would_reject else URGENCY[type(self.state)]
        )
        return "idle" if state == "well" and any(map(never_arrives, self.ignored)) else state

    @property
    def pending_files(self) -> tuple[FileStatus, ...]:
        return tuple(file for file in self.files if file.state != "applied")

    def shown(self, *, engine_running: bool) -> StatusTable:
        """Return the table as results show it."""
        own, committed = self.state.diagnostic, self.last_commit_at
        return StatusTable.taken_from(
            self,
            **TableReference.of(self.name, self.delta_folder).to_json(),
            state=self.state.code,
            help=self.help(engine_running=engine_running) or None,
            diagnostic=own and Finding.of(own),
            would_reject=self.would_reject and Finding.of(self.would_reject),
            pending_files=len(self.pending_files),
            lag_seconds=round(self.lag_seconds, 3),
            last_commit_at=None if committed is None else utc(committed),
            ignored=[*map(Finding.of, self.ignored)],
            diagnostics=[CountedFinding.of(*each) for each in self.diagnostics],
        )


class MirrorStatus(StatusSummary, frozen=True):
    """A mirrored database at one moment, with its diagnostics and tables as the engine has them."""

    found: tuple[Diagnostic, ...]  # about the zone itself
    tables: tuple[TableStatus, ...]

    @property
    def unlisted(self) -> tuple[Diagnostic, ...]:
        """A diagnostic for each folder that could not be listed or read: nothing is known of its tables."""
        return tuple(found for found in self.found if found.code == UNLISTED)

    @property
    def is_worked_on(self) -> bool:
        """Whether pending files will be applied: an engine is running, or Fabric mirrors it."""
        return self.engine_running or self.fabric is not None

    def shown(self) -> Status:
        """Return it as results show it."""
        tables = [table.shown(engine_running=self.is_worked_on) for table in self.tables]
        return Status.taken_from(self, counts=_counts(self.tables), tables=tables)


def _counts(tables: Sequence[TableStatus]) -> TableCounts:
    """How many tables there are of each kind."""
    stuck = (table.needs_attention or table.urgency == "stuck" for table in tables)
    kinds = (kind_of(table.state.code, is_stuck=is_stuck) for table, is_stuck in zip(tables, stuck, strict=True))
    return TableCounts(**Counter(kinds))


def mirror_status(  # noqa: PLR0913 - independent facts
    root: Place,
    context: EngineContext,
    zone: ZoneListing,
    plans: Mapping[TableName, Plan],
    *,
    engine_running: bool,
    holder: Holder | None = None,
    also: str | int | None = "",
) -> MirrorStatus:
    """Status of a mirror.

    `holder`: who has the lease of a ROOT in a store, or had it last.
    `also`: applied files that are shown although they were moved away: one by path or number, or how many of the last
    ones; None: all.
    Raises `StorageUnavailable` where the last heartbeat or the ledger cannot be read.
    """
    ledger = context.ledger
    failures = {folder: Failure(**each) for folder, each in ledger.failures().items()}
    files = {listing.name: listing.files for listing in zone.tables}
    heartbeat = last_heartbeat(context.storage)
    next_scan = ledger.get_property(NEXT_POLL) if engine_running else None
    requests = ledger.get_property(SCAN_REQUESTS) if engine_running else None
    fabric = context.delta if isinstance(context.delta, FabricTables) else None

    def status_of(table: TableName) -> TableStatus:
        return replace(
            table_status(context, plans[table], files.get(table, ()), also),
            last_failure=failures.get(table.folder),
            **(fabric.words(table) if fabric else {}),
        )

    tables = tuple(at_once(context.storage, status_of, plans))
    return MirrorStatus(
        root=str(root),
        zone=zone.folder if zone.identity else None,
        partner=Partner.of(zone.partner) if zone.partner else None,
        engine_running=engine_running,
        lease=LeaseHolder.of(holder) if holder else None,
        fabric=fabric.replicator if fabric else None,
        last_heartbeat_at=None if heartbeat is None else utc(heartbeat),
        next_scan_at=utc(float(next_scan)) if next_scan else None,
        # of the engine on this machine, else of this scan
        scan_requests=(json.loads(requests) if requests else zone.requests) or None,
        counts=_counts(tables),
        last_failure=failures.get(""),
        diagnostics=[*map(Finding.of, zone.diagnostics)],
        found=zone.diagnostics,
        tables=tables,
    )


def _row_count(context: EngineContext, table: TableName) -> int | None:
    progress = context.ledger.progress(table)
    if not progress or not progress.has_table:  # another folder may own the Delta table
        return None
    try:
        if (rows := intact_rows(context, table, progress)) is not None:
            return rows
        found = context.delta.snapshot(context.delta_folder(table))
        return found.count_rows() if found else None
    except TransientError:  # the plan says what is wrong with it
        return None


def _applied_files(
    context: EngineContext,
    table: TableName,
    files: Sequence[Entry],
    marks: Mapping[str, Mark],
    asked: str | int | None,
) -> Mapping[str, AppliedFile]:
    """The applied files among the listed ones, and those that are asked for; None: all."""
    if asked is None:
        return context.ledger.applied(table)
    paths = {file.path for file in files}
    if isinstance(asked, int):
        newest = context.ledger.applied(table, newest=asked)
        return {**newest, **context.ledger.applied(table, paths)}
    if asked.isascii() and asked.isdigit() and len(asked) <= DIGITS:
        for place, mark in marks.items():
            paths.add(f"{place}/{int(asked):020}.{mark.highest.rpartition('.')[2]}".lstrip("/"))
    elif asked:
        paths.add(asked.removeprefix(f"{table.folder}/"))
    return context.ledger.applied(table, paths)


def table_status(
    context: EngineContext, plan: Plan, files: Sequence[Entry], also: str | int | None = ""
) -> TableStatus:
    """Status of one table, from its plan and all files of one listing; see `TableStatus` and `mirror_status`."""
    progress, now, schema = context.ledger.progress(plan.table), context.now, context.config.delta_default_schema
    folder, detection = plan.table.folder, plan.detection
    noted = progress.diagnostics if progress else {}
    if begun := next(plan.records("start_generation"), None):
        progress = None  # the ledger's progress belongs to the folder's former generation (LZ-7.3)
        noted = begun.diagnostics
    marks = context.ledger.marks(plan.table) if progress else {}
    applied = _applied_files(context, plan.table, files, marks, also) if progress else {}
    if detection:
        pending = [*detection.ready, *detection.later]
    else:
        pending = [file for file in files if file.path not in applied]
    later = {file.path for file in detection.later} if detection else set()
    replaced = {found.path: found.message for found in plan.diagnostics if found.code == "ME026"}
    next_files = dict(detection.next_files) if detection else {}
    rejected = plan.state.diagnostic.path.removeprefix(f"{folder}/") if isinstance(plan.state, Halted) else None
    next_files |= {file.partition: file.name for file in pending if file.path == rejected and next_files}
    missing = f"{folder}/{detection.missing_file}" if detection and detection.missing_file else None
    committed = progress if progress is not None and progress.has_table else None
    fabric = FabricTable(plan.table, plan.state, progress)
    return TableStatus(
        name=plan.table,
        delta_folder=plan.table.delta_folder(schema),
        state=plan.state,
        fabric_status=fabric_status(plan.state, progress),
        fabric_error=fabric_error(fabric, context.ledger.mirror, now, schema)[1] or None,
        watermarks={place: mark.watermark for place, mark in marks.items() if mark.watermark},
        next_files=next_files,
        blocked_by=plan.state.diagnostic.path if isinstance(plan.state, (Halted, Unconfigured, Unlisted)) else missing,
        files=(
            *(_unapplied(file, plan, later) for file in pending),
            *(_applied(path, file, replaced.get(f"{folder}/{path}", "")) for path, file in sorted(applied.items())),
        ),
        ignored=tuple(diagnostic for diagnostic in plan.diagnostics if diagnostic.has(Trait.IGNORED)),
        diagnostics=tuple((Counter(plan.diagnostics) | Counter(noted)).items()),
        rows_processed=progress.rows_processed if progress else 0,
        bytes_processed=progress.bytes_processed if progress else 0,
        files_processed=progress.files_processed if progress else 0,
        row_count=_row_count(context, plan.table),
        delta_version=committed.delta_version if committed else None,
        last_commit_at=committed.last_commit_at if committed else None,
        lag_seconds=max(0.0, context.clock() - min((file.modified_ns / 1e9 for file in pending), default=math.inf)),
    )


def _unapplied(file: Entry, plan: Plan, later: AbstractSet[str]) -> FileStatus:
    """A file that is not applied yet; `later` has those behind a gap."""
    match plan.state:
        case Halted(diagnostic) if diagnostic.path == f"{plan.table.folder}/{file.path}":
            return FileStatus(file.path, "rejected", diagnostic.message)
        case Halted(diagnostic):
            return FileStatus(file.path, "pending", f"the table is halted at {diagnostic.path}")
        case Unconfigured():
            return FileStatus(file.path, "pending", "the folder has no usable _metadata.json")
        case Unlisted():
            return FileStatus(file.path, "pending", "the table's own folder may be hidden")
        case _ if plan.detection and file.path in later:
            missing = plan.detection.next_files.get(file.partition, plan.detection.missing_file)
            return FileStatus(file.path, "pending", f"{missing} is missing")
        case _:
            return FileStatus(file.path, "pending", "ready for the next cycle")


def _applied(path: str, file: AppliedFile, reason: str) -> FileStatus:
    version = file.version if file.version >= 0 else None
    way = cast("Way | None", file.applied_by or None)
    why_not = file.passthrough_skipped_because or None
    return FileStatus(path, "applied", reason or None, version, file.rows, way, why_not)
