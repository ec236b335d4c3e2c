"""A writer's Spark sessions: the first started ahead of need, each lent to one call at a time."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class _Spark:
    """One start of Spark: its first session, and the children that nobody uses."""

    first: Future[SparkSession] = field(default_factory=Future)
    idle: deque[SparkSession] = field(default_factory=deque)


class Sessions:
    """Sessions of one JVM.

    Args:
        start: starts Spark; what it gives is ended by `close`.
    """

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        self._start = start
        self._spark: _Spark | None = None
        self._lock = threading.Lock()

    @property
    def first(self) -> SparkSession | None:
        """The session that the others are children of; None where nobody has needed one yet."""
        spark = self._spark
        return spark.first.result() if spark and spark.first.done() and not spark.first.exception() else None

    def prepare(self) -> None:
        """Start Spark, without waiting for it; a failure is raised where a session is lent first. Repeatable."""
        with self._lock:
            self._begin()

    @contextmanager
    def lent(self) -> Iterator[SparkSession]:
        """A session for one call at a time: what it is set to for a commit must reach no other."""
        with self._lock:
            spark = self._begin()
        with self._lent(spark) as session:
            yield session

    @contextmanager
    def lent_if_started(self) -> Iterator[SparkSession | None]:
        """The same where Spark runs already; None where it does not."""
        spark = self._spark
        if spark is None or not spark.first.done():
            yield None
            return
        with self._lent(spark) as session:
            yield session

    def close(self) -> None:
        """End Spark, if it was started; what is lent now is no longer of use."""
        from mirror_engine.delta.session import end_session  # noqa: PLC0415 - nobody may have needed it

        with self._lock:
            spark, self._spark = self._spark, None
        if spark is not None and not spark.first.exception():
            end_session(spark.first.result())

    def _begin(self) -> _Spark:
        if self._spark is None:
            self._spark = _Spark()
            threading.Thread(target=_fulfil, args=(self._spark.first, self._start), name="spark", daemon=True).start()
        return self._spark

    @contextmanager
    def _lent(self, spark: _Spark) -> Iterator[SparkSession]:
        session = self._taken(spark)
        try:
            yield session
        finally:
            spark.idle.append(session)

    def _taken(self, spark: _Spark) -> SparkSession:
        from mirror_engine.delta.session import child_session  # noqa: PLC0415 - importing it is slow

        try:
            first = spark.first.result()
        except BaseException:
            with self._lock:  # the next one tries again
                self._spark = None if self._spark is spark else self._spark
            raise
        with suppress(IndexError):
            return spark.idle.pop()
        child = child_session(first)
        for name, value in _SETTINGS.items():
            child.conf.set(name, value)
        return child


def _fulfil(promise: Future[SparkSession], start: Callable[[], SparkSession]) -> None:
    try:
        promise.set_result(start())
    except BaseException as error:  # noqa: BLE001 - whoever waits raises it
        promise.set_exception(error)
