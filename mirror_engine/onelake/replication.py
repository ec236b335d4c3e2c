"""Replication of items as the REST API controls and reports it, with or without engines."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror_engine.onelake.items import Item

INITIALIZING_SECONDS = 1.0  # long enough for a publisher to see it (LZ-9.4)


class DatabaseStatus(str, Enum):
    """A mirrored database's Fabric status (LZ-9.4)."""

    INITIALIZING = "Initializing"
    INITIALIZED = "Initialized"
    STARTING = "Starting"
    RUNNING = "Running"
    PAUSED = "Paused"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


@dataclass(frozen=True)
class FabricError:
    """The error of a status: Fabric's code and message."""

    code: str
    message: str


@dataclass(frozen=True)
class TableReport:
    """One table's Fabric status.

    Attributes:
        schema: the source schema, `""` without one.
        table: the source table.
        status: LZ-9.6.
        processed_bytes: of all operations (LZ-9.3).
        processed_rows: operations, not rows in the table (LZ-9.2).
        last_sync: ISO 8601 in UTC; None before the first.
        error: None where there is none.
    """

    schema: str
    table: str
    status: str
    processed_bytes: int
    processed_rows: int
    last_sync: str | None
    error: FabricError | None = None


class MirroredDatabases(Protocol):
    """Starts and stops replication of items; methods return soon and are thread-safe."""

    def status(self, item: Item) -> tuple[DatabaseStatus, FabricError | None]:
        """An item's status, and its error."""

    def tables(self, item: Item) -> Sequence[TableReport]:
        """The item's tables by schema and name, as its monitoring files report them."""

    def add(self, item: Item) -> None:
        """Register an item that the REST API created: Initializing for a moment, then Initialized."""

    def start(self, item: Item) -> None:
        """Start replication; idempotent. After a stop all tables are rebuilt (LZ-7.7)."""

    def stop(self, item: Item) -> None:
        """Stop replication after the current commit; idempotent."""

    def poll(self, item: Item) -> None:
        """Scan the item's landing zone now; returns when what can be applied is applied."""

    def forget(self, item: Item) -> None:
        """Stop, and release the item's folder, which is about to be renamed or removed."""


class NullReplication:
    """`MirroredDatabases` without engines.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ready_at: dict[str, float] = {}
        self._statuses: dict[str, DatabaseStatus] = {}
        self._lock = threading.Lock()

    def status(self, item: Item) -> tuple[DatabaseStatus, FabricError | None]:
        with self._lock:
            if self._clock() < self._ready_at.get(item.id, 0.0):
                return DatabaseStatus.INITIALIZING, None
            return self._statuses.get(item.id, DatabaseStatus.INITIALIZED), None

    def tables(self, item: Item) -> Sequence[TableReport]:  # noqa: ARG002 - there are none
        return ()

    def add(self, item: Item) -> None:
        with self._lock:
            self._ready_at[item.id] = self._clock() + INITIALIZING_SECONDS

    def start(self, item: Item) -> None:
        with self._lock:
            self._statuses[item.id] = DatabaseStatus.RUNNING

    def stop(self, item: Item) -> None:
        with self._lock:
            self._statuses[item.id] = DatabaseStatus.STOPPED

    def poll(self, item: Item) -> None:
        pass

    def forget(self, item: Item) -> None:
        pass
