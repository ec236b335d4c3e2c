"""Cached status of mirrored databases, shared by all readers of the page, so that watching costs little."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror_engine.errors import MirrorError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from mirror_engine.monitoring.status import MirrorStatus
    from mirror_engine.onelake.engine_pool import ShownItem
    from mirror_engine.tables.base import HistoryEntry

FRESH_SECONDS = 1.0
IDLE_FACTOR = 4  # minimum refresh interval as a multiple of the last refresh's duration: at most 20 % of the time
MAX_ROWS = 20


@dataclass(frozen=True)
class CachedStatus:
    """A mirrored database's status; None, and an error message, where it cannot be read."""

    item: ShownItem
    status: MirrorStatus | None
    error: str = ""


@dataclass
class _Entry:
    """The last scan of one item."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    status: MirrorStatus | None = None
    error: str = ""
    fresh_until: float = 0.0


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
        self._rows: dict[tuple[str, str], tuple[HistoryEntry, pa.Table]] = {}

    def all(self) -> Sequence[CachedStatus]:
        """Every mirrored database."""
        items = self._items()
        for gone in self._entries.keys() - {item.id for item in items}:
            self._entries.pop(gone, None)
        return [self._of(item) for item in items]

    def one(self, item_id: str) -> CachedStatus | None:
        """A mirrored database by its GUID."""
        return next((self._of(item) for item in self._items() if item.id == item_id), None)

    def rows(self, item: ShownItem, delta_folder: str, newest: HistoryEntry) -> pa.Table:
        """A table's first rows at its newest commit, read once a version; MirrorError."""
        commit, rows = self._rows.get((item.id, delta_folder), (None, None))
        if rows is None or commit != newest:
            rows = item.view().read_table(delta_folder, version=newest.version, limit=MAX_ROWS)
            self._rows[item.id, delta_folder] = newest, rows
        return rows

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
