"""Wakes the poller when something changes in the landing zone; where that cannot be told, polling alone must do."""

from __future__ import annotations

import logging
import os
import threading
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from watchdog import events as fs
from watchdog.observers import Observer

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.landing_zone.names import METADATA_FILE
from mirror_engine.storage.base import Kind
from mirror_engine.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self
    from watchdog.observers.api import BaseObserver

LOG = logging.getLogger(__name__)

QUIET_SECONDS = 0.1  # without an event end a burst, so that a file written under its final name is mostly complete
MAX_BURST_SECONDS = 1.0
STOP_LATENCY_SECONDS = 0.2

# Not among them: opening, closing unwritten and a folder's own time, which the engine's looking changes, too.
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
    """Waits between two looks at the zone, and less long where file-system events call for it.

    A context manager; leaving it ends its threads.

    Args:
        root: the mirrored database's folder.
        stop: ends every wait when set, as by a signal.
    """

    def __init__(self, root: Path, stop: threading.Event) -> None:
        self._root = root
        self._stop = stop
        self._changed = threading.Event()
        self._burst = (0.0, 0.0)  # when it began, and its latest event
        self._observer: BaseObserver | None = None
        self._watched: _Place | None = None
        self._has_complained = False

    def __enter__(self) -> Self:
        # watchdog 7 says so of a folder that it sees made twice over; the second watch is the first
        warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning)
        self._watch()
        return self

    def __exit__(self, *exception: object) -> None:
        self._unwatch()

    def wait(self, seconds: float) -> bool:
        """Wait, at most `seconds`, or until a burst of events is over; it ends one wait only.

        Returns:
            Whether it was cut short: by an event since the last wait, or by `stop`.
        """
        deadline = time.monotonic() + seconds
        if self._watch():
            self.wake()  # what came before the watch began has told nobody
        while not self._stop.is_set():
            left = deadline - time.monotonic()
            if self.is_due():
                self._changed.clear()
                return True
            if self._changed.is_set() and seconds > 0:
                self._stop.wait(QUIET_SECONDS)
            elif left <= 0:
                return False
            else:
                self._changed.wait(min(left, STOP_LATENCY_SECONDS))
        return True

    def wake(self) -> None:
        """End a wait, or the next, as an event does; from any thread."""
        now = time.monotonic()
        self._burst = (self._burst[0] if self._changed.is_set() else now, now)
        self._changed.set()

    def is_due(self) -> bool:
        """Whether something happened since the last wait, and it is quiet again, or has not been for long."""
        (began, latest), now = self._burst, time.monotonic()
        is_over = now - latest >= QUIET_SECONDS or now - began >= MAX_BURST_SECONDS
        return self._changed.is_set() and is_over

    def _watch(self) -> bool:
        """Watch the zone, or until it exists the folder it will be made in; whether another than before."""
        place = _Place.nearest(self._root)
        if place == self._watched and not self._has_died:
            return False
        self._unwatch()
        self._watched = place  # also where it fails: what cannot be watched once is not tried at each wait
        if place is None:
            return False
        observer = Observer()
        try:
            observer.start()
            observer.schedule(
                _EventHandler(place, self.wake), str(place.path), recursive=place.is_zone, event_filter=EVENTS
            )
        except (OSError, RuntimeError) as problem:
            _end(observer)
            self._complain(problem)
            return False
        self._observer = observer
        if place.is_zone:
            self._probe(observer)
        return True

    def _probe(self, observer: BaseObserver) -> None:
        """Tell where folders went without a watch: watchdog passes over those for which the system has none left."""
        try:
            observer.unschedule(observer.schedule(fs.FileSystemEventHandler(), str(self._root), event_filter=EVENTS))
        except OSError as problem:
            self._complain(problem)

    @property
    def _has_died(self) -> bool:
        """Whether the watch ended by itself, as it does when its folder is removed."""
        return self._observer is not None and not any(emitter.is_alive() for emitter in self._observer.emitters)

    def _unwatch(self) -> None:
        if self._observer is not None:
            _end(self._observer)
        self._observer = None
        self._watched = None

    def _complain(self, problem: Exception) -> None:
        if not self._has_complained:
            LOG.info("no file-system events of all or some folders (%s): the landing zone is polled", problem)
        self._has_complained = True


@dataclass(frozen=True)
class _Place:
    """A folder to watch, told from another that comes to stand at the same path."""

    path: Path
    identity: str
    is_zone: bool

    @classmethod
    def nearest(cls, root: Path) -> _Place | None:
        """The zone; while there is none, the nearest folder above it; None where nothing can be seen."""
        storage = LocalStorage(root)
        for below in (ZONE, OLDER_ZONE, ZONE.partition("/")[0], ""):
            with suppress(StorageUnavailable):
                entry = storage.stat(below)
                if entry and entry.kind is Kind.FOLDER:
                    return cls(root / below, entry.identity, below in {ZONE, OLDER_ZONE})
        return None


class _EventHandler(fs.FileSystemEventHandler):
    """Rings for what a publisher does, not for what the engine's own janitor does."""

    def __init__(self, place: _Place, wake: Callable[[], None]) -> None:
        self._place = place
        self._wake = wake

    def on_any_event(self, event: fs.FileSystemEvent) -> None:
        """Ring if the event's end result has a name the protocol reads (LZ-1.6)."""
        path = os.fsdecode(event.dest_path or event.src_path)
        parts = Path(os.path.relpath(path, self._place.path)).parts
        if not any(part[0] in "._" and part not in {".", METADATA_FILE} for part in parts):
            self._wake()


def _end(observer: BaseObserver) -> None:
    observer.stop()
    if observer.is_alive():
        observer.join()
