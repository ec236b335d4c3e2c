"""Scheduling: one batch per table at a time on a pool of workers, and the backoff of failed tables."""

from __future__ import annotations

import math
from queue import Empty
from typing import TYPE_CHECKING, TypeAlias

from mirror_engine.engine.replayer import Phase
from mirror_engine.errors import as_internal_error
from mirror_engine.threads import threads

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping
    from queue import SimpleQueue

    from mirror_engine.clock import Clock
    from mirror_engine.engine.replayer import TableTask
    from mirror_engine.errors import TransientError
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
        self._pool = threads().pool(workers, "worker")
        self._results: SimpleQueue[tuple[TableTask, Outcome, bool]] = threads().queue()
        self._tasks: dict[TableName, TableTask] = {}

    @property
    def in_progress(self) -> Mapping[TableName, TableTask]:
        """Tasks that are queued or running, or whose last result was not returned yet."""
        return self._tasks

    def submit(self, task: TableTask, stop: threading.Event) -> None:
        """Queue a task; no other task of its table may be in progress. Once `stop` is set, no further batch begins."""
        self._tasks[task.table] = task
        self._pool.submit(self._step, task, stop)

    def results(self, is_due: Callable[[], bool] | None = None) -> Iterator[tuple[TableTask, Outcome]]:
        """Yield (task, outcome) as batches finish, until no task is in progress, or `is_due`."""
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
                outcome = as_internal_error(lambda: self._run(task))
            except BaseException as error:  # noqa: BLE001 - raised again by the cycle
                outcome = error
        is_finished = isinstance(outcome, BaseException) or task.phase is Phase.DONE or stop.is_set()
        self._results.put((task, outcome, is_finished))
        if not is_finished:
            self._pool.submit(self._step, task, stop)


class Backoff:
    """Pauses before something that failed is retried, each twice as long as the last.

    Attributes:
        failure: the last one, where it was given; None once it succeeded.
    """

    def __init__(self, first_seconds: float, longest_seconds: float, clock: Clock) -> None:
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._clock = clock
        self._failures, self._until = 0, -math.inf
        self.failure: TransientError | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a retry is scheduled and not due yet."""
        return self._failures > 0 and self._until > self._clock.monotonic()

    @property
    def seconds_left(self) -> float:
        """Seconds until the retry; 0 if it is due, infinite if there was no failure."""
        return math.inf if not self._failures else max(self._until - self._clock.monotonic(), 0.0)

    def failed(self, failure: TransientError | None = None) -> float:
        """Begin the next pause; returns its seconds."""
        seconds = min(self._first_seconds * 2.0 ** min(self._failures, MAX_DOUBLINGS), self._longest_seconds)
        self.failure, self._failures, self._until = failure, self._failures + 1, self._clock.monotonic() + seconds
        return seconds

    def succeeded(self) -> None:
        """Forget its failures."""
        self.failure, self._failures, self._until = None, 0, -math.inf
