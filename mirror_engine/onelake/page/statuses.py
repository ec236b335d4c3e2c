"""The statuses of all mirrored databases, scanned at most once a second for any number of readers."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mirror_engine.errors import MirrorError
from mirror_engine.mirror import status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from mirror_engine.monitoring.rows import SortedRows
    from mirror_engine.monitoring.status import MirrorStatus, TableStatus
    from mirror_engine.onelake.engine_pool import ShownItem
    from mirror_engine.tables.base import HistoryEntry

FRESH_SECONDS = 1.0
WORKERS = 4  # scans at once
IDLE_FACTOR = 4  # minimum refresh interval as a multiple of the last refresh's duration: at most 20 % of the time
MAX_FILES = 100  # of one table and state
MAX_ROWS = 20
MAX_KEPT = 100  # tables whose rows were looked at last
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class CachedStatus:
    """A mirrored database with what its last scan found: a status; None, with an error message, if it is unreadable."""

    item: ShownItem
    status: MirrorStatus | None = None
    error: str = ""
    scanned_at: float = 0.0  # seconds since 1970
    documents: dict[str, Any] = field(default_factory=dict)  # made of the scan for readers, by purpose


@dataclass
class _Entry:
    found: CachedStatus
    lock: threading.Lock = field(default_factory=threading.Lock)
    scan: Future[None] | None = None
    fresh_until: float = 0.0


class StatusCache:
    """Statuses of all items that are at most a second old, or as old as scanning takes; the clock is monotonic."""

    def __init__(self, items: Callable[[], Sequence[ShownItem]], clock: Callable[[], float] = time.monotonic) -> None:
        self._items = items
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._scans = ThreadPoolExecutor(WORKERS, thread_name_prefix="status")
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, str], tuple[tuple[int, datetime], Any]] = {}

    def all(self, only: str | None = None) -> Sequence[CachedStatus]:
        """Every mirrored database, or the one of a GUID; waits for scans that are due or in progress."""
        found = [(item, self._begin(item)) for item in self._items() if only in {None, item.id}]
        for scan in wait([entry.scan for _, entry in found if entry.scan]).done:
            scan.result()  # raises an internal error
        return [replace(entry.found, item=item) for item, entry in found]

    def close(self) -> None:
        self._scans.shutdown()

    def rows(
        self, item: ShownItem, table: TableStatus, newest: HistoryEntry, made: Callable[[SortedRows], _Made]
    ) -> _Made:
        """Convert rows of a table's newest commit. They are read once per version and not kept.

        Raises:
            MirrorError: they cannot be read.
        """
        place, commit = (item.id, table.delta_folder), (newest.version, newest.committed_at)
        known, shown = self._rows.get(place, (None, None))
        if known != commit:
            shown = made(item.view().show(table.delta_folder, version=newest.version, limit=MAX_ROWS))
        with self._lock:
            self._rows.pop(place, None)
            self._rows[place] = commit, shown  # the last one
            while len(self._rows) > MAX_KEPT:
                del self._rows[next(iter(self._rows))]
        return cast("_Made", shown)

    def _begin(self, item: ShownItem) -> _Entry:
        entry = self._entries.setdefault(item.id, _Entry(CachedStatus(item)))
        with entry.lock:
            is_over = entry.scan is None or entry.scan.done()
            if is_over and self._clock() >= entry.fresh_until:
                entry.scan = self._scans.submit(self._scan, entry, item)
        return entry

    def _scan(self, entry: _Entry, item: ShownItem) -> None:
        started = self._clock()
        try:
            entry.found = CachedStatus(item, status_of(item.view(), MAX_FILES), "", time.time())
        except MirrorError as error:
            entry.found = CachedStatus(item, None, str(error), time.time())
        ended = self._clock()
        entry.fresh_until = ended + max(FRESH_SECONDS, IDLE_FACTOR * (ended - started))
