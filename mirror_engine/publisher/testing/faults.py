"""Scripted faults: a door whose n-th call fails, before it did anything or after it did everything."""

from __future__ import annotations

import io
import threading
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mirror_engine.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_Answer = TypeVar("_Answer")
_Door = TypeVar("_Door")


class Fault(str, Enum):
    """The two ways in which a call fails."""

    REFUSED = "refused"  # nothing happened
    LOST_ANSWER = "lost answer"  # it was done, but the caller sees a failure


class Script:
    """Which call of a door fails, and how.

    Args:
        faults: by the number of the call, counted from 1 over all methods.

    Attributes:
        calls: what was called so far, as `move Orders/….parquet`; its length is the number of the last call.
    """

    def __init__(self, faults: Mapping[int, Fault] | None = None) -> None:
        self.calls: list[str] = []
        self._faults = faults or {}
        self._lock = threading.Lock()

    def play(self, name: str, call: Callable[[], _Answer]) -> _Answer:
        """Make the call, or fail in its place.

        Raises:
            StorageUnavailable: the script says so.
        """
        with self._lock:
            self.calls.append(name)
            fault = self._faults.get(len(self.calls))
        if fault is Fault.REFUSED:
            raise StorageUnavailable(f"{name}: refused by script")
        answer = call()
        if fault is Fault.LOST_ANSWER:
            if isinstance(answer, io.IOBase):
                answer.close()
            raise StorageUnavailable(f"{name}: answer lost by script")
        return answer


def faulty(door: _Door, script: Script) -> _Door:
    """The same door, a `Storage` or a `DeltaWriter`, whose calls fail as the script says; `close` never fails."""
    return cast("_Door", _Faulty(door, script))


class _Faulty:
    def __init__(self, door: object, script: Script) -> None:
        self._door = door
        self._script = script

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._door, name)
        if name == "close":
            return method

        def call(*arguments: object, **options: object) -> object:
            return self._script.play(" ".join([name, *map(str, arguments[:1])]), lambda: method(*arguments, **options))

        return call
