"""A folder of a store for commands that only read: few long lists, a cache on this machine, files ahead of need."""

from __future__ import annotations

import io
import os
import secrets
import threading
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from operator import attrgetter
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.errors import StorageUnavailable
from mirror_engine.storage.base import Entry, Kind, ReadOnly, joined
from mirror_engine.storage.listing import Listing, archive_of
from mirror_engine.storage.remote import FIRST_BYTES, RangedReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.listing import Store

AHEAD = 16  # files of a folder that is read from one to the next
THREADS = 8
MAX_CACHED_BYTES = 1024**3
OWNER_ONLY = 0o700  # it holds rows


class Cache:
    """Contents by name in a folder of this machine; the oldest give way to new ones."""

    def __init__(self, folder: Path, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._lock = threading.Lock()
        folder.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
        found = sorted((path.stat().st_mtime_ns, path.name, path.stat().st_size) for path in folder.iterdir())
        self._sizes = {name: size for _, name, size in found}

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
            self._sizes[name] = len(content)
            while sum(self._sizes.values()) > self._max_bytes:
                oldest = next(iter(self._sizes))
                (self._folder / oldest).unlink(missing_ok=True)
                del self._sizes[oldest]
            if name in self._sizes:
                temporary.write_bytes(content)
                temporary.replace(self._folder / name)


class FolderOfStore(ReadOnly):
    """A folder of a store as it is at the first look; an archive in it is listed where it is asked for.

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
        store: Store,
        top: str,
        cache: Cache,
        download: Callable[[int], None] = lambda _: None,
        progress: Callable[[str, int], None] = lambda *_: None,
    ) -> None:
        self._store, self._top, self._cache = store, top, cache
        self._download, self._progress = download, progress
        self._listings: dict[str, Storage] = {}  # by archive; `""` for all else
        self._files: dict[str, Sequence[Entry]] = {}  # by folder from which one was opened
        self._next: dict[str, str] = {}  # by folder, the file whose opening means that it is read on and on
        self._fetched: dict[str, Future[bytes]] = {}
        self._opened = 0
        self._pool = ThreadPoolExecutor(THREADS, "read-ahead")
        self._lock = threading.RLock()

    def list(self, folder: str) -> Sequence[Entry] | None:
        listing = self._listing(folder)
        return listing.list(folder) if listing else None

    def stat(self, path: str) -> Entry | None:
        listing = self._listing(path.rpartition("/")[0])
        return listing.stat(path) if listing else None

    def open(self, path: str) -> BinaryIO:
        """Open a file as it was listed."""
        entry = self.stat(path)
        if entry is None or entry.kind is not Kind.FILE:
            raise FileNotFoundError(path)
        with self._lock:
            ready = self._fetched.pop(path, None)
            self._fetch_ahead(path)
            self._opened += 1
            self._progress("reading", self._opened)
        return io.BytesIO(ready.result()) if ready else self._open(path, entry)

    def scan(self, folder: str) -> Storage:  # noqa: ARG002 - all of it was listed
        return self

    def _listing(self, folder: str) -> Storage | None:
        """What knows a folder; None for an archive that is absent."""
        archive = archive_of(folder)
        with self._lock:
            if archive and archive not in self._listings:
                if not self.stat(archive):
                    return None
                self._listings[archive] = listing = Listing(self._store, archive)
                for page in self._store.pages(archive, ""):
                    listing.add(page)
            elif not self._listings:
                self._listings[""] = self._store.scan(self._top)
            return self._listings[archive]

    def _open(self, path: str, entry: Entry) -> BinaryIO:
        """Open a version of a file; what is in the cache is not asked for."""
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

    def _fetch_ahead(self, path: str) -> None:
        """Fetch the next small files of a folder that is read from one to the next."""
        folder, _, name = path.rpartition("/")
        if folder not in self._files:
            self._files[folder] = [entry for entry in self.list(folder) or () if entry.kind is Kind.FILE]
        at = bisect_right(self._files[folder], name, key=attrgetter("name"))
        following = self._files[folder][at : at + AHEAD]
        is_read_on = self._next.get(folder) == name
        self._next[folder] = following[0].name if following else ""
        for entry in following if is_read_on else ():
            ahead = joined(folder, entry.name)
            if ahead not in self._fetched and entry.size <= FIRST_BYTES:
                self._fetched[ahead] = self._pool.submit(self._read, ahead, entry)

    def _read(self, path: str, entry: Entry) -> bytes:
        with self._open(path, entry) as file:
            return file.read()
