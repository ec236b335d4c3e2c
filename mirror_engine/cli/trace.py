"""`trace` and `plan`: every change to a key, the effect of a file or of another order, and the next steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group
from rich.text import Text

from mirror_engine import display
from mirror_engine.cli import exits
from mirror_engine.cli import output as out
from mirror_engine.cli.inspection import NO_FOLDERS, ROWS_HELP, next_files
from mirror_engine.cli.options import COUNT, DROPPING, LISTING, READING, TABLE_HELP, command
from mirror_engine.landing_zone.change import RowMarker
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.landing_zone.names import find_table
from mirror_engine.monitoring.status import FileStatus
from mirror_engine.monitoring.words import describe, help_for, table_json
from mirror_engine.results import Finding, PlannedStep, Result, State, TableReference, as_json, fields_json

if TYPE_CHECKING:
    from mirror_engine.mirror import Mirror
    from mirror_engine.tools.trace.dry_run import DryRunStart
    from mirror_engine.tools.trace.file import FileReport, WhatIf
    from mirror_engine.tools.trace.row import PendingFile, RowHistory, TracedChange

    Row = Mapping[str, Any]

MAX_COLUMNS = 12  # of a row that are shown unchanged
MAX_ROWS = 4  # of one key
START = ("deleted_files", "not_replayed", "delta_version")  # what JSON has of the start of a replay
MAX_NAMED = 2  # files of one commit
MAX_IDLE = 20  # of more tables, those without anything to do are counted
MISMATCH_HELP = "another program changed the table (see history), or a file was replaced after it was applied"
EFFECT_STYLES = {"inserted": "green", "updated": "cyan", "deleted": "red", "nothing": "dim"}
# effects of a file that are worth a line: its mark, the noun to be counted, and what became of them
NOTABLE_EFFECTS = {
    "unmatched_deletes": ("no match:", "delete", "no effect"),
    "unmatched_updates": ("no match:", "update", "inserted"),
    "duplicate_inserts": ("duplicate key:", "insert", "both rows kept"),
    "multi_row_changes": ("duplicate key:", "change", "of several rows"),
}


@command(root="option", config=(*READING, "memory_limit"), reads_engine=True, at_once=True)
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
        history = trace_row(trace, key)
    names = ("key", "rows_at_start", "overwritten", "result", "matches_delta")
    document = {
        **table_json(trace.name, trace.status.delta_folder),
        **fields_json(history, *names, applied="applied_rows", delta="delta_rows"),
        "replay_start": history.start and fields_json(history.start, *START),
        "changes": [_change_json(change) for change in history.changes],
        "not_applied": [_pending_json(file) for file in history.not_applied],
    }
    out.report(document, _row_text(trace.name.normalized, history))
    return exits.NEEDS_ATTENTION if history.matches_delta is False else exits.SUCCESS


@command(root="option", config=(*READING, "memory_limit"), reads_engine=True, at_once=True)
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
    names = ("path", "state", "reason", "has_marker", "markers", "rows", "delta_version", "files_of_commit")
    document = {
        **table_json(trace.name, trace.status.delta_folder),
        **fields_json(found, *names, "diagnostics"),
        "effects": found.effects and fields_json(found.effects, "inserted", "updated", "deleted", *NOTABLE_EFFECTS),
        "step": as_json(found.step),
    }
    out.report(document, _file_text(trace.name.normalized, found))


@command("what-if", root="option", config=(*READING, "memory_limit"), reads_engine=True, at_once=True)
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
        result = trace_what_if(trace, changes, limit=limit or None)
    document = {
        **table_json(trace.name, trace.status.delta_folder),
        **fields_json(result, "changes", "message", "message_what_if"),
        "replay_start": result.start and fields_json(result.start, *START),
        **result.difference.to_json(),
    }
    out.report(document, _what_if_text(trace.name.normalized, result))


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


def _change_json(traced: TracedChange) -> dict[str, Any]:
    names = ("file", "row", "marker", "effect", "reason", "after", "changed_columns", "delta_version")
    return {
        **fields_json(traced, *names, "files_of_commit", "pending_because"),
        "marker_name": traced.marker.name.lower(),
        "matched_rows": len(traced.before) if traced.is_match_known else None,
        "before": as_json(traced.before) if traced.is_match_known else None,
    }


def _pending_json(file: PendingFile) -> dict[str, Any]:
    rows = file.rows and [
        {"row": row, "marker": marker.value, "marker_name": marker.name.lower()} for row, marker in file.rows
    ]
    return {**fields_json(file, "path", "state", "reason"), "rows": as_json(rows)}


def _row_text(table: str, history: RowHistory) -> display.Lines:
    """Every change below its file, then the row as it is."""
    key = ", ".join(f"{name} = {value}" for name, value in history.key.items())
    files = {change.file for change in history.changes}
    changes = f"{count(len(history.changes), 'change')} in {count(len(files), 'file')}" if files else "no changes"
    yield display.line(f"{table}, {key}: {changes}", "bold")
    if history.start:
        yield from _start_text(history.start)
        yield from _rows_text("Before these files", history.rows_at_start)
    for _, entries in groupby(history.changes, lambda change: change.file):
        yield ""
        yield from _changes_of_file(list(entries))
    yield ""
    yield from _rows_text("Result", history.result)
    yield from _agreement(history)
    yield from display.bullets([("overwritten after it was applied:", path) for path in history.overwritten])
    pending = [(file, _pending_text(file)) for file in history.not_applied]
    yield from display.bullets([("pending:", f"{file.path}: {file.reason}; {text}") for file, text in pending])


def _pending_text(file: PendingFile) -> str:
    if file.rows is None:
        return "its content is unknown"
    rows = ", ".join(f"{marker.value} {marker.name.lower()} (row {row:,})" for row, marker in file.rows[:MAX_ROWS])
    more = f" and {len(file.rows) - MAX_ROWS:,} more" if len(file.rows) > MAX_ROWS else ""
    return f"changes of this key: {rows}{more}" if rows else "no change of this key"


def _changes_of_file(changes: Sequence[TracedChange]) -> display.Lines:
    from rich.table import Table

    first = changes[0]
    yield display.line(f"{first.file}{'' if first.has_marker else ', without markers'}", "bold")
    if waits := first.pending_because:
        yield display.line(f"  not applied yet: {waits}", "yellow")
    else:
        yield f"  {_commit_text(first.delta_version, first.files_of_commit, first.file)}"
    lines = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for width in (8, 8, 9):
        lines.add_column(min_width=width, no_wrap=True)
    lines.add_column(overflow="fold")
    for traced in changes:
        marker = f"{traced.marker.value} {traced.marker.name.lower()}"
        matched = f"matched {len(traced.before) if traced.is_match_known else '?'}"
        lines.add_row(f"  row {traced.row:,}", marker, matched, _effect_text(traced))
    yield display.Trimmed(lines)


def _commit_text(version: int | None, files: Sequence[str], path: str) -> str:
    if version is None:
        return "applied; the Delta version is no longer known"
    others = [name for name in files if name != path]
    if not others:
        return f"Delta version {version}"
    if len(others) <= MAX_NAMED:
        return f"Delta version {version}, with {', '.join(others)}"
    return f"Delta version {version}, with {len(others):,} others: {others[0]} … {others[-1]}"


def _effect_text(traced: TracedChange) -> Group:
    effect = Text("no effect" if traced.effect == "nothing" else traced.effect, EFFECT_STYLES[traced.effect])
    reason = f": {traced.reason}" if traced.reason else ""
    pairs: Sequence[tuple[Row | None, Row | None]] = ()
    if traced.effect == "inserted" or (traced.after and not traced.is_match_known):
        pairs = [(None, traced.after[-1])]
    elif traced.effect != "nothing":
        pairs = list(zip_longest(traced.before, traced.after))
    rows = [_values(old, new, traced) for old, new in pairs[:MAX_ROWS]]
    more = [Text(f"… and {len(pairs) - MAX_ROWS:,} more rows", "dim")] if len(pairs) > MAX_ROWS else []
    return Group(Text.assemble(effect, reason), *rows, *more)


def _values(before: Row | None, after: Row | None, traced: TracedChange) -> display.Fitted:
    """One row, the changed values marked with `*`; of many columns only these."""
    row = after or before or {}
    parts = []
    for name, value in row.items():
        old = display.cell(before[name]) if before and after and name in traced.changed_columns else display.cell(value)
        if old != display.cell(value):
            parts.append(display.line(f"*{name} {old} -> {display.cell(value)}", "bold"))
        elif len(row) <= MAX_COLUMNS:
            parts.append(display.line(f"{name} {display.cell(value)}"))
    if len(parts) < len(row):
        parts.append(Text(f"({count(len(row) - len(parts), 'other column')})", "dim"))
    return display.Fitted(parts)


def _rows_text(heading: str, rows: Sequence[Row]) -> display.Lines:
    yield display.line(f"{heading}: {count(len(rows), 'row') if rows else 'no row'}", "bold")
    for row in rows[:MAX_ROWS]:
        yield display.indented(
            display.Fitted([display.line(f"{name} {display.cell(value)}") for name, value in row.items()])
        )
    if len(rows) > MAX_ROWS:
        yield display.line(f"  … and {len(rows) - MAX_ROWS:,} more", "dim")


def _agreement(history: RowHistory) -> display.Lines:
    """Whether the Delta table has the rows that its files make."""
    if history.delta_rows is None:
        is_applied = any(not change.pending_because for change in history.changes)
        yield (
            "No Delta table could be read: see mirror-engine status." if is_applied else "There is no Delta table yet."
        )
    elif history.matches_delta is None:
        yield from _rows_text("Delta table", history.delta_rows)
    elif history.matches_delta:
        pending = sum(bool(change.pending_because) for change in history.changes)
        rest = f" ({count(pending, 'change')} still pending)" if pending else ""
        yield display.line(f"Matches the Delta table{rest}.", "green")
    else:
        yield display.line("Mismatch: the Delta table differs from its change files.", "bold red")
        yield from _rows_text("Applied change files", history.applied_rows)
        yield from _rows_text("Delta table", history.delta_rows)
        yield display.bullet("help:", MISMATCH_HELP)


def _start_text(start: DryRunStart) -> display.Lines:
    deleted = f"{count(start.deleted_files, 'earlier file')} {'was' if start.deleted_files == 1 else 'were'} deleted"
    if start.rows is None:
        yield display.line(f"{deleted}, and so was the Delta version after them: earlier rows are unknown", "bold red")
    else:
        yield display.line(f"{deleted}: the replay starts from Delta version {start.delta_version}", "yellow")
    yield from display.bullets([("not replayed, came before or with these:", path) for path in start.not_replayed])


def _file_text(table: str, found: FileReport) -> display.Lines:
    """Where the file is, what it contains, and its effect."""
    yield display.line(f"{table}, {found.path}: {found.state}", "bold")
    if found.state == "applied":
        yield display.indented(_commit_text(found.delta_version, found.files_of_commit, found.path))
    if found.reason:
        yield display.indented(display.line(found.reason, "yellow"))
    if found.step:
        yield display.bullet("plan:", found.step.message)
    if found.has_marker is not None:
        markers = (f"{rows:,} {RowMarker(marker).name.lower()} ({marker})" for marker, rows in found.markers.items())
        rest = "" if found.has_marker else "; no marker column"
        yield display.bullet(f"{count(found.rows, 'row')}:", f"{', '.join(markers) or 'none'}{rest}")
    if effects := found.effects:
        done = f"{count(effects.inserted, 'row')} inserted, {effects.updated:,} updated, {effects.deleted:,} deleted"
        yield display.bullet("effect:", done)
        for name, (mark, noun, text) in NOTABLE_EFFECTS.items():
            if number := getattr(effects, name):
                yield display.bullet(mark, f"{count(number, noun)} ({text})")
    yield from display.diagnostics(((each, 1) for each in found.diagnostics), with_place=False)


def _what_if_text(table: str, result: WhatIf) -> display.Lines:
    """The changed order, and the difference that it makes."""
    yield display.line(f"{table}, {'; '.join(result.changes)}", "bold")
    if result.start:
        yield from _start_text(result.start)
    if result.message != result.message_what_if:
        yield display.bullet("actual:", result.message)
        yield display.bullet("what-if:", result.message_what_if)
    headline = "The table would be the same", "The table would differ"
    yield from result.difference.lines(headline, ("actual", "what-if"), "yellow")
