"""A landing zone in which only one table folder is to be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.storage.read_only import ReadOnlyStorage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.storage.base import Entry, Storage


class OneTableStorage(ReadOnlyStorage):
    """A `Storage` over another that lists nothing of the zone but one table folder.

    Args:
        storage: the whole.
        zone: the landing zone, from ROOT.
        folder: the table folder, from the zone's top.
    """

    def __init__(self, storage: Storage, zone: str, folder: str) -> None:
        super().__init__(storage)
        self._zone = f"{zone}/"
        self._folder = f"{zone}/{folder}/"

    def list(self, folder: str) -> Sequence[Entry] | None:
        """See `Storage`."""
        found = self._storage.list(folder)
        return found and [entry for entry in found if self._is_seen(f"{folder}/{entry.name}/")]

    def _is_seen(self, path: str) -> bool:
        is_apart = not path.startswith(self._zone)
        return is_apart or self._folder.startswith(path) or path.startswith(self._folder)
