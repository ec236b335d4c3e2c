"""Threads, and what they wait for: one object makes them all, so that a simulation can run them one by one.

Code that runs in the engine asks `threads()`. A lock that is held while storage or tables are called, or while its
owner waits, is made here too; a plain `threading.Lock` guards values in memory alone (docs/decisions/simulation.md).
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

R = TypeVar("R")


class Threads:
    """Makes the threads of this machine, and what they share."""

    def start(self, work: Callable[[], None], name: str) -> threading.Thread:
        """Start a thread that does not keep the process alive."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def pool(self, workers: int, name: str) -> Executor:
        """Make a pool with a first-in-first-out queue."""
        return ThreadPoolExecutor(workers, thread_name_prefix=name)

    def event(self) -> threading.Event:
        """Make an event that is not set."""
        return threading.Event()

    def lock(self) -> threading.Lock:
        """Make a lock that is free."""
        return threading.Lock()

    def queue(self) -> SimpleQueue[Any]:
        """Make an empty queue without a bound."""
        return SimpleQueue()


_in_use = Threads()


def threads() -> Threads:
    """Return what makes threads now."""
    return _in_use


@contextmanager
def use_threads(other: Threads) -> Iterator[None]:
    """Let another object make all threads of this process until the block ends."""
    global _in_use  # noqa: PLW0603 - a process has one way of running threads
    before, _in_use = _in_use, other
    try:
        yield
    finally:
        _in_use = before
