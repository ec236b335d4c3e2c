"""A look at the landing zone as it was before processed files were moved away (LZ-8.2)."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.landing_zone.names import (
    PROCESSED_FOLDER,
    READY_TO_DELETE_FOLDER,
    READY_TO_DELETE_INFO,
    SCHEMA_SUFFIX,
)
from mirror_engine.landing_zone.sightings import partition_of
from mirror_engine.storage.base import Kind
from mirror_engine.storage.read_only import ReadOnlyStorage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mirror_engine.storage.base import Entry, Storage

MOVED_TO = (READY_TO_DELETE_FOLDER, PROCESSED_FOLDER)


class UnmovedStorage(ReadOnlyStorage):
    """A `Storage` over another in which moved files lie at their old places again.

    Args:
        storage: where they lie.
        processed_first: where another file lies at the old place by now, whether the moved one is seen there all the
            same: it is the one that was applied (LZ-3.13).
    """

    def __init__(self, storage: Storage, *, processed_first: bool = False) -> None:
        super().__init__(storage)
        self._processed_first = processed_first
        self._processed: dict[str, dict[str, str]] = {}  # where moved files lie, by folder and name, when last listed

    def list(self, folder: str) -> Sequence[Entry] | None:
        """See `Storage`."""
        lying = self._storage.list(folder)
        moved = self._listed(folder)
        if lying is None and moved is None:
            return None
        found = {entry.name: entry for entry in lying or ()}
        for entry in moved or ():
            if self._processed_first and entry.kind is Kind.FILE:
                found[entry.name] = entry
            found.setdefault(entry.name, entry)
        return sorted(found.values(), key=lambda entry: entry.name)

    def stat(self, path: str) -> Entry | None:
        """See `Storage`."""
        if (processed := self._processed_at(path)) is not None:
            return self._storage.stat(processed)
        found = self._storage.stat(path)
        for place in _places(path) if found is None else ():
            found = found or self._storage.stat(place)
        return found

    def open(self, path: str) -> BinaryIO:
        """See `Storage`."""
        if (processed := self._processed_at(path)) is not None:
            return self._storage.open(processed)
        try:
            return self._storage.open(path)
        except FileNotFoundError:
            moved = self._moved(path) if self._storage.stat(path) is None else None
            if moved is None:
                raise
            return self._storage.open(moved)

    def replaced(self, folder: str, paths: Iterable[str]) -> tuple[str, ...]:
        """Files of a table folder (from ROOT) that were moved away and lie at their old places, too: others than they.

        Raises:
            StorageUnavailable: a folder could not be listed.
        """
        found: list[str] = []
        for below, of_one in groupby(sorted(paths), key=partition_of):
            place = f"{folder}/{below}".rstrip("/")
            moved = self._processed_of(place)
            lying = {entry.name for entry in (self._storage.list(place) if moved else None) or ()}
            found += [path for path in of_one if path.rpartition("/")[2] in moved.keys() & lying]
        return tuple(found)

    def has_archive(self, folder: str) -> bool:
        """Whether files were moved away from a table folder or one of its partitions, be they deleted since."""
        return any(self._storage.stat(place) for place in _places(folder))

    def _listed(self, folder: str) -> Collection[Entry] | None:
        """What was moved away from a folder; None where nothing ever was."""
        listings = {place: self._storage.list(place) for place in _places(folder)}
        found: dict[str, tuple[str, Entry]] = {}
        for place, entries in listings.items():
            for entry in entries or ():
                if entry.name != READY_TO_DELETE_INFO:
                    found.setdefault(entry.name, (f"{place}/{entry.name}", entry))
        self._processed[folder] = {name: path for name, (path, entry) in found.items() if entry.kind is Kind.FILE}
        is_there = any(entries is not None for entries in listings.values())
        return [entry for _, entry in found.values()] if is_there else None

    def _processed_of(self, folder: str) -> Mapping[str, str]:
        """Where a folder's moved files lie, by name, as it was last listed."""
        if folder not in self._processed:
            self._listed(folder)
        return self._processed[folder]

    def _processed_at(self, path: str) -> str | None:
        """Where a processed file lies that is to be seen in its old place."""
        folder, _, name = path.rpartition("/")
        return self._processed_of(folder).get(name) if self._processed_first else None

    def _moved(self, path: str) -> str | None:
        """Where the file lies now, if it was moved."""
        entries = ((place, self._storage.stat(place)) for place in _places(path))
        return next((place for place, entry in entries if entry and entry.kind is Kind.FILE), None)


def _places(path: str) -> list[str]:
    """Where a file or folder of a table folder may have been moved."""
    parts = path.split("/")
    zone = next((zone.count("/") + 1 for zone in (ZONE, OLDER_ZONE) if path.startswith(f"{zone}/")), None)
    if zone is None or any(part in MOVED_TO for part in parts):
        return []
    table = zone + (2 if parts[zone].endswith(SCHEMA_SUFFIX) else 1)
    return ["/".join([*parts[:table], place, *parts[table:]]) for place in MOVED_TO] if len(parts) >= table else []
