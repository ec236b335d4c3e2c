"""Long-running operations of Fabric's REST API (LZ-9.9): begun with 202, then asked for their state and result."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from mirror_engine.monitoring.fabric_files import dotnet
from mirror_engine.onelake.hosts import FABRIC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LongRunning = Literal["mixed", "always", "never"]
SECONDS = 1.5  # of an operation: a publisher that waits for its Retry-After sees it Running once
MAX_KEPT = 100
_SYNCHRONOUS = "create_mirrored_database"  # has no 202 in Microsoft's specification


@dataclass(frozen=True)
class _Operation:
    ends_at: float
    began: str
    result: Mapping[str, Any] | None  # None where it has none
    error: Mapping[str, Any] | None  # why it failed


@dataclass
class LongRunningOperations:
    """Operations that were answered with 202; the newest `MAX_KEPT` are kept. What they do is done when they begin."""

    mode: LongRunning
    clock: Callable[[], float]  # monotonic seconds
    _calls: Counter[str] = field(default_factory=Counter, init=False)
    _kept: dict[str, _Operation] = field(default_factory=dict, init=False)

    def is_deferred(self, name: str) -> bool:
        """Whether this call is answered with 202: in `mixed` every other call of an operation, and its first."""
        if self.mode != "mixed":
            return self.mode == "always"
        self._calls[name] += 1
        return name != _SYNCHRONOUS and self._calls[name] % 2 == 1

    def begin(self, result: Mapping[str, Any] | None, error: Mapping[str, Any] | None = None) -> dict[str, str]:
        """Keep an operation with its outcome; the headers of its 202."""
        new_id = str(uuid4())
        if len(self._kept) >= MAX_KEPT:
            self._kept.pop(next(iter(self._kept)), None)
        self._kept[new_id] = _Operation(self.clock() + SECONDS, _now(), result, error)
        return _headers(new_id)

    def state(self, operation_id: str) -> tuple[dict[str, Any], dict[str, str]]:
        """An operation's state, and its headers; KeyError."""
        operation = self._kept[operation_id]
        headers = _headers(operation_id)
        body = {"createdTimeUtc": operation.began, "lastUpdatedTimeUtc": _now()}
        if self.clock() < operation.ends_at:
            return {"status": "Running", **body, "percentComplete": 50}, headers
        del headers["Retry-After"], headers["Location"]
        if operation.error:
            return {"status": "Failed", **body, "error": operation.error}, headers
        if operation.result is not None:
            headers["Location"] = f"{_headers(operation_id)['Location']}/result"
        return {"status": "Succeeded", **body, "percentComplete": 100}, headers

    def result(self, operation_id: str) -> Mapping[str, Any] | None:
        """What an operation answers; None while it runs, or where it failed or has no result. KeyError."""
        operation = self._kept[operation_id]
        return operation.result if self.clock() >= operation.ends_at else None


def _headers(operation_id: str) -> dict[str, str]:
    location = f"https://{FABRIC}/v1/operations/{operation_id}"
    return {"Location": location, "x-ms-operation-id": operation_id, "Retry-After": "1"}


def _now() -> str:
    return f"{dotnet(time.time())}Z"
