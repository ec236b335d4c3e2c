"""Progress of long work on stderr: bars on a terminal, elsewhere a plain line every ten seconds."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from mirror_engine.cli.options import Choice, verbosity
from mirror_engine.cli.output import short_span, stderr
from mirror_engine.events import BatchCommitted, BatchStarted, FileRead, SetupProgress
from mirror_engine.landing_zone.diagnostics import count, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from mirror_engine.events import Event, Listener
    from mirror_engine.landing_zone.names import TableName

PLAIN_SECONDS = 10.0

progress_option = click.option(
    "--progress",
    type=Choice(("auto", "plain", "none")),
    default="auto",
    help="Progress on stderr: bars on a terminal and a line every 10s elsewhere (auto), lines (plain), or none.",
)


@contextmanager
def shown(form: str = "auto") -> Iterator[tuple[Listener, ...]]:
    """Listeners that show progress while entered, in the form of `--progress`."""
    console = stderr()
    listener = Progress()
    if form == "none" or verbosity() < 0:
        yield ()
    elif form == "plain" or not console.is_terminal:
        end = threading.Event()
        threading.Thread(target=listener.write_lines, args=(end,), name="progress", daemon=True).start()
        try:
            yield (listener,)
        finally:
            end.set()
    else:
        from rich.live import Live

        with Live(console=console, get_renderable=listener.bars, refresh_per_second=10, transient=True):
            yield (listener,)


@dataclass
class _Batch:
    """Progress of one table's batch."""

    files: int
    rows: int = 0
    files_read: int = 0
    started: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        return f"{self.files_read} of {count(self.files, 'file')}, {count(self.rows, 'row')}"


class Progress:
    """Listener that knows what is going on: setup, and the batch of each table; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._batches: dict[TableName, _Batch] = {}
        self._setup: SetupProgress | None = None
        self._commits = 0

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        with self._lock:
            match event:
                case SetupProgress():
                    self._setup = event
                case BatchStarted(table, files):
                    self._batches[table] = _Batch(files)
                case FileRead(table, _, rows) if table in self._batches:
                    self._setup = None
                    self._batches[table].files_read += 1
                    self._batches[table].rows += rows
                case BatchCommitted(table):
                    self._setup = None
                    self._commits += 1
                    self._batches.pop(table, None)

    def write_lines(self, end: threading.Event) -> None:
        """Write a line every `PLAIN_SECONDS`."""
        while not end.wait(PLAIN_SECONDS):
            sys.stderr.write(f"{self.line()}\n")
            sys.stderr.flush()

    def line(self) -> str:
        """What is going on now."""
        with self._lock:
            parts = [f"{printable(table.normalized)}: {batch}" for table, batch in self._batches.items()]
            if setup := self._setup:
                parts.insert(
                    0, f"preparing {setup.what}" + (f" ({setup.done} of {setup.total})" if setup.total else "")
                )
            done = f"{count(self._commits, 'commit')} so far"
        return f"[{short_span(time.monotonic() - self._started)}] {'; '.join(parts) or done}"

    def bars(self) -> Table:
        """The same as a bar for setup, and one for each table."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        now = time.monotonic()
        shown = Table.grid(padding=(0, 1))
        with self._lock:
            if setup := self._setup:
                total = setup.total or None
                counts = f"{setup.done} of {total}" if total else ""
                bar = ProgressBar(total, setup.done, width=20, pulse=not total)
                shown.add_row(f"preparing {setup.what}", bar, counts, short_span(now - self._started))
            for table, batch in self._batches.items():
                bar = ProgressBar(batch.files, batch.files_read, width=20)
                shown.add_row(printable(table.normalized), bar, str(batch), short_span(now - batch.started))
        return shown
