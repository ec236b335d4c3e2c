"""`plan`: what the next sync would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from mirror_engine import display
from mirror_engine.cli import output as out
from mirror_engine.cli.options import DROPPING, LISTING, command, with_mirror
from mirror_engine.landing_zone.names import find_table
from mirror_engine.landing_zone.text import count
from mirror_engine.monitoring.state_text import NO_FOLDERS, describe, help_for
from mirror_engine.monitoring.status_results import FileStatus, next_files
from mirror_engine.results import Finding, PlannedStep, Result, State, TableReference

if TYPE_CHECKING:
    from mirror_engine.mirror import Mirror

MAX_IDLE = 20  # of more tables, those without anything to do are counted


class PlannedTable(TableReference, frozen=True):
    """What the next `sync` would do with a table.

    Attributes:
        message: the state in a sentence
        help: what to do
        not_included: pending files that no step applies
        ignored: why paths are never read
        next_files: the file that comes next, by partition; `""` without partitions
    """

    state: State
    message: str
    help: str | None
    steps: Sequence[PlannedStep]
    not_included: Sequence[FileStatus]
    ignored: Sequence[Finding]
    next_files: Mapping[str, str]

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do and nothing to report."""
        return not (self.steps or self.not_included or self.ignored)

    def text(self) -> display.Lines:
        """The steps, then what is not included and why."""
        yield display.line(self.message, "bold")
        if not self.steps:
            yield "  nothing to do"
        for number, step in enumerate(self.steps, start=1):
            yield display.bullet(f"{number}.", step.message)
        if self.not_included:
            yield "  Not included:"
        told = {file.reason for file in self.not_included if f": {file.reason}" in self.message}
        yield from display.bullets(
            [
                ("pending:", file.path if file.reason in told else f"{file.path}: {file.reason}")
                for file in self.not_included
            ]
        )
        yield from [display.bullet("help:", self.help)] if self.help else []
        yield from display.bullets(display.ignored_paths(found.as_diagnostic for found in self.ignored))
        yield from display.bullets(next_files(self.next_files, self.not_included))


class Plan(Result, frozen=True):
    """What the next `sync` would do."""

    tables: Sequence[PlannedTable]

    def text(self) -> display.Lines:
        idle = [table for table in self.tables if table.is_idle] if len(self.tables) > MAX_IDLE else []
        shown = [table for table in self.tables if not (idle and table.is_idle)]
        for number, table in enumerate(shown):
            yield from [""] if number else []
            yield from table.text()
        if idle:
            yield from [""] if shown else []
            yield f"{count(len(idle), 'table')}: nothing to do and nothing pending."
        if not self.tables:
            yield NO_FOLDERS


@command(config=(*LISTING, *DROPPING), reads_engine=True, result=Plan)
@click.option("tables", "--table", metavar="TABLE", multiple=True, help="Only this table (repeatable).")
@with_mirror(at_once=True)
def plan(mirror: Mirror, tables: tuple[str, ...]) -> None:
    """Show what the next sync would do.

    Shows the next steps of each table, and what blocks further ones. Changes nothing, and starts no Java. An engine may
    run meanwhile; its options are used.

    Example: mirror-engine plan ./shop --table Sales.Orders

    Exit codes: 0 shown · 1 no access to a store · 2 usage error: no such table · 4 temporary: storage; retry
    """
    from mirror_engine.mirror import snapshot_of
    from mirror_engine.tools.trace.file import planned_steps

    schema = mirror.config.delta_default_schema
    found = []
    with snapshot_of(mirror) as snapshot:
        known = snapshot.status().tables
        folders = [status.delta_folder for status in known]
        wanted = [find_table(table, folders, schema) for table in tables]
        for status in (known[folders.index(folder)] for folder in wanted) if tables else known:
            plan = snapshot.plans[status.name]
            steps, state = planned_steps(plan, snapshot.context.config), plan.state
            applied = {path for step in steps for path in step.files}
            left = [file for file in status.pending_files if file.path not in applied]
            help = help_for(state, engine_running=True, lost=status.rows_lost) or None
            facts = state.code, describe(status.name, state), help, steps, left, [*map(Finding.of, status.ignored)]
            found.append(PlannedTable.of(status.name, status.delta_folder, *facts, status.next_files))
    out.report(Plan(found))
