"""A ROOT in a store whose requests take their time, and are counted."""

from __future__ import annotations

import threading
import time

from obstore.store import LocalStore

from mirror_engine.storage.object_store import ObjectStorage
from mirror_engine.storage.requests import Requests
from mirror_engine.storage.s3_store import S3Url
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter

REQUEST_SECONDS = 0.02


class SlowRequests(Requests):
    """Counts requests, and how many are under way at once; each takes so many `seconds`."""

    def __init__(self, seconds=REQUEST_SECONDS):
        super().__init__()
        self.seconds = seconds
        self.most, self._now, self._turn = 0, 0, threading.Lock()

    def add(self, kind, number=1):
        super().add(kind, number)
        with self._turn:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(self.seconds * number)
        with self._turn:
            self._now -= 1

    @property
    def total(self):
        return sum(self.by_kind().values())


def slow_store(root):
    """ROOT as S3 has it, at `REQUEST_SECONDS` a request; its requests."""
    requests = SlowRequests()
    return ObjectStorage(S3Url("bucket", ""), LocalStore(root, automatic_cleanup=True), requests), requests


class SlowLogs(MemoryDeltaWriter):
    """The memory writer; a log takes one request, and so does the look whether it is as it was. They begin quick."""

    def __init__(self):
        super().__init__()
        self.requests = SlowRequests(0)

    def snapshot(self, table):
        self.requests.add("read")
        return super().snapshot(table)

    def log_stamp(self, table, since):
        self.requests.add("list")
        return f"{since} 1 {table}"

    def latest_external_change(self, table, since, columns=""):
        self.requests.add("list")
        return super().latest_external_change(table, since, columns)
