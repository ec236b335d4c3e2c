"""Keeps tables tidy beside the work: one that has nothing waiting is compacted and vacuumed, one at a time (LZ-8.6)."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from mirror_engine.engine.scheduler import Backoff
from mirror_engine.errors import MirrorError
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

    A context manager; leaving it waits for the table at hand.

    Args:
        context: both, the ledger and the options.
        done: called after each table: changes may have waited for it.
    """

    def __init__(self, context: EngineContext, done: Callable[[], None]) -> None:
        self._doors = context
        self._done = done
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="upkeep")
        self._pauses = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        self._half_done = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)  # compacted, but a change came then
        self._counted: dict[tuple[str, str], tuple[int, int]] = {}  # by folder and generation: version, files
        self._due_since: dict[TableName, float] = {}
        self._busy_at = time.monotonic()
        self._in_progress: TableName | None = None
        self._is_wanted = threading.Event()  # a change of the table at hand waits
        self._work: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(wait=True)

    @property
    def in_progress(self) -> TableName | None:
        """The table that is being maintained now: nothing else may be done with it."""
        return None if self._work is None or self._work.done() else self._in_progress

    def start(self, idle: Iterable[TableName], *, is_busy: bool) -> None:
        """Start maintaining the idle table that has been due longest, in the background.

        Args:
            idle: tables that have caught up.
            is_busy: whether any table was just worked on, or has something to do.
        """
        if is_busy:
            self._busy_at = time.monotonic()
        idle = list(idle)
        if self.in_progress and self.in_progress not in idle:
            self._is_wanted.set()
        if self._doors.config.auto_maintain == "off" or self.in_progress:
            return
        self._update_due(idle)
        if self._doors.config.auto_maintain == "idle" and time.monotonic() - self._busy_at < IDLE_SECONDS:
            return
        due = min(self._due_since.keys() & idle, key=self._due_since.__getitem__, default=None)
        if due is not None:
            del self._due_since[due]
            self._in_progress = due
            self._is_wanted.clear()
            self._work = self._pool.submit(self._maintain, due)
            self._work.add_done_callback(lambda _: self._done())  # by then nothing is at hand any more

    def _update_due(self, idle: Iterable[TableName]) -> None:
        """Note which of them are due, in their order."""
        put_off = self._pauses.waiting
        for table in idle:
            if table not in put_off and self._is_due(table):
                self._due_since.setdefault(table, time.monotonic())
            else:
                self._due_since.pop(table, None)

    def _is_due(self, table: TableName) -> bool:
        try:
            return self._has_aged(table)
        except MirrorError as error:  # an old commit may be damaged where the table itself can be read
            self._failed(table, str(error))
            return False

    def _has_aged(self, table: TableName) -> bool:
        known = self._doors.ledger.progress(table)
        if known is None or not known.has_table:
            return False
        policy = self._doors.config.auto_maintain
        life = (self._doors.delta_folder(table), known.generation)
        if life not in self._counted:
            self._half_done.succeeded(table)  # it was another table's
        least = 2 if policy == "idle" else int(policy)
        return self._files(life, known.delta_version, least) >= least or self._half_done.is_over(table)

    def _files(self, life: tuple[str, str], version: int, least: int) -> int:
        """Data files that were added since the table was maintained."""
        counted, files = self._counted.get(life, (-1, 0))
        if counted < 0:  # before this process, a file a commit is taken for granted
            files = version - (self._last_maintained(life[0]) if version >= least else 0)
        elif version > counted:
            commits = self._doors.writer.history(life[0], limit=version - counted)
            files += sum(map(_files_added, commits))
        self._counted[life] = (version, files)
        return files

    def _last_maintained(self, folder: str) -> int:
        commits = self._doors.writer.history(folder, limit=_LOOK_BACK)
        return next((commit.version for commit in commits if commit.operation in _MAINTENANCE), 0)

    def _maintain(self, table: TableName) -> None:
        started = time.monotonic()
        folder = self._doors.delta_folder(table)
        is_half_done = False

        def gives_way() -> bool:
            nonlocal is_half_done
            is_half_done = self._is_wanted.is_set()
            return is_half_done

        try:
            hours = self._doors.config.vacuum_retention_days * 24.0
            done = self._doors.writer.maintain(folder, hours, gives_way)
            state = self._doors.writer.state(folder)
        except MirrorError as error:
            self._failed(table, str(error))
        except Exception as error:
            logging.getLogger(__name__).exception("maintenance of a table failed")
            self._failed(table, f"maintenance failed, unforeseen: {type(error).__name__}")
        else:
            self._pauses.succeeded(table)
            if is_half_done:
                self._half_done.failed(table)
            else:
                self._half_done.succeeded(table)
            if state is not None and state.record is not None:
                self._counted[folder, state.record.progress.generation] = (state.version, 0)
            self._doors.tell(TableMaintained(table, dict(done), time.monotonic() - started))

    def _failed(self, table: TableName, message: str) -> None:
        self._doors.tell(RetryScheduled(table, message, self._pauses.failed(table)))


def _files_added(commit: HistoryEntry) -> int:
    if commit.operation in _MAINTENANCE:
        return 0
    told = (int(commit.metrics[name]) for name in _FILES_ADDED if name in commit.metrics)
    return next(told, 1 if commit.files else 0)
