"""Replays Delta logs ahead of need: a small MERGE spends a quarter of its time on the state of its table."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from mirror_engine.tables.merge.statements import sized
from mirror_engine.tables.spark.cluster import is_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

Lend: TypeAlias = "Callable[[], AbstractContextManager[SparkSession | None]]"

LOG = logging.getLogger(__name__)
QUIET_SECONDS = 0.5  # after a commit: where the next one comes at once, or the end, it is not kept waiting
MAX_END_SECONDS = 5.0
MAX_TABLES = 8  # that are wanted at a time: the newest of a long backlog


class SnapshotPrefetcher:
    """Has Delta reconstruct and keep the states of tables that were merged into, while no batch is being committed.

    Nothing depends on it: what it did not come to, or what failed, the next MERGE does itself. Only where Spark is
    this machine's.

    Args:
        lend: a session for one table; None where Spark has ended.
    """

    def __init__(self, lend: Lend) -> None:
        self._lend = lend
        self._changed = threading.Condition()
        self._commits = 0
        self._quiet_since = 0.0
        self._wanted: dict[Path, int] = {}
        self._at_hand: Path | None = None
        self._is_working = False

    @contextmanager
    def held_back(self, folder: Path) -> Iterator[None]:
        """While a table is committed to, or goes, no state is begun, and its own is not wanted any more."""
        with self._changed:
            self._commits += 1
            self._wanted.pop(folder, None)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._commits -= 1
                self._quiet_since = time.monotonic()
                self._begin()

    def want(self, folder: Path, rows: int) -> None:
        """Reconstruct the state of a table of so many rows, once it is quiet. Does not wait for it."""
        with self._changed:
            self._wanted.pop(folder, None)
            self._wanted[folder] = rows
            if len(self._wanted) > MAX_TABLES:
                del self._wanted[next(iter(self._wanted))]
            self._begin()

    def wait_for(self, folder: Path) -> None:
        """Until the state of this table is not being read."""
        with self._changed:
            self._changed.wait_for(lambda: self._at_hand != folder)

    def close(self) -> None:
        """Begin no other, and wait a little for the one at hand; whoever ends Spark ends it."""
        with self._changed:
            self._wanted.clear()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._at_hand is None, MAX_END_SECONDS)

    def _begin(self) -> None:
        if self._wanted and not self._commits and not self._is_working:
            try:
                threading.Thread(target=self._work_off, name="states", daemon=True).start()
                self._is_working = True
            except RuntimeError:  # no more threads
                self._wanted.clear()

    def _work_off(self) -> None:
        while due := self._next():
            folder, rows = due
            try:
                with self._lend() as spark:
                    if spark is not None and is_here(spark):
                        with sized(spark, rows):
                            _reconstruct(spark, folder)
            except Exception:
                LOG.debug("the state of %s could not be replayed ahead of need", folder.name, exc_info=True)

    def _next(self) -> tuple[Path, int] | None:
        with self._changed:
            self._at_hand = None
            self._changed.notify_all()
            while self._wanted and not self._commits:
                left = self._quiet_since + QUIET_SECONDS - time.monotonic()
                if left <= 0:
                    folder, rows = self._wanted.popitem()
                    self._at_hand = folder
                    return folder, rows
                self._changed.wait(left)
            self._is_working = False
            self._changed.notify_all()
            return None


def _reconstruct(spark: SparkSession, folder: Path) -> None:
    jvm: Any = spark._jvm  # noqa: SLF001 - Delta offers this to the JVM only
    session = spark._jsparkSession  # noqa: SLF001 - as above
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session, str(folder))
    log.unsafeVolatileSnapshot().transactions()
