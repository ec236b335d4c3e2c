"""`status`, `show`, `history` and `diff`: read a mirror while an engine may run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirror_engine import display
from mirror_engine.cli import exits
from mirror_engine.cli import output as out
from mirror_engine.cli.options import (
    COUNT,
    DROPPING,
    READING,
    TABLE_HELP,
    Value,
    command,
    refuse_given,
    with_downloads,
    with_mirror,
)
from mirror_engine.config import OptionKind, duration
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.causes import findings
from mirror_engine.landing_zone.names import find_table, shown_names
from mirror_engine.landing_zone.states import (
    Behind,
    Blocked,
    CaughtUp,
    Deleted,
    Halted,
    Loading,
    Unconfigured,
    Unlisted,
)
from mirror_engine.landing_zone.text import count
from mirror_engine.monitoring.history import TableHistory
from mirror_engine.monitoring.state_text import START_ENGINE, tally_text
from mirror_engine.results import Column, Count, Result, Row, TableReference
from mirror_engine.tools.difference import TableDifference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.text import Text

    from mirror_engine.cli.downloads import Downloads
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.metadata import PartnerEvents
    from mirror_engine.mirror import Mirror
    from mirror_engine.monitoring.status import FileStatus, MirrorStatus, TableStatus
    from mirror_engine.tools.snapshot import MirrorSnapshot

NO_FOLDERS = "The landing zone has no table folders."
ROWS_HELP = "Maximum number of rows to show of each kind; 0 for all."
STATE_STYLES = {"stuck": "bold red", "idle": "yellow", "busy": "cyan", "well": "green"}  # most urgent first
WATCH_SECONDS = {True: 2.0, False: 30.0}  # between two looks at a folder, at a store, which asks for requests
MAX_PARAGRAPHS = 20  # of tables in one report
MAX_CHARACTERS = 100  # of one value of the partner events, which may be any text


@command(config=(*READING, *DROPPING), reads_engine=True)
@click.option("names", "--table", metavar="TABLE", multiple=True, help="Only this table, with its files (repeatable).")
@click.option(
    "--check",
    is_flag=True,
    help="End with 3 if a table needs attention, else with 4 if a folder is not listed (ME070).",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Refresh until Ctrl+C; with --json one document per line. Reads a store without cache and --max-download.",
)
@click.option(
    "--interval",
    type=Value(duration(0.1)),
    help="Time between two refreshes.  [default: 2s; 30s for a ROOT in a store]",
)
@with_mirror(at_once=True)
def status(mirror: Mirror, names: tuple[str, ...], interval: float | None, *, check: bool, watch: bool) -> int:
    """Show the state of every table, and what to do.

    Reads the landing zone; an engine may run meanwhile, and its options are used. Starts no Java.

    Tables that need attention come first; the last line counts all.

    Example: mirror-engine status ./shop --table Sales.Orders

    Exit codes: 0 shown, and after Ctrl+C with --watch · 2 usage error · 3 a table needs attention, with --check · 4
    temporary: storage; retry
    """
    from rich.console import Group
    from rich.live import Live

    if not watch:
        refuse_given({"interval": "--interval"}, "without --watch, status is shown once")
    interval = interval or WATCH_SECONDS[isinstance(mirror.root, Path)]
    is_live = watch and not out.wants_json() and out.stdout().is_terminal
    view = Live(console=out.stdout(), auto_refresh=False, screen=True) if is_live else nullcontext()
    with exits.Stopping() as stopping, view as live:
        while True:
            latest = _status(mirror, names)
            if live:
                live.update(Group(*status_text(latest, problems_first=True, detailed=bool(names))), refresh=True)
            else:
                out.report(latest.to_json() if out.wants_json() else {}, status_text(latest, detailed=bool(names)))
            if not watch or stopping.stop.wait(interval):
                break
    if check and any(table.needs_attention for table in latest.tables):
        return exits.NEEDS_ATTENTION
    return exits.RETRY if check and latest.unlisted else exits.SUCCESS


def _status(mirror: Mirror, names: Sequence[str]) -> MirrorStatus:
    """The status of the named tables, or all; where Fabric mirrors it, with the pending files that it would reject."""
    with mirror.snapshot() as seen:
        latest = mirror.status_of(seen)
        if names:
            folders = [table.delta_folder for table in latest.tables]
            wanted = {find_table(name, folders, mirror.config.delta_default_schema) for name in names}
            chosen = (each for each in latest.tables if each.delta_folder in wanted)
            latest = replace(latest, tables=tuple(_with_columns(seen, each) for each in chosen))
        if not latest.fabric:
            return latest
        from mirror_engine.tools.trace.rejections import with_rejections

        return with_rejections(seen, latest)


def _with_columns(seen: MirrorSnapshot, table: TableStatus) -> TableStatus:
    """A table's status with the columns of its Delta table, if that can be read."""
    if table.row_count is None:
        return table
    found = seen.context.delta.snapshot(table.delta_folder)
    return replace(table, columns=found.schema.columns if found else None)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


class Show(TableReference, Result, frozen=True):
    """Rows of a table.

    Attributes:
        at_version: that was asked for; null: the newest
        has_more: than `--limit`
    """

    at_version: Count | None
    columns: Sequence[Column]
    rows: Sequence[Row]
    has_more: bool

    def text(self) -> display.Lines:
        yield display.rows_text(self.rows, [column.name for column in self.columns])
        more = "; there are more, see --limit" if self.has_more else ""
        yield display.line(f"{count(len(self.rows), 'row')}{more}", "dim")


@command(root="option", config=("default_schema",), result=Show)
@click.argument("table", help=TABLE_HELP)
@click.option("--at-version", type=COUNT, help="Delta version to show; default: the newest.")
@click.option("--limit", type=COUNT, default=20, help="Maximum number of rows; 0 for all.")
@with_downloads
@with_mirror(at_once=False)
def show(mirror: Mirror, table: str, at_version: int | None, limit: int, downloads: Downloads) -> None:
    """Show a table's rows.

    Sorted by key. If the table has more rows than --limit, shows the lowest keys. If it has more than 100,000 rows, or
    is in a store, shows the first rows of its files. In JSON, decimals are text, binary is Base64, times are ISO 8601,
    NaN and infinities text. Starts no Java.

    Example: mirror-engine show -C ./shop Sales.Orders --at-version 3 --limit 5

    Exit codes: 0 shown · 2 usage error: no such table or version · 4 temporary: storage; retry
    """
    from mirror_engine.mirror import of_delta_table
    from mirror_engine.tables.arrow_types import delta_type

    folder = mirror.delta_folder(table)
    downloads.add_table(mirror.root, folder, at_version, limit + 1 if limit else None)
    rows = mirror.show(folder, version=at_version, limit=limit or None)
    columns = [Column(each.name, delta_type(each.type) or str(each.type), each.nullable) for each in rows.schema]
    out.report(of_delta_table(Show, mirror, folder, at_version, columns, rows, rows.has_more))


@command(root="option", config=("default_schema",), result=TableHistory)
@click.argument("table", required=False, help=f"{TABLE_HELP} Without it: changes to all tables.")
@click.option("--limit", type=COUNT, default=20, help="Maximum number of commits or changes; 0 for all.")
@with_mirror(at_once=False)
def history(mirror: Mirror, table: str | None, limit: int) -> None:
    """Show a table's commits and their change files, or the other changes to all tables.

    Newest first. Without TABLE: drops, halts, resumes, maintenance, deleted archived files and rebuilt progress, from
    .mirror-engine/history.jsonl of this machine's engines. Maintenance and deleted files are one line per table and
    day. Starts no Java.

    Example: mirror-engine history -C ./shop Sales.Orders --limit 5

    Exit codes: 0 shown · 2 usage error: no such table · 4 temporary: storage; retry
    """
    out.report(mirror.history(table, limit=limit or None))


def _tolerance(value: object) -> float:
    if not (number := float(str(value))) >= 0:
        raise ValueError
    return number


@command(root="option", config=("default_schema",), result=TableDifference)
@click.argument("table", help=TABLE_HELP)
@click.argument("expected", type=Path, required=False, help="The expected table: a .csv, .parquet or .json file.")
@click.option("--keys", type=Path, metavar="FILE", help="Keys of the source, in place of EXPECTED: compare keys alone.")
@click.option("--key", metavar="COLUMNS", multiple=True, help="Match rows by these columns; default: the table's key.")
@click.option("--at-version", type=COUNT, help="Delta version to compare; default: the newest.")
@click.option(
    "--float-tolerance",
    type=Value(OptionKind("a number of 0 or more", "X", _tolerance)),
    default="0",
    help="Floating-point values this far apart are equal.",
)
@click.option("--limit", type=COUNT, default=20, help=ROWS_HELP)
@with_downloads
@with_mirror(at_once=False)
def diff(
    mirror: Mirror,
    table: str,
    expected: Path | None,
    keys: Path | None,
    key: tuple[str, ...],
    at_version: int | None,
    float_tolerance: float,
    limit: int,
    downloads: Downloads,
) -> int:
    """Compare a table with an expected result, or with its source's keys.

    Matches rows by the table's key, or by --key Id,Line; compares whole rows of a keyless table. Compares all columns,
    in any order. Reads CSV and JSON as the table's types: an empty field is NULL, "" is empty text or binary, decimals
    may be text, times are ISO 8601, binary is Base64. Accepts the output of show --json. Starts no Java.

    With --keys keys.parquet, shows rows of the source that never came, and rows that the source no longer has.

    Example: mirror-engine diff -C ./shop Sales.Orders expected.csv --key Id

    Exit codes: 0 equal · 2 usage error: no such table, column or file · 3 different · 4 temporary: storage; retry
    """
    file = keys or expected
    if file is None or (keys and expected):
        raise UsageError("diff needs a file: EXPECTED, or --keys FILE", "see mirror-engine diff --help")
    folder = mirror.delta_folder(table)
    downloads.add_table(mirror.root, folder, at_version)
    found = mirror.diff(
        folder,
        file,
        key=key,
        version=at_version,
        tolerance=float_tolerance,
        limit=limit or None,
        keys_only=keys is not None,
    )
    out.report(found)
    return exits.SUCCESS if found.equal else exits.NEEDS_ATTENTION


def status_text(status: MirrorStatus, *, problems_first: bool = False, detailed: bool = False) -> display.Lines:
    """A headline, a line for each table, a paragraph for each with something to report, and how many there are.

    Tables that need attention come first in each list; with `problems_first` their paragraphs come before it, as the
    end may not fit on the screen. `detailed`: with their pending files.
    """
    now = time.time()
    yield _headline(status, now)
    if status.partner and (partner := _partner(status.partner)):
        yield display.line(partner, "dim")
    failure = status.last_failure
    if failure and not any(found.message in failure["message"] for found in status.unlisted):
        yield from display.with_help(f"last failure: {failure['message']}", failure["help"], "bold red")
    for diagnostic in findings(status.diagnostics, lambda each: each)[: display.MAX_LINES]:
        yield ""
        yield from display.diagnostic_lines(diagnostic)
    by_urgency = sorted(status.tables, key=lambda table: list(STATE_STYLES).index(table.urgency))
    noted = [table for table in by_urgency if _is_noted(table, detailed=detailed, by_fabric=bool(status.fabric))]
    first = [table for table in noted if problems_first and table.urgency == "stuck"]
    yield from _paragraphs(first, detailed=detailed, by_fabric=bool(status.fabric))
    yield ""
    overview = _overview(by_urgency, now, status)
    yield overview if status.tables else display.line(NO_FOLDERS)
    yield from _paragraphs(noted[len(first) :], detailed=detailed, by_fabric=bool(status.fabric))
    if status.tables:
        starred = (
            _end(status, " * Fabric shows an error.") if any(table.fabric_error for table in status.tables) else None
        )
        yield display.WithColumn(overview, "Fabric", starred, _end(status)) if starred else _end(status)


def _is_noted(table: TableStatus, *, detailed: bool, by_fabric: bool) -> bool:
    if table.last_failure or table.columns or (by_fabric and table.fabric_error):
        return True
    if isinstance(table.state, Unlisted):
        return False  # the zone's own diagnostics say why
    if table.ignored or table.diagnostics or table.would_reject:
        return True
    # the list of tables has the number of pending files
    return not isinstance(table.state, CaughtUp if detailed else CaughtUp | Behind | Loading)


def _paragraphs(tables: Sequence[TableStatus], *, detailed: bool, by_fabric: bool) -> display.Lines:
    yield from [""] if tables else []
    for table in tables[:MAX_PARAGRAPHS]:
        yield from _paragraph(table, detailed=detailed)
        if by_fabric and table.fabric_error:
            yield display.bullet("Fabric:", table.fabric_error)
    if (more := len(tables) - MAX_PARAGRAPHS) > 0:
        yield display.line(f"… and {count(more, 'more table')}: see --table NAME, or --json", "dim")


def _end(status: MirrorStatus, legend: str = "") -> Text:
    """`11 tables: 4 caught up, 6 need attention, 1 pending`, and what to do about pending files."""
    text = tally_text(status.counts) + legend
    if any(isinstance(table.state, Behind | Loading) for table in status.tables) and not status.is_worked_on:
        text += f" {START_ENGINE[:1].upper()}{START_ENGINE[1:]}."
    return display.line(text, "bold")


def _headline(status: MirrorStatus, now: float) -> Text:
    lease = status.lease
    if status.fabric:
        seen, says = status.last_heartbeat_at, status.fabric
        engine = ", ".join(filter(None, [f"mirrored by Fabric: {says['status'] or 'no status'}", says["error"]]))
        engine += "" if seen is None else f" (last seen {display.short_span(max(0.0, now - seen))} ago)"
    elif not status.engine_running:
        seen = status.last_heartbeat_at
        ago = "" if seen is None else f" (last seen {display.short_span(max(0.0, now - seen))} ago)"
        engine = f"no engine is running{ago}"
        engine += f"; expired is the lease of {lease}" if lease and not lease.is_over else ""
    elif lease and status.next_scan_at is None:
        engine = f"engine running on {lease}"
    elif status.next_scan_at is None or status.next_scan_at <= now:
        engine = "engine running, working"
    else:
        engine = f"engine running, next scan in {display.short_span(status.next_scan_at - now)}"
    zone = "" if status.zone else "no landing zone (Files/LandingZone); "
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in status.scan_requests.items())
    requests = f"; a scan takes {count(sum(status.scan_requests.values()), 'request')} ({kinds})" if kinds else ""
    return display.line(f"{status.root}: {zone}{engine}{requests}")


def _partner(partner: PartnerEvents) -> str:
    name, kind, version = (
        text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"
        for text in (partner.partner_name, partner.source_type, partner.source_version)
    )
    source = f"{kind} {version}".strip()
    return " ".join(f"{label} {text}" for label, text in (("published by", name), ("from", source)) if text)


def _overview(tables: Sequence[TableStatus], now: float, status: MirrorStatus) -> display.Grid:
    last = ">Last sync" if status.fabric else ">Last commit"
    headings = ["Table", "State", "Fabric", ">Applied", ">Pending", ">Lag", ">Rows", ">Version", last]
    names = shown_names(table.name for table in tables)
    rows = [
        (
            names[table.name],
            display.line(table.state.code.replace("_", " "), STATE_STYLES[table.urgency]),
            (table.fabric_status or "-") + ("*" if table.fabric_error else ""),
            table.watermark,
            f"{len(table.pending_files):,}" if table.pending_files else "-",
            display.short_span(table.lag_seconds) if table.pending_files else "-",
            _number(table.row_count),
            "-" if table.delta_version is None else f"v{table.delta_version}",
            "-" if table.last_commit_at is None else f"{display.short_span(max(0.0, now - table.last_commit_at))} ago",
        )
        for table in tables
    ]
    return display.Grid(headings, rows, expendable=("Version", "Fabric", last, "Lag"))


def _paragraph(table: TableStatus, *, detailed: bool) -> display.Lines:
    """What is to be said of a table: its state with the reason and help, and findings that this does not tell."""
    style = STATE_STYLES[table.urgency]
    own, first = {*table.ignored}, None
    counted = findings({**dict.fromkeys(_diagnostics_of(table), 1), **dict(table.diagnostics)}.items(), itemgetter(0))
    if isinstance(table.state, Halted) and counted:
        first = counted[0][0]
        yield from display.diagnostic_lines(first, display.halted(table.name))
        own.add(first)
    else:
        yield from display.with_help(table.message, table.help(engine_running=True), style)
        own |= {*_diagnostics_of(table), *(found for found, _ in counted if _is_said(found, table))}
    if table.would_reject:
        yield display.line("Fabric would reject:", style)
        yield from display.diagnostic_lines(table.would_reject)
    if detailed and table.pending_files:
        pending = count(len(table.pending_files), "file")
        yield f"  {pending} pending, the oldest for {display.short_span(table.lag_seconds)}"
    if table.columns:
        yield from display.bullets([("columns:", ", ".join(f"{each.name} {each.type}" for each in table.columns))])
    yield from display.bullets(_numbers(table, detailed=detailed))
    if detailed:
        told = {getattr(first, "message", ""), f"{getattr(table.state, 'missing', '')} is missing"}
        waiting = [file for file in table.pending_files if file.state != "rejected"]
        reasons = ["" if file.reason in told else f": {file.reason}" for file in waiting]
        yield from display.bullets([("pending:", file.path + why) for file, why in zip(waiting, reasons, strict=True)])
    yield from display.bullets(display.ignored_paths(table.ignored))
    yield from display.diagnostics((each for each in counted if each[0] not in own), f"{table.name.folder}/")


def _diagnostics_of(table: TableStatus) -> tuple[Diagnostic, ...]:
    """The diagnostic of a table's state, if that has one."""
    return (table.state.diagnostic,) if isinstance(table.state, Halted | Unconfigured | Deleted | Unlisted) else ()


def _is_said(found: Diagnostic, table: TableStatus) -> bool:
    """Whether the sentence about a table's state has told of a finding: of its missing file."""
    folder, name = table.name.folder, dict(found.details).get("name")
    return isinstance(table.state, Blocked) and f"{found.path}/{name}" == f"{folder}/{table.state.missing}"


def _numbers(table: TableStatus, *, detailed: bool) -> list[tuple[str, str]]:
    """Watermark of each partition, and the next file; a table without partitions has its one in the overview."""
    if not detailed and len(table.watermarks) <= 1:
        return []
    applied = [
        ("applied:", f"{place or 'outside partitions'}: up to {number}") for place, number in table.watermarks.items()
    ]
    return [*(applied if len(applied) > 1 else ()), *next_files(table.next_files, table.pending_files)]


def next_files(names: Mapping[str, str], pending: Sequence[FileStatus]) -> list[tuple[str, str]]:
    """The file that comes next in each partition; one that was rejected is to be replaced."""
    rejected = {file.path for file in pending if file.state == "rejected"}
    paths = [f"{place}/{name}".lstrip("/") for place, name in names.items()]
    return [("replace:" if path in rejected else "next:", path) for path in paths]
