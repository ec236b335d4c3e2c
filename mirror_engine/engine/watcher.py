"""File-system events that wake the engine between two polls; without them, polling alone does it."""

from __future__ import annotations

import logging
import math
import os
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from watchdog import events as fs
from watchdog.observers import Observer

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.landing_zone.listing import Kind
from mirror_engine.landing_zone.names import METADATA_FILE, TableName, schema_of
from mirror_engine.storage.local import LocalStorage
from mirror_engine.threads import threads

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Sequence

    from watchdog.observers.api import BaseObserver

    from mirror_engine.clock import Clock

LOG = logging.getLogger(__name__)

SETTLING_SECONDS = 0.1  # without an event end a burst, so that a file written in place is mostly complete
MAX_BURST_SECONDS = 1.0
PAUSE_SECONDS = 0.05  # after a scan, before files that are complete start the next one: they share commits
STOP_LATENCY_SECONDS = 0.2

# Not opening, closing unread and changes of a folder's own time, which the engine's scans cause, too.
EVENTS: list[type[fs.FileSystemEvent]] = [
    fs.DirCreatedEvent,
    fs.DirDeletedEvent,
    fs.DirMovedEvent,
    fs.FileClosedEvent,
    fs.FileCreatedEvent,
    fs.FileDeletedEvent,
    fs.FileModifiedEvent,
    fs.FileMovedEvent,
]


class ZoneWatcher:
    """Waits for the next poll; returns early on a file-system event or when `stop` is set.

    A context manager; leaving it ends its threads. If `root` is None, no file-system event ends a wait.
    """

    def __init__(self, root: Path | None, stop: threading.Event, clock: Clock) -> None:
        self._root = root
        self._stop = stop
        self._clock = clock
        self._changed = threads().event()
        self._burst = (0.0, 0.0)  # when it began, and its latest event
        self._is_pressing = False  # whether it waits for nothing
        self._lock = threads().lock()
        self._touched: set[TableName] | None = None  # since they were asked for; None: all may be
        self._written = -math.inf  # when a file last changed that may not be complete
        self._scanned = -math.inf  # when the last scan was over
        self._observer: BaseObserver | None = None
        self._watched: _WatchedFolder | None = None
        self._has_reported = False

    def __enter__(self) -> Self:
        # watchdog 7 warns when a folder is created twice in one event batch; the duplicate watch is harmless
        warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning)
        self._watch()
        return self

    def __exit__(self, *exception: object) -> None:
        self._unwatch()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`, or until a burst of events is over; a burst ends one wait only.

        Returns:
            Whether the wait ended early: by an event since the last wait, or by `stop`.
        """
        deadline = self._clock.monotonic() + seconds
        if self._ended():  # the scan that is over may have begun before the event
            return True
        self._scanned = self._clock.timer()
        if self._watch():
            self.wake()  # changes made before the watch started raised no event
        while not self._stop.is_set():
            left = deadline - self._clock.monotonic()
            if self._ended():
                return True
            if self._changed.is_set() and seconds > 0:
                self._stop.wait(max(self._settling_seconds, 0.0))
            elif left <= 0:
                return False
            else:
                self._changed.wait(min(left, STOP_LATENCY_SECONDS))
        return True

    def touched(self) -> set[TableName] | None:
        """Tables in whose folders something happened since the last call; None if that may be in any."""
        with self._lock:
            found, self._touched = self._touched, set()
        return found if self._root else None

    def touch(self, tables: Collection[TableName] | None) -> None:
        """Note that something happened in these tables' folders, or in any; from any thread."""
        with self._lock:
            self._touched = None if tables is None or self._touched is None else {*self._touched, *tables}

    def wake(
        self, *, is_renamed: bool = False, at_once: bool = False, tables: Collection[TableName] | None = None
    ) -> None:
        """End the present wait, or the next, as an event in these tables does, or `at_once`; from any thread.

        A file that got its name by a rename is complete (LZ-3.10): it waits for a pause after the last scan alone, but
        where another file has been written within a second.
        """
        self.touch(tables)
        now, (began, _) = self._clock.timer(), self._burst
        self._written = self._written if is_renamed else now
        self._is_pressing = self._is_pressing or at_once
        self._burst = began if self._changed.is_set() else now, now
        self._changed.set()

    def _ended(self) -> bool:
        """Whether a burst is over; it ends one wait only."""
        if not self.is_due():
            return False
        self._changed.clear()
        self._is_pressing = False
        return True

    def is_due(self) -> bool:
        """Whether there was an event since the last wait, and the burst is over or has lasted too long."""
        return self._changed.is_set() and self._settling_seconds <= 0

    @property
    def _settling_seconds(self) -> float:
        """Seconds until the burst is over if no other event comes."""
        if self._is_pressing:
            return 0.0
        began, latest = self._burst
        if began - self._written >= MAX_BURST_SECONDS:  # all of it are complete files
            return self._scanned + PAUSE_SECONDS - self._clock.timer()
        return min(latest + SETTLING_SECONDS, began + MAX_BURST_SECONDS) - self._clock.timer()

    def _watch(self) -> bool:
        """Watch the zone, or until it exists the nearest folder above it; returns whether that changed."""
        folder = _nearest(self._root) if self._root else None
        # a watch ends by itself, as when its folder is removed
        has_died = self._observer is not None and not any(emitter.is_alive() for emitter in self._observer.emitters)
        if folder == self._watched and not has_died:
            return False
        self._unwatch()
        self._watched = folder  # also where it fails, so that a failing watch is not retried at each wait
        if folder is None:
            return False
        observer = Observer()
        handler = _EventHandler(folder, self)
        try:
            observer.start()
            observer.schedule(handler, str(folder.path), recursive=folder.is_zone, event_filter=EVENTS)
        except (OSError, RuntimeError) as problem:
            _end(observer)
            self._report(problem)
            return False
        self._observer = observer
        try:  # watchdog ignores folders for which the system has no watch left: ask for one more
            if folder.is_zone:
                probe = observer.schedule(fs.FileSystemEventHandler(), str(self._root), event_filter=EVENTS)
                observer.unschedule(probe)
        except OSError as problem:
            self._report(problem)
        return True

    def _unwatch(self) -> None:
        if self._observer is not None:
            _end(self._observer)
        self._observer = None
        self._watched = None

    def _report(self, problem: Exception) -> None:
        if not self._has_reported:
            LOG.info("no file-system events of all or some folders (%s): the landing zone is polled", problem)
        self._has_reported = True


@dataclass(frozen=True)
class _WatchedFolder:
    """A watched folder, with the identity that differs from a later folder at the same path."""

    path: Path
    identity: str
    is_zone: bool


def _nearest(root: Path) -> _WatchedFolder | None:
    """The zone, or the nearest existing folder above it; None where none can be listed."""
    storage = LocalStorage(root)
    for below in (ZONE, OLDER_ZONE, ZONE.partition("/")[0], ""):
        with suppress(StorageUnavailable):
            entry = storage.stat(below)
            if entry and entry.kind is Kind.FOLDER:
                return _WatchedFolder(root / below, entry.identity, below in {ZONE, OLDER_ZONE})
    return None


class _EventHandler(fs.FileSystemEventHandler):
    """Wakes the engine for what a publisher does, not for what its own janitor does."""

    def __init__(self, folder: _WatchedFolder, watcher: ZoneWatcher) -> None:
        self._folder = folder
        self._watcher = watcher

    def on_any_event(self, event: fs.FileSystemEvent) -> None:
        """Wake the engine if the changed path has a name that the protocol reads (LZ-1.6).

        A file that is renamed away waits for the next scan.
        """
        paths = [self._parts(path) for path in (event.src_path, event.dest_path) if path]
        tables = [_table_of(parts) for parts in paths] if self._folder.is_zone else [None]
        known = [table for table in tables if table]
        touched = known if len(known) == len(tables) else None
        if _is_read(paths[-1]):
            is_published = isinstance(event, fs.FileMovedEvent) and not _is_read(paths[0])
            self._watcher.wake(is_renamed=is_published, tables=touched)
        elif _is_read(paths[0]):
            self._watcher.touch(touched)

    def _parts(self, path: bytes | str) -> Sequence[str]:
        return Path(os.path.relpath(os.fsdecode(path), self._folder.path)).parts


def _is_read(parts: Sequence[str]) -> bool:
    return not any(part[0] in "._" and part not in {".", METADATA_FILE} for part in parts)


def _table_of(parts: Sequence[str]) -> TableName | None:
    """The table in whose folder a path of the zone is; None for other paths."""
    schema = schema_of(parts[0]) if parts else None
    if schema is None:
        return TableName("", parts[0]) if len(parts) > 1 else None
    return TableName(schema, parts[1]) if len(parts) > 2 else None  # noqa: PLR2004 - schema, table and file


def _end(observer: BaseObserver) -> None:
    observer.stop()
    if observer.is_alive():
        observer.join()
