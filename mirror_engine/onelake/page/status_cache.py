"""Cached status of mirrored databases, shared by all readers of the page, so that watching costs little."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
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
PATIENCE_SECONDS = 0.15  # that a page waits for a scan, before it shows what was known before
WORKERS = 4  # scans at once
IDLE_FACTOR = 4  # minimum refresh interval as a multiple of the last refresh's duration: at most 20 % of the time
MAX_ROWS = 20


@dataclass(frozen=True)
class CachedStatus:
    """A mirrored database's status; None, and an error message, where it cannot be read, or without one is not yet."""

    item: ShownItem
    status: MirrorStatus | None
    error: str = ""


@dataclass
class _Entry:
    """The last scan of one item, and the one in progress."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    found: tuple[MirrorStatus | None, str] = (None, "")
    scan: Future[None] | None = None
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
        self._scans = ThreadPoolExecutor(WORKERS, thread_name_prefix="status")
        self._rows: dict[tuple[str, str], tuple[HistoryEntry, pa.Table]] = {}

    def all(self, patience: float | None = None) -> Sequence[CachedStatus]:
        """Every mirrored database; after so many seconds as it was before, or without a status. None: wait."""
        items = self._items()
        for gone in self._entries.keys() - {item.id for item in items}:
            self._entries.pop(gone, None)
        found = [(item, *self._begin(item)) for item in items]
        wait([scan for _, _, scan in found if scan], patience)
        return [_cached(item, entry) for item, entry, _ in found]

    def one(self, item_id: str, patience: float | None = None) -> CachedStatus | None:
        """A mirrored database by its GUID; otherwise as `all`."""
        for item in self._items():
            if item.id == item_id:
                entry, scan = self._begin(item)
                wait([scan] if scan else [], patience)
                return _cached(item, entry)
        return None

    def close(self) -> None:
        """Wait for scans in progress."""
        self._scans.shutdown()

    def rows(self, item: ShownItem, delta_folder: str, newest: HistoryEntry) -> pa.Table:
        """A table's first rows at its newest commit, read once a version; MirrorError."""
        commit, rows = self._rows.get((item.id, delta_folder), (None, None))
        if rows is None or commit != newest:
            rows = item.view().read_table(delta_folder, version=newest.version, limit=MAX_ROWS)
            self._rows[item.id, delta_folder] = newest, rows
        return rows

    def _begin(self, item: ShownItem) -> tuple[_Entry, Future[None] | None]:
        """An item's last scan, and the one in progress where that is no longer fresh."""
        entry = self._entries.setdefault(item.id, _Entry())
        with entry.lock:
            is_over = entry.scan is None or entry.scan.done()
            if is_over and self._clock() >= entry.fresh_until:
                entry.scan = self._scans.submit(self._scan, entry, item)
            return entry, entry.scan

    def _scan(self, entry: _Entry, item: ShownItem) -> None:
        started = self._clock()
        try:
            entry.found = item.view().status(), ""
        except MirrorError as error:
            entry.found = None, str(error)
        ended = self._clock()
        entry.fresh_until = ended + max(FRESH_SECONDS, IDLE_FACTOR * (ended - started))


def _cached(item: ShownItem, entry: _Entry) -> CachedStatus:
    """What is known; raises what an unforeseen failure of the last scan raised."""
    if entry.scan and entry.scan.done():
        entry.scan.result()
    return CachedStatus(item, *entry.found)
