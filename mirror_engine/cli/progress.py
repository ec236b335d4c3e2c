"""Progress of long work on stderr: bars and a line for each commit on a terminal, elsewhere a line every 10 seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from mirror_engine import events
from mirror_engine.cli.log import LEVELS, LogLevel, log_record
from mirror_engine.cli.options import Choice
from mirror_engine.cli.output import stderr, verbosity
from mirror_engine.display import diagnostic_lines, elapsed, line, short_span, with_help
from mirror_engine.landing_zone.text import count, printable
from mirror_engine.monitoring.state_text import DROPPED_BECAUSE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table

    from mirror_engine.events import Event, Listener
    from mirror_engine.landing_zone.names import TableName

PLAIN_SECONDS = 10.0
_NOTABLE = (events.BatchCommitted, events.RetryScheduled, events.TableDropped, events.ProgressRebuilt)
progress_option = click.option(
    "--progress",
    type=Choice(("auto", "plain", "none")),
    default="auto",
    help="Progress on stderr: bars on a terminal and a line every 10s elsewhere (auto), lines (plain), or none.",
)


@contextmanager
def shown(form: str = "auto", least: LogLevel | None = None) -> Iterator[Listener]:
    """Listener that shows progress while entered, in a form of `--progress`.

    Work that goes on until it is stopped has a `least` level of events that get a line of their own on a terminal; of
    all other work these are commits, and what delays them, as a report follows.
    """
    console = stderr()
    progress, is_quiet = ProgressTracker(is_lasting=least is not None), verbosity() < 0
    if form == "none" or (is_quiet and least is None):
        yield events.ignore
    elif form == "plain" or not console.is_terminal:
        end = threading.Event()
        threading.Thread(target=progress.write_lines, args=(end,), name="progress", daemon=True).start()
        try:
            yield progress
        finally:
            end.set()
    else:
        from rich.live import Live

        pending: deque[RenderableType] = deque()
        least_at = LEVELS.index(least or "info")

        def listen(event: Event) -> None:
            progress(event)
            is_notable = isinstance(event, _NOTABLE) if least is None else log_record(event)[0] in LEVELS[least_at:]
            pending.extend(lines(event) if is_notable else ())

        def view() -> RenderableType:
            while pending:  # here, as lines of several threads would write over each other
                console.print(pending.popleft(), crop=False)
            return "" if is_quiet else progress.bars()

        with Live(console=console, get_renderable=view, refresh_per_second=10, transient=True):
            yield listen


def lines(event: Event) -> Iterator[RenderableType]:
    """Format an event for people; empty if a progress bar shows it."""
    match event:
        case events.BatchCommitted(table, version, files, rows, seconds):
            yield line(f"{table.normalized} v{version}: {_amount(len(files), rows)} ({elapsed(seconds)})")
        case events.DiagnosticRaised(_, diagnostic):  # that of a halted table, too
            yield from diagnostic_lines(diagnostic)
        case events.TableHalted(table):
            yield line(f"{table.normalized} is halted.", "bold red")
        case events.TableResumed(table, reason):
            over = f"is no longer halted ({DROPPED_BECAUSE[reason]})" if reason else "goes on"
            yield line(f"{table.normalized} {over}.", "green")
        case events.TableDropped(table, reason):
            yield line(f"{table.normalized} was dropped ({DROPPED_BECAUSE[reason]})", "yellow")
        case events.FilesArchived(table, files) | events.ArchivedFilesDeleted(table, files):
            done = "archived" if isinstance(event, events.FilesArchived) else "deleted from the archive"
            yield line(f"{table.normalized}: {count(files, 'file')} {done}", "dim")
        case events.ProgressRebuilt(table) | events.FolderMoved(table):
            rebuilt = f"progress was rebuilt from its Delta log (v{getattr(event, 'version', '')})"
            moved = "its folder was moved or mounted again, with the same content"
            yield line(f"{table.normalized}: {moved if isinstance(event, events.FolderMoved) else rebuilt}", "yellow")
        case events.RetryScheduled(table, message, seconds):
            what, _, help = message.partition("\n  -> ")
            name = f"{table.normalized}: " if table else ""
            yield from with_help(f"{name}{what}; retry in {short_span(seconds)}", help, "bold red")
        case events.TableMaintained(table, done, seconds):
            numbers = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in done.items())
            yield line(f"{table.normalized}: {numbers} ({elapsed(seconds)})", "dim")
        case _:
            return


def _amount(files: int, rows: int) -> str:
    return f"{count(files, 'file')}, {count(rows, 'row')}"


@dataclass
class _Work:
    """Progress of one table's pending files, of which a batch is read, then committed."""

    table: str
    files: int
    rows: int = 0
    read: int = 0
    committed: int = 0
    committing: int = 0
    started: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        if self.committing:
            return f"committing {_amount(self.committing, self.rows)}"
        return f"reading {self.read} of {_amount(self.files, self.rows)}"


class ProgressTracker:
    """Listener that tracks setup and the pending files of each table. Thread-safe."""

    def __init__(self, *, is_lasting: bool = False) -> None:
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._work: dict[TableName | None, _Work] = {}
        self._setup: events.SetupProgress | None = None
        self._commits = 0
        self._is_lasting = is_lasting

    def __call__(self, event: Event) -> None:
        with self._lock:
            table = getattr(event, "table", None)
            work = self._work.get(table)
            match event:
                case events.SetupProgress(_, done, total):
                    self._setup = None if total and done >= total else event
                case events.BatchStarted(name, files):
                    done = work.committed if work else 0
                    started = work.started if work else time.monotonic()
                    self._work[name] = _Work(
                        printable(name.normalized), done + files, read=done, committed=done, started=started
                    )
                case events.FileRead(_, _, rows) if work:
                    work.read += 1
                    work.rows += rows
                case events.CommitStarted(_, files) if work:
                    work.committing = files
                case events.BatchCommitted(_, _, files):
                    self._commits += 1
                    if work:
                        work.committed, work.committing = work.committed + len(files), 0
                    if work and work.committed >= work.files:
                        del self._work[table]
                case events.RetryScheduled() | events.TableHalted() | events.TableDropped() if work:
                    del self._work[table]

    def write_lines(self, end: threading.Event) -> None:
        """Write a line every `PLAIN_SECONDS`."""
        while not end.wait(PLAIN_SECONDS):
            sys.stderr.write(f"{self.line()}\n")
            sys.stderr.flush()

    def line(self) -> str:
        with self._lock:
            parts = [f"{name}: {words}" if words else name for name, words, *_ in self._going_on()]
            done = f"{count(self._commits, 'commit')} so far"
        return f"[{elapsed(time.monotonic() - self._started)}] {'; '.join(parts) or done}"

    def bars(self) -> Table:
        """Show one bar for setup and one for each table: half for reading, half for committing."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        now = time.monotonic()
        shown = Table.grid(padding=(0, 1))
        with self._lock:
            for name, words, total, done, started in self._going_on():
                bar = ProgressBar(total, done, width=20, pulse=total is None)
                shown.add_row(name, bar, words, elapsed(now - started))
            if self._is_lasting and not shown.rows:
                shown.add_row(line(f"waiting for change files; {count(self._commits, 'commit')} so far", "dim"))
        return shown

    def _going_on(self) -> Iterator[tuple[str, str, int | None, int, float]]:
        """Yield name, status, total, amount done and start time of setup and of the work on each table."""
        if setup := self._setup:
            words = f"{setup.done} of {setup.total}" if setup.total else ""
            yield f"{setup.doing} {setup.what}", words, setup.total or None, setup.done, self._started
        for work in self._work.values():
            yield work.table, str(work), 2 * work.files, work.read + work.committed, work.started
