"""Progress of long work on stderr: files, rows, seconds; nothing at all where stderr is no terminal."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.cli.output import stderr
from mirror_engine.events import BatchCommitted, BatchStarted, FileRead, SetupProgress
from mirror_engine.landing_zone.diagnostics import count, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress, TaskID

    from mirror_engine.events import Event, Listener
    from mirror_engine.landing_zone.names import TableName


@contextmanager
def shown() -> Iterator[tuple[Listener, ...]]:
    """Listeners that show progress while entered; none where nobody watches."""
    console = stderr()
    if not console.is_terminal:
        yield ()
        return
    import rich.progress as bars  # noqa: PLC0415 - most runs show none, and it takes a while to import

    columns = (
        bars.SpinnerColumn(),
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(bar_width=20),
        bars.TextColumn("{task.fields[told]}", markup=False),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=console, transient=True) as progress:
        yield (_Shown(progress),)


@dataclass
class _Task:
    """One line of progress."""

    id: TaskID
    files: int
    rows: int = 0
    read: int = 0


class _Shown:
    """Turns events into lines of progress; may be called from any thread."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._tables: dict[TableName, _Task] = {}
        self._preparing: TaskID | None = None

    def __call__(self, event: Event) -> None:
        with self._lock:
            match event:
                case SetupProgress(what, done, total):
                    self._prepare(what, done, total)
                case BatchStarted(table, files):
                    self._end(table)
                    task = self._progress.add_task(printable(table.folder), total=files, told=count(files, "file"))
                    self._tables[table] = _Task(task, files)
                case FileRead(table, _, rows):
                    self._read(table, rows)
                case BatchCommitted(table):
                    self._end(table)
                case _:
                    pass

    def _prepare(self, what: str, done: int, total: int) -> None:
        if self._preparing is None:
            self._preparing = self._progress.add_task("", told="")
        told = f"{done} of {total}" if total else ""
        self._progress.update(
            self._preparing, description=f"preparing {what}", completed=done, total=total or None, told=told
        )

    def _read(self, table: TableName, rows: int) -> None:
        self._prepared()
        task = self._tables.get(table)
        if task:
            task.read += 1
            task.rows += rows
            told = f"{task.read} of {count(task.files, 'file')}, {count(task.rows, 'row')}"
            self._progress.update(task.id, completed=task.read, told=told)

    def _end(self, table: TableName) -> None:
        task = self._tables.pop(table, None)
        if task:
            self._prepared()
            self._progress.remove_task(task.id)

    def _prepared(self) -> None:
        if self._preparing is not None:
            self._progress.remove_task(self._preparing)
            self._preparing = None
