"""What one scan of a store asks for."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from listed_storage import ListedStorage
from memory_storage import MemoryStorage

from mirror_engine.config import Config
from mirror_engine.engine.poller import Poller
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.storage.remote import Requests
from mirror_engine.storage.stores import object_store, open_storage

METADATA = b'{"keyColumns": ["id"]}'


def zone(tables, *, archived=0, archives=1, **options):
    """Tables with metadata and one file, `archives` of which have so many applied files."""
    store = ListedStorage(**options)
    for number in range(tables):
        folder = f"{ZONE}/T{number:05}"
        store.put(f"{folder}/_metadata.json", METADATA)
        for applied in range(archived if number < archives else 0):
            store.put(f"{folder}/_FilesReadyToDelete/{applied:020}.csv", b"")
        store.put(f"{folder}/{archived + 1:020}.csv", b"id\n1\n")
    return store


def polled(store, poller=None):
    """A scan: its listing, and what it asked for, but for the files it read."""
    poller = poller or Poller(store, Config())
    store.calls.clear()
    listing = poller.scan()
    return listing, [call for call in store.calls if not call.startswith("open")]


def test_a_zone_is_one_list_of_all_and_two_of_what_is_above():
    store = zone(100)
    listing, calls = polled(store)
    assert len(listing.tables) == 100
    assert calls == [f"page {ZONE}", "list Files", "list "]


def test_the_second_scan_reads_no_metadata():
    store = zone(3)
    poller = Poller(store, Config())
    first, _ = polled(store, poller)
    second, _ = polled(store, poller)
    assert [call for call in store.calls if call.startswith("open")] == []
    assert [a is b for a, b in zip(first.tables, second.tables, strict=True)] == [True] * 3


@pytest.mark.parametrize("begins_after", [True, False])
def test_one_table_with_a_long_archive_is_listed_by_itself(begins_after):
    store = zone(1, archived=20_000, begins_after=begins_after)
    poller = Poller(store, Config())
    first, calls = polled(store, poller)
    assert [file.name for table in first.tables for file in table.files] == [f"{20_001:020}.csv"]
    assert len(calls) == (4 if begins_after else 24)
    second, calls = polled(store, poller)
    assert second == first
    assert calls == ["list Files", "list ", f"list {ZONE}", f"list {ZONE}/T00000"]


def test_among_many_tables_a_long_archive_costs_one_page():
    with_archives, without = zone(1000, archived=5000, archives=3), zone(1000)
    poller = Poller(with_archives, Config())
    for _ in range(3):
        listing, calls = polled(with_archives, poller)
        assert len(listing.tables) == 1000
        assert [len(table.files) for table in listing.tables] == [1] * 1000
        assert len(calls) <= len(polled(without)[1]) + 2 * 3


def test_a_store_that_cannot_begin_in_the_middle_is_asked_once():
    poller = Poller(store := zone(200, archived=20_000, begins_after=False), Config())
    assert [len(polled(store, poller)[1]) for _ in range(2)] == [2 + 1 + 21, 2 + 21]


def test_short_archives_are_seen_as_folders_and_are_not_kept():
    store = zone(2, archived=3, archives=2)
    scan = store.scan(ZONE)
    store.calls.clear()
    table = f"{ZONE}/T00000"
    assert [entry.name for entry in scan.list(table)] == [f"{4:020}.csv", "_FilesReadyToDelete", "_metadata.json"]
    assert scan.stat(f"{table}/_FilesReadyToDelete") == MemoryStorage.stat(store, f"{table}/_FilesReadyToDelete")
    assert store.calls == []
    assert len(scan.list(f"{table}/_FilesReadyToDelete")) == 3
    assert scan.stat(f"{table}/_FilesReadyToDelete/{1:020}.csv")
    assert store.calls == [f"list {table}/_FilesReadyToDelete", f"stat {table}/_FilesReadyToDelete/{1:020}.csv"]


def test_what_was_not_there_is_absent_until_the_next_scan():
    store = zone(1)
    scan = store.scan(ZONE)
    store.put(f"{ZONE}/New/1.csv", b"")
    assert (scan.list(f"{ZONE}/New"), scan.stat(f"{ZONE}/New/1.csv")) == (None, None)
    assert [entry.name for entry in store.scan(ZONE).list(f"{ZONE}/New")] == ["1.csv"]


def poller_of(root):
    requests = Requests()
    return Poller(open_storage(root, requests), Config(), requests)


@pytest.mark.slow
@pytest.mark.parametrize(("server", "lists"), [("onelake_server", 3), ("azurite", 3), ("s3_server", 5)])
def test_a_scan_of_1010_tables(request, server, lists):
    """The figures of docs/stores.md; without metadata, which only a first scan reads."""
    server = request.getfixturevalue(server)
    with server.in_use(), ThreadPoolExecutor(16) as pool:
        client = object_store((root := server.new_root()) / ZONE)
        names = [f"T{number // 2}/{number % 2 + 1:020}.csv" for number in range(2020)]
        if server.store:
            for file in (server.store / root.container / root.name.partition(".")[0] / ZONE / name for name in names):
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(b"x")
        else:
            list(pool.map(lambda name: client.put(name, b"x", use_multipart=False), names))
        poller = poller_of(root)
        for pending in (1, 2):
            list(pool.map(lambda n: client.put(f"T{n}/{2 + pending:020}.csv", b"x", use_multipart=False), range(10)))  # noqa: B023
            listing = poller.scan()
            assert sum(len(table.files) for table in listing.tables) == 2020 + 10 * pending
            assert listing.requests == {"list": lists}


@pytest.mark.slow
def test_100000_applied_files_take_at_most_twice_the_time_of_none(onelake_server):
    pollers, seconds = [], ([], [])
    with onelake_server.in_use():
        for count in (0, 100_000):
            root = onelake_server.new_root()
            folder = onelake_server.store / root.container / root.name.partition(".")[0] / ZONE / "T"
            (folder / "_FilesReadyToDelete").mkdir(parents=True)
            (folder / "_metadata.json").write_bytes(METADATA)
            (folder / f"{count + 1:020}.csv").write_bytes(b"id\n1\n")
            for number in range(1, count + 1):
                os.mknod(folder / f"_FilesReadyToDelete/{number:020}.csv")
            pollers.append(poller_of(root))
            pollers[-1].scan()
        for _ in range(30):
            for poller, took in zip(pollers, seconds, strict=True):
                begun = time.perf_counter()
                assert sum(poller.scan().requests.values()) <= 4
                took.append(time.perf_counter() - begun)
        shutil.rmtree(folder)
    assert min(seconds[1]) <= 2 * min(seconds[0])
