"""Text of `status`: tables that need attention first, each with the reason and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from mirror_engine.cli.output import STYLES as SEVERITY_STYLES
from mirror_engine.cli.output import bullet, diagnostic_lines, grid, line, short_span
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.landing_zone.states import CaughtUp, Halted
from mirror_engine.monitoring.words import describe, help_for, urgency

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.metadata import PartnerEvents
    from mirror_engine.landing_zone.states import TableState
    from mirror_engine.monitoring.status import MirrorStatus, TableStatus

Line = tuple[str, str]  # a mark, and the text behind it
STYLES = {"stuck": "bold red", "idle": "yellow", "busy": "cyan", "well": "green"}  # most urgent first
MAX_LINES = 8  # of one kind below one table
MAX_CHARACTERS = 100  # of one value of the partner events, which may be any text


def status_text(status: MirrorStatus, now: float) -> RenderableType:
    """A headline, one line per table, and a paragraph for each table with something to report."""
    parts: list[RenderableType] = [_headline(status, now)]
    if status.partner and (partner := _partner(status.partner)):
        parts.append(line(partner, "dim"))
    for diagnostic in status.diagnostics[:MAX_LINES]:
        parts += ["", *diagnostic_lines(diagnostic)]
    parts += ["", _overview(status.tables, now) if status.tables else line("The landing zone has no table folders.")]
    for table in sorted(status.tables, key=lambda table: list(STYLES).index(urgency(table.state))):
        if not isinstance(table.state, CaughtUp) or table.pending_files or table.ignored or table.diagnostics:
            parts += ["", *_paragraph(table, engine_running=status.engine_running)]
    return Group(*parts)


def style_of(state: TableState) -> str:
    """Red if a table needs attention, green if all is well."""
    return STYLES[urgency(state)]


def _headline(status: MirrorStatus, now: float) -> Text:
    if not status.engine_running:
        seen = (
            "" if status.last_heartbeat_at is None else f" (last seen {short_span(now - status.last_heartbeat_at)} ago)"
        )
        engine = f"no engine is running{seen}"
    elif status.next_scan_at is None or status.next_scan_at <= now:
        engine = "engine running, working"
    else:
        engine = f"engine running, next scan in {short_span(status.next_scan_at - now)}"
    zone = "" if status.zone else "no landing zone (Files/LandingZone); "
    return line(f"{status.root}: {zone}{engine}")


def _partner(partner: PartnerEvents) -> str:
    source = f"{_short(partner.source_type)} {_short(partner.source_version)}".strip()
    named = (("published by", _short(partner.partner_name)), ("from", source))
    return " ".join(f"{label} {name}" for label, name in named if name)


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"


def _overview(tables: Sequence[TableStatus], now: float) -> RenderableType:
    shown = grid("Table", "Status", "Fabric", ">Applied", ">Pending", ">Lag", ">Rows", ">Version", ">Last commit")
    for table in tables:
        shown.add_row(
            line(table.name.normalized),
            line(table.state.code.replace("_", " "), style_of(table.state)),
            (table.fabric_status or "-") + ("*" if table.fabric_error else ""),
            table.watermark,
            f"{len(table.pending_files):,}" if table.pending_files else "-",
            short_span(table.lag_seconds) if table.pending_files else "-",
            "-" if table.row_count is None else f"{table.row_count:,}",
            "-" if table.delta_version is None else f"v{table.delta_version}",
            "-" if table.last_commit_at is None else f"{short_span(max(0.0, now - table.last_commit_at))} ago",
        )
    return shown


def _paragraph(table: TableStatus, *, engine_running: bool) -> Iterator[RenderableType]:
    reported = {*table.ignored, getattr(table.state, "diagnostic", None)}
    if isinstance(table.state, Halted):
        yield Text.assemble(line(table.name.normalized, "bold"), " is ", line("halted", style_of(table.state)))
        yield from diagnostic_lines(table.state.diagnostic)
    else:
        yield line(describe(table.name, table.state), style_of(table.state))
        if help := help_for(table.state, engine_running=engine_running):
            yield bullet("help:", help)
    if table.pending_files:
        yield line(
            f"  {count(len(table.pending_files), 'file')} pending, the oldest for {short_span(table.lag_seconds)}"
        )
    yield from _limited(_numbers(table))
    yield from _limited([(f"{file.state}:", f"{file.path}: {file.reason}") for file in table.pending_files])
    yield from _limited(
        [("ignored:", f"{found.path}: {found.coded_message.removeprefix('ignored: ')}") for found in table.ignored]
    )
    yield from _limited([_note(found, times) for found, times in table.diagnostics if found not in reported])


def _numbers(table: TableStatus) -> list[Line]:
    """Watermark of each partition, and the next file; a table without partitions has its one in the overview."""
    applied = [
        ("applied:", f"{place or 'outside partitions'}: up to {number}") for place, number in table.watermarks.items()
    ]
    expected = [
        ("next:", name if not place or name.startswith(f"{place}/") else f"{place}/{name}")
        for place, name in table.next_files.items()
    ]
    return [*(applied if len(applied) > 1 else ()), *expected]


def _limited(lines: Sequence[Line]) -> Iterator[RenderableType]:
    for mark, text in lines[:MAX_LINES]:
        style = next((style for severity, style in SEVERITY_STYLES.items() if mark.startswith(severity.value)), "")
        yield bullet(mark, text, mark_style=style)
    if len(lines) > MAX_LINES:
        yield line(f"  … and {len(lines) - MAX_LINES:,} more", "dim")


def _note(found: Diagnostic, times: int = 1) -> Line:
    often = f" ({times:,} times)" if times > 1 else ""
    help = f"; {found.help}" if found.help else ""
    return f"{found.severity.value}[{found.code}]:", f"{found.location}: {found.message}{often}{help}"
