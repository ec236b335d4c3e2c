"""What happened already, but is not to be known yet: new names that show late, folders that linger after their drop."""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from mirror_engine.storage.base import Entry

LISTS, HEAD, ENGINE = "lists", "head", "engine"
SIGHTS = (LISTS, HEAD, ENGINE)


@dataclass(frozen=True)
class DeletedFolder:
    """A folder as it was when it was dropped.

    Attributes:
        path: from the store's top.
        entry: of the folder itself.
        folders: the entries of each folder in it, itself included, by path from the store's top.
        contents: of its metadata files, by path; all other files are gone.
    """

    path: str
    entry: Entry
    folders: Mapping[str, Sequence[Entry]] = field(default_factory=dict)
    contents: Mapping[str, bytes] = field(default_factory=dict)

    def holds(self, path: str) -> bool:
        """Whether a path is the folder's or lies below it."""
        return path == self.path or path.startswith(f"{self.path}/")


class VisibilityDelays:
    """Both kinds; paths are from the store's top. Safe to share between threads.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._hidden: dict[str, tuple[float, Collection[str]]] = {}
        self._ghosts: dict[str, tuple[float, DeletedFolder]] = {}

    def hide(self, path: str, sights: Collection[str], seconds: float = math.inf) -> None:
        """Keep a new name from these sights for so long."""
        with self._lock:
            self._hidden[path] = self._clock() + seconds, sights

    def show(self, path: str) -> None:
        """Let all know a name."""
        with self._lock:
            self._hidden.pop(path, None)

    def is_hidden(self, path: str, sight: str) -> bool:
        """Whether a name is not to be known to a sight yet."""
        if not self._hidden:
            return False
        with self._lock:
            until, sights = self._hidden.get(path, (0.0, ()))
            if until <= self._clock():
                self._hidden.pop(path, None)
                return False
            return sight in sights

    def linger(self, ghost: DeletedFolder, seconds: float) -> None:
        """Let the engine see a dropped folder for so long."""
        with self._lock:
            self._ghosts[ghost.path] = self._clock() + seconds, ghost

    def vanish(self, ghost: DeletedFolder) -> None:
        """Let a folder linger no more."""
        with self._lock:
            self._ghosts.pop(ghost.path, None)

    def ghosts(self) -> Sequence[DeletedFolder]:
        """The folders that linger now."""
        if not self._ghosts:
            return ()
        with self._lock:
            now = self._clock()
            self._ghosts = {path: held for path, held in self._ghosts.items() if now < held[0]}
            return [ghost for _, ghost in self._ghosts.values()]


NS_A_SECOND = 1_000_000_000

_STAMP: ContextVar[Callable[[int], int] | None] = ContextVar("stamp", default=None)


@contextmanager
def stamped(stamp: Callable[[int], int]) -> Iterator[None]:
    """What is changed meanwhile by this request gets the time that is made of the true one; both in nanoseconds."""
    token = _STAMP.set(stamp)
    try:
        yield
    finally:
        _STAMP.reset(token)


def stamp_of(true_ns: int) -> int:
    """The time to be shown for a change made now."""
    stamp = _STAMP.get()
    return stamp(true_ns) if stamp else true_ns
