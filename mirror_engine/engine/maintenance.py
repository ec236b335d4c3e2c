"""Automatic maintenance: OPTIMIZE and VACUUM of tables that have caught up, one at a time (LZ-8.6)."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from mirror_engine.engine.scheduler import Backoff
from mirror_engine.errors import MirrorError, foreseen
from mirror_engine.events import RetryScheduled, TableMaintained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Self

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.tables.base import HistoryEntry

FIRST_PAUSE_SECONDS = 60.0
MAX_PAUSE_SECONDS = 3600.0
IDLE_SECONDS = 60.0
_LOOK_BACK = 100  # commits in which a table's last maintenance is looked for
_MAINTENANCE = {"OPTIMIZE", "VACUUM END"}  # in Delta's words
_FILES_ADDED = ("numFiles", "numTargetFilesAdded", "num_added_files")  # by an append, a MERGE, other programs


class MaintenanceScheduler:
    """Maintains tables in a thread of its own, under the policy `optimize`.

    A context manager; leaving it waits for the table in progress. `done` is called after each table, whose changes
    may have waited.
    """

    def __init__(self, context: EngineContext, done: Callable[[], None]) -> None:
        self._context = context
        self._done = done
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="maintenance")
        self._pauses = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, context.clock)
        # compacted, but not vacuumed: a change was pending
        self._half_done = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, context.clock)
        self._counted: dict[tuple[str, str], tuple[int, int]] = {}  # by folder and generation: version, files
        self._due_since: dict[TableName, float] = {}
        self._busy_at = context.clock.monotonic()
        self._in_progress: TableName | None = None
        self._is_interrupted = threading.Event()  # a change of the table in progress waits
        self._work: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(wait=True)

    @property
    def in_progress(self) -> TableName | None:
        """The table under maintenance: nothing else may be done with it."""
        return None if self._work is None or self._work.done() else self._in_progress

    def start(self, idle: Iterable[TableName], *, is_busy: bool) -> None:
        """Start maintaining the idle (caught-up) table that has been due longest, in the background.

        `is_busy`: whether any table was just worked on, or has something to do.
        """
        now = self._context.clock.monotonic()
        if is_busy:
            self._busy_at = now
        idle = list(idle)
        if self.in_progress and self.in_progress not in idle:
            self._is_interrupted.set()
        if self._context.config.auto_maintain == "off" or self.in_progress:
            return
        waiting = self._pauses.waiting
        for table in idle:
            if table not in waiting and self._is_due(table):
                self._due_since.setdefault(table, now)
            else:
                self._due_since.pop(table, None)
        if self._context.config.auto_maintain == "idle" and now - self._busy_at < IDLE_SECONDS:
            return
        due = min((t for t in idle if t in self._due_since), key=self._due_since.__getitem__, default=None)
        if due is not None:
            del self._due_since[due]
            self._in_progress = due
            self._is_interrupted.clear()
            self._work = self._pool.submit(self._maintain, due)
            # called after the task finished, so that `in_progress` is None
            self._work.add_done_callback(lambda _: self._done())

    def _is_due(self, table: TableName) -> bool:
        known = self._context.ledger.progress(table)
        if known is None or not known.has_table:
            return False
        policy = self._context.config.auto_maintain
        generation = (self._context.delta_folder(table), known.generation)
        if generation not in self._counted:
            self._half_done.succeeded(table)  # of an earlier generation
        least = 2 if policy == "idle" else int(policy)
        try:
            files = self._files(generation, known.delta_version, least)
        except MirrorError as error:  # an old commit may be damaged where the table itself can be read
            self._failed(table, str(error))
            return False
        return files >= least or self._half_done.is_over(table)

    def _files(self, generation: tuple[str, str], version: int, least: int) -> int:
        """Count the data files added since the last maintenance."""
        folder, history = generation[0], self._context.writer.history
        counted, files = self._counted.get(generation, (-1, 0))
        if counted >= 0:
            files += sum(map(_files_added, history(folder, limit=version - counted) if version > counted else ()))
        else:  # before this process, one file per commit is assumed
            commits = history(folder, limit=_LOOK_BACK) if version >= least else ()
            files = version - next((one.version for one in commits if one.operation in _MAINTENANCE), 0)
        self._counted[generation] = (version, files)
        return files

    def _maintain(self, table: TableName) -> None:
        started = time.monotonic()
        folder = self._context.delta_folder(table)
        is_half_done = False

        def should_yield() -> bool:
            nonlocal is_half_done
            is_half_done = self._is_interrupted.is_set()
            return is_half_done

        hours = self._context.config.vacuum_retention_days * 24.0
        try:
            self._context.check_lock()
            done = foreseen(lambda: self._context.writer.maintain(folder, hours, should_yield))
            state = self._context.writer.snapshot(folder)
        except MirrorError as error:
            self._failed(table, str(error))
        else:
            self._pauses.succeeded(table)
            if is_half_done:
                self._half_done.failed(table)
            else:
                self._half_done.succeeded(table)
            if state is not None and state.record is not None:
                self._counted[folder, state.record.progress.generation] = (state.version, 0)
            self._context.emit(TableMaintained(table, dict(done), time.monotonic() - started))

    def _failed(self, table: TableName, message: str) -> None:
        self._context.emit(RetryScheduled(table, message, self._pauses.failed(table)))


def _files_added(commit: HistoryEntry) -> int:
    if commit.operation in _MAINTENANCE:
        return 0
    counts = (int(commit.metrics[name]) for name in _FILES_ADDED if name in commit.metrics)
    return next(counts, 1 if commit.files else 0)
