"""How this OneLake differs from the real one on purpose, and which faults it plays (endpoint chapters 7 and 10)."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from fnmatch import fnmatchcase


@dataclass
class FaultSwitch:
    """One fault to be played at some requests.

    Attributes:
        fault: its name (`throttle`, `lost_response` …).
        method: of the requests it is meant for; `*` for all.
        path: a glob on their decoded path, from the workspace on.
        nth: the first matching request that meets it, counted from 1.
        count: how many requests meet it in a row.
        options: what the fault needs to know (`{"seconds": "2"}`).
    """

    fault: str
    method: str = "*"
    path: str = "*"
    nth: int = 1
    count: int = 1
    options: dict[str, str] = field(default_factory=dict)
    seen: int = field(default=0, init=False)

    def _is_met(self, method: str, path: str) -> bool:
        if self.method not in {"*", method} or not fnmatchcase(path, self.path):
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.count


@dataclass
class Switches:
    """All switches; the defaults are the real service's ways.

    Attributes:
        lenient: managed folders may be made, renamed and deleted, too.
        rename_touches: a rename sets LastModified (and with it a file's entity tag).
        blob_batch: `refuse`, or `accept`.
        faults: what is to be played.
    """

    lenient: bool = False
    rename_touches: bool = False
    blob_batch: str = "refuse"
    faults: list[FaultSwitch] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def at(self, method: str, path: str) -> list[FaultSwitch]:
        """The faults that this request meets; each call counts as one request."""
        with self._lock:
            return [switch for switch in self.faults if switch._is_met(method, path)]  # noqa: SLF001 - same module
