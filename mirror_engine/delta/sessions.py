"""A writer's Spark sessions: the first started ahead of need, each lent to one call at a time."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

_SETTINGS = {
    # a table may be called `Items@v1`
    "spark.databricks.delta.timeTravel.resolveOnIdentifier.enabled": "false",
    # changes hash faster than a large table sorts
    "spark.sql.join.preferSortMergeJoin": "false",
}


class Sessions:
    """Sessions of one JVM.

    Args:
        start: starts Spark; what it gives is ended by `close`.
    """

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        self._start = start
        self._first: Future[SparkSession] | None = None
        self._idle: deque[SparkSession] = deque()
        self._lock = threading.Lock()

    @property
    def first(self) -> SparkSession | None:
        """The session that the others are children of; None where nobody has needed one yet."""
        first = self._first
        return first.result() if first and first.done() and not first.exception() else None

    def prepare(self) -> None:
        """Start Spark, without waiting for it; a failure is raised where a session is lent first. Repeatable."""
        with self._lock:
            self._begin()

    @contextmanager
    def lent(self) -> Iterator[SparkSession]:
        """A session for one call at a time: what it is set to for a commit must reach no other."""
        spark = self._take()
        try:
            yield spark
        finally:
            self._idle.append(spark)

    def close(self) -> None:
        """End Spark, if it was started."""
        from mirror_engine.delta.session import end_session  # noqa: PLC0415 - nobody may have needed it

        with self._lock:
            first, self._first = self._first, None
            self._idle.clear()
        if first is not None and not first.exception():
            end_session(first.result())

    def _begin(self) -> Future[SparkSession]:
        if self._first is None:
            self._first = Future()
            threading.Thread(target=_fulfil, args=(self._first, self._start), name="spark", daemon=True).start()
        return self._first

    def _take(self) -> SparkSession:
        from mirror_engine.delta.session import child_session  # noqa: PLC0415 - importing it is slow

        with self._lock:
            first = self._begin()
        try:
            spark = first.result()
        except BaseException:
            with self._lock:  # the next one tries again
                self._first = None if self._first is first else self._first
            raise
        with self._lock:
            if self._idle:
                return self._idle.pop()
        child = child_session(spark)
        for name, value in _SETTINGS.items():
            child.conf.set(name, value)
        return child


def _fulfil(promise: Future[SparkSession], start: Callable[[], SparkSession]) -> None:
    try:
        promise.set_result(start())
    except BaseException as error:  # noqa: BLE001 - whoever waits raises it
        promise.set_exception(error)
