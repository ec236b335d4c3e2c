"""`sync`, `run` and `wait`: apply change files, and wait until another engine has."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from mirror_engine import display
from mirror_engine.cli import exits, log
from mirror_engine.cli import output as out
from mirror_engine.cli.inspection import MAX_PARAGRAPHS
from mirror_engine.cli.options import (
    ALL,
    DROPPING,
    DURATION,
    LISTING,
    Value,
    command,
    with_config,
    with_mirror,
    with_root,
)
from mirror_engine.cli.progress import progress_option, shown
from mirror_engine.config import duration
from mirror_engine.errors import TransientError, UsageError
from mirror_engine.landing_zone.detection import never_arrives
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.states import Blocked, CaughtUp, Empty, Halted, Unlisted, needs_attention
from mirror_engine.landing_zone.text import count, printable
from mirror_engine.monitoring.history import Change
from mirror_engine.monitoring.state_text import (
    DROPPED_BECAUSE,
    START_ENGINE,
    describe,
    help_for,
    kind_of,
    lost_rows,
    notes,
    tally,
    tally_text,
)
from mirror_engine.results import Count, Part, Result, Seconds, State, TableReference, as_json, fields_json
from mirror_engine.storage.roots import has_zone, zone_alike

if TYPE_CHECKING:
    from mirror_engine.config import Config
    from mirror_engine.engine.changes import TableChange
    from mirror_engine.engine.cycle import SyncReport
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.states import TableState
    from mirror_engine.mirror import Mirror
    from mirror_engine.monitoring.status import MirrorStatus
    from mirror_engine.monitoring.wait_conditions import UnmetCondition
    from mirror_engine.storage.store_url import Place

NOTE_SECONDS = 10.0  # between two lines of `wait`
MAX_NAMED = 10  # tables in one line
BECAME = {  # tables, by the kind of a change
    "resumed": "{tables} {over}",
    "folder_moved": "{tables} moved or mounted again, with the same content",
    "progress_rebuilt": "Progress of {tables} was rebuilt from the Delta log",
    "maintained": "Maintained {tables}",
    "files_archived": "Archived {applied} of {tables}",
    "archived_files_deleted": "Deleted {archived} of {tables}",
}
UNUSUAL = frozenset({"folder_moved", "progress_rebuilt"})
ALREADY_RUNNING = "the engine is still working: wait longer (--timeout), or see mirror-engine status"


OF_RUN = ("poll_interval_seconds", "auto_maintain")  # without effect in one `sync`


@command(config=[name for name in ALL if name not in OF_RUN])
@progress_option
@with_root
@with_config
def sync(root: Place, config: Config, progress: str) -> int:
    """Apply all pending change files, then exit.

    Example: mirror-engine sync ./shop --max-batch-files 1

    Exit codes: 0 all tables have caught up · 1 missing prerequisite or internal error · 2 usage error · 3 a table is
    halted or blocked; all others were applied · 4 temporary: storage, unlisted table, conflict or another engine;
    retry · 130 interrupted, after the current commit
    """
    from mirror_engine.mirror import Mirror

    with shown(progress) as listener, Mirror(root, config, listeners=[listener]) as mirror:
        _misses_zone(root)
        with exits.Stopping() as stopping:
            done = mirror.sync(stopping.stop)
    code = exits.INTERRUPTED if stopping.stop.is_set() else exits.of_result(done.result)
    out.report(sync_json(done, code, config), [*_report_lines(done), _report_text(done)])
    return code


def _misses_zone(root: Place) -> bool:
    """Whether there is no landing zone yet, which is noted."""
    if has_zone(root):
        return False
    near = f"; did you mean {printable(alike)}? Rename it" if (alike := zone_alike(root)) else ""
    out.note(f"{root}: no landing zone yet; land files in {root / ZONE}{near}")
    return True


def sync_json(done: SyncReport, code: int, config: Config) -> dict[str, Any]:
    """What was applied, and how every table is then, as plain values."""
    tables = []
    for table, state in done.states.items():
        failure, lost = done.failures.get(table), done.lost.get(table, ())
        help = failure.help if failure else help_for(state, engine_running=False, lost=lost)
        facts = {
            "state": state.code,
            "message": describe(table, state) + notes(done.ignored.get(table, ())) + lost_rows(lost),
            "help": help or (lost[0].help if lost else None),
            "last_failure": as_json(failure),
        }
        tables.append({**TableReference.of(table, table.delta_folder(config.delta_default_schema)).to_json(), **facts})
    whole = {"last_failure": as_json(done.failures.get(None)), "counts": counts(done)}
    return {**report_json(done, code), **whole, "tables": tables}


def report_json(done: SyncReport, code: int) -> dict[str, Any]:
    """What was applied, as plain values."""
    facts = fields_json(done, "result", "commits", "files_applied", "rows_applied")
    seconds, changes = round(done.duration_seconds, 3), [Change.of(change).to_json() for change in done.changes]
    return {**facts, "exit_code": code, "duration_seconds": seconds, "changes": changes}


def _report_text(done: SyncReport) -> str:
    """What was applied, and how many tables have caught up: two sentences."""
    applied = "Nothing to apply"
    if done.commits:
        files = f"{count(done.files_applied, 'file')} ({count(done.rows_applied, 'row')})"
        applied = f"Applied {files} to {count(done.tables_applied, 'table')} in {count(done.commits, 'commit')}"
    applied = f"{applied} ({display.elapsed(done.duration_seconds)})."
    caught_up = sum(isinstance(state, (CaughtUp, Empty)) for state in done.states.values())
    is_whole, but = None not in done.failures, ignored_data(sum(map(len, done.ignored.values())))
    if not done.states:
        none = "There are no tables left" if done.dropped else "There are no tables yet"
        return f"{applied} {none if is_whole else 'No table could be listed'}{but}."
    if caught_up < len(done.states) or done.failures.keys() - {None}:
        return f"{applied} {tally_text(counts(done))}"
    return f"{applied} {'All' if is_whole else 'All other'} tables have caught up{but}."


def counts(done: SyncReport) -> dict[str, int]:
    """How many tables there are of each kind in `words.KINDS` afterwards."""
    failed = {table for table in done.failures if table}
    return tally(
        kind_of(state, is_stuck=table in failed or needs_attention(state)) for table, state in done.states.items()
    )


def _report_lines(done: SyncReport) -> display.Lines:
    """Dropped tables, then what needs attention, then what else became of tables."""
    yield from changes_text([change for change in done.changes if change.kind == "dropped"])
    yield from _attention(done)
    yield from changes_text([change for change in done.changes if change.kind != "dropped"])


def changes_text(changes: Sequence[TableChange]) -> display.Lines:
    """What became of tables besides the applied rows; files that were archived with `-v` alone."""
    by_kind = groupby(changes, lambda change: (change.kind, "" if change.kind == "halted" else change.reason))
    for (kind, reason), group in by_kind:
        found = [*group]
        names = ", ".join(printable(each.table.normalized) for each in found[:MAX_NAMED])
        more = f" and {count(len(found) - MAX_NAMED, 'more table')}" if len(found) > MAX_NAMED else ""
        tables = count(len(found), "table")
        match kind:
            case "dropped":
                yield display.line(f"Dropped {tables} ({DROPPED_BECAUSE[reason]}): {names}{more}.", "yellow")
                if reason == "removed":
                    yield display.bullet(
                        "help:", "archived change files are read again by mirror-engine rebuild --replay"
                    )
            case "halted":
                pass  # each is named with its reason, if it is halted still
            case "files_archived" if out.verbosity() <= 0:
                pass
            case _:
                files = sum(change.files for change in found)
                over = f"no longer halted ({DROPPED_BECAUSE[reason]})" if reason else "resumed"
                facts = {"tables": tables, "over": over, "archived": count(files, "archived file")}
                became = BECAME[kind].format(**facts, applied=count(files, "applied file"))
                yield display.line(f"{became}: {names}{more}.", "yellow" if kind in UNUSUAL else "")


def ignored_data(paths: int) -> str:
    """What is to be added where all have caught up."""
    return f", but {count(paths, 'path')} with data {'is' if paths == 1 else 'are'} ignored" if paths else ""


def _attention(done: SyncReport) -> display.Lines:
    """What failed, data that is ignored, and the tables that have not caught up, with what to do."""
    if whole := done.failures.get(None):
        yield from display.with_help(f"error: {whole.message}", whole.help, "bold red")
    for found in done.ignored.get(None, ()):
        yield from display.diagnostic_lines(found)
    noted = [table for table, state in done.states.items() if _is_noted(done, table, state)]
    noted.sort(key=lambda table: table not in done.failures and not needs_attention(done.states[table]))
    for table in noted[:MAX_PARAGRAPHS]:
        yield from _paragraph(done, table, done.states[table])
    if (more := len(noted) - MAX_PARAGRAPHS) > 0:
        yield display.line(f"… and {count(more, 'more table')}: see mirror-engine status", "dim")


def _is_noted(done: SyncReport, table: TableName, state: TableState) -> bool:
    is_well = isinstance(state, CaughtUp | Empty | Unlisted)  # the failure of the whole names unlisted ones
    return not is_well or table in done.failures or table in done.lost or bool(done.ignored.get(table))


def _paragraph(done: SyncReport, table: TableName, state: TableState) -> display.Lines:
    failure = done.failures.get(table)
    for rows in done.lost.get(table, ()):
        yield from display.diagnostic_lines(rows)
    match state:
        case _ if failure:
            yield f"{describe(table, state)}."
            yield from display.with_help(f"error: {failure.message}", failure.help, "bold red")
        case CaughtUp() | Empty() if table in done.ignored:
            yield display.line(f"{describe(table, state)}{notes(done.ignored[table])}.", "yellow")
        case CaughtUp() | Empty() | Unlisted():
            return
        case Halted(diagnostic):
            yield from display.diagnostic_lines(diagnostic, display.halted(table))
        case _:
            is_said = isinstance(state, Blocked) and table in done.lost
            help = "" if is_said else help_for(state, engine_running=False)
            yield from display.with_help(f"{describe(table, state)}.", help)
    yield from display.bullets(display.ignored_paths(done.ignored.get(table, ())))


@command(place="empty", config=ALL)
@log.log_options("auto", "text", "json")
@with_root
@with_config
def run(root: Place, config: Config, log_format: str, log_level: str) -> int:
    """Apply change files as they arrive, until stopped.

    SIGTERM or Ctrl+C ends it after the current commit, a second one immediately. It scans after file-system events, and
    at least every --poll-interval.

    On a terminal it shows bars, and a line for each commit and finding. Elsewhere it logs events on stderr, one per
    line. With --json it prints the final report on stdout.

    Example: mirror-engine run ./shop --poll-interval 5s --log-format json

    Exit codes: 0 stopped by SIGTERM · 1 missing prerequisite or internal error · 2 usage error · 4 another engine
    runs on this ROOT · 130 stopped by Ctrl+C
    """
    from mirror_engine.mirror import Mirror
    from mirror_engine.tables.spark.doctor import suggestion

    logging.getLogger().addHandler(logging.NullHandler())  # log lines of libraries would break the format
    least, is_quiet = log.level_of(log_level), out.verbosity() < 0
    writer = None if log_format == "auto" and out.stderr().is_terminal else log.Log(log_format, least)
    if writer is None and not (is_quiet or _misses_zone(root)):
        out.note(f"{root}: applying change files as they land; Ctrl+C stops")
    quicker = suggestion(config, root)
    if quicker and writer is None and not is_quiet:
        out.note(quicker)
    view = nullcontext(writer) if writer else shown(least=least)
    with exits.Stopping() as stopping, view as listener, Mirror(root, config, listeners=[listener]) as mirror:
        if writer:
            seconds = mirror.config.scan_pause(0)
            writer.write("info", "started", {"root": str(root), "poll_interval_seconds": seconds})
            if not has_zone(root):
                writer.write("warning", "no_landing_zone", {"expected": str(root / ZONE)})
            if quicker:
                writer.write("info", "quicker_merge_engine", {"message": quicker})
        done = mirror.run(stopping.stop)
    code = stopping.exit_code(exits.SUCCESS)
    facts = report_json(done, code)
    if writer:
        own = {"exit_code", "changes"}  # each change was logged
        writer.write("info", "stopped", {name: value for name, value in facts.items() if name not in own})
    elif not is_quiet:
        for part in (*_report_lines(done), display.line(_report_text(done))):
            out.stderr().print(part, crop=False)
    if out.wants_json():
        out.print_json(facts)
    return code


class Unmet(Part, frozen=True):
    """Why a wait condition is not met.

    Attributes:
        table: null for the landing zone as a whole
        message: why it is not met
        help: what to do
    """

    table: str | None
    state: State | None
    message: str
    help: str | None


class Wait(Result, frozen=True):
    """Whether the condition was met in time.

    Attributes:
        exit_code: of the process
        message: the result in a sentence
        ignored_paths: with data, where all tables have caught up
    """

    result: Literal["reached", "timeout", "needs_attention", "interrupted"]
    exit_code: Count
    duration_seconds: Seconds
    engine_running: bool
    message: str
    ignored_paths: Count
    unmet: Sequence[Unmet]

    def text(self) -> display.Lines:
        if self.result == "reached":
            but, seconds = ignored_data(self.ignored_paths), display.elapsed(self.duration_seconds)
            yield display.line(f"{self.message}{but} ({seconds}).", "yellow" if but else "green")
            return
        yield display.line(f"error: {self.message}", "bold red")
        for help, entries in groupby(self.unmet, attrgetter("help")):
            yield from (f"  {entry.message}" for entry in entries)
            if help or self.engine_running:
                yield display.bullet("help:", help or ALREADY_RUNNING)


@command(place="empty", config=(*LISTING, *DROPPING), reads_engine=True, result=Wait)
@click.option(
    "condition",
    "--for",
    metavar="caught-up|file=NAME",
    default="caught-up",
    help="What to wait for: all tables, or a change file such as file=Items/00000000000000000001.csv.",
)
@click.option("tables", "--table", metavar="TABLE", multiple=True, help="Only this table (repeatable).")
@click.option("--timeout", type=DURATION, default="600s", help="How long to wait.")
@click.option(
    "--interval", type=Value(duration(0.05)), help="Time between two checks.  [default: 1s; 10s for a ROOT in a store]"
)
@click.option("--fail-fast", is_flag=True, help="End with 3 as soon as a table is halted or blocked.")
@with_mirror(at_once=False)
def wait(
    mirror: Mirror, condition: str, tables: tuple[str, ...], timeout: float, interval: float | None, *, fail_fast: bool
) -> int:
    """Wait until tables have caught up or a file is applied.

    An engine must run meanwhile; this command only reads, and starts no Java. It also waits for a named table that does
    not exist yet. Every 10s it reports on stderr what it waits for, and after --timeout why each table has not caught
    up.

    Example: mirror-engine wait ./shop --table Sales.Orders --timeout 60s

    Exit codes: 0 the condition holds · 2 usage error · 3 a file was lost (ME025); with --fail-fast also: a table is
    halted or blocked · 4 timed out · 130 interrupted
    """
    kind, _, file = condition.partition("=")
    if condition != "caught-up" and (kind != "file" or not file):
        raise UsageError(f"--for {condition}: unknown condition", "wait for caught-up or file=NAME")
    interval = interval or (1.0 if isinstance(mirror.root, Path) else 10.0)  # each check of a store costs requests
    started, noted, is_noted, landed = time.monotonic(), 0.0, False, None
    with exits.Stopping() as stopping:
        while True:
            status, unmet = _check(mirror, file, tables)
            engine_running = status is None or status.engine_running
            seconds = time.monotonic() - started
            is_hopeless = fail_fast and any(entry.needs_attention for entry in unmet)
            is_hopeless = is_hopeless or all(entry.is_final for entry in unmet)
            if not unmet or seconds >= timeout or stopping.stop.is_set() or is_hopeless:
                break
            if not (engine_running or is_noted):
                out.note(f"{START_ENGINE}; waiting {display.short_span(timeout)} for one")
                is_noted = True
            files = [table.files for table in status.tables] if status else landed
            if seconds >= noted + NOTE_SECONDS and out.verbosity() >= 0:
                more = f"; and {len(unmet) - 1:,} more" if unmet[1:] else ""
                more += "; nothing landed" if files == landed else ""
                out.note(f"[{display.elapsed(seconds)}] {unmet[0].message}{more}")
                noted, landed = seconds, files
            landed = landed or files
            stopping.stop.wait(min(interval, timeout - seconds))
    result: Literal["reached", "timeout", "needs_attention", "interrupted"] = "reached"
    code, ignored = exits.SUCCESS, 0
    if unmet:
        result, code = ("needs_attention", exits.NEEDS_ATTENTION) if is_hopeless else ("timeout", exits.RETRY)
        if stopping.interrupted:
            result, code = "interrupted", exits.INTERRUPTED
        message = _unmet_text(unmet, seconds, engine_running=engine_running, timed_out=result == "timeout")
    else:
        message, ignored = _met(status, file, tables)
    entries = [Unmet(each.table or None, each.state or None, each.message, each.help or None) for each in unmet]
    done = Wait(result, code, round(seconds, 3), engine_running, message, ignored, entries)
    if unmet and not out.wants_json():
        display.print_to(out.stderr(), done.text())
    else:
        out.report(done)
    return code


def _check(mirror: Mirror, file: str, tables: Sequence[str]) -> tuple[MirrorStatus | None, Sequence[UnmetCondition]]:
    """The status, None if it cannot be read just now, and which conditions are unmet."""
    from mirror_engine.monitoring.wait_conditions import UnmetCondition, file_not_applied, tables_not_caught_up

    schema = mirror.config.delta_default_schema
    try:
        status = mirror.status(file)
    except TransientError as error:  # the next check may succeed
        return None, [UnmetCondition("", "", error.message, error.help)]
    unmet = file_not_applied(status, file, tables, schema) if file else tables_not_caught_up(status, tables, schema)
    return status, unmet


def _met(status: MirrorStatus | None, file: str, tables: Sequence[str]) -> tuple[str, int]:
    """The sentence on a condition that is met, and how many paths with data are ignored."""
    if file:
        return f"{file} is applied", 0
    seen = status.tables if status else ()
    number = len(tables) or len(seen)
    message = "The table has caught up" if number == 1 else f"All {number:,} tables have caught up"
    if tables or not status:
        return message, 0
    found = [*status.diagnostics, *(each for table in seen for each in table.ignored)]
    return message, sum(map(never_arrives, found))


def _unmet_text(unmet: Sequence[UnmetCondition], seconds: float, *, engine_running: bool, timed_out: bool) -> str:
    tables = len({entry.table for entry in unmet if entry.table})
    missing = f": {count(tables, 'table')} {'has' if tables == 1 else 'have'} not caught up" if tables else ""
    engine = "" if engine_running else "; no engine is running"
    return f"{'timed out' if timed_out else 'stopped'} after {display.elapsed(seconds)}{missing}{engine}"
