"""`sync`, `run` and `wait`: apply change files, and wait until another engine has."""

from __future__ import annotations

import logging
import time
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from mirror_engine.cli import exit_codes, log, progress
from mirror_engine.cli import root as opening
from mirror_engine.cli.options import (
    ALL,
    READING,
    command,
    flag,
    option,
    settings_of,
    time_option,
)
from mirror_engine.cli.output import bullet, diagnostic_lines, line, print_json, short_span, stderr, stdout, table_json
from mirror_engine.cli.signals import Stopping
from mirror_engine.errors import TransientError, UsageError
from mirror_engine.events import BatchCommitted
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.landing_zone.states import CaughtUp, Empty, Halted
from mirror_engine.monitoring.words import START_ENGINE, describe, help_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from mirror_engine.config import Config
    from mirror_engine.engine.run import SyncReport
    from mirror_engine.events import Event
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.states import TableState
    from mirror_engine.mirror import Mirror
    from mirror_engine.monitoring.wait_conditions import UnmetCondition

ALREADY_RUNNING = "the engine is still working: wait longer (--timeout), or see mirror-engine status"


@command(config=ALL)
@progress.progress_option
def sync(root: Path, config: Config, progress: str, *, as_json: bool) -> None:  # the option's name
    """Apply all pending change files, then exit.

    Example: mirror-engine sync ./shop --max-batch-files 1

    Exit codes: 0 all tables have caught up · 1 missing prerequisite or internal error · 2 usage error · 3 a table is
    halted or blocked; all others were applied · 4 temporary: storage, conflict or another engine; retry · 130
    interrupted, after the current commit
    """
    code, report, applied = apply_pending(root, config, progress)
    if as_json:
        tables = [_table_json(table, state, config) for table, state in report.states.items()]
        print_json("sync", report_json(report, code) | {"tables": tables})
    else:
        for part in (*_attention(report), line(report_text(report, len(applied)))):
            stdout().print(part)
    raise click.exceptions.Exit(code)


def apply_pending(root: Path, config: Config, form: str) -> tuple[int, SyncReport, set[TableName]]:
    """Sync with progress: the exit code, the report, and the tables that got a commit."""
    applied: set[TableName] = set()

    def note(event: Event) -> None:
        if isinstance(event, BatchCommitted):
            applied.add(event.table)

    with progress.shown(form) as listeners, opening.open_mirror(root, config, [*listeners, note]) as mirror:
        opening.check_root(root)
        with Stopping() as stopping:
            report = mirror.sync(stopping.stop)
    code = exit_codes.INTERRUPTED if stopping.stop.is_set() else exit_codes.of_result(report.result)
    return code, report, applied


def report_json(report: SyncReport, code: int) -> dict[str, Any]:
    """A report as plain values."""
    return {
        "result": report.result.value,
        "exit_code": code,
        "commits": report.commits,
        "files_applied": report.files_applied,
        "rows_applied": report.rows_applied,
        "duration_seconds": round(report.duration_seconds, 3),
    }


def report_text(report: SyncReport, tables_applied: int) -> str:
    """A report in two sentences: what was applied, and how many tables have caught up."""
    seconds = short_span(report.duration_seconds)
    if report.commits:
        files = f"{count(report.files_applied, 'file')} ({count(report.rows_applied, 'row')})"
        commits = count(report.commits, "commit")
        applied = f"Applied {files} to {count(tables_applied, 'table')} in {commits} ({seconds})."
    else:
        applied = f"Nothing to apply ({seconds})."
    done = sum(isinstance(state, (CaughtUp, Empty)) for state in report.states.values())
    if not report.states:
        return f"{applied} There are no tables yet."
    return (
        f"{applied} {'All' if done == len(report.states) else f'{done} of {len(report.states)}'} tables have caught up."
    )


def _table_json(table: TableName, state: TableState, config: Config) -> dict[str, Any]:
    return {
        **table_json(table, config.delta_default_schema),
        "state": state.code,
        "message": describe(table, state),
        "help": help_for(state, engine_running=False) or None,
    }


def _attention(report: SyncReport) -> Iterator[RenderableType]:
    """The tables that have not caught up, and what to do."""
    for table, state in report.states.items():
        match state:
            case CaughtUp() | Empty():
                continue
            case Halted(diagnostic, files):
                yield from diagnostic_lines(diagnostic)
                yield line(f"{table.normalized} is halted; {count(files, 'file')} pending.")
            case _:
                yield line(f"{describe(table, state)}.")
                if help := help_for(state, engine_running=False):
                    yield bullet("help:", help)


@command(config=ALL)
@log.log_format_option
@log.log_level_option
def run(root: Path, config: Config, log_format: str, log_level: str, *, as_json: bool) -> None:
    """Apply change files as they arrive, until stopped.

    SIGTERM or Ctrl+C ends it after the current commit, a second one immediately. File-system events wake it; without
    them it scans every --poll-interval.

    Events are logged on stderr, one line each; with --json the final report is printed on stdout.

    Example: mirror-engine run ./shop --poll-interval 5s --log-format json

    Exit codes: 0 stopped by SIGTERM · 1 missing prerequisite or internal error · 2 usage error · 4 another engine
    runs on this ROOT · 130 stopped by Ctrl+C
    """
    logging.getLogger().addHandler(logging.NullHandler())  # log lines of libraries would break the format
    verbosity = settings_of(click.get_current_context()).verbosity
    writer = log.Log(log_format, log.level_of(log_level, verbosity))
    with Stopping() as stopping, opening.open_mirror(root, config, [writer]) as mirror:
        opening.check_root(root, may_be_empty=True)
        writer.write("info", "started", {"root": str(root), "poll_interval_seconds": config.poll_interval_seconds})
        report = mirror.run(stopping.stop)
    code = stopping.exit_code(exit_codes.SUCCESS)
    document = report_json(report, code)
    writer.write("info", "stopped", {name: value for name, value in document.items() if name != "exit_code"})
    if as_json:
        print_json("run", document)
    raise click.exceptions.Exit(code)


@command(config=READING, reads_engine=True)
@option(
    "condition",
    "--for",
    metavar="caught-up|file=NAME",
    default="caught-up",
    default_text="caught-up",
    help="What to wait for: all tables, or a change file such as file=Items/00000000000000000001.csv.",
)
@option("tables", "--table", metavar="TABLE", multiple=True, help="Only this table (repeatable).")
@time_option("--timeout", default=600.0, help="How long to wait.")
@time_option("--interval", low=0.05, default=1.0, help="Time between two checks.")
@flag("--fail-fast", help="End with 3 as soon as a table is halted or blocked.")
def wait(
    root: Path,
    config: Config,
    condition: str,
    tables: tuple[str, ...],
    timeout: float,
    interval: float,
    *,
    fail_fast: bool,
    as_json: bool,
) -> None:
    """Wait until tables have caught up or a file is applied.

    An engine must run meanwhile; this command only reads, and starts no Java. A named table is waited for even if it
    does not exist yet. After --timeout it says why each table has not caught up.

    Example: mirror-engine wait ./shop --table Sales.Orders --timeout 60s

    Exit codes: 0 the condition holds · 2 usage error · 3 a table is halted or blocked, with --fail-fast · 4 timed
    out · 130 interrupted
    """
    kind, _, file = condition.partition("=")
    if condition != "caught-up" and (kind != "file" or not file):
        raise UsageError(f"--for {condition}: unknown condition", "wait for caught-up or file=NAME")
    started, is_noted = time.monotonic(), False
    with Stopping() as stopping, opening.open_mirror(root, config) as mirror:
        while True:
            engine_running, tables_known, unmet = _check(mirror, file, tables)
            left = timeout - (time.monotonic() - started)
            if not unmet or left <= 0 or stopping.stop.is_set() or (fail_fast and _is_hopeless(unmet)):
                break
            if not (engine_running or is_noted):
                stderr().print(line(f"{START_ENGINE}; waiting {short_span(timeout)} for one"))
                is_noted = True
            stopping.stop.wait(min(interval, left))
    seconds, code = time.monotonic() - started, exit_codes.SUCCESS
    if unmet:
        code = exit_codes.NEEDS_ATTENTION if fail_fast and _is_hopeless(unmet) else exit_codes.RETRY
        code = stopping.exit_code(code)
    if as_json:
        result = {exit_codes.SUCCESS: "reached", exit_codes.RETRY: "timeout", exit_codes.INTERRUPTED: "interrupted"}
        document = {"result": result.get(code, "needs_attention"), "exit_code": code}
        document |= {"duration_seconds": round(seconds, 3), "engine_running": engine_running}
        print_json("wait", document | {"unmet": [entry.to_json() for entry in unmet]})
    elif unmet:
        _print_unmet(unmet, seconds, engine_running=engine_running, timed_out=code == exit_codes.RETRY)
    elif file:
        stdout().print(line(f"{file} is applied ({short_span(seconds)}).", "green"))
    else:
        number = len(tables) or tables_known
        tables_text = "The table has" if number == 1 else f"All {number:,} tables have"
        stdout().print(line(f"{tables_text} caught up ({short_span(seconds)}).", "green"))
    raise click.exceptions.Exit(code)


def _check(mirror: Mirror, file: str, tables: Sequence[str]) -> tuple[bool, int, Sequence[UnmetCondition]]:
    """Whether an engine is running, how many tables there are, and which conditions are unmet."""
    from mirror_engine.monitoring.wait_conditions import UnmetCondition, file_not_applied, tables_not_caught_up

    schema = mirror.config.delta_default_schema
    try:
        status = mirror.status()
    except TransientError as error:  # the next check may succeed
        return True, 0, [UnmetCondition("", "", error.message, error.help)]
    unmet = file_not_applied(status, file, tables, schema) if file else tables_not_caught_up(status, tables, schema)
    return status.engine_running, len(status.tables), unmet


def _print_unmet(unmet: Sequence[UnmetCondition], seconds: float, *, engine_running: bool, timed_out: bool) -> None:
    what = f"timed out after {short_span(seconds)}" if timed_out else f"stopped after {short_span(seconds)}"
    tables = len({entry.table for entry in unmet if entry.table})
    missing = f": {count(tables, 'table')} {'has' if tables == 1 else 'have'} not caught up" if tables else ""
    engine = "" if engine_running else "; no engine is running"
    stderr().print(line(f"error: {what}{missing}{engine}", "bold red"))
    for help, entries in groupby(unmet, attrgetter("help")):
        for entry in entries:
            stderr().print(line(f"  {entry.message}"))
        if help or engine_running:
            stderr().print(bullet("help:", help or ALREADY_RUNNING))


def _is_hopeless(unmet: Sequence[UnmetCondition]) -> bool:
    return any(entry.needs_attention for entry in unmet)
