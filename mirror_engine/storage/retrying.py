"""Retries of failed storage calls."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from mirror_engine.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror_engine.storage.base import Entry, Storage

PAUSES_SECONDS = (0.1, 0.4, 1.6)

_Result = TypeVar("_Result")


class RetryingStorage:
    """A `Storage` around another that repeats failed calls; reads from an opened file are not repeated.

    Every call of the port is repeatable, so that a lost answer does no harm. After the last pause the error is raised.
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
        return self._retried(lambda: self._storage.list(folder))

    def stat(self, path: str) -> Entry | None:
        return self._retried(lambda: self._storage.stat(path))

    def open(self, path: str) -> BinaryIO:
        return self._retried(lambda: self._storage.open(path))

    def write(self, path: str, content: bytes) -> None:
        self._retried(lambda: self._storage.write(path, content))

    def move(self, source: str, target: str, only: Entry | None = None) -> bool:
        return self._retried(lambda: self._storage.move(source, target, only))

    def delete(self, path: str) -> None:
        self._retried(lambda: self._storage.delete(path))

    def scan(self, folder: str) -> Storage:
        found = self._retried(lambda: self._storage.scan(folder))
        return self if found is self._storage else RetryingStorage(found, self._pauses_seconds, self._sleep)

    def _retried(self, call: Callable[[], _Result]) -> _Result:
        for pause in self._pauses_seconds:
            try:
                return call()
            except StorageUnavailable:  # noqa: PERF203 - one try per iteration is the purpose
                self._sleep(pause)
        return call()
