"""Replays Delta logs ahead of need: a small MERGE spends a quarter of its time on the state of its table."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from mirror_engine.delta.merge import sized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

Lend: TypeAlias = "Callable[[], AbstractContextManager[SparkSession]]"


class StatesAhead:
    """Has Delta reconstruct and keep the states of tables that were merged into, while no commit is under way.

    Nothing depends on it: what it did not come to, or what failed, the next MERGE does itself. Only where Spark
    is this machine's: the executors of a cluster have other work.

    Args:
        lend: a session for one table.
    """

    def __init__(self, lend: Lend) -> None:
        self._lend = lend
        self._lock = threading.Lock()
        self._commits = 0
        self._wanted: dict[Path, int] = {}
        self._worker: threading.Thread | None = None

    @contextmanager
    def held_back(self, folder: Path) -> Iterator[None]:
        """While a table is committed to, or goes, no state is begun, and its own is not wanted any more."""
        with self._lock:
            self._commits += 1
            self._wanted.pop(folder, None)
        try:
            yield
        finally:
            with self._lock:
                self._commits -= 1
                self._begin()

    def want(self, folder: Path, rows: int) -> None:
        """Reconstruct the state of a table of so many rows, once no commit is under way."""
        with self._lock:
            self._wanted[folder] = rows
            self._begin()

    def wait(self) -> None:
        """Until none is at hand, nor left that may be begun."""
        if worker := self._worker:
            worker.join()

    def close(self) -> None:
        """Begin no other, and wait for the one at hand."""
        with self._lock:
            self._wanted.clear()
        self.wait()

    def _begin(self) -> None:
        if self._wanted and not self._commits and not self._worker:
            self._worker = threading.Thread(target=self._work_off, name="states", daemon=True)
            self._worker.start()

    def _work_off(self) -> None:
        while due := self._next():
            folder, rows = due
            with suppress(Exception), self._lend() as spark, sized(spark, rows):
                _reconstruct(spark, folder)

    def _next(self) -> tuple[Path, int] | None:
        with self._lock:
            if self._wanted and not self._commits:
                return self._wanted.popitem()
            self._worker = None
            return None


def _reconstruct(spark: SparkSession, folder: Path) -> None:
    if not spark.sparkContext.master.startswith("local"):
        return
    jvm: Any = spark._jvm  # noqa: SLF001 - Delta offers this to the JVM only
    session = spark._jsparkSession  # noqa: SLF001 - as above
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session, str(folder))
    log.unsafeVolatileSnapshot().transactions()
