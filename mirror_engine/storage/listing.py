"""One scan of a zone in a store: few long lists instead of a short one for each folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Protocol

from mirror_engine.landing_zone.names import PROCESSED_FOLDER, READY_TO_DELETE_FOLDER
from mirror_engine.storage.base import NO_IDENTITY, Entry, Kind, Storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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

    def scan(self, folder: str) -> Store:
        """List what is in a folder now."""


class FlatScans:
    """Scans of one store; remembers whether flat lists are cheaper than lists of single folders.

    A flat list reads one page of a long archive at most, and goes on behind it. Where few tables have long archives,
    or the store cannot begin a list in its middle, single folders take less.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_folder = 0  # scans still to be made so
        self._can_begin_after = True  # until it was seen that the store cannot

    def scan(self, top: str) -> Store:
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


class Listing:
    """A `Storage` that answers from lists of one moment; changes, and what was not listed, are the store's."""

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
            archive = archive_of(path)
            if not archive or path == archive:
                self._add(path, entry)
            elif archive.rpartition("/")[2] not in self._entries(archive.rpartition("/")[0]):
                self._add(archive, _folder(archive))  # what is in it is not kept

    def list(self, folder: str) -> Sequence[Entry] | None:
        if folder not in self._folders:
            if self._covers(folder):
                return None
            found = self._store.list(folder)
            if archive_of(folder):
                return found
            self._folders[folder] = None if found is None else {entry.name: entry for entry in found}
        entries = self._folders[folder]
        return None if entries is None else [entry for _, entry in sorted(entries.items())]

    def stat(self, path: str) -> Entry | None:
        if not path or archive_of(path.rpartition("/")[0]):
            return self._store.stat(path)
        folder, _, name = path.rpartition("/")
        self.list(folder)
        return (self._folders.get(folder) or {}).get(name)

    def open(self, path: str, only: Entry | None = None) -> BinaryIO:
        """Open a file as it was listed."""
        folder, _, name = path.rpartition("/")
        return self._store.open(path, only or (self._folders.get(folder) or {}).get(name))

    def pages(self, folder: str, after: str) -> Iterator[Sequence[tuple[str, Entry]]]:
        """List a tree as the store has it now."""
        return self._store.pages(folder, after)

    def write(self, path: str, content: bytes) -> None:
        self._store.write(path, content)

    def move(self, source: str, target: str, only: Entry | None = None) -> bool:
        return self._store.move(source, target, only)

    def delete(self, path: str) -> None:
        self._store.delete(path)

    def scan(self, folder: str) -> Store:
        return self._store.scan(folder)

    def _covers(self, folder: str) -> bool:
        return self._is_flat and f"{folder}/".startswith(f"{self._top}/") and not archive_of(folder)

    def _add(self, path: str, entry: Entry) -> None:
        folder, _, name = path.rpartition("/")
        entries = self._entries(folder)
        if entry.kind is Kind.FOLDER and not archive_of(path):
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


def archive_of(path: str) -> str:
    """Return the archive that a path is in, or is; `""` for none."""
    parts = path.split("/")
    at = next((number for number, part in enumerate(parts, 1) if part in ARCHIVES), 0)
    return "/".join(parts[:at])


def _folder(path: str) -> Entry:
    return Entry(path.rpartition("/")[2], Kind.FOLDER, 0, 0, NO_IDENTITY)
