"""A mirror's status for a person at 2 a.m.: what stands still, why, and what to do, before all else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from mirror_engine.cli.output import NAMES, bullet, grid, line
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.landing_zone.states import CaughtUp
from mirror_engine.monitoring.words import describe, help_for, span, urgency

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.metadata import PartnerEvents
    from mirror_engine.landing_zone.states import TableState
    from mirror_engine.monitoring.status import MirrorStatus, TableStatus

Line = tuple[str, str]  # a mark, and what is said behind it
STYLES = {"stuck": "bold red", "idle": "yellow", "busy": "cyan", "well": "green"}  # most urgent first
MAX_LINES = 8  # of one kind below one table
MAX_CHARACTERS = 100  # of one value of the partner events, which may be any text


def status_text(status: MirrorStatus, now: float) -> RenderableType:
    """The whole status: a headline, one line per table, and a paragraph for each table with something to say."""
    parts: list[RenderableType] = [_headline(status, now)]
    if status.partner and (partner := _partner(status.partner)):
        parts.append(line(partner, "dim"))
    parts.append(Text())
    parts += _listed([_note(found) for found in status.diagnostics])
    parts.append(_overview(status.tables, now) if status.tables else line("No table folder lies in the landing zone."))
    for table in sorted(status.tables, key=_urgency):
        if _has_something_to_say(table):
            parts += [Text(), *_paragraph(table, engine_running=status.engine_running)]
    return Group(*parts)


def _headline(status: MirrorStatus, now: float) -> Text:
    if not status.engine_running:
        heard = (
            "never ran here"
            if status.last_heartbeat_at is None
            else f"last heartbeat {span(now - status.last_heartbeat_at)} ago"
        )
        engine = f"no engine is running, {heard}"
    elif status.next_scan_at is None or status.next_scan_at <= now:
        engine = "engine is running, scanning now"
    else:
        engine = f"engine is running, next scan in {span(status.next_scan_at - now)}"
    zone = status.zone or "no landing zone (Files/LandingZone is missing)"
    return line(f"{status.root}: {zone}; {engine}")


def _partner(partner: PartnerEvents) -> str:
    source = f"{_short(partner.source_type)} {_short(partner.source_version)}".strip()
    told = [("published by", _short(partner.partner_name)), ("from", source)]
    return " ".join(f"{word} {name}" for word, name in told if name)


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"


def _overview(tables: Iterable[TableStatus], now: float) -> RenderableType:
    table = grid("Table", "State", ">Applied", ">Delta", ">Rows", ">Pending", ">Committed")
    for found in tables:
        table.add_row(
            line(found.name.folder),
            line(found.state.code.replace("_", " "), style_of(found.state)),
            found.watermark,
            "-" if found.delta_version is None else f"v{found.delta_version}",
            "-" if found.row_count is None else f"{found.row_count:,}",
            f"{len(found.pending_files):,}" if found.pending_files else "-",
            "-" if found.last_commit_at is None else f"{span(max(0.0, now - found.last_commit_at))} ago",
        )
    return table


def style_of(state: TableState) -> str:
    """Red where somebody must act, green where all is well."""
    return STYLES[urgency(state)]


def _urgency(table: TableStatus) -> int:
    """Tables that wait for a person come first, level ones last."""
    return list(STYLES).index(urgency(table.state))


def _has_something_to_say(table: TableStatus) -> bool:
    return not isinstance(table.state, CaughtUp) or bool(table.pending_files or table.ignored or table.diagnostics)


def _paragraph(table: TableStatus, *, engine_running: bool) -> Iterator[RenderableType]:
    yield line(describe(table.name, table.state), style_of(table.state))
    help_text = help_for(table.state, engine_running=engine_running)
    if help_text:
        yield bullet("->", help_text, "bold")
    if table.pending_files:
        yield line(f"  {count(len(table.pending_files), 'file')} pending, the oldest for {span(table.lag_seconds)}")
    yield from _listed(_numbers(table))
    yield from _listed([(f"{file.state}:", f"{file.path}: {file.reason}") for file in table.pending_files])
    yield from _listed([("ignored:", f"{found.path}: {found.coded_message}") for found in table.ignored])
    told = {*table.ignored, getattr(table.state, "diagnostic", None)}
    yield from _listed([_note(found, times) for found, times in table.diagnostics if found not in told])


def _numbers(table: TableStatus) -> list[Line]:
    """How far each partition is; a table without partitions has its one number in the overview."""
    applied = [
        ("applied:", f"{place or 'outside partitions'}: up to {number}") for place, number in table.watermarks.items()
    ]
    expected = [
        ("next to land:", name if not place or name.startswith(f"{place}/") else f"{place}/{name}")
        for place, name in table.next_files.items()
    ]
    return [*(applied if len(applied) > 1 else ()), *expected]


def _listed(lines: Sequence[Line]) -> Iterator[RenderableType]:
    for mark, text in lines[:MAX_LINES]:
        yield bullet(mark, text)
    if len(lines) > MAX_LINES:
        yield line(f"  ... and {len(lines) - MAX_LINES:,} more", "dim")


def _note(found: Diagnostic, times: int = 1) -> Line:
    often = f" ({times:,} times)" if times > 1 else ""
    remedy = f" -> {found.help}" if found.help else ""
    return f"{NAMES[found.severity]}:", f"{found.full_message}{often}{remedy}"
