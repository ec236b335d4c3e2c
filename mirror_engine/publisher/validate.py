"""Check a landing zone: a dry run of the engine that keeps keys only, once or while a publisher writes; baselines."""

from __future__ import annotations

import json
import math
import os
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from mirror_engine.engine.poller import Poller
from mirror_engine.errors import UnknownTable, UsageError
from mirror_engine.events import DiagnosticRaised, TableHalted
from mirror_engine.landing_zone.change import same_rows
from mirror_engine.landing_zone.detection import never_arrives
from mirror_engine.landing_zone.diagnostics import SEVERITY_ORDER, Diagnostic, Severity, diagnose
from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.landing_zone.metadata import Strategy
from mirror_engine.landing_zone.names import PARTNER_EVENTS_FILE, TableName, find_table
from mirror_engine.landing_zone.states import Halted
from mirror_engine.monitoring.fabric_files import WORDED, fabric_message
from mirror_engine.monitoring.status import table_reference
from mirror_engine.monitoring.words import counted_json, describe, fields_json
from mirror_engine.publisher.trace.replay import DryRun, first_numbers
from mirror_engine.storage.zone_view import Source, ZoneView
from mirror_engine.tables.merge.keys_only import KeyWriter, keys_only
from mirror_engine.tables.merge.memory import MemoryDeltaWriter
from mirror_engine.tables.reading.spill import all_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror_engine.events import Event
    from mirror_engine.landing_zone.listing import TableListing, ZoneListing
    from mirror_engine.monitoring.status import MirrorStatus, TableStatus
    from mirror_engine.publisher.target import ValidationTarget
    from mirror_engine.storage.base import Storage

Counted = tuple[Diagnostic, int]  # a diagnostic and its number of occurrences
MISSING_FILE = "ME019"  # a warning that blocks a table as an error halts it
UNMATCHED_CHANGE_CODES = frozenset({"ME077", "ME078"})  # changes to keys that were never inserted
TRANSIENT_CODES = frozenset({"ME008", "ME019", "ME067", "ME070"})  # true for a while: the last check counts
MIN_PAUSE_SECONDS = 0.01  # between checks of `watch`: a file may be empty under its final name for no longer
BASELINE_FORMAT = 1
_BASELINE_FIELDS = ("landing_zone", "code", "path", "column")
_TIED = "ME028"
_NO_ID = "-"


def blocks_progress(diagnostic: Diagnostic) -> bool:
    """Whether files are not applied because of it until it is resolved (LZ-3.3, LZ-4.17), or never."""
    return diagnostic.code == MISSING_FILE or diagnostic.severity is Severity.ERROR or never_arrives(diagnostic)


@dataclass(frozen=True)
class TableReport:
    """The findings in one table folder; paths begin at the landing zone's top.

    Attributes:
        state: the table's state after the dry run: `caught_up`, `halted` …
        files, rows: applied, in order.
        diagnostics: about the table, its metadata and its files, in the order they were raised.
        is_text: whether its change files are delimited text, so that a row has a line.
        not_applied: files that are not applied, each with the reason.
        fabric_error: the message that Fabric shows for the halt, without ids; None if there is none or it is unknown.
    """

    name: str
    state: str
    files: tuple[str, ...] = ()
    rows: int = 0
    diagnostics: tuple[Counted, ...] = ()
    is_text: bool = False
    message: str = ""
    not_applied: tuple[tuple[str, str], ...] = ()
    fabric_error: str | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether files of it are not applied because of a diagnostic that is not suppressed."""
        return any(blocks_progress(diagnostic) for diagnostic, _ in self.diagnostics)

    def to_json(self, default_schema: str) -> dict[str, Any]:
        """The report as plain values."""
        name = TableName.from_folder(self.name)
        return {
            **table_reference(name, name.delta_folder(default_schema)),
            **fields_json(self, "state", "message", "files", "rows", "fabric_error"),
            "not_applied": [{"path": path, "reason": reason} for path, reason in self.not_applied],
            "diagnostics": counted_json(self.diagnostics),
        }


@dataclass(frozen=True)
class ValidationReport:
    """The findings in a landing zone, or a part of one.

    Attributes:
        tables: in the order of the zone.
        diagnostics: about the zone itself.
        landing_zone: its path, `/` between parts; `""` for the working folder.
        fail_on: the lowest severity that fails the check.
        suppressed: how many diagnostics are left out because of `--ignore` or a baseline.
        partner_name: what the publisher calls itself; `""` if it does not (LZ-1.8).
    """

    tables: tuple[TableReport, ...] = ()
    diagnostics: tuple[Counted, ...] = ()
    landing_zone: str = ""
    fail_on: Severity = Severity.ERROR
    suppressed: int = 0
    partner_name: str = ""

    def all(self) -> Iterator[Counted]:
        """Every diagnostic with its number of occurrences, the zone's own first."""
        yield from self.diagnostics
        for table in self.tables:
            yield from table.diagnostics

    def suppress(self, is_suppressed: Callable[[ValidationReport, Diagnostic], bool]) -> ValidationReport:
        """The report without those diagnostics."""

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
        folders = [
            TableName.from_folder(table.name).delta_folder(default_schema) for table in self.tables if table.files
        ]
        landing = "land a folder with `_metadata.json` and data, best before mirroring starts"  # LZ-7.11
        missing = {} if self.tables else {"a table": landing}
        for table in tables:
            try:
                find_table(table, folders, default_schema)
            except UnknownTable as error:  # noqa: PERF203 - a few tables
                missing[table] = error.help
        found = [(diagnose("ME085", "", table=table, help=help), 1) for table, help in missing.items()]
        return replace(self, diagnostics=(*self.diagnostics, *found))

    def compared_with(self, others: Sequence[ValidationReport]) -> ValidationReport:
        """The report with ME093 where one of the others has a publisher of another name (LZ-1.8)."""
        other = next((other for other in others if other.partner_name not in ("", self.partner_name)), None)
        if other is None or not self.partner_name:
            return self
        differs = diagnose("ME093", PARTNER_EVENTS_FILE, other=other.landing_zone)
        return replace(self, diagnostics=(*self.diagnostics, (differs, 1)))

    def path_of(self, diagnostic: Diagnostic) -> str:
        """A diagnostic's path from where the landing zone's path begins; `""` for the top itself."""
        return "/".join(part for part in (self.landing_zone.rstrip("/"), diagnostic.path) if part and part != ".")

    def fails(self, diagnostic: Diagnostic) -> bool:
        """Whether it fails the check: by its severity, or because it blocks a table, whatever `fail_on` is."""
        severity = SEVERITY_ORDER.index(diagnostic.severity)
        return blocks_progress(diagnostic) or severity >= SEVERITY_ORDER.index(self.fail_on)

    @property
    def is_failing(self) -> bool:
        """Whether the check fails."""
        return any(self.fails(diagnostic) for diagnostic, _ in self.all())

    def count(self, severity: Severity) -> int:
        """How many different diagnostics of a severity there are."""
        return sum(diagnostic.severity is severity for diagnostic, _ in self.all())

    def to_json(self, default_schema: str = "dbo") -> dict[str, Any]:
        """The report as plain values; `default_schema` is that of tables outside a schema folder."""
        return {
            "landing_zone": self.landing_zone,
            "suppressed": self.suppressed,
            "ok": not self.is_failing,
            "counts": {severity.value: self.count(severity) for severity in reversed(SEVERITY_ORDER)},
            "tables": [table.to_json(default_schema) for table in self.tables],
            "diagnostics": counted_json(self.diagnostics),
        }


def check_landing_zone(
    target: ValidationTarget, tie_orders: int = 0, whole_file_bytes: float = math.inf
) -> ValidationReport:
    """Report what Fabric would make of a target; raises `TransientError`.

    Files of one time are applied in `tie_orders` other orders, to see whether it matters (ME079). Of files larger than
    `whole_file_bytes` only the columns are read that `keys_only` needs.
    """
    zone = Poller(target.storage, target.config).scan()
    if _is_cleaned_up(target, zone):
        target = replace(target, config=replace(target.config, first_file="lowest"))
    writer = KeyWriter()
    mode = keys_only([file.size for table in zone.tables for file in table.files], whole_file_bytes)
    with DryRun(target.storage, target.config, writer, mode) as dry_run:
        status = dry_run.run()
    return report_of(target, zone, status, writer, _tie_diagnostics(target, zone, tie_orders) if tie_orders else {})


def _is_cleaned_up(target: ValidationTarget, zone: ZoneListing) -> bool:
    """Whether all first files that are missing may have been applied, archived and deleted since (LZ-8.3)."""
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
            is_transient = diagnostic.code in TRANSIENT_CODES or never_arrives(diagnostic)
            if not is_transient and diagnostic not in raised:
                raised.append(diagnostic)
                found(diagnostic)

    writer, end = KeyWriter(), time.monotonic() + seconds
    with DryRun(target.storage, target.config, writer, keys_only(None), listener=listen) as dry_run:
        while not stop.is_set() and (started := time.monotonic()) < end:
            dry_run.engine.cycle(threading.Event())
            stop.wait(max(MIN_PAUSE_SECONDS, time.monotonic() - started))
        status = dry_run.run()
        zone = dry_run.poller.scan()
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
        tables.append(
            TableReport(
                name=folder,
                state=table.state.code,
                files=tuple(f"{folder}/{file.path}" for file in applied),
                rows=sum(file.rows or 0 for file in applied),
                diagnostics=tuple(diagnostics.items()),
                is_text=bool(listing and listing.usable and listing.usable.is_text),
                message=describe(table.name, table.state),
                not_applied=(
                    *((f"{folder}/{file.path}", file.reason) for file in table.pending_files),
                    *_ignored_data(table, listing, diagnostics),
                ),
                fabric_error=_fabric_error(table, target.config.default_schema),
            )
        )
    of_zone = Counter(status.diagnostics) | Counter(more.get("", ()))
    if target.is_whole and zone.tables and target.storage.stat(f"{zone.folder}/{PARTNER_EVENTS_FILE}") is None:
        of_zone[diagnose("ME092", "")] = 1
    name = status.partner.partner_name if status.partner else ""
    return ValidationReport(tuple(tables), tuple(of_zone.items()), target.landing_zone, partner_name=name)


def _ignored_data(
    table: TableStatus, listing: TableListing | None, diagnostics: Iterable[Diagnostic]
) -> Iterator[tuple[str, str]]:
    """Files that will never be read, each with the reason, which may be its partition's."""
    reasons = {found.path: found.message for found in diagnostics if never_arrives(found)}
    known = {file.path for file in table.files}
    for file in listing.files if listing else ():
        path = f"{table.name.folder}/{file.path}"
        reason = reasons.get(path) or reasons.get(partition_of(path))
        if reason and file.path not in known:
            yield path, reason


def _fabric_error(table: TableStatus, default_schema: str) -> str | None:
    if not (isinstance(table.state, Halted) and table.state.diagnostic.code in WORDED):
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
    with (
        tempfile.TemporaryDirectory(prefix="mirror-engine-") as scratch,
        DryRun(storage, target.config, writer, all_rows(Path(scratch))) as dry_run,
    ):
        return dry_run.run().tables, writer


def read_baseline(path: Path) -> Callable[[ValidationReport, Diagnostic], bool]:
    """Read a baseline file; returns whether it has a diagnostic: row and count may differ. Raises `UsageError`."""
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        entries = frozenset(tuple(entry[name] for name in _BASELINE_FIELDS) for entry in content["suppressed"])
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "Create one: --write-baseline FILE.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(f"{path}: not a baseline", "Write it again: --write-baseline FILE.") from None
    return lambda report, diagnostic: _baseline_entry(path.parent, report, diagnostic) in entries


def write_baseline(path: Path, reports: Iterable[ValidationReport]) -> int:
    """Write every diagnostic of the reports to a baseline file; returns how many. Raises `UsageError`."""
    entries = {_baseline_entry(path.parent, report, diagnostic) for report in reports for diagnostic, _ in report.all()}
    content = [dict(zip(_BASELINE_FIELDS, entry, strict=True)) for entry in sorted(entries, key=repr)]
    try:
        path.write_text(
            json.dumps({"format": BASELINE_FORMAT, "suppressed": content}, indent=1) + "\n", encoding="utf-8"
        )
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    return len(entries)


def _baseline_entry(folder: Path, report: ValidationReport, diagnostic: Diagnostic) -> tuple[Any, ...]:
    """What a baseline has; paths are relative to its folder, so that it works from any working folder."""
    landing_zone = report.landing_zone
    if "://" not in landing_zone:
        landing_zone = os.path.relpath(Path(landing_zone).absolute(), folder.absolute()).replace(os.sep, "/")
    return landing_zone, diagnostic.code, diagnostic.path, diagnostic.column
