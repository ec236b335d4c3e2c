"""Tables in a store on disk, whose requests are counted and take their time; deltalake reads the same files."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager

from deltalake import DeltaTable
from obstore.exceptions import GenericError
from obstore.store import LocalStore

from mirror_engine.storage.object_store import ObjectStorage
from mirror_engine.storage.requests import Requests
from mirror_engine.storage.s3_store import S3Url
from mirror_engine.tables.log import snapshot, table_path
from mirror_engine.tables.merge.arrow import ArrowWriter

URL = S3Url("bucket", "", "root/Tables")


class CountedStore:
    """An obstore store that counts requests by kind and file, how many run at once, and the bytes that are in use.

    Attributes:
        seconds: that each request takes.
        asked: requests as (kind, path).
        most: how many ran at once.
        fails_at: which of `asked`, from 1, fail: refused, or with `is_done` done and their answers lost.
    """

    def __init__(self, store):
        self._store = store
        self.seconds, self.asked = 0.0, []
        self.fails_at, self.is_done = (), False
        self._now, self.most, self._turn = 0, 0, threading.Lock()

    def __getattr__(self, name):
        method = getattr(self._store, name)

        def call(*arguments, **options):
            with self._turn:
                self.asked.append((name, arguments[0] if arguments else ""))
                fails = len(self.asked) in self.fails_at
                self._now += 1
                self.most = max(self.most, self._now)
            try:
                time.sleep(self.seconds)
                found = None if fails and not self.is_done else method(*arguments, **options)
                if fails:
                    raise GenericError("refused, or the answer was lost")
                return found
            finally:
                with self._turn:
                    self._now -= 1

        return call

    @contextmanager
    def counting(self, seconds=0.0):
        """From here on; a slow request makes it plain how many run at once."""
        self.asked.clear()
        self.most, self.seconds = 0, seconds
        try:
            yield self
        finally:
            self.seconds = 0.0

    def kinds(self, part=""):
        """How many requests of each kind were for files with this in their path."""
        return Counter(kind for kind, path in self.asked if part in (path or ""))


def store_of_tables(folder, monkeypatch):
    """A store, of which `URL` is one: the folder `store`."""
    disk = folder / "store"
    disk.mkdir()
    store = CountedStore(LocalStore(disk))
    monkeypatch.setattr(S3Url, "object_store", lambda _: store)
    monkeypatch.setattr(table_path, "open_storage", lambda _: ObjectStorage(URL, store, Requests()))
    return store


def writer_in_store(folder, monkeypatch):
    """A writer of tables in a store, and the store."""
    store, disk = store_of_tables(folder, monkeypatch), folder / "store"
    monkeypatch.setattr(
        snapshot, "open_delta", lambda path, version=None: DeltaTable(str(disk / path.path), version=version)
    )
    return ArrowWriter(URL, folder / "scratch"), store
