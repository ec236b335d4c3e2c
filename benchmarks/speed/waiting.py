"""The peer `waiting`: the product over tables with nothing to do; no JVM."""

from __future__ import annotations

import os
import statistics
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import cpu_seconds
from mirror_engine import Config, Mirror
from mirror_engine.events import BatchStarted, CycleEnded, CycleStarted
from speed.places import land

if TYPE_CHECKING:
    from mirror_engine.events import Event

MAX_SECONDS = 300.0


class Empty:
    """Commands of the peer `waiting`."""

    def once(self, root: str) -> dict[str, Any]:
        """Apply what has landed."""
        with Mirror(root) as mirror:
            report = mirror.sync()
        return {"verdict": report.result.value, "seconds": report.duration_seconds}

    def idle(self, root: str, seconds: float, poll_seconds: float, file: str, table: str) -> dict[str, Any]:
        """Run, and wait; then land a file.

        Returns:
            the seconds of a cycle, from one's begin to the next one's without the pause; the share of one core; the
            seconds until the file's batch began.
        """
        hearing = _Hearing()
        stop = threading.Event()
        mirror = Mirror(root, Config(poll_interval_seconds=poll_seconds), listeners=[hearing])
        thread = threading.Thread(target=mirror.run, args=(stop,))
        thread.start()
        try:
            hearing.wait_for(CycleEnded)  # the first reads every table's log
            cycles, used, begun = len(hearing.cycles), cpu_seconds(os.getpid()), time.monotonic()
            time.sleep(seconds)
            share = (cpu_seconds(os.getpid()) - used) / (time.monotonic() - begun)
            starts = hearing.cycles[cycles - 1 :]
            gaps = [later - earlier for earlier, later in pairwise(starts)]
            landed = time.monotonic()
            land(Path(root), [Path(file)], table)
            seen = hearing.wait_for(BatchStarted) - landed
        finally:
            stop.set()
            thread.join()
            mirror.close()
        cycle = statistics.median(gaps) - poll_seconds
        return {"a cycle": cycle, "share of a core": share, "a change is seen": seen}


class _Hearing:
    """Remembers when cycles began, and when each kind of event came first."""

    def __init__(self) -> None:
        self.cycles: list[float] = []
        self._first: dict[type, float] = {}
        self._heard = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._heard:
            now = time.monotonic()
            if isinstance(event, CycleStarted):
                self.cycles.append(now)
            self._first.setdefault(type(event), now)
            self._heard.notify_all()

    def wait_for(self, kind: type) -> float:
        """When the first event of a kind came."""
        with self._heard:
            if not self._heard.wait_for(lambda: kind in self._first, MAX_SECONDS):
                raise TimeoutError(f"no {kind.__name__} came")
            return self._first[kind]
