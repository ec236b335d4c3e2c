"""Verdicts for a person: table by table, the gravest first, each with what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from mirror_engine.cli.output import NAMES, STYLES, bullet, line
from mirror_engine.landing_zone.diagnostics import SEVERITY_ORDER, count, printable
from mirror_engine.publisher.validate import HALTING_STATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.publisher.validate import Counted, TableReport, ValidationReport

MAX_OF_A_CODE = 5  # places told of one code in one table


def verdicts_text(verdicts: ValidationReport) -> RenderableType:
    """Everything there is to say, and a summary."""
    parts: list[RenderableType] = []
    if verdicts.diagnostics:
        parts += [line(verdicts.landing_zone, "bold"), *_told(verdicts.diagnostics, ""), Text()]
    for table in verdicts.tables:
        parts += [_heading(table), *_told(table.diagnostics, table.name), *_fabric(table)]
    return Group(
        *parts,
        Text() if parts else line("No table folder lies in the landing zone."),
        _summary(verdicts),
        *_more(verdicts),
    )


def _heading(table: TableReport) -> Text:
    style = {"caught_up": "green", "halted": "bold red", "blocked": "bold red"}.get(table.state, "yellow")
    applied = f"  {count(len(table.files), 'file')}, {count(table.rows, 'row')}" if table.files else ""
    waiting = f"  {count(len(table.not_applied), 'file')} not applied" if table.not_applied else ""
    return Text.assemble(line(table.name, "bold"), "  ", line(table.state, style), applied, waiting)


def _fabric(table: TableReport) -> Iterator[RenderableType]:
    """What to look for in the service's own monitoring."""
    if table.fabric_error:
        yield bullet("Fabric says:", table.fabric_error, "dim")


def _told(diagnostics: Iterable[Counted], folder: str) -> Iterator[RenderableType]:
    by_code: dict[str, list[Counted]] = {}
    for found, times in sorted(diagnostics, key=lambda counted: -SEVERITY_ORDER.index(counted[0].severity)):
        by_code.setdefault(found.code, []).append((found, times))
    for same in by_code.values():
        yield from map(_line, same[:MAX_OF_A_CODE], [folder] * MAX_OF_A_CODE)
        yield _remedy(same)


def _line(counted: Counted, folder: str) -> RenderableType:
    found, times = counted
    often = f" ({times:,} times)" if times > 1 else ""
    made = Table.grid(padding=(0, 1, 0, 0))
    made.add_column(no_wrap=True, width=10)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    place = _place(found, folder)
    words = line(f"{place}{found.message}{often}")
    made.add_row(line(f"  {NAMES[found.severity]}", STYLES[found.severity]), line(found.code), words)
    return made


def _place(found: Diagnostic, folder: str) -> str:
    path = found.path.removeprefix(folder).lstrip("/") if folder else found.path
    row = f"row {found.row}" if found.row is not None else ""
    told = ", ".join(part for part in (path, row) if part)
    return f"{printable(told)}: " if told else ""


def _remedy(same: Sequence[Counted]) -> RenderableType:
    first = same[0][0]
    more = f"{len(same) - MAX_OF_A_CODE:,} more like it; " if len(same) > MAX_OF_A_CODE else ""
    made = Table.grid(padding=(0, 1, 0, 0))
    made.add_column(no_wrap=True, width=10)
    made.add_column(overflow="fold")
    remedy = f"-> {first.help}  " if first.help else ""
    made.add_row("", line(f"{more}{remedy}({', '.join(first.rules)})", "dim"))
    return made


def _summary(verdicts: ValidationReport) -> Text:
    files = sum(len(table.files) for table in verdicts.tables)
    rows = sum(table.rows for table in verdicts.tables)
    waiting = sum(len(table.not_applied) for table in verdicts.tables)
    judged = f"{count(len(verdicts.tables), 'table')}, {count(files, 'file')}, {count(rows, 'row')}"
    unread = f", {count(waiting, 'file')} not applied" if waiting else ""
    numbers = {severity: verdicts.count(severity) for severity in reversed(SEVERITY_ORDER)}
    told = [count(number, NAMES[severity]) for severity, number in numbers.items() if number]
    told += [count(verdicts.suppressed, "known finding") + " passed over"] if verdicts.suppressed else []
    worst = next((severity for severity, number in numbers.items() if number), None)
    words = ", ".join(told) or ("clean" if files else "nothing has landed yet")
    return Text.assemble(
        line(f"{judged}{unread}: "),
        line(words, STYLES[worst] if worst else "green" if words == "clean" else ""),
        _stuck(verdicts),
    )


def _more(verdicts: ValidationReport) -> Iterator[Text]:
    """Where the gravest finding is told at length."""
    said = [found for found, _ in verdicts.all()]
    if said:
        worst = max(said, key=lambda found: SEVERITY_ORDER.index(found.severity))
        yield line(f"`mirror-engine explain {worst.code}` says more.", "dim")


def _stuck(verdicts: ValidationReport) -> Text:
    """Why the check fails though there may be no error: what stands still."""
    found = [sum(table.is_stuck and table.state == state for table in verdicts.tables) for state in HALTING_STATES]
    told = ", ".join(
        f"{count(number, 'table')} {state}" for number, state in zip(found, HALTING_STATES, strict=True) if number
    )
    return line(f"; {told}" if told else "", "bold red")
