"""Scheduling: one batch per table at a time on a pool of workers, and the backoff of failed tables."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from mirror_engine.errors import foreseen

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from mirror_engine.clock import Clock
    from mirror_engine.engine.replayer import TableTask
    from mirror_engine.events import BatchCommitted
    from mirror_engine.landing_zone.names import TableName

Outcome: TypeAlias = "BatchCommitted | BaseException | None"

LATENCY_SECONDS = 0.05  # between two looks whether the next cycle is due
MAX_DOUBLINGS = 30  # of a pause: a century, from one second; a float overflows after 1,023


class TableScheduler:
    """Runs tasks of different tables in parallel, each a batch at a time.

    The pool's first-in-first-out queue is the only one. A task that is not finished after its batch is submitted
    again, behind all others, so that no table waits for another's whole backlog.
    """

    def __init__(self, workers: int, run: Callable[[TableTask], BatchCommitted | None]) -> None:
        self._run = run
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="worker")
        self._results: SimpleQueue[tuple[TableTask, Outcome, bool]] = SimpleQueue()
        self._tasks: dict[TableName, TableTask] = {}

    @property
    def in_progress(self) -> Mapping[TableName, TableTask]:
        """Tasks that are queued or running, or whose last result was not returned yet."""
        return dict(self._tasks)

    def submit(self, task: TableTask, stop: threading.Event) -> None:
        """Queue a task; no other task of its table may be in progress. Once `stop` is set, no further batch begins."""
        self._tasks[task.table] = task
        self._pool.submit(self._step, task, stop)

    def results(self, is_due: Callable[[], bool] | None = None) -> Iterator[tuple[TableTask, Outcome]]:
        """Yield what batches came to as they end, until no task is in progress, or `is_due`."""
        while self._tasks:
            try:
                task, outcome, is_finished = self._results.get(timeout=LATENCY_SECONDS if is_due else None)
            except Empty:
                pass
            else:
                if is_finished:
                    del self._tasks[task.table]
                yield task, outcome
            if is_due and is_due():
                return

    def close(self) -> None:
        """Wait for the running batches; queued ones are not run."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _step(self, task: TableTask, stop: threading.Event) -> None:
        outcome: Outcome = None
        if not stop.is_set():
            try:
                outcome = foreseen(lambda: self._run(task))
            except BaseException as error:  # noqa: BLE001 - raised again by the cycle
                outcome = error
        is_finished = isinstance(outcome, BaseException) or task.is_finished or stop.is_set()
        self._results.put((task, outcome, is_finished))
        if not is_finished:
            self._pool.submit(self._step, task, stop)


class Backoff:
    """Pauses before failed tables are retried, each twice as long as the last; None is the landing zone as a whole."""

    def __init__(self, first_seconds: float, longest_seconds: float, clock: Clock) -> None:
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._clock = clock
        self._pauses: dict[TableName | None, tuple[int, float]] = {}  # how many failures, and until when

    @property
    def tables(self) -> set[TableName | None]:
        """Those that failed and have not succeeded since."""
        return {*self._pauses}

    @property
    def waiting(self) -> set[TableName | None]:
        """Those whose retry is not due yet."""
        now = self._clock.monotonic()
        return {table for table, (_, until) in self._pauses.items() if until > now}

    def is_over(self, table: TableName | None) -> bool:
        """Whether a table failed and its retry is due."""
        return table in self._pauses and self._pauses[table][1] <= self._clock.monotonic()

    def failed(self, table: TableName | None) -> float:
        """Begin the next pause of a table; returns its seconds."""
        failures, _ = self._pauses.get(table, (0, 0.0))
        seconds = min(self._first_seconds * 2.0 ** min(failures, MAX_DOUBLINGS), self._longest_seconds)
        self._pauses[table] = failures + 1, self._clock.monotonic() + seconds
        return seconds

    def succeeded(self, *tables: TableName | None) -> None:
        """Forget the failures of these tables."""
        for table in tables:
            self._pauses.pop(table, None)

    def keep(self, tables: Iterable[TableName | None]) -> None:
        """Forget the failures of all other tables."""
        self.succeeded(*set(self._pauses).difference(tables))

    def next_seconds(self, longest: float, but: Collection[TableName | None] = ()) -> float:
        """Seconds until the first retry of a table that is not among `but`, at most `longest`."""
        now = self._clock.monotonic()
        due = (max(until - now, 0.0) for table, (_, until) in self._pauses.items() if table not in but)
        return min([longest, *due])
