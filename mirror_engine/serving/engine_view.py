"""The landing zone as the engine of a served item sees it: with names that show late, and folders that linger."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.endpoint.late import ENGINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.endpoint.late import Ghost, Late
    from mirror_engine.storage.base import Entry, Storage


class EngineView:
    """A `Storage` around an item's own; nothing differs while nothing is late (endpoint chapter 10).

    Args:
        storage: the item's.
        late: what is late; its paths are from the store's top.
        item: the item's path from the store's top.
    """

    def __init__(self, storage: Storage, late: Late, item: str) -> None:
        self._storage = storage
        self._late = late
        self._item = item

    def list(self, folder: str) -> Sequence[Entry] | None:
        """See `Storage`."""
        if ghost := self._ghost(folder):
            return ghost.folders.get(self._whole(folder))
        entries = self._storage.list(folder)
        if entries is None:
            return None
        lingering = [ghost.entry for ghost in self._late.ghosts() if _parent(ghost.path) == self._whole(folder)]
        hidden_by_name = {entry.name for entry in lingering}
        shown = [e for e in entries if e.name not in hidden_by_name and not self._is_hidden(_join(folder, e.name))]
        return sorted([*shown, *lingering], key=lambda entry: entry.name)

    def stat(self, path: str) -> Entry | None:
        """See `Storage`."""
        if ghost := self._ghost(path):
            return _entry(ghost, self._whole(path))
        return None if self._is_hidden(path) else self._storage.stat(path)

    def open(self, path: str) -> BinaryIO:
        """See `Storage`."""
        if ghost := self._ghost(path):
            content = ghost.contents.get(self._whole(path))
            if content is not None:
                return io.BytesIO(content)
        elif not self._is_hidden(path):
            return self._storage.open(path)
        raise FileNotFoundError(path)

    def write(self, path: str, content: bytes) -> None:
        """See `Storage`."""
        self._storage.write(path, content)

    def move(self, source: str, target: str) -> None:
        """See `Storage`; what lingers is gone already."""
        if not self._ghost(source):
            self._storage.move(source, target)

    def delete(self, path: str) -> None:
        """See `Storage`; what lingers is gone already."""
        if not self._ghost(path):
            self._storage.delete(path)

    def _is_hidden(self, path: str) -> bool:
        return self._late.is_hidden(self._whole(path), ENGINE)

    def _ghost(self, path: str) -> Ghost | None:
        whole = self._whole(path)
        return next((ghost for ghost in self._late.ghosts() if ghost.holds(whole)), None)

    def _whole(self, path: str) -> str:
        return _join(self._item, path)


def _entry(ghost: Ghost, path: str) -> Entry | None:
    if path == ghost.path:
        return ghost.entry
    name = path.rpartition("/")[2]
    return next((entry for entry in ghost.folders.get(_parent(path), ()) if entry.name == name), None)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _join(folder: str, name: str) -> str:
    return "/".join(filter(None, (folder, name)))
