"""Turns: which tables are worked on side by side, and who comes next."""

from __future__ import annotations

import time
from bisect import insort
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from mirror_engine.engine.replayer import TableTask
    from mirror_engine.events import BatchCommitted
    from mirror_engine.landing_zone.names import TableName


CALL_LATENCY_SECONDS = 0.05
LONG_SECONDS = 5.0
LARGE_BYTES = 64 * 1024 * 1024
LARGE_FILES = 500


class TableScheduler:
    """Works under way, each a turn at a time, so that no backlog keeps the others waiting.

    Who waits longest comes next. Turns that are likely to be long leave one worker to the others: however many
    tables commit for minutes, a small one's change finds a worker soon.

    Args:
        workers: how many turns are taken side by side.
        take: takes a work's next turn; called in a worker.
    """

    def __init__(self, workers: int, take: Callable[[TableTask], BatchCommitted | None]) -> None:
        self._workers = workers
        self._take = take
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="worker")
        self._at_hand: dict[Future[BatchCommitted | None], TableTask] = {}
        self._waiting: list[TableTask] = []
        self._clock = count()
        self._since: dict[TableName, int] = {}  # since when each of them waits
        self._slow: set[TableName] = set()  # whose latest commit took long

    @property
    def at_hand(self) -> Sequence[TableTask]:
        """Those whose turn is under way."""
        return tuple(self._at_hand.values())

    @property
    def unfinished(self) -> set[TableName]:
        """Tables with a turn under way, or in line for one."""
        return {work.table for work in (*self.at_hand, *self._waiting)}

    def line_up(self, works: Iterable[TableTask]) -> None:
        """Let works wait for their next turn; none of them may be at hand."""
        now = next(self._clock)
        for work in works:
            self._since.setdefault(work.table, now)
            insort(self._waiting, work, key=lambda other: self._since[other.table])

    def send_home(self) -> None:
        """Nobody waits any more; who lines up again before the next time keeps the place in the line."""
        self._since = {work.table: self._since[work.table] for work in self._waiting}
        self._waiting.clear()

    def taken(
        self, stop: threading.Event, is_due: Callable[[], bool] | None
    ) -> Iterator[tuple[TableTask, Future[BatchCommitted | None]]]:
        """Turns as they end, until nobody has one or waits for one; whoever was given may line up again.

        Args:
            stop: ends it once those at hand are over.
            is_due: ends it whatever is at hand, once every free worker has a turn. So does a work that was at hand
                before and comes next again: it was planned by an earlier look. None: all are waited for.
        """
        earlier = set(self.at_hand) if is_due else set()
        while self._at_hand or self._waiting:
            if stop.is_set():
                self.send_home()
            is_stale_next = self._start(earlier)
            longest = (0 if is_stale_next else CALL_LATENCY_SECONDS) if is_due else None
            for turn in wait(self._at_hand, longest, FIRST_COMPLETED).done:
                yield self._at_hand.pop(turn), turn
            if is_due and not stop.is_set() and (is_stale_next or is_due()):
                break

    def close(self) -> None:
        """Wait for the turns at hand, and end the workers."""
        self._pool.shutdown(wait=True)

    def _start(self, earlier: Collection[TableTask]) -> bool:
        """Give every free worker a turn, until one of these works comes next; whether one does."""
        long = sum(map(self._is_long, self._at_hand.values()))
        for work in tuple(self._waiting):
            if len(self._at_hand) == self._workers:
                break
            if self._is_long(work) and long >= max(self._workers - 1, 1):
                continue
            if work in earlier:
                return True
            long += self._is_long(work)
            self._waiting.remove(work)
            self._since.pop(work.table, None)
            self._at_hand[self._pool.submit(self._timed, work)] = work
        return False

    def _timed(self, work: TableTask) -> BatchCommitted | None:
        started, is_cleaning = time.monotonic(), work.is_done
        try:
            return self._take(work)
        finally:
            if time.monotonic() - started >= LONG_SECONDS:
                self._slow.add(work.table)
            elif not is_cleaning:
                self._slow.discard(work.table)

    def _is_long(self, work: TableTask) -> bool:
        """Whether a turn is likely to take long: by the table's latest commit, and by what lies there."""
        return work.table in self._slow or work.size >= LARGE_BYTES or len(work.files) >= LARGE_FILES


@dataclass(frozen=True)
class _Pause:
    failures: int
    until: float


class Backoff:
    """Whose next try is put off, and until when; None stands for the zone.

    Args:
        first_seconds: the first pause; each further one is twice as long.
        longest_seconds: but no longer than this.
    """

    def __init__(self, first_seconds: float, longest_seconds: float) -> None:
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._pauses: dict[TableName | None, _Pause] = {}

    @property
    def waiting(self) -> set[TableName | None]:
        """Those whose next try is not due yet."""
        now = time.monotonic()
        return {table for table, pause in self._pauses.items() if pause.until > now}

    def is_over(self, table: TableName | None) -> bool:
        """Whether it was put off and its next try is due."""
        pause = self._pauses.get(table)
        return pause is not None and pause.until <= time.monotonic()

    def begin(self, table: TableName | None) -> float:
        """Put the next try off; returns for how many seconds."""
        before = self._pauses.get(table)
        failures = before.failures + 1 if before else 1
        seconds = min(self._first_seconds * 2.0 ** (failures - 1), self._longest_seconds)
        self._pauses[table] = _Pause(failures, time.monotonic() + seconds)
        return seconds

    def end(self, tables: Iterable[TableName | None]) -> None:
        """Forget the failures of those whose try went well, or that need none any more."""
        for table in tables:
            self._pauses.pop(table, None)

    def end_all_but(self, untried: Iterable[TableName | None], failed: Iterable[TableName | None]) -> None:
        """After a round: only those not tried in it, or failed in it, stay put off."""
        self.end(set(self._pauses).difference(untried, failed))

    def __bool__(self) -> bool:
        """Whether any is put off, or due again."""
        return bool(self._pauses)

    def next_seconds(self, longest: float, but: Collection[TableName | None] = ()) -> float:
        """How long until the next try, of others than these, that is due before `longest` seconds are over."""
        now = time.monotonic()
        due = (max(pause.until - now, 0.0) for table, pause in self._pauses.items() if table not in but)
        return min([longest, *due])
