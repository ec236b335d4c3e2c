"""How this OneLake differs from the real one on purpose, and which faults it plays (endpoint chapters 7 and 10)."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from mirror_engine.endpoint.late import Late

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mirror_engine.endpoint.items import Item


@dataclass
class FaultSwitch:
    """One fault to be played at some requests.

    Attributes:
        fault: its name (`throttle`, `lost_response` …).
        method: of the requests it is meant for; `*` for all.
        path: a glob on their decoded path, from the workspace on.
        nth: the first matching request that meets it, counted from 1.
        count: how many requests meet it in a row; None for all.
        operations: the requests it is meant for, by what they do; None for all.
        lasts_seconds: instead of `count`: all that come so soon after the first that met it.
        options: what the fault needs to know (`{"seconds": 2.0}`).
        text: as the user wrote it.
        seen: how many requests matched so far.
    """

    fault: str
    method: str = "*"
    path: str = "*"
    nth: int = 1
    count: int | None = 1
    operations: Collection[str] | None = None
    lasts_seconds: float | None = None
    options: dict[str, float | str] = field(default_factory=dict)
    text: str = ""
    seen: int = field(default=0, init=False)
    _since: float | None = field(default=None, init=False, repr=False)

    def number(self, name: str) -> float:
        """An option that is a number."""
        return float(self.options[name])

    def _is_met(self, method: str, path: str, operations: Collection[str], now: float) -> bool:
        if self.method not in {"*", method} or not fnmatchcase(path, self.path):
            return False
        if self.operations is not None and set(self.operations).isdisjoint(operations):
            return False
        self.seen += 1
        if self.seen < self.nth:
            return False
        if self.lasts_seconds is None:
            return self.count is None or self.seen < self.nth + self.count
        self._since = now if self._since is None else self._since
        return now < self._since + self.lasts_seconds


@dataclass
class Switches:
    """All switches; the defaults are the real service's ways.

    Attributes:
        lenient: managed folders may be made, renamed and deleted, too.
        rename_touches: a rename sets LastModified (and with it a file's entity tag).
        blob_batch: `refuse`, or `accept`.
        faults: what is to be played.
        tell: is told of each fault that is played: the switch and the request's method and path, never its query.
        poll: lets the engine of an item look at its landing zone, and returns when it has.
        late: what lists, HEAD and the engine are not to know yet.
    """

    lenient: bool = False
    rename_touches: bool = False
    blob_batch: str = "refuse"
    faults: list[FaultSwitch] = field(default_factory=list)
    tell: Callable[[str], None] = field(default=lambda _: None, repr=False)
    poll: Callable[[Item], None] = field(default=lambda _: None, repr=False)
    late: Late = field(default_factory=Late, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def at(self, method: str, path: str, operations: Collection[str] = ()) -> list[FaultSwitch]:
        """The faults that this request meets; each call counts as one request.

        Args:
            method: of the request.
            path: decoded, from the workspace on.
            operations: what it does, in the words of `fault_words`.
        """
        now = time.monotonic()
        with self._lock:
            met = [switch for switch in self.faults if switch._is_met(method, path, operations, now)]  # noqa: SLF001 - same module
        for switch in met:
            self.tell(f"{switch.text or switch.fault}: {method} {path}")
        return met

    def add(self, switches: Collection[FaultSwitch]) -> None:
        """Play these, too, from the next request on."""
        with self._lock:
            self.faults = [*self.faults, *switches]

    def clear(self) -> None:
        """Play none any more; what is hidden or lingers already shows when its time has come."""
        with self._lock:
            self.faults = []
