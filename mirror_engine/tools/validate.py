"""Check a landing zone: run the engine over it dry, keeping keys only."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec import structs

from mirror_engine.engine.poller import Poller
from mirror_engine.errors import UnknownTable
from mirror_engine.events import DiagnosticRaised, TableHalted
from mirror_engine.landing_zone.causes import findings
from mirror_engine.landing_zone.change import same_rows
from mirror_engine.landing_zone.detection import never_arrives
from mirror_engine.landing_zone.diagnostics import SEVERITY_ORDER, Diagnostic, Severity, Trait, diagnose
from mirror_engine.landing_zone.layout import TABLES
from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.landing_zone.metadata import Strategy
from mirror_engine.landing_zone.names import PARTNER_EVENTS_FILE, find_table
from mirror_engine.landing_zone.states import Halted
from mirror_engine.monitoring.fabric_errors import fabric_message
from mirror_engine.monitoring.state_text import describe
from mirror_engine.storage.zone_view import Source, ZoneView
from mirror_engine.tables.dry_run.keys_only import KeyWriter, keys_only
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.reading.spill import all_rows
from mirror_engine.tools.dry_run import DryRun, first_numbers
from mirror_engine.tools.validation import (
    CheckedFinding,
    CheckedTable,
    CheckedZone,
    FindingCounts,
    UnappliedFile,
    blocks_progress,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror_engine.events import Event
    from mirror_engine.landing_zone.listing import TableListing, ZoneListing
    from mirror_engine.monitoring.status import MirrorStatus, TableStatus
    from mirror_engine.storage.base import Storage
    from mirror_engine.tools.validation_target import ValidationTarget

Counted = tuple[Diagnostic, int]  # a diagnostic and its number of occurrences
UNMATCHED_CHANGE_CODES = frozenset({"ME077", "ME078"})  # changes to keys that were never inserted
MIN_PAUSE_SECONDS = 0.01  # between checks of `watch`: a file may be empty under its final name for no longer
_TIED = "ME028"
_NO_ID = "-"


@dataclass(frozen=True)
class TableReport:
    """The findings in one table folder; paths begin at the landing zone's top."""

    table: CheckedTable  # without findings
    diagnostics: tuple[Counted, ...] = ()  # about the table, its metadata and its files, as they were raised
    is_text: bool = False  # whether its change files are delimited text, so that a row has a line

    def checked(self, report: ValidationReport) -> CheckedTable:
        """Add the findings that are shown, one for each cause."""
        shown = findings(self.diagnostics, itemgetter(0))
        found = [report.checked_finding(*each, self.line_of(each[0])) for each in shown]
        return structs.replace(self.table, diagnostics=found)

    def line_of(self, diagnostic: Diagnostic) -> int | None:
        """The 1-based line of a row in delimited text, or of invalid JSON; None in Parquet and without a row.

        Below a header of one line a row is one line, unless cells before it contain line ends or blank lines were
        skipped.
        """
        if diagnostic.row is not None:
            return diagnostic.row + 1 if self.is_text else None
        number = dict(diagnostic.details).get("line", "") if diagnostic.code == "ME010" else ""
        return int(number) if number.isdecimal() else None


@dataclass(frozen=True)
class ValidationReport:
    """The findings in a landing zone, or a part of one."""

    tables: tuple[TableReport, ...] = ()  # in the order of the zone
    diagnostics: tuple[Counted, ...] = ()  # about the zone itself
    landing_zone: str = ""  # its path, `/` between parts; `""` for the working folder
    fail_on: Severity = Severity.ERROR  # the lowest that fails the check
    suppressed: int = 0  # diagnostics that are left out because of `--ignore` or a baseline
    target: str = ""  # what was checked, as it was given
    partner_name: str = ""  # what the publisher calls itself; `""` if it does not (LZ-1.8)

    def all(self) -> Iterator[Counted]:
        """Every diagnostic with its number of occurrences, the zone's own first."""
        yield from self.diagnostics
        for table in self.tables:
            yield from table.diagnostics

    def suppress(self, is_suppressed: Callable[[ValidationReport, Diagnostic], bool]) -> ValidationReport:
        def kept(diagnostics: tuple[Counted, ...]) -> tuple[Counted, ...]:
            return tuple(counted for counted in diagnostics if not is_suppressed(self, counted[0]))

        report = replace(
            self,
            tables=tuple(replace(table, diagnostics=kept(table.diagnostics)) for table in self.tables),
            diagnostics=kept(self.diagnostics),
        )
        return replace(report, suppressed=self.suppressed + len([*self.all()]) - len([*report.all()]))

    def expecting(self, tables: Iterable[str], default_schema: str) -> ValidationReport:
        """The report with ME085 for each of these tables that would not exist, and for a zone without any."""
        with_data = (each.table for each in self.tables if each.table.files)
        folders = [table.delta_path.removeprefix(f"{TABLES}/") for table in with_data]
        landing = "land a folder with `_metadata.json` and data, best before mirroring starts"  # LZ-7.11
        no_folder = "no table would receive data: the landing zone has no table folder"
        found = [] if self.tables else [diagnose("ME085", "", reason=no_folder, help=landing)]
        for table in tables:
            try:
                find_table(table, folders, default_schema)
            except UnknownTable as error:
                reason = f"{table} is expected, and would receive no data"
                help = error.help if folders else landing
                found.append(diagnose("ME085", "", table=table, reason=reason, help=help))
        return replace(self, diagnostics=(*self.diagnostics, *((each, 1) for each in found)))

    def compared_with(self, others: Sequence[ValidationReport]) -> ValidationReport:
        """The report with ME093 where one of the others has a publisher of another name (LZ-1.8)."""
        other = next((other for other in others if other.partner_name not in ("", self.partner_name)), None)
        if other is None or not self.partner_name:
            return self
        differs = diagnose("ME093", PARTNER_EVENTS_FILE, other=other.landing_zone)
        return replace(self, diagnostics=(*self.diagnostics, (differs, 1)))

    def fails(self, diagnostic: Diagnostic) -> bool:
        """Whether a diagnostic fails the check: by its severity, or, at any `fail_on`, because it blocks a table."""
        severity = SEVERITY_ORDER.index(diagnostic.severity)
        return blocks_progress(diagnostic) or severity >= SEVERITY_ORDER.index(self.fail_on)

    @property
    def is_failing(self) -> bool:
        return any(self.fails(diagnostic) for diagnostic, _ in self.all())

    def checked_finding(self, found: Diagnostic, times: int, line: int | None = None) -> CheckedFinding:
        """Convert a diagnostic to the finding that is shown."""
        return CheckedFinding.of(found, times, line, self.fails(found))

    def checked(self) -> CheckedZone:
        """The shown findings, one for each cause."""
        tables = [table.checked(self) for table in self.tables]
        own = [self.checked_finding(*each) for each in findings(self.diagnostics, itemgetter(0))]
        often = Counter(found.severity for found in (*own, *(found for table in tables for found in table.diagnostics)))
        counts = FindingCounts(*(often[severity] for severity in reversed(SEVERITY_ORDER)))
        return CheckedZone(self.target, self.landing_zone, not self.is_failing, counts, self.suppressed, tables, own)


def check_landing_zone(target: ValidationTarget, tie_orders: int = 0) -> ValidationReport:
    """Report what Fabric would make of a target; raises `TransientError`.

    Files of one time are applied in `tie_orders` other orders, to see whether it matters (ME079).
    """
    poller = Poller(target.storage, target.config)
    zone = poller.scan()
    if _is_cleaned_up(target, zone):
        target = replace(target, config=replace(target.config, first_file="lowest"))
    writer = KeyWriter()
    mode = keys_only([file.size for table in zone.tables for file in table.files])
    with DryRun(target.storage, target.config, writer, mode, poller=poller) as dry_run:
        status = dry_run.run()
    return report_of(target, zone, status, writer, _tie_diagnostics(target, zone, tie_orders) if tie_orders else {})


def _is_cleaned_up(target: ValidationTarget, zone: ZoneListing) -> bool:
    """Whether every missing first file may have been applied, archived and deleted since (LZ-8.3)."""
    partitions = [
        f"{zone.folder}/{table.name.folder}/{partition}".rstrip("/")
        for table in zone.tables
        if table.usable is not None and table.usable.strategy is Strategy.SEQUENTIAL
        for partition, number in first_numbers(file.path for file in table.files).items()
        if number > 1
    ]
    return bool(partitions) and all(target.storage.has_archive(partition) for partition in partitions)


def watch(
    target: ValidationTarget, stop: threading.Event, found: Callable[[Diagnostic], None], seconds: float = math.inf
) -> ValidationReport:
    """Check a target again and again for some time, or until `stop` is set, then once more; reports all diagnostics.

    `found` is called with each diagnostic when it is raised first. Raises `TransientError` from the last check.
    """
    by_table: defaultdict[str, list[Diagnostic]] = defaultdict(list)

    def listen(event: Event) -> None:
        if isinstance(event, DiagnosticRaised | TableHalted):
            diagnostic, raised = event.diagnostic, by_table[event.table.folder if event.table else ""]
            is_transient = diagnostic.has(Trait.TRANSIENT) or never_arrives(diagnostic)
            if not is_transient and diagnostic not in raised:
                raised.append(diagnostic)
                found(diagnostic)

    writer, end = KeyWriter(), time.monotonic() + seconds
    with DryRun(target.storage, target.config, writer, keys_only(None), listener=listen) as dry_run:
        while not stop.is_set() and (started := time.monotonic()) < end:
            dry_run.engine.cycle(threading.Event())
            stop.wait(max(MIN_PAUSE_SECONDS, time.monotonic() - started))
        status, zone = dry_run.run(), dry_run.engine.poller.scan()
    return report_of(target, zone, status, writer, by_table)


def report_of(
    target: ValidationTarget,
    zone: ZoneListing,
    status: MirrorStatus,
    writer: KeyWriter,
    more: Mapping[str, list[Diagnostic]],
) -> ValidationReport:
    """The report on a dry run, with further diagnostics by table folder (`""` for the zone)."""
    listings = {table.name: table for table in zone.tables}
    tables = []
    for table in status.tables:
        folder = table.name.folder
        applied = [file for file in table.files if file.state == "applied"]
        replaced = target.storage.replaced(f"{zone.folder}/{folder}", (file.path for file in table.files))
        besides = [
            *_unmatched_changes(table, writer),
            *(diagnose("ME026", f"{folder}/{path}", strict=target.config.strict) for path in replaced),  # LZ-3.13
            *more.get(folder, ()),
        ]
        diagnostics = Counter(dict(table.diagnostics)) | Counter(besides)
        listing = listings.get(table.name)
        not_applied = [
            *(UnappliedFile(f"{folder}/{file.path}", file.reason or "") for file in table.pending_files),
            *_ignored_data(table, listing, diagnostics),
        ]
        files, rows = [f"{folder}/{file.path}" for file in applied], sum(file.rows or 0 for file in applied)
        facts = table.state.code, describe(table.name, table.state), files, not_applied, rows
        error = _fabric_error(table, target.config.default_schema)
        shown = CheckedTable.of(table.name, table.delta_folder, *facts, error, ())
        is_text = bool(listing and listing.usable and listing.usable.is_text)
        tables.append(TableReport(shown, tuple(diagnostics.items()), is_text))
    of_zone = Counter(status.found) | Counter(more.get("", ()))
    if target.is_whole and zone.tables and target.storage.stat(f"{zone.folder}/{PARTNER_EVENTS_FILE}") is None:
        of_zone[diagnose("ME092", "")] = 1
    name = status.partner.name if status.partner else ""
    return ValidationReport(
        tuple(tables), tuple(of_zone.items()), target.landing_zone, target=str(target.path), partner_name=name
    )


def _ignored_data(
    table: TableStatus, listing: TableListing | None, diagnostics: Iterable[Diagnostic]
) -> Iterator[UnappliedFile]:
    """Files that will never be read, each with the reason, which may be its partition's."""
    reasons = {found.path: found.message for found in diagnostics if never_arrives(found)}
    known = {file.path for file in table.files}
    for file in listing.files if listing else ():
        path = f"{table.name.folder}/{file.path}"
        reason = reasons.get(path) or reasons.get(partition_of(path))
        if reason and file.path not in known:
            yield UnappliedFile(path, reason)


def _fabric_error(table: TableStatus, default_schema: str) -> str | None:
    if not (isinstance(table.state, Halted) and table.state.diagnostic.definition.fabric):
        return None
    _, message = fabric_message(table.state.diagnostic, table.name, _NO_ID, default_schema=default_schema)
    return message.removesuffix(f" ArtifactId: {_NO_ID}")


def _unmatched_changes(table: TableStatus, writer: KeyWriter) -> Iterator[Diagnostic]:
    """Changes to keys that were never inserted, if the first file is there (LZ-4.7)."""
    effects = writer.effects.get(table.delta_folder, {})
    if any(number > 1 for number in first_numbers(effects).values()):  # what the files before it held is not known
        return
    for path, effect in effects.items():
        place = f"{table.name.folder}/{path}"
        if effect.unmatched_updates:
            yield diagnose("ME077", place, row=effect.first_unmatched_update, count=effect.unmatched_updates)
        if effect.unmatched_deletes:
            yield diagnose("ME078", place, row=effect.first_unmatched_delete, count=effect.unmatched_deletes)


def _tie_diagnostics(target: ValidationTarget, zone: ZoneListing, orders: int) -> dict[str, list[Diagnostic]]:
    """ME079 for every table that becomes another one if its tied files are applied in another order, by folder."""
    tables, expected = _in_memory(target.storage, target)
    diagnostics: dict[str, list[Diagnostic]] = {}
    tied = [table for table in tables if any(found.code == _TIED for found, _ in table.diagnostics)]
    for seed in range(orders if tied else 0):
        _, writer = _in_memory(ZoneView(target.storage, _shuffled(zone, seed)), target)
        for table in tied:
            if not same_rows(*(_rows(each, table) for each in (writer, expected))):
                ties = [found for found, _ in table.diagnostics if found.code == _TIED]
                found = [diagnose("ME079", tie.path, count=dict(tie.details)["count"]) for tie in ties]
                diagnostics.setdefault(table.name.folder, found)
    return diagnostics


def _rows(writer: MemoryDeltaWriter, table: TableStatus) -> list[dict[str, Any]]:
    rows = writer.rows(table.delta_folder)
    return [] if rows is None else rows.to_pylist()


def _shuffled(zone: ZoneListing, seed: int) -> dict[str, Source]:
    """Files of one time, shown nanoseconds apart in a random order."""
    random = Random(seed)  # noqa: S311 - nothing secret
    sources: dict[str, Source] = {}
    tie = attrgetter("partition", "modified_ns")
    for table in zone.tables:
        folder = f"{zone.folder}/{table.name.folder}"
        for (_, modified_ns), files in groupby(sorted(table.files, key=tie), key=tie):
            paths = [f"{folder}/{file.path}" for file in files]
            shuffled = random.sample(paths, len(paths))
            sources |= {path: Source(path, modified_ns + shift) for shift, path in enumerate(shuffled)}
    return sources


def _in_memory(storage: Storage, target: ValidationTarget) -> tuple[Sequence[TableStatus], MemoryDeltaWriter]:
    """Every table after a dry run, and the writer that has its rows."""
    writer = MemoryDeltaWriter()
    with DryRun(storage, target.config, writer, all_rows(Path(), math.inf)) as dry_run:
        return dry_run.run().tables, writer
