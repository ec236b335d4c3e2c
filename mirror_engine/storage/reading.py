"""A tree of a store as it is at one moment, for commands that only read: few long lists, and files ahead of need."""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias, cast

from mirror_engine.config import cache_folder
from mirror_engine.storage.base import NO_IDENTITY, Entry, Kind, ReadOnly, joined
from mirror_engine.storage.cached import Cache, CachedStorage
from mirror_engine.storage.listing import archive_of
from mirror_engine.storage.remote import FIRST_BYTES, Requests
from mirror_engine.storage.stores import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.cached import Downloads
    from mirror_engine.storage.listing import Store
    from mirror_engine.storage.store_url import Place

    Progress: TypeAlias = Callable[[str, int], None]  # what is done, and with how many files by now

AHEAD = 16  # files of a folder that is read from one to the next
THREADS = 8


def open_tree(place: Place, top: str, downloads: Downloads, progress: Progress) -> Storage:
    """Open a folder for reading, in a store as it is at the first look.

    Args:
        place: the folder.
        top: what is read of it.
        downloads: counts what is not in the cache of this machine.
        progress: called with what is done.
    """
    storage = open_storage(place, Requests(partial(progress, "listing")))
    if isinstance(place, Path):
        return storage
    name = sha256(str(place).encode()).hexdigest()[:16]
    cache = Cache(cache_folder() / "stores" / name)
    return TreeAtOnce(CachedStorage(cast("Store", storage), cache, downloads), top, progress)


class TreeAtOnce(ReadOnly):
    """A `Storage` that scans a folder of a store once, an archive in it where it is asked for, and changes nothing.

    Args:
        store: the store.
        top: the folder.
        progress: as in `open_tree`.
    """

    def __init__(self, store: Store, top: str, progress: Progress = lambda *_: None) -> None:
        self._store, self._top, self._progress = store, top, progress
        self._folders: dict[str, dict[str, Entry] | None] = {}
        self._following: dict[str, Mapping[str, str]] = {}  # by folder, the next file of each
        self._next: dict[str, str] = {}  # by folder, the file whose opening means that it is read on and on
        self._fetched: dict[str, Future[bytes]] = {}
        self._opened = 0
        self._pool = ThreadPoolExecutor(THREADS, "read-ahead")
        self._lock = threading.RLock()

    def list(self, folder: str) -> Sequence[Entry] | None:
        entries = self._entries(folder)
        return None if entries is None else [*entries.values()]

    def stat(self, path: str) -> Entry | None:
        folder, _, name = path.rpartition("/")
        return (self._entries(folder) or {}).get(name) if path else self._scan.stat(path)

    def open(self, path: str) -> BinaryIO:
        """Open a file as it was listed."""
        entry = self.stat(path)
        if entry is None:
            raise FileNotFoundError(path)
        with self._lock:
            ready = self._fetched.pop(path, None)
            self._fetch_ahead(path)
            self._opened += 1
            self._progress("reading", self._opened)
        return io.BytesIO(ready.result()) if ready else self._store.open(path, entry)

    def scan(self, folder: str) -> Storage:  # noqa: ARG002 - all of it was listed
        return self

    @cached_property
    def _scan(self) -> Storage:
        return self._store.scan(self._top)

    def _entries(self, folder: str) -> Mapping[str, Entry] | None:
        """Entries of a folder by name, in order; an archive is listed with all in it."""
        with self._lock:
            archive = archive_of(folder)
            if archive and archive not in self._folders:
                found: dict[str, dict[str, Entry]] = {}
                for page in self._store.pages(archive, "") if self.stat(archive) else ():
                    for path, entry in page:
                        _add(found, archive, path, entry)
                self._folders[archive] = None
                self._folders |= {inner: dict(sorted(entries.items())) for inner, entries in found.items()}
            if not archive and folder not in self._folders:
                listed = self._scan.list(folder)
                self._folders[folder] = None if listed is None else {entry.name: entry for entry in listed}
            return self._folders.get(folder)

    def _fetch_ahead(self, path: str) -> None:
        """Fetch the next small files of a folder that is read from one to the next."""
        folder, _, name = path.rpartition("/")
        is_read_on = self._next.get(folder) == name
        if folder not in self._following:
            names = [entry.name for entry in self.list(folder) or () if entry.kind is Kind.FILE]
            self._following[folder] = dict(pairwise(names))
        self._next[folder] = following = self._following[folder].get(name, "")
        for _ in range(AHEAD if is_read_on else 0):
            if not following:
                return
            ahead = joined(folder, following)
            entry = self.stat(ahead)
            if entry and ahead not in self._fetched and entry.size <= FIRST_BYTES:
                self._fetched[ahead] = self._pool.submit(self._read, ahead, entry)
            following = self._following[folder].get(following, "")

    def _read(self, path: str, entry: Entry) -> bytes:
        with self._store.open(path, entry) as file:
            return file.read()


def _add(tree: dict[str, dict[str, Entry]], top: str, path: str, entry: Entry) -> None:
    """Add an entry and the folders above it, which no list of a store without folders has."""
    folder, _, name = path.rpartition("/")
    if folder not in tree:
        tree[folder] = {}
        if folder != top:
            _add(tree, top, folder, Entry(folder.rpartition("/")[2], Kind.FOLDER, 0, 0, NO_IDENTITY))
    if entry.kind is Kind.FOLDER:
        tree.setdefault(path, {})
    if name not in tree[folder] or tree[folder][name].identity == NO_IDENTITY:
        tree[folder][name] = entry
