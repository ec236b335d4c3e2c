"""Mirrored databases that nothing mirrors: their states change as they are told, and no table is ever read."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from mirror_engine.endpoint.databases import DatabaseStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror_engine.endpoint.databases import FabricError, TableReport
    from mirror_engine.endpoint.items import Item

INITIALIZING_SECONDS = 1.0  # publishers must be able to meet it (LZ-9.4)


class Unmirrored:
    """`MirroredDatabases` without an engine.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ready_at: dict[str, float] = {}
        self._told: dict[str, DatabaseStatus] = {}
        self._lock = threading.Lock()

    def status(self, item: Item) -> tuple[DatabaseStatus, FabricError | None]:
        """See `MirroredDatabases`."""
        with self._lock:
            if self._clock() < self._ready_at.get(item.id, 0.0):
                return DatabaseStatus.INITIALIZING, None
            return self._told.get(item.id, DatabaseStatus.INITIALIZED), None

    def tables(self, item: Item) -> Sequence[TableReport]:  # noqa: ARG002 - none are read
        """See `MirroredDatabases`."""
        return ()

    def add(self, item: Item) -> None:
        """See `MirroredDatabases`."""
        with self._lock:
            self._ready_at[item.id] = self._clock() + INITIALIZING_SECONDS

    def start(self, item: Item) -> None:
        """See `MirroredDatabases`."""
        with self._lock:
            self._told[item.id] = DatabaseStatus.RUNNING

    def stop(self, item: Item) -> None:
        """See `MirroredDatabases`."""
        with self._lock:
            self._told[item.id] = DatabaseStatus.STOPPED

    def poll(self, item: Item) -> None:
        """See `MirroredDatabases`; nobody looks."""

    def forget(self, item: Item) -> None:
        """See `MirroredDatabases`; there is nothing to let go of."""
