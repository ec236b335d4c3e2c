"""`sync`, `run` and `wait`: apply change files, and wait until another engine has."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
from msgspec.structs import replace

from mirror_engine import display
from mirror_engine.cli import exits, log
from mirror_engine.cli import output as out
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
from mirror_engine.errors import NoAccess, TransientError, UsageError
from mirror_engine.landing_zone.detection import never_arrives
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.text import count, printable
from mirror_engine.monitoring.state_text import START_ENGINE, ignored_data
from mirror_engine.monitoring.sync_results import SyncReport
from mirror_engine.results import Count, Part, Result, Seconds, State
from mirror_engine.storage.roots import has_zone, zone_alike

if TYPE_CHECKING:
    from mirror_engine.config import Config
    from mirror_engine.mirror import Mirror
    from mirror_engine.monitoring.status import MirrorStatus
    from mirror_engine.monitoring.wait_conditions import UnmetCondition
    from mirror_engine.storage.store_url import Place

NOTE_SECONDS = 10.0  # between two lines of `wait`
LOGGED = ("result", "commits", "files_applied", "rows_applied", "duration_seconds")  # at the end of `run`
ALREADY_RUNNING = "the engine is still working: wait longer (--timeout), or see mirror-engine status"


OF_RUN = ("poll_interval_seconds", "auto_maintain")  # without effect in one `sync`


@command(config=[name for name in ALL if name not in OF_RUN], result=SyncReport)
@progress_option
@with_root
@with_config
def sync(root: Place, config: Config, progress: str) -> int:
    """Apply all pending change files, then exit.

    Example: mirror-engine sync ./shop --max-batch-files 1

    Exit codes: 0 all tables have caught up · 1 missing prerequisite, no access to a store, or internal error · 2 usage
    error · 3 a table is halted or blocked; all others were applied · 4 temporary: storage, unlisted table, conflict or
    another engine; retry · 130 interrupted, after the current commit
    """
    from mirror_engine.mirror import Mirror

    with shown(progress) as listener, Mirror(root, config, listeners=[listener]) as mirror:
        _misses_zone(root)
        with exits.Stopping() as stopping:
            done = mirror.sync(stopping.stop)
    done = replace(done, exit_code=exits.INTERRUPTED if stopping.stop.is_set() else done.exit_code)
    out.report(done, done.lines(verbose=out.verbosity() > 0))
    return done.exit_code


def _misses_zone(root: Place) -> bool:
    """Whether there is no landing zone yet; if so, prints a note."""
    if has_zone(root):
        return False
    near = f"; did you mean {printable(alike)}? Rename it" if (alike := zone_alike(root)) else ""
    out.note(f"{root}: no landing zone yet; land files in {root / ZONE}{near}")
    return True


@command(place="empty", config=ALL, result=SyncReport)
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

    Exit codes: 0 stopped by SIGTERM · 1 missing prerequisite, no access to a store, or internal error · 2 usage error ·
    4 another engine runs on this ROOT · 130 stopped by Ctrl+C
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
    done = replace(done, exit_code=stopping.exit_code(exits.SUCCESS))
    if writer:
        facts = done.to_json()
        writer.write("info", "stopped", {name: facts[name] for name in LOGGED})
    elif not is_quiet:
        display.print_to(out.stderr(), done.lines(verbose=out.verbosity() > 0))
    if out.wants_json():
        out.print_json(done.to_json())
    return done.exit_code


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

    Exit codes: 0 the condition holds · 1 no access to a store · 2 usage error · 3 a file was lost (ME025); with
    --fail-fast also: a table is halted or blocked · 4 timed out · 130 interrupted
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
    from mirror_engine.mirror import status_of
    from mirror_engine.monitoring.wait_conditions import UnmetCondition, file_not_applied, tables_not_caught_up

    schema = mirror.config.delta_default_schema
    try:
        status = status_of(mirror, file)
    except NoAccess:
        raise
    except TransientError as error:  # the next check may succeed
        return None, [UnmetCondition("", "", error.message, error.help)]
    unmet = file_not_applied(status, file, tables, schema) if file else tables_not_caught_up(status, tables, schema)
    return status, unmet


def _met(status: MirrorStatus | None, file: str, tables: Sequence[str]) -> tuple[str, int]:
    """Return the message for a met condition, and how many ignored paths have data."""
    if file:
        return f"{file} is applied", 0
    seen = status.tables if status else ()
    number = len(tables) or len(seen)
    message = "The table has caught up" if number == 1 else f"All {number:,} tables have caught up"
    if tables or not status:
        return message, 0
    found = [*status.found, *(each for table in seen for each in table.ignored)]
    return message, sum(map(never_arrives, found))


def _unmet_text(unmet: Sequence[UnmetCondition], seconds: float, *, engine_running: bool, timed_out: bool) -> str:
    tables = len({entry.table for entry in unmet if entry.table})
    missing = f": {count(tables, 'table')} {'has' if tables == 1 else 'have'} not caught up" if tables else ""
    engine = "" if engine_running else "; no engine is running"
    return f"{'timed out' if timed_out else 'stopped'} after {display.elapsed(seconds)}{missing}{engine}"
