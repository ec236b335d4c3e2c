"""The clock of all that waits for days, minutes or seconds: it runs as the machine's, and can be moved forward."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

CENTURY_SECONDS = 100 * 365 * 86_400.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def seconds_since_boot() -> float:
    """Seconds since this machine started, with those that it slept where the system counts them."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@lru_cache(maxsize=1)
def boot_of_machine() -> str:
    """Return which start of which machine this is; `""` where the system does not say."""
    with suppress(OSError):
        return BOOT_ID.read_text(encoding="ascii").strip()
    return ""


class Clock:
    """A clock; called, it gives seconds since 1970.

    Its lead over the machine's ends with the process. Files and stores keep the machine's date (`date`); durations of
    work, such as measurements and timeouts of sockets, are taken by `timer`.

    Attributes:
        lead_seconds: how far it is ahead of the machine's.
        boot: the machine's start that `uptime` counts from; `""` where only this process can compare its values.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
        uptime: Callable[[], float] | None = None,
        boot: str | None = None,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic or time.monotonic
        self._uptime = uptime or monotonic or seconds_since_boot
        self.boot = boot_of_machine() if boot is None else boot
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

    def uptime(self) -> float:
        """Return seconds since the machine's start without the lead; all its processes compare them (`boot`)."""
        return self._uptime()

    def advance(self, *, days: float = 0.0, hours: float = 0.0, minutes: float = 0.0, seconds: float = 0.0) -> None:
        """Move forward; raises `UsageError` for less than 0, or more than a century in all."""
        total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        if not 0 <= total <= CENTURY_SECONDS - self.lead_seconds:
            raise UsageError(f"advance: {total:g} seconds", "Time moves forward only, by at most 100 years in all.")
        self.lead_seconds += total
