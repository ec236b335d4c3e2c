"""The clock of all that waits for days, minutes or seconds: it runs as the machine's, and can be moved forward."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirror_engine.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

CENTURY_SECONDS = 100 * 365 * 86_400.0


class Clock:
    """A clock; called, it gives seconds since 1970.

    Its lead over the machine's ends with the process. Files and stores keep the machine's date (`date`); durations of
    work, such as measurements and timeouts of sockets, are taken by `timer`.

    Attributes:
        lead_seconds: how far it is ahead of the machine's.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self.lead_seconds = 0.0

    def __call__(self) -> float:
        return self.date() + self.lead_seconds

    def monotonic(self) -> float:
        """Seconds since an arbitrary time, whatever becomes of the machine's date."""
        return self.timer() + self.lead_seconds

    def date(self) -> float:
        """Return the machine's date without the lead, in seconds since 1970."""
        return self._wall()

    def timer(self) -> float:
        """Return seconds since an arbitrary time without the lead, to measure how long work takes."""
        return self._monotonic()

    def advance(self, *, days: float = 0.0, hours: float = 0.0, minutes: float = 0.0, seconds: float = 0.0) -> None:
        """Move forward; raises `UsageError` for less than 0, or more than a century in all."""
        total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        if not 0 <= total <= CENTURY_SECONDS - self.lead_seconds:
            raise UsageError(f"advance: {total:g} seconds", "Time moves forward only, by at most 100 years in all.")
        self.lead_seconds += total
