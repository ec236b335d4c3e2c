"""One scan of a zone in a store: few long lists instead of a short one for each folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Protocol

from mirror_engine.landing_zone.names import PROCESSED_FOLDER, READY_TO_DELETE_FOLDER
from mirror_engine.storage.base import NO_IDENTITY, Entry, Kind, ReadOnly, Storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ARCHIVES = frozenset({READY_TO_DELETE_FOLDER, PROCESSED_FOLDER})
FULL_PAGE = 1000  # entries; S3's
FULL_PAGE_COST = 3  # what a page full of archived files takes, in lists of a single folder
SCANS_BY_FOLDER = 100  # before a flat list is tried again


class Store(Storage, Protocol):
    """A `Storage` that can list a tree at once, and open a file as it was listed."""

    def pages(self, folder: str, after: str) -> Iterator[Sequence[tuple[str, Entry]]]:
        """List what is below a folder, a folder's content together: paths from ROOT with their entries, no page empty.

        `after` is where to begin, exclusive; `""` for all. A store that cannot do that begins at the folder's top.
        """

    def open(self, path: str, only: Entry | None = None) -> BinaryIO:
        """Open a file; FileNotFoundError where it is no longer the listed one."""


class FlatScans:
    """Scans of one store; remembers whether flat lists are cheaper than lists of single folders.

    A flat list reads one page of a long archive at most, and goes on behind it. Where few tables have long archives,
    or the store cannot begin a list in its middle, single folders take less.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_folder = 0  # scans still to be made so
        self._can_begin_after = True  # until it was seen that the store cannot

    def scan(self, top: str) -> Listing:
        """Return a view of a folder as it is now; all else is asked of the store."""
        self._by_folder = max(self._by_folder - 1, 0)
        listing = Listing(self._store, top)
        if not self._by_folder:
            pages = self._fill(listing, top)
            is_long = listing.folder_count < FULL_PAGE_COST * (pages - 1)
            self._by_folder = SCANS_BY_FOLDER if is_long else 0
        return listing

    def _fill(self, listing: Listing, top: str) -> int:
        """List all but long archives; returns the number of pages."""
        after, pages = "", 0
        while True:
            archive = ""
            for page in self._store.pages(top, after):
                pages += 1
                self._can_begin_after = self._can_begin_after and not (after and page[0][0] <= after)
                listing.add(page)
                archive = archive_of(page[-1][0]) if len(page) >= FULL_PAGE and self._can_begin_after else ""
                if archive:
                    break
            if not archive:
                return pages
            after = f"{archive}0"  # the first that sorts behind `archive/`


class Listing(ReadOnly):
    """A folder of a store for reading, from lists of one moment; what was not listed is asked of the store.

    What is in an archive below the folder is not kept.
    """

    def __init__(self, store: Store, top: str) -> None:
        self._store, self._top = store, top
        self._folders: dict[str, dict[str, Entry] | None] = {}
        self._is_flat = False  # whether all below the top was listed, but archives

    @property
    def folder_count(self) -> int:
        """How many folders were listed."""
        return len(self._folders)

    def add(self, page: Iterable[tuple[str, Entry]]) -> None:
        """Add listed entries below the top; folders on the way are known by them."""
        self._is_flat = True
        for path, entry in page:
            archive = self._archive_of(path)
            if not archive or path == archive:
                self._add(path, entry)
            elif archive.rpartition("/")[2] not in self._entries(archive.rpartition("/")[0]):
                self._add(archive, _folder(archive))

    def list(self, folder: str) -> Sequence[Entry] | None:
        if self._archive_of(folder):
            return self._store.list(folder)
        found = self._found(folder)
        return None if found is None else [entry for _, entry in sorted(found.items())]

    def stat(self, path: str) -> Entry | None:
        folder, _, name = path.rpartition("/")
        if not path or self._archive_of(folder):
            return self._store.stat(path)
        return (self._found(folder) or {}).get(name)

    def open(self, path: str) -> BinaryIO:
        """Open a file as it was listed."""
        folder, _, name = path.rpartition("/")
        return self._store.open(path, (self._folders.get(folder) or {}).get(name))

    def scan(self, folder: str) -> Storage:
        return self._store.scan(folder)

    def _found(self, folder: str) -> Mapping[str, Entry] | None:
        """What a folder contains by name, asked for once; None where it is absent."""
        if folder not in self._folders:
            is_covered = self._is_flat and f"{folder}/".startswith(f"{self._top}/")
            found = None if is_covered else self._store.list(folder)
            self._folders[folder] = None if found is None else {entry.name: entry for entry in found}
        return self._folders[folder]

    def _add(self, path: str, entry: Entry) -> None:
        folder, _, name = path.rpartition("/")
        entries = self._entries(folder)
        if entry.kind is Kind.FOLDER and not self._archive_of(path):
            self._entries(path)
        if name not in entries or entry.kind is Kind.FOLDER:
            entries[name] = entry

    def _entries(self, folder: str) -> dict[str, Entry]:
        """The entries of a folder that exists; those above it exist, too."""
        entries = self._folders.get(folder)
        if entries is None:
            entries = self._folders[folder] = {}
            if folder != self._top:
                self._add(folder, _folder(folder))
        return entries

    def _archive_of(self, path: str) -> str:
        return archive_of(path, self._top.count("/") + bool(self._top))


def archive_of(path: str, above: int = 0) -> str:
    """Return the archive that a path is in, or is, without looking at so many parts above it; `""` for none."""
    parts = path.split("/")
    at = next((number for number, part in enumerate(parts[above:], above + 1) if part in ARCHIVES), 0)
    return "/".join(parts[:at])


def _folder(path: str) -> Entry:
    return Entry(path.rpartition("/")[2], Kind.FOLDER, 0, 0, NO_IDENTITY)
