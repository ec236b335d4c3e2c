"""What `status` shows: the state of every table, its files and findings, and what to do."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Literal, Self

from mirror_engine.display import (
    MAX_LINES,
    Grid,
    WithColumn,
    bullet,
    bullets,
    diagnostic_lines,
    diagnostics,
    halted,
    ignored_paths,
    line,
    short_span,
    with_help,
)
from mirror_engine.landing_zone.causes import findings
from mirror_engine.landing_zone.listing import UNLISTED
from mirror_engine.landing_zone.states import Behind, Blocked, CaughtUp, Halted, Loading, Unlisted
from mirror_engine.landing_zone.text import count
from mirror_engine.monitoring.state_text import NO_FOLDERS, START_ENGINE, TableCounts, Urgency
from mirror_engine.results import (
    Column,
    Count,
    CountedFinding,
    Failure,
    Finding,
    Moment,
    Part,
    Result,
    Seconds,
    State,
    TableReference,
    names_of,
    utc,
)
from mirror_engine.storage.lease import STRANGER
from mirror_engine.tables.base import Way

if TYPE_CHECKING:
    from rich.text import Text

    from mirror_engine.display import Lines
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.metadata import PartnerEvents
    from mirror_engine.storage.lease import Holder

STATE_STYLES = {"stuck": "bold red", "idle": "yellow", "busy": "cyan", "well": "green"}  # most urgent first
MAX_PARAGRAPHS = 20  # of tables in one report
MAX_CHARACTERS = 100  # of one value of the partner events, which may be any text


class FileStatus(Part, frozen=True):
    """One change file (LZ-9.7).

    Attributes:
        path: from the table folder
        reason: why it is pending or was rejected; of an applied file, what was found about a file that replaced it
            (LZ-3.13)
        delta_version: that applied it; null if not applied or no longer known
        rows: of an applied file
        applied_by: null if not applied or not known
        passthrough_skipped_because: why its rows were rewritten; null if they were not, or not known
    """

    path: str
    state: Literal["pending", "applied", "rejected"]
    reason: str | None = None
    delta_version: Count | None = None
    rows: Count | None = None
    applied_by: Way | None = None
    passthrough_skipped_because: str | None = None


class Partner(Part, frozen=True):
    """The publisher's description of itself: free text, empty if it is absent."""

    name: str
    source_type: str
    source_version: str

    @classmethod
    def of(cls, found: PartnerEvents) -> Self:
        """Convert from the content of `_partnerEvents.json`."""
        return cls(found.partner_name, found.source_type, found.source_version)

    def __str__(self) -> str:
        name, kind, version = (
            text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"
            for text in (self.name, self.source_type, self.source_version)
        )
        source = f"{kind} {version}".strip()
        return " ".join(f"{label} {text}" for label, text in (("published by", name), ("from", source)) if text)


class LeaseHolder(Part, frozen=True):
    """The engine that holds the lease of a ROOT in a store, or held it last.

    Attributes:
        host: null if the lease cannot be read
        since: when it was taken, ISO 8601 in UTC
        renewed_at: last renewal, ISO 8601 in UTC
    """

    host: str | None
    process: int
    since: Moment
    renewed_at: Moment
    is_held: bool

    @classmethod
    def of(cls, found: Holder) -> Self:
        """Convert from a lease's content."""
        return cls(found.host or None, found.process, utc(found.since), utc(found.renewed_at), not found.is_over)

    def __str__(self) -> str:
        if self.host is None:
            return STRANGER
        return f"{self.host} (process {self.process}), since {self.since:%Y-%m-%dT%H:%M:%SZ}"


class FabricReport(Part, frozen=True):
    """What Fabric says about a database that it mirrors.

    Attributes:
        status: in Fabric's words
    """

    status: str | None
    error: str | None


class TableSummary(TableReference, frozen=True):
    """A table's state and numbers.

    Attributes:
        message: the state in a sentence
        help: what to do
        urgency: `stuck`, `idle`, `busy` or `well`; a table that is tried again or lost rows is stuck
        needs_attention: whether it cannot go on by itself, or lacks rows that were landed
        last_failure: what is tried again
        diagnostic: why it is halted, unconfigured or unlisted, or is going to be dropped
        fabric_status: what Fabric shows; null if it does not list the table
        fabric_error: what Fabric shows
        blocked_by: path, from the landing zone, that must change before the table can go on
        would_reject: why Fabric, which mirrors it, would reject a pending file
        watermarks: highest applied number, by partition; `""` without partitions
        next_files: the file that comes next, by partition
        lag_seconds: age of the oldest pending file
        row_count: of the Delta table
        columns: of the Delta table, with --table; null without it, or if there is no Delta table
        delta_version: of the last commit
        last_commit_at: of the engine, ISO 8601 in UTC
    """

    state: State
    message: str
    help: str | None
    urgency: Urgency
    needs_attention: bool
    last_failure: Failure | None
    diagnostic: Finding | None
    fabric_status: str | None
    fabric_error: str | None
    blocked_by: str | None
    would_reject: Finding | None
    watermarks: Mapping[str, Count]
    next_files: Mapping[str, str]
    pending_files: Count
    lag_seconds: Seconds
    rows_processed: Count
    bytes_processed: Count
    row_count: Count | None
    columns: Sequence[Column] | None
    delta_version: Count | None
    last_commit_at: Moment | None

    @property
    def applied(self) -> str:
        """The watermark, or the number of partitions that have one."""
        numbers = [*self.watermarks.values()]
        return f"{len(numbers)} partitions" if numbers[1:] else str(numbers[0]) if numbers else "-"


class StatusTable(TableSummary, frozen=True):
    """A table with its files and findings.

    Attributes:
        files: rejected and pending files in the order they are read, then applied ones
        ignored: why paths are never read
    """

    files: Sequence[FileStatus]
    ignored: Sequence[Finding]
    diagnostics: Sequence[CountedFinding]

    @property
    def pending(self) -> Sequence[FileStatus]:
        """The files that are not applied."""
        return [file for file in self.files if file.state != "applied"]

    def is_noted(self, *, detailed: bool, by_fabric: bool) -> bool:
        """Whether it has more to report than its line in the list of tables."""
        if self.last_failure or self.columns or (by_fabric and self.fabric_error):
            return True
        if self.state == Unlisted.code:
            return False  # the zone's own diagnostics say why
        if self.ignored or self.diagnostics or self.would_reject:
            return True
        # the list of tables has the number of pending files
        told = {CaughtUp.code} if detailed else {CaughtUp.code, Behind.code, Loading.code}
        return self.state not in told

    def lines(self, *, detailed: bool) -> Lines:
        """Its state with reason and help, and the findings that the state does not cover."""
        style = STATE_STYLES[self.urgency]
        state = [self.diagnostic.as_diagnostic] if self.diagnostic else []
        own, first = {found.as_diagnostic for found in self.ignored}, None
        noted = {found.as_diagnostic: found.count for found in self.diagnostics}
        counted = findings({**dict.fromkeys(state, 1), **noted}.items(), itemgetter(0))
        if self.state == Halted.code and counted:
            first = counted[0][0]
            yield from diagnostic_lines(first, halted(self.table))
            own.add(first)
        else:
            yield from with_help(self.message, None if self.help == START_ENGINE else self.help, style)
            own |= {*state, *(found for found, _ in counted if self._tells(found))}
        if self.would_reject:
            yield line("Fabric would reject:", style)
            yield from diagnostic_lines(self.would_reject.as_diagnostic)
        if detailed and self.pending_files:
            yield f"  {count(self.pending_files, 'file')} pending, the oldest for {short_span(self.lag_seconds)}"
        if self.columns:
            yield from bullets([("columns:", ", ".join(f"{each.name} {each.type}" for each in self.columns))])
        yield from bullets(self._numbers(detailed=detailed))
        if detailed:
            missing = f"{(self.blocked_by or '').removeprefix(f'{self.landing_folder}/')} is missing"
            told = {first.message if first else "", missing}
            waiting = [file for file in self.pending if file.state != "rejected"]
            reasons = ["" if file.reason in told else f": {file.reason}" for file in waiting]
            yield from bullets([("pending:", file.path + why) for file, why in zip(waiting, reasons, strict=True)])
        yield from bullets(ignored_paths(found.as_diagnostic for found in self.ignored))
        yield from diagnostics((each for each in counted if each[0] not in own), f"{self.landing_folder}/")

    def _tells(self, found: Diagnostic) -> bool:
        """Whether the sentence about the state covers a finding, such as a missing file."""
        return self.state == Blocked.code and f"{found.path}/{dict(found.details).get('name')}" == self.blocked_by

    def _numbers(self, *, detailed: bool) -> list[tuple[str, str]]:
        """Watermark of each partition, and the next file; without partitions the overview has the one."""
        if not detailed and len(self.watermarks) <= 1:
            return []
        applied = [
            ("applied:", f"{place or 'outside partitions'}: up to {number}")
            for place, number in self.watermarks.items()
        ]
        return [*(applied if len(applied) > 1 else ()), *next_files(self.next_files, self.pending)]


class StatusSummary(Part, frozen=True):
    """A mirrored database at one moment.

    Attributes:
        zone: landing zone from ROOT; null where there is none
        partner: of `_partnerEvents.json`
        lease: of an engine whose ROOT is in a store
        last_heartbeat_at: of the engine, ISO 8601 in UTC
        next_scan_at: of the engine, at the latest, ISO 8601 in UTC
        scan_requests: requests of the last scan of a store by kind
        last_failure: what is tried again
        diagnostics: about the landing zone itself
    """

    root: str
    zone: str | None
    partner: Partner | None
    engine_running: bool
    lease: LeaseHolder | None
    fabric: FabricReport | None
    last_heartbeat_at: Moment | None
    next_scan_at: Moment | None
    scan_requests: Mapping[str, Count] | None
    counts: TableCounts
    last_failure: Failure | None
    diagnostics: Sequence[Finding]


class Status(StatusSummary, Result, frozen=True):
    """The state of every table."""

    tables: Sequence[StatusTable]

    @property
    def unlisted(self) -> Sequence[Finding]:
        """A finding for each folder that could not be listed or read: nothing is known of its tables."""
        return [found for found in self.diagnostics if found.code == UNLISTED]

    def text(self) -> Lines:
        return self.lines()

    def lines(self, *, problems_first: bool = False, detailed: bool = False) -> Lines:
        """A headline, a line for each table, a paragraph for each with something to report, and how many there are.

        Tables that need attention come first in each list; with `problems_first` their paragraphs come before it, as
        the end may not fit on the screen. `detailed`: with their pending files.
        """
        now, by_fabric = time.time(), bool(self.fabric)
        yield self._headline(now)
        if self.partner and (partner := str(self.partner)):
            yield line(partner, "dim")
        failure = self.last_failure
        if failure and not any(found.message in failure.message for found in self.unlisted):
            yield from with_help(f"last failure: {failure.message}", failure.help, "bold red")
        for found in findings(self.diagnostics, attrgetter("as_diagnostic"))[:MAX_LINES]:
            yield ""
            yield from diagnostic_lines(found.as_diagnostic)
        by_urgency = sorted(self.tables, key=lambda table: [*STATE_STYLES].index(table.urgency))
        noted = [table for table in by_urgency if table.is_noted(detailed=detailed, by_fabric=by_fabric)]
        first = [table for table in noted if problems_first and table.urgency == "stuck"]
        yield from _paragraphs(first, detailed=detailed, by_fabric=by_fabric)
        yield ""
        overview = self._overview(by_urgency, now)
        yield overview if self.tables else line(NO_FOLDERS)
        yield from _paragraphs(noted[len(first) :], detailed=detailed, by_fabric=by_fabric)
        if any(table.fabric_error for table in self.tables):
            yield WithColumn(overview, "Fabric", self._end(" * Fabric shows an error."), self._end())
        elif self.tables:
            yield self._end()

    def _end(self, legend: str = "") -> Text:
        """`11 tables: 4 caught up, 6 need attention, 1 pending`, and what to do about pending files."""
        text, is_worked_on = f"{self.counts}{legend}", self.engine_running or self.fabric
        if any(table.state in {Behind.code, Loading.code} for table in self.tables) and not is_worked_on:
            text += f" {START_ENGINE[:1].upper()}{START_ENGINE[1:]}."
        return line(text, "bold")

    def _headline(self, now: float) -> Text:
        lease, beat = self.lease, self.last_heartbeat_at
        seen = f" (last seen {short_span(max(0.0, now - beat.timestamp()))} ago)" if beat else ""
        next_scan = self.next_scan_at.timestamp() if self.next_scan_at else 0.0
        if self.fabric:
            says = filter(None, [f"mirrored by Fabric: {self.fabric.status or 'no status'}", self.fabric.error])
            engine = f"{', '.join(says)}{seen}"
        elif not self.engine_running:
            engine = f"no engine is running{seen}"
            engine += f"; expired is the lease of {lease}" if lease and lease.is_held else ""
        elif lease and self.next_scan_at is None:
            engine = f"engine running on {lease}"
        elif next_scan <= now:
            engine = "engine running, working"
        else:
            engine = f"engine running, next scan in {short_span(next_scan - now)}"
        zone, asked = "" if self.zone else "no landing zone (Files/LandingZone); ", self.scan_requests or {}
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in asked.items())
        requests = f"; a scan takes {count(sum(asked.values()), 'request')} ({kinds})" if kinds else ""
        return line(f"{self.root}: {zone}{engine}{requests}")

    def _overview(self, tables: Sequence[StatusTable], now: float) -> Grid:
        last = ">Last sync" if self.fabric else ">Last commit"
        headings = ["Table", "State", "Fabric", ">Applied", ">Pending", ">Lag", ">Rows", ">Version", last]
        rows = [
            (
                name,
                line(table.state.replace("_", " "), STATE_STYLES[table.urgency]),
                (table.fabric_status or "-") + ("*" if table.fabric_error else ""),
                table.applied,
                f"{table.pending_files:,}" if table.pending_files else "-",
                short_span(table.lag_seconds) if table.pending_files else "-",
                "-" if table.row_count is None else f"{table.row_count:,}",
                "-" if table.delta_version is None else f"v{table.delta_version}",
                f"{short_span(max(0.0, now - table.last_commit_at.timestamp()))} ago" if table.last_commit_at else "-",
            )
            for table, name in zip(tables, names_of(tables), strict=True)
        ]
        return Grid(headings, rows, expendable=("Version", "Fabric", last, "Lag"))


def _paragraphs(tables: Sequence[StatusTable], *, detailed: bool, by_fabric: bool) -> Lines:
    yield from [""] if tables else []
    for table in tables[:MAX_PARAGRAPHS]:
        yield from table.lines(detailed=detailed)
        if by_fabric and table.fabric_error:
            yield bullet("Fabric:", table.fabric_error)
    if (more := len(tables) - MAX_PARAGRAPHS) > 0:
        yield line(f"… and {count(more, 'more table')}: see --table NAME, or --json", "dim")


def next_files(names: Mapping[str, str], pending: Sequence[FileStatus]) -> list[tuple[str, str]]:
    """The file that comes next in each partition; one that was rejected is to be replaced."""
    rejected = {file.path for file in pending if file.state == "rejected"}
    paths = [f"{place}/{name}".lstrip("/") for place, name in names.items()]
    return [("replace:" if path in rejected else "next:", path) for path in paths]
