"""What Fabric's REST API asks of whoever mirrors the items: their states, and the tables' (endpoint chapter 6)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.endpoint.items import Item


class DatabaseStatus(str, Enum):
    """A mirrored database's state, in Fabric's words (LZ-9.4)."""

    INITIALIZING = "Initializing"
    INITIALIZED = "Initialized"
    STARTING = "Starting"
    RUNNING = "Running"
    PAUSED = "Paused"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


@dataclass(frozen=True)
class FabricError:
    """An error that a status carries: Fabric's code and message."""

    code: str
    message: str


@dataclass(frozen=True)
class TableReport:
    """How one table is.

    Attributes:
        schema: the source schema, `""` without one.
        table: the source table.
        status: in Fabric's words (LZ-9.6).
        processed_bytes: of all operations (LZ-9.3).
        processed_rows: operations, not rows in the table (LZ-9.2).
        last_sync: ISO 8601 in UTC; None where there was none.
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
    """Mirrors items; every method returns soon, and may be called by several threads."""

    def status(self, item: Item) -> tuple[DatabaseStatus, FabricError | None]:
        """An item's state, and its error where it has one."""

    def tables(self, item: Item) -> Sequence[TableReport]:
        """The item's tables, by schema and name; the same that its monitoring files say."""

    def add(self, item: Item) -> None:
        """A new item of the REST API: it initializes for a moment, then waits to be started."""

    def start(self, item: Item) -> None:
        """Begin to mirror; a repeat does nothing. After a stop all tables are rebuilt (LZ-7.7)."""

    def stop(self, item: Item) -> None:
        """Mirror no more, once the commit at hand is finished; a repeat does nothing."""

    def poll(self, item: Item) -> None:
        """Look at the item's landing zone now, and apply what can be applied; returns when that is done."""

    def forget(self, item: Item) -> None:
        """Stop, and let go of the item's folder, which is about to be renamed or removed."""
