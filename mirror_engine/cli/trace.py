"""`trace` and `plan`: every change to a key, the effect of a file or of another order, and the next steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
from msgspec.structs import asdict

from mirror_engine import display
from mirror_engine.cli import exits
from mirror_engine.cli import output as out
from mirror_engine.cli.inspection import NO_FOLDERS, ROWS_HELP, next_files
from mirror_engine.cli.options import COUNT, DROPPING, LISTING, READING, TABLE_HELP, command
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.landing_zone.names import find_table
from mirror_engine.monitoring.status import FileStatus
from mirror_engine.monitoring.words import describe, help_for
from mirror_engine.results import Finding, PlannedStep, Result, State, TableReference
from mirror_engine.tools.trace.results import FileTrace, ReplayStart, RowTrace, WhatIfTrace

if TYPE_CHECKING:
    from mirror_engine.mirror import Mirror

MAX_IDLE = 20  # of more tables, those without anything to do are counted


@command(root="option", config=(*READING, "memory_limit"), reads_engine=True, at_once=True, result=RowTrace)
@click.argument("table", help=TABLE_HELP)
@click.argument("key", nargs=-1, required=True, help="The key's value: 42, or Order=7 for each column.")
def row(mirror: Mirror, table: str, key: tuple[str, ...]) -> int:
    """Show every change to one key.

    Replays the table's change files in memory: applied, pending and moved ones; where old ones were deleted, from
    the table's version after them. Changes nothing, and starts no Java. Row values are shown, and never logged.

    Example: mirror-engine trace row -C ./shop Sales.Orders 42

    Exit codes: 0 shown · 2 usage error: no such table or key · 3 the Delta table differs from its change files · 4
    temporary: storage; retry
    """
    from mirror_engine.tools.trace.context import open_trace
    from mirror_engine.tools.trace.row import trace_row

    with mirror.snapshot() as snapshot:
        trace = open_trace(snapshot, table)
        found = RowTrace.of_history(trace.reference, trace_row(trace, key))
    out.report(found)
    return exits.NEEDS_ATTENTION if found.matches_delta is False else exits.SUCCESS


@command(root="option", config=(*READING, "memory_limit"), reads_engine=True, at_once=True, result=FileTrace)
@click.argument("table", help=TABLE_HELP)
@click.argument("name", metavar="FILE", help="The change file's name, path or number.")
def file(mirror: Mirror, table: str, name: str) -> None:
    """Show what one change file did.

    Where it is, what it contains, its effect, and the Delta version; see trace row for how it is found.

    Example: mirror-engine trace file -C ./shop Sales.Orders 3

    Exit codes: 0 shown · 2 usage error: no such table or file · 4 temporary: storage; retry
    """
    from mirror_engine.tools.trace.context import open_trace
    from mirror_engine.tools.trace.file import trace_file

    with mirror.snapshot() as snapshot:
        trace = open_trace(snapshot, table)
        found = trace_file(trace, name)
    out.report(FileTrace.of_report(trace.reference, found))


@command(
    "what-if", root="option", config=(*READING, "memory_limit"), reads_engine=True, at_once=True, result=WhatIfTrace
)
@click.argument("table", help=TABLE_HELP)
@click.option("--skip", metavar="FILE", multiple=True, help="Replay without this file (repeatable).")
@click.option("--swap", metavar="FILE,FILE", multiple=True, help="Exchange two files: 3,2 (repeatable).")
@click.option("--limit", type=COUNT, default=20, help=ROWS_HELP)
def what_if(mirror: Mirror, table: str, skip: tuple[str, ...], swap: tuple[str, ...], limit: int) -> None:
    """Replay without a file, or in another order.

    Compares the result with the table that the files make as they are. Changes nothing, and starts no Java.

    Example: mirror-engine trace what-if -C ./shop Sales.Orders --skip 3

    Exit codes: 0 shown · 2 usage error: no such table or file · 4 temporary: storage; retry
    """
    from mirror_engine.tools.trace.context import open_trace
    from mirror_engine.tools.trace.file import trace_what_if

    if not (skip or swap):
        raise click.UsageError("nothing to change: give --skip FILE or --swap FILE,FILE", click.get_current_context())
    changes = [*(f"skip={name}" for name in skip), *(f"swap={names}" for names in swap)]
    with mirror.snapshot() as snapshot:
        trace = open_trace(snapshot, table)
        found = trace_what_if(trace, changes, limit=limit or None)
    facts = {name: getattr(found, name) for name in ("changes", "message", "message_what_if")}
    start = ReplayStart.of(found.start)
    out.report(WhatIfTrace(**asdict(found.difference), **asdict(trace.reference), **facts, replay_start=start))


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
        """Whether there is nothing to do and nothing to say."""
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
        yield from display.bullets(display.ignored_paths(self.ignored))
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


@command(config=(*LISTING, *DROPPING), reads_engine=True, at_once=True, result=Plan)
@click.option("tables", "--table", metavar="TABLE", multiple=True, help="Only this table (repeatable).")
def plan(mirror: Mirror, tables: tuple[str, ...]) -> None:
    """Show what the next sync would do.

    The steps of each table, and why not more. Changes nothing, and starts no Java. An engine may run meanwhile; its
    options are used.

    Example: mirror-engine plan ./shop --table Sales.Orders

    Exit codes: 0 shown · 2 usage error: no such table · 4 temporary: storage; retry
    """
    from mirror_engine.tools.trace.file import planned_steps

    schema = mirror.config.delta_default_schema
    found = []
    with mirror.snapshot() as snapshot:
        known = mirror.status_of(snapshot).tables
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
