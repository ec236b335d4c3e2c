"""Cached status of mirrored databases, shared by all readers of the page, so that watching costs little."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from mirror_engine.errors import MirrorError
from mirror_engine.onelake.replication import DatabaseStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from mirror_engine.mirror import Mirror
    from mirror_engine.monitoring.status import MirrorStatus
    from mirror_engine.tables.base import HistoryEntry

FRESH_SECONDS = 1.0
IDLE_FACTOR = 4  # minimum refresh interval as a multiple of the last refresh's duration: at most 20 % of the time
MAX_COMMITS = 20
MAX_ROWS = 20
CACHED_TABLES = 64  # whose first rows are kept


@dataclass(frozen=True)
class ShownItem:
    """One mirrored database.

    Attributes:
        id: its GUID.
        workspace, name: as displayed.
        status: its Fabric status (LZ-9.4).
        error: why its engine ended; `""` where it did not.
        view: opens its mirror; raises `MirrorError` where it is gone.
    """

    id: str
    workspace: str
    name: str
    status: DatabaseStatus
    error: str
    view: Callable[[], Mirror]

    @property
    def should_run(self) -> bool:
        """Whether it was started and not stopped, or its engine failed."""
        return bool(self.error) or self.status in {DatabaseStatus.STARTING, DatabaseStatus.RUNNING}


@dataclass(frozen=True)
class CachedStatus:
    """A mirrored database's status; None, and an error message, where it cannot be read."""

    item: ShownItem
    status: MirrorStatus | None
    error: str = ""


class _Entry:
    """The last scan of one item."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.status: MirrorStatus | None = None
        self.error = ""
        self.fresh_until = 0.0


class StatusCache:
    """Statuses that are at most a second old, or as old as scanning takes.

    Args:
        items: gives every mirrored database, by workspace and name; thread-safe.
        clock: monotonic seconds.
    """

    def __init__(self, items: Callable[[], Sequence[ShownItem]], clock: Callable[[], float] = time.monotonic) -> None:
        self._items = items
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._views: dict[str, Callable[[], Mirror]] = {}
        self._first_rows = lru_cache(CACHED_TABLES)(self._read_rows)  # a version's rows never change

    def all(self) -> Sequence[CachedStatus]:
        """Every mirrored database."""
        items = self._items()
        for gone in self._entries.keys() - {item.id for item in items}:
            self._entries.pop(gone, None)
        return [self._of(item) for item in items]

    def one(self, item_id: str) -> CachedStatus | None:
        """A mirrored database by its GUID."""
        return next((self._of(item) for item in self._items() if item.id == item_id), None)

    def history(self, item: ShownItem, delta_folder: str) -> Sequence[HistoryEntry]:
        """A table's newest commits; MirrorError."""
        return item.view().history(delta_folder, limit=MAX_COMMITS)

    def rows(self, item: ShownItem, delta_folder: str, newest: HistoryEntry) -> pa.Table:
        """A table's first rows at its newest commit; MirrorError."""
        self._views[item.id] = item.view
        return self._first_rows(item.id, delta_folder, newest.version, newest.timestamp_ms)

    def _read_rows(self, item_id: str, delta_folder: str, version: int, _committed_ms: int) -> pa.Table:
        return self._views[item_id]().read_table(delta_folder, version=version, limit=MAX_ROWS)

    def _of(self, item: ShownItem) -> CachedStatus:
        entry = self._entries.setdefault(item.id, _Entry())
        with entry.lock:
            started = self._clock()
            if started >= entry.fresh_until:
                try:
                    entry.status, entry.error = item.view().status(), ""
                except MirrorError as error:
                    entry.status, entry.error = None, str(error)
                ended = self._clock()
                entry.fresh_until = ended + max(FRESH_SECONDS, IDLE_FACTOR * (ended - started))
            return CachedStatus(item, entry.status, entry.error)
