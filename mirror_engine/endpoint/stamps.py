"""Which LastModified a change gives a file, where a fault has a say in it (endpoint chapter 10)."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
