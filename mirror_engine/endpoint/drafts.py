"""Bodies that wait to become part of a file, and whose turn it is to make one of them."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mirror_engine.endpoint.uploads import Body

_Name = TypeVar("_Name", int, str)


@dataclass
class _Draft(Generic[_Name]):
    touched_seconds: float
    pieces: dict[_Name, Body] = field(default_factory=dict)


class Drafts(Generic[_Name]):
    """Bodies by what they will become part of, each under its position or block id; the last one per name wins.

    Args:
        expiry_seconds: after which a draft that nobody adds to is dropped.
        clock: seconds, never going back.
    """

    def __init__(self, expiry_seconds: float, clock: Callable[[], float]) -> None:
        self._expiry_seconds = expiry_seconds
        self._clock = clock
        self._drafts: dict[str, _Draft[_Name]] = {}  # the one touched longest ago comes first
        self._lock = threading.Lock()

    def keep(self, key: str, name: _Name, body: Body) -> None:
        """Add a body to a draft; it belongs to the draft from now on."""
        with self._lock:
            draft = self._drafts.pop(key, None) or _Draft(0.0)
            draft.touched_seconds = self._clock()
            self._drafts[key] = draft
            replaced = draft.pieces.get(name)
            draft.pieces[name] = body
            body.keep()
        if replaced:
            replaced.discard()

    def take(self, key: str) -> dict[_Name, Body]:
        """All bodies of a draft, which now belong to the caller; none where there is no draft."""
        with self._lock:
            draft = self._drafts.pop(key, None)
        return draft.pieces if draft else {}

    def put_back(self, key: str, pieces: Mapping[_Name, Body]) -> None:
        """Return bodies that were taken, but for those that were sent anew meanwhile."""
        with self._lock:
            draft = self._drafts.setdefault(key, _Draft(self._clock()))
            stale = [body for name, body in pieces.items() if draft.pieces.setdefault(name, body) is not body]
        for body in stale:
            body.discard()

    def drop(self, key: str) -> None:
        """Discard a draft, if there is one."""
        for body in self.take(key).values():
            body.discard()

    def drop_expired(self) -> None:
        """Discard what nobody added to for too long."""
        since = self._clock() - self._expiry_seconds
        with self._lock:
            expired = [key for key, draft in self._drafts.items() if draft.touched_seconds < since]
        for key in expired:
            self.drop(key)


@dataclass
class _Turn:
    lock: threading.Lock = field(default_factory=threading.Lock)
    wanted_by: int = 0


class Turns:
    """One at a time for each key; different keys never wait for each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[str, _Turn] = {}

    @contextmanager
    def of(self, key: str) -> Iterator[None]:
        """A block that only one thread is in."""
        with self._lock:
            turn = self._turns.setdefault(key, _Turn())
            turn.wanted_by += 1
        try:
            with turn.lock:
                yield
        finally:
            with self._lock:
                turn.wanted_by -= 1
                if not turn.wanted_by:
                    del self._turns[key]
