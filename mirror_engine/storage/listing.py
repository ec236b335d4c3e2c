"""Scans of stores: few long lists instead of a short one for each folder; for commands that only read, a cache, too."""

from __future__ import annotations

import os
import secrets
import threading
from abc import abstractmethod
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.listing import Entry, Kind
from mirror_engine.storage.base import NO_IDENTITY, PAGE, ReadOnly, Storage, parts_of
from mirror_engine.storage.remote import FIRST_BYTES, PRECONDITION, RangedReader, unavailable
from mirror_engine.storage.zone_view import ARCHIVES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from mirror_engine.storage.requests import Requests
    from mirror_engine.storage.store_url import StoreUrl

ARCHIVED_COST = 3 / PAGE  # of an archived file that is listed, in lists of a single folder
SCANS_BY_FOLDER = 100  # before a flat list is tried again
MAX_CACHED_BYTES = 1024**3
OWNER_ONLY = 0o700  # it holds rows


class StoreStorage(Storage):
    """A `Storage` in a store: it can list a tree at once, and open a file as it was listed.

    Scans remember whether a flat list costs more than a list of each folder, as it does where few tables have many
    archived files. A flat list reads one page of a long archive at most, and goes on behind it, if the store can.

    Args:
        url: of ROOT.
        requests: counts what is sent.
    """

    is_store = True

    def __init__(self, url: StoreUrl, requests: Requests) -> None:
        self._url, self._requests = url, requests
        self._by_folder = 0  # scans still to be made by single folders
        self._can_begin_after = True  # until it was seen that the store cannot

    @abstractmethod
    def pages(self, folder: str, after: str) -> Iterator[Sequence[tuple[str, Entry]]]:
        """List what is below a folder, a folder's content together: paths from ROOT with their entries, no page empty.

        `after` is where to begin, exclusive; `""` for all. A store that cannot do that begins at the folder's top.
        """

    @abstractmethod
    def remove(self, path: str, etag: str = "") -> object:
        """Remove a file, or in a store with folders one that is empty; absent is no error.

        Raises:
            StorageUnavailable: it has another ETag than the one that is given; it stays. In Azure and S3 alone.
        """

    @abstractmethod
    def _read(self, operation: str, path: str, start: int, end: int, etag: str) -> tuple[bytes, int, str]:
        """Return a part of a file, the file's size and its ETag.

        Raises:
            FileNotFoundError: it is absent, or has another ETag than the one that is given.
        """

    def open(self, path: str, only: Entry | None = None) -> BinaryIO:
        """Open a file, and read its first bytes: most change files whole."""
        if not parts_of(path):
            raise FileNotFoundError(path)
        first, size, etag = self._read("open", path, 0, FIRST_BYTES, only.identity if only else "")

        def fetch(start: int, end: int) -> bytes:
            try:
                return self._read("read", path, start, end, etag)[0]
            except FileNotFoundError:
                raise unavailable(self._url, path, "read", PRECONDITION) from None

        return RangedReader(size, fetch, first).buffered()

    def scan(self, folder: str) -> Listing:
        """Return a view of a folder as it is now; all else is asked of the store."""
        self._by_folder = max(self._by_folder - 1, 0)
        listing = Listing(self, folder)
        if not self._by_folder:
            self.fill(listing, folder)
            is_costly = ARCHIVED_COST * listing.archived > len(listing.folders)
            self._by_folder = SCANS_BY_FOLDER if is_costly else 0
        return listing

    def fill(self, listing: Listing, top: str) -> None:
        """List all but long archives, flat."""
        after = ""
        while True:
            archive = ""
            for page in self.pages(top, after):
                self._can_begin_after = self._can_begin_after and not (after and page[0][0] <= after)
                listing.add(page)
                archive = archive_of(page[-1][0]) if len(page) >= PAGE and self._can_begin_after else ""
                if archive:
                    break
            if not archive:
                return
            after = f"{archive}0"  # the first that sorts behind `archive/`


class Listing(ReadOnly):
    """A folder of a store for reading, from lists of one moment; what was not listed is asked of the store.

    What is in an archive below the folder is not kept.

    Attributes:
        folders: what each listed folder contains by name; None for one that is absent.
        archived: how many entries of archives were listed.
    """

    is_store = True

    def __init__(self, store: StoreStorage, top: str) -> None:
        self._store, self._top = store, top
        self.folders: dict[str, dict[str, Entry] | None] = {}
        self.archived = 0
        self._is_flat = False  # whether all below the top was listed, but archives

    def add(self, page: Iterable[tuple[str, Entry]]) -> None:
        """Add listed entries below the top; folders on the way are known by them."""
        self._is_flat = True
        for path, entry in page:
            archive = self._archive_of(path)
            if not archive or path == archive:
                self._add(path, entry)
                continue
            self.archived += 1
            if archive.rpartition("/")[2] not in self._entries(archive.rpartition("/")[0]):
                self._add(archive, folder_entry(archive))

    def list(self, folder: str) -> Sequence[Entry] | None:
        if archive := self._archive_of(folder):
            return self._in_archive(archive).list(folder)
        found = self._found(folder)
        return None if found is None else [entry for _, entry in sorted(found.items())]

    def stat(self, path: str) -> Entry | None:
        folder, _, name = path.rpartition("/")
        if not path:
            return self._store.stat(path)
        if archive := self._archive_of(folder):
            return self._in_archive(archive).stat(path)
        return (self._found(folder) or {}).get(name)

    def open(self, path: str, only: Entry | None = None) -> BinaryIO:
        """Open a file as it was listed."""
        folder, _, name = path.rpartition("/")
        return self._store.open(path, only or (self.folders.get(folder) or {}).get(name))

    def scan(self, folder: str) -> Storage:
        return self._store.scan(folder)

    def _in_archive(self, archive: str) -> Storage:  # noqa: ARG002 - that of any one
        """The storage that lists an archive."""
        return self._store

    def _found(self, folder: str) -> Mapping[str, Entry] | None:
        """What a folder contains by name, asked for once; None where it is absent."""
        if folder not in self.folders:
            is_covered = self._is_flat and f"{folder}/".startswith(f"{self._top}/")
            found = None if is_covered else self._store.list(folder)
            self.folders[folder] = None if found is None else {entry.name: entry for entry in found}
        return self.folders[folder]

    def _add(self, path: str, entry: Entry) -> None:
        folder, _, name = path.rpartition("/")
        entries = self._entries(folder)
        if entry.kind is Kind.FOLDER and not self._archive_of(path):
            self._entries(path)
        if name not in entries or entry.kind is Kind.FOLDER:
            entries[name] = entry

    def _entries(self, folder: str) -> dict[str, Entry]:
        """The entries of a folder that exists; those above it exist, too."""
        entries = self.folders.get(folder)
        if entries is None:
            entries = self.folders[folder] = {}
            if folder != self._top:
                self._add(folder, folder_entry(folder))
        return entries

    def _archive_of(self, path: str) -> str:
        return archive_of(path, self._top.count("/") + bool(self._top))


def archive_of(path: str, above: int = 0) -> str:
    """Return the archive that contains a path, or is it, ignoring the first `above` parts; `""` for none."""
    parts = path.split("/")
    at = next((number for number, part in enumerate(parts[above:], above + 1) if part in ARCHIVES), 0)
    return "/".join(parts[:at])


def folder_entry(path: str) -> Entry:
    """A folder of a store without folders."""
    return Entry(path.rpartition("/")[2], 0, 0, NO_IDENTITY, kind=Kind.FOLDER)


class Cache:
    """A cache of file contents in a local folder; the oldest are evicted."""

    def __init__(self, folder: Path, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._lock = threading.Lock()
        folder.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
        found = sorted((path.stat().st_mtime_ns, path.name, path.stat().st_size) for path in folder.iterdir())
        self._sizes = {name: size for _, name, size in found}
        self._bytes = sum(self._sizes.values())

    def get(self, name: str, size: int) -> bytes | None:
        """Return a content of this size; None where it is not there."""
        with suppress(OSError):
            content = (self._folder / name).read_bytes()
            os.utime(self._folder / name)
            return content if len(content) == size else None
        return None

    def put(self, name: str, content: bytes) -> None:
        """Keep a content, as far as there is room on the disk."""
        temporary = self._folder / f"{name}.{secrets.token_hex(4)}"
        with self._lock, suppress(OSError):
            self._bytes += len(content) - self._sizes.get(name, 0)
            self._sizes[name] = len(content)
            while self._bytes > self._max_bytes:
                oldest = next(iter(self._sizes))
                (self._folder / oldest).unlink(missing_ok=True)
                self._bytes -= self._sizes.pop(oldest)
            if name in self._sizes:
                temporary.write_bytes(content)
                temporary.replace(self._folder / name)


class FolderOfStore(Listing):
    """A folder of a store in its current state; an archive in it is listed only on demand.

    Each range of each version of a file is downloaded once.

    Args:
        store: the store.
        top: the folder.
        cache: of this ROOT alone.
        download: called with the bytes that are about to be downloaded; raises to refuse.
        progress: called with what is done, and with how many files by now.
    """

    def __init__(
        self,
        store: StoreStorage,
        top: str,
        cache: Cache,
        download: Callable[[int], None] = lambda _: None,
        progress: Callable[[str, int], None] = lambda *_: None,
    ) -> None:
        super().__init__(store, top)
        self._cache, self._download, self._progress = cache, download, progress
        self._archives: dict[str, Listing] = {}
        self._opened = 0
        self._lock = threading.RLock()
        store.fill(self, top)

    def open(self, path: str, only: Entry | None = None) -> BinaryIO:
        """Open a file as it was listed; what is in the cache is not asked for."""
        entry = self.stat(path)
        if entry is None or entry.kind is not Kind.FILE or entry.identity != (only or entry).identity:
            raise FileNotFoundError(path)
        with self._lock:
            self._opened += 1
            self._progress("reading", self._opened)
        name = sha256(f"{path}\0{entry.identity}\0{entry.size}\0{entry.modified_ns}".encode()).hexdigest()[:32]
        opened: list[BinaryIO] = []

        def fetch(start: int, end: int) -> bytes:
            content = self._cache.get(f"{name}-{start}-{end}", end - start)
            if content is None:
                self._download(end - start)
                try:
                    opened[:] = opened or [self._store.open(path, entry)]
                except FileNotFoundError:
                    message = f"{path}: was replaced after it was listed"
                    raise StorageUnavailable(message, "Run the command again.") from None
                opened[0].seek(start)
                content = opened[0].read(end - start)
                self._cache.put(f"{name}-{start}-{end}", content)
            return content

        return RangedReader(entry.size, fetch).buffered()

    def scan(self, folder: str) -> Storage:  # noqa: ARG002 - all of it was listed
        return self

    def _in_archive(self, archive: str) -> Storage:
        with self._lock:
            if archive not in self._archives:
                self._archives[archive] = listing = Listing(self._store, archive)
                for page in self._store.pages(archive, "") if self.stat(archive) else [()]:
                    listing.add(page)
            return self._archives[archive]
