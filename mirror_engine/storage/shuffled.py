"""A storage in which files of one time are a little apart, in an order drawn by lot."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING

from mirror_engine.storage.base import Kind
from mirror_engine.storage.read_only import ReadOnlyStorage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.storage.base import Entry, Storage


class ShuffledStorage(ReadOnlyStorage):
    """A `Storage` over another; times differ from its by nanoseconds, the same at every call.

    Args:
        storage: the one whose files are shuffled.
        seed: draws the order.
    """

    def __init__(self, storage: Storage, seed: int) -> None:
        super().__init__(storage)
        self._lot = Random(seed)  # noqa: S311 - nothing secret
        self._shifts: dict[str, int] = {}

    def list(self, folder: str) -> Sequence[Entry] | None:
        """See `Storage`."""
        entries = self._storage.list(folder)
        files = sorted((each for each in entries or () if each.kind is Kind.FILE), key=attrgetter("modified_ns"))
        for _, tied in groupby(files, key=attrgetter("modified_ns")):
            names = [each.name for each in tied]
            for shift, name in enumerate(self._lot.sample(names, len(names))):
                self._shifts.setdefault(f"{folder}/{name}", shift)
        return entries and [self._shifted(f"{folder}/{each.name}", each) for each in entries]

    def stat(self, path: str) -> Entry | None:
        """See `Storage`."""
        found = self._storage.stat(path)
        return found and self._shifted(path, found)

    def _shifted(self, path: str, entry: Entry) -> Entry:
        return replace(entry, modified_ns=entry.modified_ns + self._shifts.get(path, 0))
