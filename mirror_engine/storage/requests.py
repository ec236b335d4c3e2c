"""Count the requests to stores."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Requests:
    """Requests to stores, counted by kind; safe to share between threads.

    Args:
        on_listed: called while a store lists, with the number of entries so far.
    """

    def __init__(self, on_listed: Callable[[int], None] = lambda _: None) -> None:
        self._counter: Counter[str] = Counter()
        self._on_listed, self._listed = on_listed, 0
        self._lock = threading.Lock()

    def add(self, kind: str, number: int = 1) -> None:
        """Count requests of a kind: list, head, read, write, copy, move or delete."""
        with self._lock:
            self._counter[kind] += number

    def listed(self, number: int) -> None:
        """Count entries of a list."""
        with self._lock:
            self._listed += number
            total = self._listed
        self._on_listed(total)

    def by_kind(self) -> Mapping[str, int]:
        """The requests so far."""
        with self._lock:
            return dict(self._counter)

    def since(self, before: Mapping[str, int]) -> Mapping[str, int]:
        """The requests since `by_kind` gave these."""
        with self._lock:
            return dict(self._counter - Counter(before))
