"""Rules by which requests get faults."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass
class FaultRule:
    """One fault, and the requests that get it."""

    fault: str  # its name (`throttle`, `lost_response` …)
    method: str = "*"  # of the requests; `*` for all
    path: str = "*"  # a glob on their decoded path, from the workspace on
    nth: int = 1  # the first matching request that gets it, counted from 1
    count: int | None = 1  # how many requests in a row get it; None for all
    operations: Collection[str] | None = None  # of the requests; None for all, `()` where it acts on databases
    duration_seconds: float | None = None  # instead of `count`: all requests for so long after the first that got it
    options: dict[str, Any] = field(default_factory=dict)  # of this fault (`{"seconds": 2.0}`)
    text: str = ""  # as the user wrote it
    matched: int = field(default=0, init=False)  # how many requests matched so far
    _since: float | None = field(default=None, init=False, repr=False)

    def unused(self) -> FaultRule:
        return replace(self, options=dict(self.options))

    def matches(self, method: str, path: str, operations: Collection[str], now: float) -> bool:
        """Whether this request gets the fault; each call counts as one request."""
        if self.method not in {"*", method} or not fnmatchcase(path, self.path):
            return False
        if self.operations is not None and set(self.operations).isdisjoint(operations):
            return False
        self.matched += 1
        if self.matched < self.nth:
            return False
        if self.duration_seconds is None:
            return self.count is None or self.matched < self.nth + self.count
        self._since = now if self._since is None else self._since
        return now < self._since + self.duration_seconds
