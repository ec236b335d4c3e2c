"""A landing zone in which only one table folder is to be seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.landing_zone.names import (
    PROCESSED_FOLDER,
    READY_TO_DELETE_FOLDER,
    READY_TO_DELETE_INFO,
    SCHEMA_SUFFIX,
)
from mirror_engine.storage.base import Entry, Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mirror_engine.storage.base import Storage


class ReadOnlyStorage:
    """A `Storage` over another that refuses every change."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def list(self, folder: str) -> Sequence[Entry] | None:
        """See `Storage`."""
        return self._storage.list(folder)

    def stat(self, path: str) -> Entry | None:
        """See `Storage`."""
        return self._storage.stat(path)

    def open(self, path: str) -> BinaryIO:
        """See `Storage`."""
        return self._storage.open(path)

    def write(self, path: str, content: bytes) -> None:  # noqa: ARG002 - it is not written
        """Refused."""
        _refuse(path)

    def move(self, source: str, target: str) -> None:  # noqa: ARG002 - it is not moved
        """Refused."""
        _refuse(source)

    def delete(self, path: str) -> None:
        """Refused."""
        _refuse(path)


def _refuse(path: str) -> NoReturn:
    raise StorageUnavailable(f"{path}: opened for reading only")


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


class PlacedStorage(ReadOnlyStorage):
    """A `Storage` whose folder `at` is another storage's ROOT.

    Args:
        storage: what lies there.
        at: where, from this storage's own ROOT.
        only: the paths below `at` that are to be seen; all, where it is None.
    """

    def __init__(self, storage: Storage, at: str, only: Collection[str] | None = None) -> None:
        super().__init__(storage)
        self._at = at.split("/")
        self._only = only

    def list(self, folder: str) -> Sequence[Entry] | None:
        """See `Storage`."""
        parts = [part for part in folder.split("/") if part]
        if len(parts) < len(self._at):
            below = self._above(parts)
            return [below] if below else None
        inner = self._inner(folder)
        found = None if inner is None else self._storage.list(inner)
        return found and [entry for entry in found if self._is_seen(f"{inner}/{entry.name}".lstrip("/"))]

    def stat(self, path: str) -> Entry | None:
        """See `Storage`."""
        parts = [part for part in path.split("/") if part]
        if not parts:
            return _folder("")
        if len(parts) <= len(self._at):
            return self._above(parts[:-1]) if parts == self._at[: len(parts)] else None
        inner = self._inner(path)
        return None if inner is None else self._storage.stat(inner)

    def open(self, path: str) -> BinaryIO:
        """See `Storage`."""
        inner = self._inner(path)
        if inner is None:
            raise FileNotFoundError(path)
        return self._storage.open(inner)

    def _above(self, parts: Sequence[str]) -> Entry | None:
        """The one entry of a folder on the way to `at`."""
        if list(parts) != self._at[: len(parts)]:
            return None
        name = self._at[len(parts)]
        own = self._storage.stat("") if len(parts) + 1 == len(self._at) else None
        return Entry(name, Kind.FOLDER, 0, own.modified_ns, own.identity) if own else _folder(name)

    def _inner(self, path: str) -> str | None:
        parts = [part for part in path.split("/") if part]
        if parts[: len(self._at)] != self._at:
            return None
        inner = "/".join(parts[len(self._at) :])
        return inner if self._is_seen(inner) else None

    def _is_seen(self, inner: str) -> bool:
        """Whether it is one of the paths named, or on the way to one."""
        return self._only is None or not inner or any(f"{path}/".startswith(f"{inner}/") for path in self._only)


def _folder(name: str) -> Entry:
    return Entry(name, Kind.FOLDER, 0, 0, f"placed:{name}")


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
