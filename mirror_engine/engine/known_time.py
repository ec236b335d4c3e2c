"""Time for what waits from one run to the next: as much as has surely passed, however the machine's date jumps."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, replace
from typing import TYPE_CHECKING

from mirror_engine.errors import StorageUnavailable

if TYPE_CHECKING:
    from mirror_engine.clock import Clock
    from mirror_engine.engine.ledger import Ledger

KNOWN_TIME = "known_time"  # property of the ledger: the last look, as JSON
UNSEEN_SECONDS = 86_400.0  # at most so much passed while the machine was off: only a date says so
STORE_SECONDS = 60.0  # between two changes of the property: each costs a write


@dataclass(frozen=True)
class _Look:
    """One reading of the time and the clock: see `Clock`. All fields but `boot` are in seconds."""

    time: float
    date: float
    boot: str = ""
    uptime: float = 0.0
    lead: float = 0.0


class KnownTime:
    """A time that never goes back, and runs as time passes; called, seconds since 1970.

    It begins with the clock. From then on the date is not asked while the machine runs: its uptime says how much has
    passed, within a run and between two. After a restart, or on another machine, nothing but two dates says how long
    nobody looked: of that, a day counts at most. So a date that is wrong for a while, ahead or back, ends no wait
    early; one that is ahead after a restart ends it by at most a day. A machine that was off for longer prolongs waits.

    Only an engine stores it (`is_stored`).
    """

    def __init__(self, clock: Clock, ledger: Ledger, *, is_stored: bool) -> None:
        self._clock, self._ledger, self._is_stored = clock, ledger, is_stored
        self._lock = threading.Lock()
        before = _read(ledger.get_property(KNOWN_TIME))
        self._last = self._first(before)
        self._stored = before if self._last is before else None

    def __call__(self) -> float:
        return self.and_lead()[0]

    def and_lead(self) -> tuple[float, float]:
        """Return the time, and how many seconds it is ahead of the clock; less than 0 where it is behind."""
        with self._lock:
            self._last = last = self._after(self._last)
            before = self._stored
            is_known = before and last.lead == before.lead and last.time - before.time < STORE_SECONDS
            if self._is_stored and not is_known:
                self._stored = last
                with suppress(StorageUnavailable):  # an earlier one stays known
                    self._ledger.set_property(KNOWN_TIME, json.dumps(asdict(last)))
            return last.time, last.time - self._clock()

    def _first(self, before: _Look | None) -> _Look:
        """Return the reading to continue from at the start of a run, based on the last one of an earlier run."""
        clock, uptime = self._clock, self._clock.uptime()
        if before is None:
            return _Look(clock(), clock.date(), clock.boot, uptime, clock.lead_seconds)
        is_same = bool(before.boot) and before.boot == clock.boot
        if is_same and uptime >= before.uptime:
            return before
        unseen = min(max(clock.date() - before.date, 0.0), UNSEEN_SECONDS)
        # an uptime that went back, as of a machine restored from a snapshot, is not compared with the next run's
        return replace(before, time=before.time + unseen, boot="" if is_same else clock.boot, uptime=uptime)

    def _after(self, before: _Look) -> _Look:
        """Return the reading that follows an earlier one of the same boot."""
        clock = self._clock
        uptime, lead = max(clock.uptime(), before.uptime), clock.lead_seconds
        passed = uptime - before.uptime + max(lead - before.lead, 0.0)
        return _Look(before.time + passed, clock.date(), before.boot, uptime, lead)


def _read(text: str) -> _Look | None:
    """Return the stored reading; None if there is none or it is invalid."""
    with suppress(ValueError, TypeError, LookupError):
        found = json.loads(text)
        look = _Look(**found)
        if tuple(map(type, astuple(look))) == (float, float, str, float, float):
            return look
    return None
