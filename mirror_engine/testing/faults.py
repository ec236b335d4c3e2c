"""Scripted faults: a door whose n-th call fails, before it did anything or after it did everything."""

from __future__ import annotations

import io
import threading
from enum import Enum
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from mirror_engine.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror_engine.storage.base import Entry, Storage

_Answer = TypeVar("_Answer")


class Fault(str, Enum):
    """The two ways in which a call fails."""

    REFUSED = "refused"  # nothing happened
    LOST_ANSWER = "lost answer"  # it was done, but the caller sees a failure


class FaultyStorage:
    """A `Storage` around another whose calls fail as a script says.

    Args:
        storage: what does the work.
        script: the fault by the number of the call, counted from 1 over all methods.

    Attributes:
        calls: what was called so far, as `move Orders/….parquet`; its length is the number of the last call.
    """

    def __init__(self, storage: Storage, script: Mapping[int, Fault]) -> None:
        self.calls: list[str] = []
        self._storage = storage
        self._script = script
        self._lock = threading.Lock()

    def list(self, folder: str) -> Sequence[Entry] | None:
        """See `Storage.list`."""
        return self._scripted(f"list {folder}", lambda: self._storage.list(folder))

    def stat(self, path: str) -> Entry | None:
        """See `Storage.stat`."""
        return self._scripted(f"stat {path}", lambda: self._storage.stat(path))

    def open(self, path: str) -> BinaryIO:
        """See `Storage.open`."""
        return self._scripted(f"open {path}", lambda: self._storage.open(path))

    def write(self, path: str, content: bytes) -> None:
        """See `Storage.write`."""
        self._scripted(f"write {path}", lambda: self._storage.write(path, content))

    def move(self, source: str, target: str) -> None:
        """See `Storage.move`."""
        self._scripted(f"move {source}", lambda: self._storage.move(source, target))

    def delete(self, path: str) -> None:
        """See `Storage.delete`."""
        self._scripted(f"delete {path}", lambda: self._storage.delete(path))

    def _scripted(self, name: str, call: Callable[[], _Answer]) -> _Answer:
        with self._lock:
            self.calls.append(name)
            fault = self._script.get(len(self.calls))
        if fault is Fault.REFUSED:
            raise StorageUnavailable(f"{name}: refused by script")
        answer = call()
        if fault is Fault.LOST_ANSWER:
            if isinstance(answer, io.IOBase):
                answer.close()
            raise StorageUnavailable(f"{name}: answer lost by script")
        return answer
