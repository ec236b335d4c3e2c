"""Automatic maintenance: OPTIMIZE and VACUUM of tables that have caught up, one at a time (LZ-8.6)."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Self

from mirror_engine.engine.scheduler import Backoff
from mirror_engine.errors import MirrorError, as_internal_error
from mirror_engine.events import RetryScheduled, TableMaintained
from mirror_engine.threads import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from mirror_engine.clock import Clock
    from mirror_engine.engine.context import EngineContext
    from mirror_engine.landing_zone.names import TableName

FIRST_PAUSE_SECONDS = 60.0
MAX_PAUSE_SECONDS = 3600.0
IDLE_SECONDS = 60.0


class MaintenanceScheduler:
    """Maintains tables in a thread of its own, under the policy `optimize`.

    A context manager; leaving it waits for the table in progress. `done` is called after each table, whose changes
    may have waited.
    """

    def __init__(self, context: EngineContext, done: Callable[[], None]) -> None:
        self._context = context
        self._done = done
        self._pool = threads().pool(1, "maintenance")
        self._tables: defaultdict[TableName, _Upkeep] = defaultdict(lambda: _Upkeep(context.clock))
        self._busy_at = context.clock.monotonic()
        self._in_progress: TableName | None = None
        self._is_interrupted = threads().event()  # a change of the table in progress waits
        self._work: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(wait=True)

    @property
    def in_progress(self) -> TableName | None:
        """The table under maintenance; no other work may be done on it."""
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
        for name in idle:
            table = self._tables[name]
            is_due = not table.retry.is_waiting and self._is_due(name, table)
            table.due_since = min(table.due_since, now) if is_due else math.inf
        known = self._context.ledger.tables()
        if len(self._tables) > len(known):
            for gone in self._tables.keys() - known.keys():
                del self._tables[gone]
        if self._context.config.auto_maintain == "idle" and now - self._busy_at < IDLE_SECONDS:
            return
        due = min(idle, key=lambda name: self._tables[name].due_since, default=None)
        if due is not None and self._tables[due].due_since <= now:
            self._tables[due].due_since = math.inf
            self._in_progress = due
            self._is_interrupted.clear()
            self._work = self._pool.submit(self._maintain, due)
            # called after the task finished, so that `in_progress` is None
            self._work.add_done_callback(lambda _: self._done())

    def _is_due(self, name: TableName, table: _Upkeep) -> bool:
        known = self._context.ledger.progress(name)
        if known is None or not known.has_table:
            return False
        policy = self._context.config.auto_maintain
        if table.generation != known.generation:
            table.generation, table.version, table.files = known.generation, -1, 0
            table.half_done.succeeded()  # of an earlier generation
        least = 2 if policy == "idle" else int(policy)
        try:
            as_internal_error(partial(self._count, name, table, known.delta_version))
        except MirrorError as error:  # an old commit may be damaged where the table itself can be read
            self._failed(name, str(error))
            return False
        return table.files >= least or table.half_done.seconds_left == 0

    def _count(self, name: TableName, table: _Upkeep, version: int) -> None:
        """Count the data files added since the last maintenance."""
        if table.version < 0:  # before this process, one file per commit is assumed
            table.files = max(version - self._context.ledger.maintained(name), 0)
        elif version > table.version:
            folder = self._context.delta_folder(name)
            commits = self._context.delta.history(folder, limit=version - table.version, until=version)
            table.files += sum(commit.files_added for commit in commits)
        table.version = version

    def _maintain(self, name: TableName) -> None:
        started = self._context.clock.timer()
        folder, table = self._context.delta_folder(name), self._tables[name]
        is_half_done = False

        def should_yield() -> bool:
            nonlocal is_half_done
            is_half_done = self._is_interrupted.is_set()
            return is_half_done

        hours = self._context.config.vacuum_retention_days * 24.0
        try:
            self._context.check_lock()
            with self._context.fenced(folder, self._context.ledger.progress(name)):
                done = as_internal_error(lambda: self._context.writer.maintain(folder, hours, should_yield))
            newest = as_internal_error(lambda: self._context.delta.history(folder, limit=1))
            if newest:
                table.version, table.files = newest[0].version, 0
                if not is_half_done:
                    self._context.ledger.note_maintained(name, table.version)
        except MirrorError as error:
            self._failed(name, str(error))
        else:
            table.retry.succeeded()
            if is_half_done:
                table.half_done.failed()
            else:
                table.half_done.succeeded()
            seconds = self._context.clock.timer() - started
            self._context.emit(TableMaintained(name, dict(done), seconds))

    def _failed(self, name: TableName, message: str) -> None:
        self._context.emit(RetryScheduled(name, message, self._tables[name].retry.failed()))


class _Upkeep:
    """Maintenance state of one table.

    Attributes:
        retry: after a failure.
        half_done: after it was compacted, but not vacuumed, since a change was pending.
        due_since: monotonic seconds.
        files: data files that were added to `generation` until `version`, since the last maintenance.
    """

    def __init__(self, clock: Clock) -> None:
        self.retry = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, clock)
        self.half_done = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, clock)
        self.due_since = math.inf
        self.generation, self.version, self.files = "", -1, 0
