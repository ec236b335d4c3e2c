"""Progress of long work on stderr: bars on a terminal, elsewhere a plain line every ten seconds."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.cli.options import choice_option, is_quiet
from mirror_engine.cli.output import short_span, stderr
from mirror_engine.events import BatchCommitted, BatchStarted, FileRead, SetupProgress
from mirror_engine.landing_zone.diagnostics import count, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress, TaskID
    from typing_extensions import Self

    from mirror_engine.events import Event, Listener
    from mirror_engine.landing_zone.names import TableName

PLAIN_SECONDS = 10.0

progress_option = choice_option(
    "--progress",
    choices=("auto", "plain", "none"),
    default="auto",
    help="Progress on stderr: bars on a terminal and a line every 10s elsewhere (auto), lines (plain), or none.",
)


@contextmanager
def shown(form: str = "auto") -> Iterator[tuple[Listener, ...]]:
    """Listeners that show progress while entered.

    Args:
        form: of `--progress`.
    """
    console = stderr()
    if form == "none" or is_quiet():
        yield ()
    elif form == "plain" or not console.is_terminal:
        with _PlainLines() as lines:
            yield (lines,)
    else:
        import rich.progress as bars

        columns = (
            bars.SpinnerColumn(),
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(bar_width=20),
            bars.TextColumn("{task.fields[counts]}", markup=False),
            bars.TimeElapsedColumn(),
        )
        with bars.Progress(*columns, console=console, transient=True) as progress:
            yield (_Bars(progress),)


@dataclass
class _Batch:
    """Progress of one table's batch."""

    files: int
    rows: int = 0
    files_read: int = 0

    @property
    def counts(self) -> str:
        return f"{self.files_read} of {count(self.files, 'file')}, {count(self.rows, 'row')}"


class _Batches:
    """Events as the progress of setup and batches; may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: dict[TableName, _Batch] = {}
        self._setup: SetupProgress | None = None

    def __call__(self, event: Event) -> None:
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
                    self._batches.pop(table, None)
                case _:
                    return
            self._changed()

    def _changed(self) -> None:
        """Something is new; called with the lock held."""


class _PlainLines(_Batches):
    """A line every `PLAIN_SECONDS`, while entered."""

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._commits = 0
        self._end = threading.Event()
        threading.Thread(target=self._write, name="progress", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()

    def __call__(self, event: Event) -> None:
        self._commits += isinstance(event, BatchCommitted)
        super().__call__(event)

    def _write(self) -> None:
        while not self._end.wait(PLAIN_SECONDS):
            sys.stderr.write(f"{self.line()}\n")
            sys.stderr.flush()

    def line(self) -> str:
        """What is going on now."""
        with self._lock:
            parts = [f"preparing {_setup_text(self._setup)}"] if self._setup else []
            parts += [f"{printable(table.normalized)}: {batch.counts}" for table, batch in self._batches.items()]
            parts += [] if parts else [f"{count(self._commits, 'commit')} so far"]
        return f"[{short_span(time.monotonic() - self._started)}] {'; '.join(parts)}"


class _Bars(_Batches):
    """A bar for each table, and one for setup."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress
        self._tasks: dict[TableName | None, TaskID] = {}

    def _changed(self) -> None:
        for gone in [table for table in self._tasks if (table not in self._batches if table else not self._setup)]:
            self._progress.remove_task(self._tasks.pop(gone))
        for table, batch in self._batches.items():
            self._show(table, printable(table.normalized), batch.files_read, batch.files, batch.counts)
        if self._setup:
            total = self._setup.total or None
            counts = f"{self._setup.done} of {total}" if total else ""
            self._show(None, f"preparing {self._setup.what}", self._setup.done, total, counts)

    def _show(self, table: TableName | None, description: str, completed: int, total: int | None, counts: str) -> None:
        if table not in self._tasks:
            self._tasks[table] = self._progress.add_task(description, total=total, counts=counts)
        self._progress.update(
            self._tasks[table], description=description, completed=completed, total=total, counts=counts
        )


def _setup_text(setup: SetupProgress) -> str:
    return f"{setup.what} ({setup.done} of {setup.total})" if setup.total else setup.what
