"""A store in memory, as the real ones are: it lists trees in pages, opens files as they were listed, and counts."""

from __future__ import annotations

from memory_storage import MemoryStorage

from mirror_engine.storage.base import joined
from mirror_engine.storage.listing import StoreStorage


class ListedStorage(MemoryStorage, StoreStorage):
    """`calls` has what was asked; `begins_after` as the store can."""

    is_store = True

    def __init__(self, *, begins_after=True, page_size=1000):
        MemoryStorage.__init__(self)
        StoreStorage.__init__(self, None, None)
        self.calls, self.begins_after, self.page_size = [], begins_after, page_size

    def list(self, folder):
        self.calls.append(f"list {folder}")
        return super().list(folder)

    def stat(self, path):
        self.calls.append(f"stat {path}")
        return super().stat(path)

    def open(self, path, only=None):
        self.calls.append(f"open {path}")
        found = MemoryStorage.stat(self, path)
        if only and not (found and found.is_same(only)):
            raise FileNotFoundError(path)
        return super().open(path)

    def pages(self, folder, after):
        found = sorted(each for each in self._tree(folder) if each[0] > after or not self.begins_after)
        for start in range(0, len(found), self.page_size):
            self.calls.append(f"page {folder}")
            yield found[start : start + self.page_size]

    def _tree(self, folder):
        for entry in MemoryStorage.list(self, folder) or ():
            path = joined(folder, entry.name)
            yield path, entry
            yield from self._tree(path)

    scan = StoreStorage.scan
    _read = remove = None  # it opens files itself
