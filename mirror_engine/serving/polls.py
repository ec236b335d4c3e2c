"""Waits until an engine has looked at its landing zone: follows its cycles by their numbers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from mirror_engine.events import CycleEnded, CycleStarted

if TYPE_CHECKING:
    from mirror_engine.events import Event


class Polls:
    """A listener of one engine, which runs one cycle at a time.

    Attributes:
        begun: the number of the last cycle that began; 0 for none.
    """

    def __init__(self) -> None:
        self.begun = 0
        self._ended = 0
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        """Take down a cycle's begin or end."""
        with self._changed:
            if isinstance(event, CycleStarted):
                self.begun = event.number
            elif isinstance(event, CycleEnded):
                self._ended = event.number
                self._changed.notify_all()

    def wait(self, number: int, seconds: float) -> bool:
        """Wait for the end of a cycle of a higher number; whether it came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ended > number, seconds)
