"""Requests to a store run many at once: their number a file, and the time that they take."""

from __future__ import annotations

import time

import pytest
from shop import Shop, row
from slow_store import REQUEST_SECONDS, SlowLogs, slow_store

FILES = 64
TABLES = 100
AT_ONCE = 16


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path, SlowLogs())


def timed(call):
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_status_of_many_tables_reads_logs_at_once(shop):
    for number in range(TABLES):
        shop.publisher.table(f"T{number}", keys=["id"]).upsert(row(1))
    shop.sync()
    storage, requests = slow_store(shop.root)
    logs = shop.writer.requests
    before = logs.total
    with shop.mirror(storage=storage) as mirror:
        seconds = timed(mirror.status)
    asked = requests.total + logs.total - before
    assert asked >= 2 * TABLES  # the log and the metadata of each
    assert (requests.most, logs.most) == (AT_ONCE, AT_ONCE)
    assert seconds < asked * REQUEST_SECONDS / 4


def test_a_start_reads_logs_and_metadata_at_once(shop):
    for number in range(TABLES):
        shop.publisher.table(f"T{number}", keys=["id"]).upsert(row(1))
    shop.sync()
    storage, requests = slow_store(shop.root)
    before = shop.writer.requests.total
    seconds = timed(lambda: shop.sync(storage=storage))
    assert seconds < (requests.total + shop.writer.requests.total - before) * REQUEST_SECONDS / 4
