"""Time for what waits from one run to the next: it never goes back, however the machine's clock jumps."""

from __future__ import annotations

import json
import math
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from mirror_engine.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror_engine.clock import Clock
    from mirror_engine.engine.ledger import Ledger

KNOWN_TIME = "known_time"  # property of the ledger: the latest time, and by how much it was ahead of the clock, as JSON
MAX_LEADS = 8  # the smallest are kept, and the newest one: each further step back adds one
DRIFT_SECONDS = 1.0  # by which a clock may run faster than the monotonic one between two looks at both
STORE_SECONDS = 60.0  # between two changes of the property: a later time in the ledger costs a write


class KnownTime:
    """A time that is never before one that this engine, or a run before it, has seen; called, seconds since 1970.

    While the clock is behind the latest known time, time goes on from there: within a run at the monotonic clock's
    rate, whatever the date does, and from one run to the next at the date's. Once the clock has caught up, it is the
    time again. So a clock that is back for one run ends no wait early, and one that was ahead prolongs none by more
    than the time between two runs. A clock that is ahead ends waits early: nothing tells it from one that is right.

    Only an engine stores it (`is_stored`).
    """

    def __init__(self, clock: Clock, ledger: Ledger, *, is_stored: bool) -> None:
        self._clock, self._ledger, self._is_stored = clock, ledger, is_stored
        self._lock = threading.Lock()
        self._looked_at = -math.inf  # by the monotonic clock
        self._latest, self._leads = _read(ledger.get_property(KNOWN_TIME))
        self._stored = self._latest, self._leads

    def __call__(self) -> float:
        return self.and_lead()[0]

    def and_lead(self) -> tuple[float, float]:
        """Return the time, and how many seconds it is ahead of the clock."""
        with self._lock:
            clock = self._clock()
            lead = 0.0 if clock >= self._latest else self._lead(clock)
            self._looked_at = self._clock.monotonic()
            self._leads = tuple(each for each in self._leads if each < lead)[:MAX_LEADS] + ((lead,) if lead else ())
            self._latest = max(clock + lead, self._latest)
            latest, leads = self._stored
            if self._is_stored and (self._latest - latest >= STORE_SECONDS or _rounded(leads) != _rounded(self._leads)):
                self._stored = self._latest, self._leads
                with suppress(StorageUnavailable):  # an earlier one stays known
                    self._ledger.set_property(KNOWN_TIME, json.dumps(self._stored))
            return self._latest, lead

    def _lead(self, clock: float) -> float:
        """By how much the time is ahead of a clock that is behind: it may be as wrong as it was before."""
        passed = self._clock.monotonic() - self._looked_at  # infinite in the first look of a run
        known = (each for each in self._leads if 0 <= clock + each - self._latest <= passed + DRIFT_SECONDS)
        return next(known, self._latest + (passed if passed < math.inf else 0.0) - clock)


def _rounded(leads: Iterable[float]) -> list[int]:
    return [round(lead) for lead in leads]


def _read(text: str) -> tuple[float, tuple[float, ...]]:
    with suppress(ValueError, TypeError):
        latest, leads = json.loads(text)
        return float(latest), tuple(sorted(map(float, leads)))
    return 0.0, ()
