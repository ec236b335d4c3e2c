"""`trace` and `plan`: every change to a key, the effect of a file or of another order, and the next steps."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mirror_engine.cli import exit_codes
from mirror_engine.cli import root as opening
from mirror_engine.cli.difference import ROWS_HELP, TABLE_HELP, Headings, difference_json, difference_text, rows_json
from mirror_engine.cli.options import READING, argument, command, count_option, option
from mirror_engine.cli.output import AdaptiveLine, bullet, line, print_json, stdout, table_json
from mirror_engine.landing_zone.change import RowMarker
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.monitoring.words import cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from mirror_engine.config import Config
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.publisher.trace.file import FileReport
    from mirror_engine.publisher.trace.plan_report import PlannedStep, PlanReport
    from mirror_engine.publisher.trace.replay import ReplayStart, TraceContext
    from mirror_engine.publisher.trace.row import PendingFile, RowHistory, TracedChange
    from mirror_engine.publisher.trace.what_if import WhatIf
    from mirror_engine.tables.merge.keys_only import ChangeEffects

    Row = Mapping[str, Any]

MAX_LISTED = 8
MAX_COLUMNS = 12  # of a row that are shown unchanged
MAX_ROWS = 4  # of one key
MAX_NAMED = 2  # files of one commit
MISMATCH_HELP = "another program changed the table (see history), or a file was replaced after it was applied"


@contextmanager
def _traced(root: Path, config: Config, table: str) -> Iterator[TraceContext]:
    """A table to be traced, read only."""
    from mirror_engine.publisher.trace.replay import open_trace

    with opening.open_mirror(root, config) as mirror, mirror.snapshot() as snapshot:
        yield open_trace(snapshot, table)


def _print(
    name: str, trace: TraceContext, document: dict[str, Any], text: Iterator[RenderableType], *, as_json: bool
) -> None:
    if as_json:
        print_json(name, {**table_json(trace.name, trace.context.config.delta_default_schema), **document})
    else:
        stdout().print(Group(*text))


@command(root="option", config=(*READING, "memory_limit"), reads_engine=True)
@argument("table", TABLE_HELP)
@argument("key", "The key's value: 42, or Order=7 for each column.", nargs=-1, required=True)
def row(root: Path, config: Config, table: str, key: tuple[str, ...], *, as_json: bool) -> None:
    """Show every change to one key.

    Replays the table's change files in memory: applied, pending and moved ones; where old ones were deleted, from
    the table's version after them. Changes nothing, and starts no Java. Row values are shown, and never logged.

    Example: mirror-engine trace row -C ./shop Sales.Orders 42

    Exit codes: 0 shown · 2 usage error: no such table or key · 3 the Delta table differs from its change files · 4
    temporary: storage; retry
    """
    from mirror_engine.publisher.trace.row import trace_row

    with _traced(root, config, table) as trace:
        history = trace_row(trace, key)
        _print("trace row", trace, _row_json(history), _row_text(trace.name.normalized, history), as_json=as_json)
    if history.matches_delta is False:
        raise click.exceptions.Exit(exit_codes.NEEDS_ATTENTION)


@command(root="option", config=(*READING, "memory_limit"), reads_engine=True)
@argument("table", TABLE_HELP)
@argument("name", "The change file's name, path or number.", metavar="FILE")
def file(root: Path, config: Config, table: str, name: str, *, as_json: bool) -> None:
    """Show what one change file did.

    Where it is, what it contains, its effect, and the Delta version; see trace row for how it is found.

    Example: mirror-engine trace file -C ./shop Sales.Orders 3

    Exit codes: 0 shown · 2 usage error: no such table or file · 4 temporary: storage; retry
    """
    from mirror_engine.publisher.trace.file import trace_file

    with _traced(root, config, table) as trace:
        report = trace_file(trace, name)
        _print("trace file", trace, _file_json(report), _file_text(trace.name.normalized, report), as_json=as_json)


@command("what-if", root="option", config=(*READING, "memory_limit"), reads_engine=True)
@argument("table", TABLE_HELP)
@option("skip", "--skip", metavar="FILE", multiple=True, help="Replay without this file (repeatable).")
@option("swap", "--swap", metavar="FILE,FILE", multiple=True, help="Exchange two files: 3,2 (repeatable).")
@count_option("--limit", default=20, help=ROWS_HELP)
def what_if(
    root: Path, config: Config, table: str, skip: tuple[str, ...], swap: tuple[str, ...], limit: int, *, as_json: bool
) -> None:
    """Replay without a file, or in another order.

    Compares the result with the table that the files make as they are. Changes nothing, and starts no Java.

    Example: mirror-engine trace what-if -C ./shop Sales.Orders --skip 3

    Exit codes: 0 shown · 2 usage error: no such table or file · 4 temporary: storage; retry
    """
    from mirror_engine.publisher.trace.what_if import trace_what_if

    if not (skip or swap):
        raise click.UsageError("nothing to change: give --skip FILE or --swap FILE,FILE", click.get_current_context())
    changes = [*(f"skip={name}" for name in skip), *(f"swap={names}" for names in swap)]
    with _traced(root, config, table) as trace:
        result = trace_what_if(trace, changes, limit=limit or None)
        _print(
            "trace what-if", trace, _what_if_json(result), _what_if_text(trace.name.normalized, result), as_json=as_json
        )


@command(config=(*READING, "memory_limit"), reads_engine=True)
@option("tables", "--table", metavar="TABLE", multiple=True, help="Only this table (repeatable).")
def plan(root: Path, config: Config, tables: tuple[str, ...], *, as_json: bool) -> None:
    """Show what the next sync would do.

    The steps of each table, and why not more. Changes nothing, and starts no Java. An engine may run meanwhile; its
    options are used.

    Example: mirror-engine plan ./shop --table Sales.Orders

    Exit codes: 0 shown · 2 usage error: no such table · 4 temporary: storage; retry
    """
    from mirror_engine.publisher.trace.plan_report import report_plan
    from mirror_engine.publisher.trace.replay import open_trace

    with opening.open_mirror(root, config) as mirror, mirror.snapshot() as snapshot:
        scenes = [open_trace(snapshot, table) for table in tables or [name.folder for name in snapshot.plans]]
        reports = [(trace.name, report_plan(trace)) for trace in scenes]
    if as_json:
        schema = config.delta_default_schema
        print_json("plan", {"tables": [{**table_json(name, schema), **_plan_json(report)} for name, report in reports]})
        return
    for number, (_, report) in enumerate(reports):
        stdout().print(Group(*([""] if number else []), *_plan_text(report)))
    if not reports:
        stdout().print(line("The landing zone has no table folders."))


def _row_json(history: RowHistory) -> dict[str, Any]:
    return {
        "key": dict(history.key),
        "replay_start": _start_json(history.start),
        "rows_at_start": rows_json(history.rows_at_start),
        "changes": [_change_json(change) for change in history.changes],
        "not_applied": [_pending_json(file) for file in history.not_applied],
        "overwritten": list(history.overwritten),
        "result": rows_json(history.result),
        "applied": rows_json(history.applied_rows),
        "delta": None if history.delta_rows is None else rows_json(history.delta_rows),
        "matches_delta": history.matches_delta,
    }


def _change_json(traced: TracedChange) -> dict[str, Any]:
    return {
        "file": traced.file,
        "row": traced.row,
        "marker": traced.marker.value,
        "marker_name": traced.marker.name.lower(),
        "matched_rows": len(traced.before) if traced.is_match_known else None,
        "effect": traced.effect,
        "reason": traced.reason or None,
        "before": rows_json(traced.before) if traced.is_match_known else None,
        "after": rows_json(traced.after),
        "changed_columns": list(traced.changed_columns),
        "delta_version": traced.delta_version,
        "files_of_commit": list(traced.files_of_commit),
        "pending_because": traced.pending_because or None,
    }


def _pending_json(file: PendingFile) -> dict[str, Any]:
    rows = None
    if file.rows is not None:
        rows = [{"row": row, "marker": marker.value, "marker_name": marker.name.lower()} for row, marker in file.rows]
    return {"path": file.path, "state": file.state, "reason": file.reason or None, "rows": rows}


def _file_json(report: FileReport) -> dict[str, Any]:
    effects = report.effects
    return {
        "path": report.path,
        "state": report.state,
        "reason": report.reason or None,
        "has_marker": report.has_marker,
        "markers": {str(marker): rows for marker, rows in report.markers.items()},
        "rows": report.rows,
        "effects": effects
        and {
            "inserted": effects.inserted,
            "updated": effects.updated,
            "deleted": effects.deleted,
            "duplicate_inserts": effects.duplicate_inserts,
            "unmatched_updates": effects.unmatched_updates,
            "unmatched_deletes": effects.unmatched_deletes,
            "multi_row_changes": effects.multi_row_changes,
        },
        "delta_version": report.delta_version,
        "files_of_commit": list(report.files_of_commit),
        "step": report.step and _step_json(report.step),
        "diagnostics": [found.to_json() for found in report.diagnostics],
    }


def _plan_json(report: PlanReport) -> dict[str, Any]:
    return {
        "state": report.state,
        "message": report.message,
        "help": report.help or None,
        "steps": [_step_json(step) for step in report.steps],
        "not_included": [file.to_json() for file in report.not_included],
        "ignored": [found.to_json() for found in report.ignored],
        "next_files": dict(report.next_files),
    }


def _what_if_json(result: WhatIf) -> dict[str, Any]:
    return {
        "changes": list(result.changes),
        "replay_start": _start_json(result.start),
        "message": result.message,
        "message_what_if": result.message_what_if,
        **difference_json(result.difference),
    }


def _start_json(start: ReplayStart | None) -> dict[str, Any] | None:
    if start is None:
        return None
    return {
        "deleted_files": start.deleted_files,
        "not_replayed": list(start.not_replayed),
        "delta_version": start.delta_version,
    }


def _step_json(step: PlannedStep) -> dict[str, Any]:
    return {"step": step.kind, "message": step.message, "files": list(step.files), "commits": step.commits}


def _row_text(table: str, history: RowHistory) -> Iterator[RenderableType]:
    """Every change below its file, then the row as it is."""
    key = ", ".join(f"{name} = {value}" for name, value in history.key.items())
    files = {change.file for change in history.changes}
    changes = f"{count(len(history.changes), 'change')} in {count(len(files), 'file')}" if files else "no changes"
    yield line(f"{table}, {key}: {changes}", "bold")
    if history.start:
        yield from _start_text(history.start)
        yield from _rows_text("Before these files", history.rows_at_start)
    for _, entries in groupby(history.changes, lambda change: change.file):
        yield Text()
        yield from _changes_of_file(list(entries))
    yield Text()
    yield from _rows_text("Result", history.result)
    yield from _agreement(history)
    yield from _listed("overwritten after it was applied:", history.overwritten)
    yield from _listed(
        "pending:", [f"{file.path}: {file.reason}; {_pending_text(file)}" for file in history.not_applied]
    )


def _pending_text(file: PendingFile) -> str:
    if file.rows is None:
        return "its content is unknown"
    rows = ", ".join(f"{marker.value} {marker.name.lower()} (row {row:,})" for row, marker in file.rows[:MAX_ROWS])
    more = f" and {len(file.rows) - MAX_ROWS:,} more" if len(file.rows) > MAX_ROWS else ""
    return f"changes of this key: {rows}{more}" if rows else "no change of this key"


def _changes_of_file(changes: Sequence[TracedChange]) -> Iterator[RenderableType]:
    first = changes[0]
    yield line(f"{first.file}{'' if first.has_marker else ', without markers'}", "bold")
    commit = _commit_text(first.delta_version, first.files_of_commit, first.file, first.pending_because)
    yield line(f"  {commit}", "yellow" if first.pending_because else "")
    lines = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for width in (8, 8, 9):
        lines.add_column(min_width=width, no_wrap=True)
    lines.add_column(overflow="fold")
    for traced in changes:
        marker = f"{traced.marker.value} {traced.marker.name.lower()}"
        matched = f"matched {len(traced.before) if traced.is_match_known else '?'}"
        lines.add_row(line(f"  row {traced.row:,}"), line(marker), line(matched), _effect_text(traced))
    yield lines


def _commit_text(version: int | None, files: Sequence[str], path: str, waits: str) -> str:
    if waits:
        return f"not applied yet: {waits}"
    if version is None:
        return "applied; the Delta version is no longer known"
    others = [name for name in files if name != path]
    if not others:
        return f"Delta version {version}"
    if len(others) <= MAX_NAMED:
        return f"Delta version {version}, with {', '.join(others)}"
    return f"Delta version {version}, with {len(others):,} others: {others[0]} … {others[-1]}"


def _effect_text(traced: TracedChange) -> Group:
    style = {"inserted": "green", "updated": "cyan", "deleted": "red", "nothing": "dim"}[traced.effect]
    effect = Text.assemble((traced.effect if traced.effect != "nothing" else "no effect", style))
    if traced.reason:
        effect.append(f": {traced.reason}")
    before, after = traced.before, traced.after
    pairs: list[tuple[Row | None, Row | None]] = []
    if traced.effect == "inserted" or (after and not traced.is_match_known):
        pairs = [(None, after[-1])]
    elif traced.effect != "nothing":
        pairs = list(zip_longest(before, after))
    rows = [_values(old, new, traced) for old, new in pairs[:MAX_ROWS]]
    more = [Text(f"… and {len(pairs) - MAX_ROWS:,} more rows", "dim")] if len(pairs) > MAX_ROWS else []
    return Group(effect, *rows, *more)


def _values(before: Row | None, after: Row | None, traced: TracedChange) -> AdaptiveLine:
    """One row, the changed values marked with `*`; of many columns only these."""
    row = after or before or {}
    changed = {
        name
        for name in row
        if before and after and name in traced.changed_columns and cell(before[name]) != cell(after[name])
    }
    shown = [name for name in row if name in changed or len(row) <= MAX_COLUMNS]
    parts = [
        line(f"*{name} {cell(before[name])} -> {cell(row[name])}", "bold")
        if name in changed and before
        else line(f"{name} {cell(row[name])}")
        for name in shown
    ]
    if len(shown) < len(row):
        parts.append(Text(f"({count(len(row) - len(shown), 'other column')})", "dim"))
    return AdaptiveLine(parts)


def _rows_text(heading: str, rows: Sequence[Row]) -> Iterator[RenderableType]:
    yield line(f"{heading}: {count(len(rows), 'row') if rows else 'no row'}", "bold")
    for row in rows[:MAX_ROWS]:
        values = AdaptiveLine([line(f"{name} {cell(value)}") for name, value in row.items()])
        yield Padding(values, (0, 0, 0, 2), expand=False)
    if len(rows) > MAX_ROWS:
        yield line(f"  … and {len(rows) - MAX_ROWS:,} more", "dim")


def _agreement(history: RowHistory) -> Iterator[RenderableType]:
    """Whether the Delta table has the rows that its files make."""
    if history.delta_rows is None:
        yield line("There is no Delta table yet.")
    elif history.matches_delta is None:
        yield from _rows_text("Delta table", history.delta_rows)
    elif history.matches_delta:
        pending = sum(bool(change.pending_because) for change in history.changes)
        rest = f" ({count(pending, 'change')} still pending)" if pending else ""
        yield line(f"Matches the Delta table{rest}.", "green")
    else:
        yield line("Mismatch: the Delta table differs from its change files.", "bold red")
        yield from _rows_text("Applied change files", history.applied_rows)
        yield from _rows_text("Delta table", history.delta_rows)
        yield bullet("help:", MISMATCH_HELP)


def _start_text(start: ReplayStart) -> Iterator[RenderableType]:
    deleted = f"{count(start.deleted_files, 'earlier file')} {'was' if start.deleted_files == 1 else 'were'} deleted"
    if start.rows is None:
        yield line(f"{deleted}, and so was the Delta version after them: earlier rows are unknown", "bold red")
    else:
        yield line(f"{deleted}: the replay starts from Delta version {start.delta_version}", "yellow")
    if start.not_replayed:
        yield from _listed("not replayed, came before or with these:", start.not_replayed)


def _file_text(table: str, report: FileReport) -> Iterator[RenderableType]:
    """Where the file is, what it contains, and its effect."""
    yield line(f"{table}, {report.path}: {report.state}", "bold")
    if report.state == "applied":
        commit = _commit_text(report.delta_version, report.files_of_commit, report.path, "")
        yield Padding(line(commit), (0, 0, 0, 2), expand=False)
    if report.reason:
        yield Padding(line(report.reason, "yellow"), (0, 0, 0, 2), expand=False)
    if report.step:
        yield bullet("plan:", report.step.message)
    if report.has_marker is not None:
        markers = (f"{rows:,} {RowMarker(marker).name.lower()} ({marker})" for marker, rows in report.markers.items())
        rest = "" if report.has_marker else "; no marker column"
        yield bullet(f"{count(report.rows, 'row')}:", f"{', '.join(markers) or 'none'}{rest}")
    if report.effects:
        yield from _effects_text(report.effects)
    yield from map(_diagnostic_text, report.diagnostics)


def _diagnostic_text(found: Diagnostic) -> RenderableType:
    help = f"; {found.help}" if found.help else ""
    return bullet(f"{found.severity.value}[{found.code}]:", f"{found.message}{help}")


def _effects_text(effects: ChangeEffects) -> Iterator[RenderableType]:
    rows = f"{count(effects.inserted, 'row')} inserted, {effects.updated:,} updated, {effects.deleted:,} deleted"
    yield bullet("effect:", rows)
    for mark, number, noun, text in (
        ("no match:", effects.unmatched_deletes, "delete", "no effect"),
        ("no match:", effects.unmatched_updates, "update", "inserted"),
        ("duplicate key:", effects.duplicate_inserts, "insert", "both rows kept"),
        ("duplicate key:", effects.multi_row_changes, "change", "of several rows"),
    ):
        if number:
            yield bullet(mark, f"{count(number, noun)} ({text})")


def _plan_text(report: PlanReport) -> Iterator[RenderableType]:
    """The steps, then what is not included and why."""
    yield line(report.message, "bold")
    if not report.steps:
        yield line("  nothing to do")
    for number, step in enumerate(report.steps, start=1):
        yield bullet(f"{number}.", step.message)
    if report.not_included or report.help:
        yield line("  Not included:")
        yield from _listed("pending:", [f"{file.path}: {file.reason}" for file in report.not_included])
        yield from [bullet("help:", report.help)] if report.help else []
    yield from _listed(
        "ignored:", [f"{found.path}: {found.coded_message.removeprefix('ignored: ')}" for found in report.ignored]
    )
    yield from _listed("next:", [f"{place}/{name}".lstrip("/") for place, name in report.next_files.items()])


_WHAT_IF = Headings(
    equal="The table would be the same",
    unequal="The table would differ",
    style="yellow",
    missing_columns="columns only in actual",
    unexpected_columns="columns only in what-if",
    missing="Only in actual",
    unexpected="Only in what-if",
    different="Changed",
    expected="Actual",
    actual="What-if",
)


def _what_if_text(table: str, result: WhatIf) -> Iterator[RenderableType]:
    """The changed order, and the difference that it makes."""
    yield line(f"{table}, {'; '.join(result.changes)}", "bold")
    if result.start:
        yield from _start_text(result.start)
    if result.message != result.message_what_if:
        yield bullet("actual:", result.message)
        yield bullet("what-if:", result.message_what_if)
    yield from difference_text(result.difference, _WHAT_IF)


def _listed(mark: str, lines: Sequence[str]) -> Iterator[RenderableType]:
    for text in lines[:MAX_LISTED]:
        yield bullet(mark, text)
    if len(lines) > MAX_LISTED:
        yield line(f"  … and {len(lines) - MAX_LISTED:,} more", "dim")
