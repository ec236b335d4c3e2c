"""A storage in which files lie at other places, at other times, or not at all: to see what another order would do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.storage.read_only import ReadOnlyStorage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror_engine.storage.base import Entry, Storage


@dataclass(frozen=True)
class Slot:
    """What is to be seen at one place.

    Attributes:
        path: of the file that really lies there, from ROOT.
        modified_ns: LastModified to be shown, in nanoseconds since 1970.
    """

    path: str
    modified_ns: int


class RearrangedStorage(ReadOnlyStorage):
    """A `Storage` over another; what it does not name is as it is there.

    Args:
        storage: where the files really lie.
        slots: by path from ROOT, where some file lies, what is to be seen there; None for nothing.
    """

    def __init__(self, storage: Storage, slots: Mapping[str, Slot | None]) -> None:
        super().__init__(storage)
        self._slots = slots

    def list(self, folder: str) -> Sequence[Entry] | None:
        """See `Storage`."""
        found = self._storage.list(folder)
        if not found:
            return found
        shown = (self._shown(f"{folder}/{entry.name}", entry) for entry in found)
        return [entry for entry in shown if entry]

    def stat(self, path: str) -> Entry | None:
        """See `Storage`."""
        return self._shown(path, None) if path in self._slots else self._storage.stat(path)

    def open(self, path: str) -> BinaryIO:
        """See `Storage`."""
        slot = self._slots.get(path)
        if slot is None and path in self._slots:
            raise FileNotFoundError(path)
        return self._storage.open(slot.path if slot else path)

    def _shown(self, path: str, lying: Entry | None) -> Entry | None:
        if path not in self._slots:
            return lying
        slot = self._slots[path]
        found = self._storage.stat(slot.path) if slot else None
        if slot is None or found is None:
            return None
        return replace(found, name=path.rpartition("/")[2], modified_ns=slot.modified_ns)
