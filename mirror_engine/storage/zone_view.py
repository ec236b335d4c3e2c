"""Read-only views of a landing zone that show other files than there are: what every dry run reads."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.landing_zone.listing import Entry, Kind, partition_of
from mirror_engine.landing_zone.names import (
    PROCESSED_FOLDER,
    READY_TO_DELETE_FOLDER,
    READY_TO_DELETE_INFO,
    schema_of,
)
from mirror_engine.storage.base import ReadOnly, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror_engine.storage.base import Storage

ARCHIVES = (READY_TO_DELETE_FOLDER, PROCESSED_FOLDER)  # where applied files are moved, in the order of precedence


@dataclass(frozen=True)
class Source:
    """What a view shows at a path.

    Attributes:
        path: a file or folder of the storage below the view, from its ROOT.
        modified_ns: LastModified to show, in nanoseconds since 1970; None for its own.
    """

    path: str
    modified_ns: int | None = None


class ZoneView(ReadOnly):
    """A `Storage` over another that refuses changes and shows some paths differently.

    Args:
        storage: the storage below.
        mapping: by path from ROOT, the source to show there, with all below it; None hides it. The longest mapped
            path that contains a path applies; unmapped paths are shown as they are. Folders above a source exist.
    """

    def __init__(self, storage: Storage, mapping: Mapping[str, Source | None] | None = None) -> None:
        self._storage, self.is_store = storage, storage.is_store
        self._mapping = mapping or {}
        self._names: dict[str, set[str]] = {}  # of mapped entries, by folder
        for path, source in self._mapping.items():
            below = path if source else ""
            while below:
                below, _, name = below.rpartition("/")
                self._names.setdefault(below, set()).add(name)

    def list(self, folder: str) -> Sequence[Entry] | None:
        """List the folder that is shown at this path."""
        source = self._source(folder)
        found = self._storage.list(source.path) if source else None
        mapped = self._names.get(folder, set())
        if found is None and not mapped:
            return None
        entries = {entry.name: entry for entry in found or ()}
        changed = mapped | {name for name in entries if joined(folder, name) in self._mapping}
        shown = (
            self.stat(joined(folder, name)) if name in changed else entries[name]
            for name in sorted({*entries, *mapped})
        )
        return [entry for entry in shown if entry]

    def stat(self, path: str) -> Entry | None:
        """Return the entry that is shown at this path, under the path's name."""
        source = self._source(path)
        found = self._storage.stat(source.path) if source else None
        name = path.rpartition("/")[2]
        if source is None or found is None:
            return Entry(name, 0, 0, f"view:{path}", kind=Kind.FOLDER) if path in self._names else None
        modified_ns = found.modified_ns if source.modified_ns is None else source.modified_ns
        return replace(found, path=name, modified_ns=modified_ns)

    def open(self, path: str, only: Entry | None = None) -> BinaryIO:
        """Open the file that is shown at this path."""
        source = self._source(path)
        if source is None:
            raise FileNotFoundError(path)
        return self._storage.open(source.path, only)

    def scan(self, folder: str) -> Storage:
        """Return the same view of one scan of the storage below."""
        source, view = self._source(folder), copy(self)
        view._storage = self._storage.scan(source.path) if source else self._storage  # noqa: SLF001 - its own
        return view

    def _source(self, path: str) -> Source | None:
        place, below = path, ""
        while place not in self._mapping:
            if not place:
                return Source(path)
            place, _, name = place.rpartition("/")
            below = joined(name, below)
        source = self._mapping[place]
        return Source(joined(source.path, below)) if source and below else source


class RestoredView(ZoneView):
    """A view in which archived files are at their old paths again, also those archived while it is read.

    Args:
        storage: the storage below.
        archived_first: where a new file is at the old path of an archived one, whether the archived one is shown:
            it is the one that was applied (LZ-3.13).
    """

    def __init__(self, storage: Storage, *, archived_first: bool = False) -> None:
        super().__init__(storage)
        self._archived_first = archived_first
        # paths of archived files by name, per listed folder: all of them, and those that were shown
        self._archived: dict[str, Mapping[str, str]] = {}
        self._shown: dict[str, Mapping[str, str]] = {}

    def list(self, folder: str) -> Sequence[Entry] | None:
        """List a folder together with its archives."""
        own, archived = self._storage.list(folder), self._list_archives(folder)
        if own is None and archived is None:
            return None
        entries = {entry.name: entry for entry in own or ()}
        for entry in archived or ():
            if entry.name not in entries or (self._archived_first and entry.kind is Kind.FILE):
                entries[entry.name] = entry
        present = set() if self._archived_first else {entry.name for entry in own or ()}
        self._shown[folder] = {name: path for name, path in self._archived[folder].items() if name not in present}
        return [entry for _, entry in sorted(entries.items())]

    def stat(self, path: str) -> Entry | None:
        """Return the entry that is shown at this path."""
        return next(filter(None, map(self._storage.stat, self._places(path))), None)

    def open(self, path: str, only: Entry | None = None) -> BinaryIO:
        """Open the file that is shown at this path; the one that was listed where `only` is given."""
        for place in self._places(path):
            try:
                return self._storage.open(place, only)
            except FileNotFoundError:
                if only is None and self._storage.stat(place):  # a folder, which hides what was archived
                    raise
        raise FileNotFoundError(path)

    def replaced(self, folder: str, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the archived files of a table folder (from ROOT) at whose original paths there is a new file.

        Raises:
            StorageUnavailable: a folder could not be listed.
        """
        replaced: list[str] = []
        for partition, members in groupby(sorted(paths), key=partition_of):
            below = joined(folder, partition)
            archived = self._archived_in(below)
            present = {entry.name for entry in (self._storage.list(below) if archived else None) or ()}
            replaced += [path for path in members if path.rpartition("/")[2] in archived.keys() & present]
        return tuple(replaced)

    def archived_at(self, path: str) -> str | None:
        """Return where the file shown at a path is archived, from ROOT; None for one that is in its place."""
        found = next(filter(self._storage.stat, self._places(path)), path)
        return None if found == path else found

    def has_archive(self, folder: str) -> bool:
        """Whether a table folder or partition has an archive, be its files deleted since."""
        return any(self._storage.stat(place) for place in _archives_of(folder))

    def _list_archives(self, folder: str) -> Sequence[Entry] | None:
        """Archived entries of a folder; None where it has no archive."""
        listings = {place: self._storage.list(place) for place in _archives_of(folder)}
        entries: dict[str, tuple[str, Entry]] = {}
        for place, listing in listings.items():
            for entry in listing or ():
                if entry.name != READY_TO_DELETE_INFO:
                    entries.setdefault(entry.name, (joined(place, entry.name), entry))
        self._archived[folder] = {name: path for name, (path, entry) in entries.items() if entry.kind is Kind.FILE}
        exists = any(listing is not None for listing in listings.values())
        return [entry for _, entry in entries.values()] if exists else None

    def _archived_in(self, folder: str) -> Mapping[str, str]:
        if folder not in self._archived:
            self._list_archives(folder)
        return self._archived[folder]

    def _places(self, path: str) -> Sequence[str]:
        """Where what is shown at a path may be, the likeliest first."""
        folder, _, name = path.rpartition("/")
        shown = self._archived_in(folder) if self._archived_first else self._shown.get(folder, {})
        return [*dict.fromkeys((shown.get(name, path), path, *_archives_of(path)))]


def _archives_of(path: str) -> Sequence[str]:
    """The paths to which a file or folder of a table folder may have been moved."""
    table, below = in_table(path)
    is_in_place = table and not any(part in ARCHIVES for part in path.split("/"))
    return ["/".join([table, place, *below]) for place in ARCHIVES] if is_in_place else []


def in_table(path: str) -> tuple[str, list[str]]:
    """Return the table folder of a path from ROOT, and the parts below it; `""` for what is in none."""
    parts = path.split("/")
    below = next((zone.count("/") + 1 for zone in (ZONE, OLDER_ZONE) if path.startswith(f"{zone}/")), len(parts))
    table = below + (2 if schema_of("".join(parts[below : below + 1])) else 1)
    return ("/".join(parts[:table]), parts[table:]) if len(parts) >= table else ("", [])
