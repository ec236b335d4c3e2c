"""One small file of a store, written only where it is still what was read: for a lease."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mirror_engine.storage.object_store import of_store, store_errors

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ObjectStore

    from mirror_engine.storage.store_url import StoreUrl

MAX_BYTES = 65_536  # anybody may write there


@dataclass(frozen=True)
class StoredVersion:
    """One version of a file.

    Attributes:
        content: at most `MAX_BYTES` of it.
        etag: of this version, as the store writes it.
        modified: when it was written by the store's clock, in seconds since 1970.
        generation: what GCS has instead of an etag; None elsewhere.
    """

    content: bytes
    etag: str
    modified: float
    generation: str | None = None


class ConditionalFile:
    """A file of a store (`If-None-Match: *`, `If-Match`). Raises `StorageUnavailable` where nothing is known."""

    def __init__(self, store: ObjectStore, path: str, root: StoreUrl) -> None:
        self._store, self._path, self._root = store, path, root

    def read(self) -> StoredVersion | None:
        """Return the newest version; None where there is no file."""
        try:
            with store_errors("read", self._path, self._root):
                found = self._store.get(self._path)
                content, meta = bytes(found.bytes())[:MAX_BYTES], of_store(found.meta)
        except FileNotFoundError:
            return None
        return StoredVersion(content, meta["e_tag"] or "", meta["last_modified"].timestamp(), meta["version"])

    def write(self, content: bytes, before: StoredVersion | None) -> StoredVersion | None:
        """Replace a version, or make the file where `before` is None; returns None where it is another by now.

        After a lost answer it may be this very write that made it another one: `read` says so.
        """
        mode: UpdateVersion | Literal["create"] = "create"
        if before:
            mode = {"e_tag": before.etag}
            if before.generation:
                mode["version"] = before.generation
        try:
            with store_errors("write", self._path, self._root, is_conditional=True):
                done = self._store.put(self._path, content, mode=mode, use_multipart=False)
        except FileExistsError:
            return None
        return StoredVersion(content, done["e_tag"] or "", time.time(), done["version"])
