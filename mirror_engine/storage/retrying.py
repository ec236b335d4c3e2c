"""Door 1 with patience: a `Storage` that tries a failed call again, with growing pauses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from mirror_engine.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror_engine.storage.base import Entry, Storage

PAUSES_SECONDS = (0.1, 0.4, 1.6)

_Answer = TypeVar("_Answer")


class RetryingStorage:
    """A `Storage` around another; every call is repeatable, so a lost answer does no harm.

    Args:
        storage: what to ask.
        pauses_seconds: how long to wait before each further try; after the last the failure is let through.
        sleep: waits that many seconds.
    """

    def __init__(
        self,
        storage: Storage,
        pauses_seconds: Sequence[float] = PAUSES_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._storage = storage
        self._pauses_seconds = tuple(pauses_seconds)
        self._sleep = sleep

    def list(self, folder: str) -> Sequence[Entry] | None:
        """See `Storage.list`."""
        return self._patiently(lambda: self._storage.list(folder))

    def stat(self, path: str) -> Entry | None:
        """See `Storage.stat`."""
        return self._patiently(lambda: self._storage.stat(path))

    def open(self, path: str) -> BinaryIO:
        """See `Storage.open`; reading from what it returns is not tried again."""
        return self._patiently(lambda: self._storage.open(path))

    def write(self, path: str, content: bytes) -> None:
        """See `Storage.write`."""
        self._patiently(lambda: self._storage.write(path, content))

    def move(self, source: str, target: str) -> None:
        """See `Storage.move`."""
        self._patiently(lambda: self._storage.move(source, target))

    def delete(self, path: str) -> None:
        """See `Storage.delete`."""
        self._patiently(lambda: self._storage.delete(path))

    def _patiently(self, call: Callable[[], _Answer]) -> _Answer:
        for pause in self._pauses_seconds:
            try:
                return call()
            except StorageUnavailable:  # noqa: PERF203 - one try per round is what this is for
                self._sleep(pause)
        return call()
