"""Requests to a store run many at once: their number a file, and the time that they take."""

from __future__ import annotations

import threading
import time

import pytest
from obstore.store import LocalStore
from shop import Shop, name, row

from mirror_engine import Mirror
from mirror_engine.errors import StorageUnavailable
from mirror_engine.events import BatchCommitted, CommitStarted, FileRead
from mirror_engine.monitoring.fabric_files import REPLICATOR_FILE
from mirror_engine.monitoring.fabric_mirror import refuse_fabrics
from mirror_engine.storage import base
from mirror_engine.storage.base import PAGE
from mirror_engine.storage.object_store import ObjectStorage
from mirror_engine.storage.requests import Requests
from mirror_engine.storage.s3_store import S3Url
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter

pytestmark = pytest.mark.slow

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


FILES = 64
TABLES = 100
AT_ONCE = 16
FASTER = 3  # than one request after the other, at least, on a busy machine


@pytest.fixture
def slow(tmp_path):
    return Shop(tmp_path, SlowLogs())


def landed(shop, count=FILES):
    orders = shop.orders()
    for number in range(count):
        orders.upsert(row(number))


def timed(shop, call):
    shop.writer.requests.seconds = REQUEST_SECONDS
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_small_files_of_a_batch_cost_few_requests_at_once(slow):
    landed(slow)
    storage, requests = slow_store(slow.root)
    seconds = timed(slow, lambda: slow.sync(storage=storage))
    assert len(slow.ids()) == FILES
    by_kind = requests.by_kind()
    assert by_kind["read"] <= FILES + 4
    assert by_kind["list"] <= 12  # of two scans, and one before the commit
    assert by_kind["head"] <= 3 * FILES + 4  # of a move: its source before and after, and the copy
    assert requests.total <= 6 * FILES + 20
    assert AT_ONCE / 2 <= requests.most <= AT_ONCE
    assert seconds / FILES < requests.total / FILES * REQUEST_SECONDS / FASTER


def test_status_of_many_tables_reads_logs_at_once(slow):
    for number in range(TABLES):
        slow.publisher.table(f"T{number}", keys=["id"]).upsert(row(1))
    slow.sync()
    storage, requests = slow_store(slow.root)
    logs = slow.writer.requests
    before = logs.total
    with slow.mirror(storage=storage) as mirror:
        seconds = timed(slow, mirror.status)
    asked = requests.total + logs.total - before
    assert asked >= 2 * TABLES  # the log and the metadata of each
    assert all(AT_ONCE / 2 <= most <= AT_ONCE for most in (requests.most, logs.most))
    assert seconds < asked * REQUEST_SECONDS / FASTER


def test_start_reads_logs_and_metadata_in_parallel(slow):
    for number in range(TABLES):
        slow.publisher.table(f"T{number}", keys=["id"]).upsert(row(1))
    slow.sync()
    storage, requests = slow_store(slow.root)
    logs, read = slow.writer.requests, []
    for least in (2 * TABLES, 3 * TABLES):
        before = requests.total + logs.total
        seconds = timed(slow, lambda: slow.sync(storage=storage))
        asked = requests.total + logs.total - before
        assert asked >= least
        assert seconds < asked * REQUEST_SECONDS / FASTER
        read.append(logs.by_kind()["read"])
    assert read[0] == read[1]  # they are as they were


def test_logs_are_read_at_once_to_learn_whether_fabric_mirrors(slow):
    for number in range(AT_ONCE):
        slow.publisher.table(f"T{number}", keys=["id"]).upsert(row(1))
    slow.sync()
    store, _ = slow_store(slow.root)
    store.write(REPLICATOR_FILE, b'{"status": "Running"}')
    slow.writer.requests.most = 0
    slow.writer.requests.seconds = REQUEST_SECONDS
    refuse_fabrics(slow.root, store, slow.writer)
    assert AT_ONCE / 2 <= slow.writer.requests.most <= AT_ONCE


def test_store_that_fails_does_not_make_a_root_fabrics(slow, monkeypatch):
    def failed(*_):
        raise StorageUnavailable("scripted")

    slow.publisher.table("T", keys=["id"]).upsert(row(1))
    slow.sync()
    store, _ = slow_store(slow.root)
    store.write(REPLICATOR_FILE, b'{"status": "Running"}')
    for method in ("snapshot", "is_mirrored"):
        monkeypatch.setattr(type(slow.writer), method, failed)
    with pytest.raises(StorageUnavailable, match="scripted"):
        refuse_fabrics(slow.root, store, slow.writer)


def test_commit_looks_once_for_other_programs(slow):
    """What was committed as the next version of the snapshot cannot have another's before it."""
    orders = slow.orders()
    orders.upsert(row(1))
    slow.sync()
    looks = []

    def count(event):
        if isinstance(event, (CommitStarted, BatchCommitted)):
            looks.append(slow.writer.requests.by_kind().get("list", 0))

    orders.upsert(row(2))
    with Mirror(slow.root, slow.config, writer=slow.writer, listeners=[count]) as mirror:
        mirror.sync()
    before, after = looks
    assert after == before + 1


@pytest.mark.parametrize("in_batch", [1, 3])
def test_no_file_is_read_ahead_of_its_batch(tmp_path, in_batch):
    shop = Shop(tmp_path, SlowLogs(), max_batch_files=in_batch)
    landed(shop, 10)
    storage, requests = slow_store(shop.root)
    shop.sync(storage=storage)
    assert len(shop.ids()) == 10
    assert requests.by_kind()["read"] <= 10 + 2  # metadata and the archive's info file


@pytest.mark.usefixtures("one_attempt")
@pytest.mark.parametrize("page", [PAGE, 10])
@pytest.mark.parametrize("number", [1, FILES // 2, FILES])
def test_a_file_replaced_after_it_was_read_is_not_committed(slow, monkeypatch, number, page):
    """Whether one list of the folder is asked for before the commit, or each file is looked up."""
    landed(slow)
    monkeypatch.setattr(base, "PAGE", page)
    replaced = []

    def replace(event):
        if isinstance(event, FileRead) and event.path == name(FILES) and not replaced:
            replaced.append(slow.orders().upsert(row(1000), name=name(number)))

    store = slow.without_folders()
    with Mirror(slow.root, slow.config, writer=slow.writer, listeners=[replace], storage=store) as mirror:
        mirror.sync()
    assert replaced
    assert slow.writer.snapshot("dbo/Orders") is None
    slow.sync(storage=store)
    assert slow.ids() == sorted({*range(FILES), 1000} - {number - 1})
