"""What one scan of a store asks for; and for commands that only read, its moment, and its cache."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from memory_storage import MemoryStorage, read
from seed import by_night

from mirror_engine.config import Config
from mirror_engine.engine.poller import Poller
from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.storage.base import joined
from mirror_engine.storage.listing import Cache, FolderOfStore, StoreStorage
from mirror_engine.storage.requests import Requests
from mirror_engine.storage.stores import open_storage

METADATA = b'{"keyColumns": ["id"]}'


class ListedStorage(MemoryStorage, StoreStorage):
    """A store in memory, as the real ones are: it lists trees in pages, and opens files as they were listed.

    `calls` has what was asked; `begins_after` as the store can.
    """

    is_store = True

    def __init__(self, *, begins_after=True, page_size=1000):
        MemoryStorage.__init__(self)
        StoreStorage.__init__(self, None, None)
        self.calls, self.begins_after, self.page_size = [], begins_after, page_size

    def list(self, folder):
        self.calls.append(f"list {folder}")
        return super().list(folder)

    def stat(self, path):
        self.calls.append(f"stat {path}")
        return super().stat(path)

    def open(self, path, only=None):
        self.calls.append(f"open {path}")
        found = MemoryStorage.stat(self, path)
        if only and not (found and found.is_same(only)):
            raise FileNotFoundError(path)
        return super().open(path)

    def pages(self, folder, after):
        found = sorted(each for each in self._tree(folder) if each[0] > after or not self.begins_after)
        for start in range(0, len(found), self.page_size):
            self.calls.append(f"page {folder}")
            yield found[start : start + self.page_size]

    def _tree(self, folder):
        for entry in MemoryStorage.list(self, folder) or ():
            path = joined(folder, entry.name)
            yield path, entry
            yield from self._tree(path)

    scan = StoreStorage.scan
    _read = remove = None  # it opens files itself


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


@pytest.mark.slow
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


def test_archive_within_a_page_is_listed_once():
    poller = Poller(store := zone(1, archived=800, page_size=5000), Config())
    first, calls = polled(store, poller)
    assert calls == [f"page {ZONE}", "list Files", "list "]
    second, calls = polled(store, poller)
    assert second == first
    assert calls == ["list Files", "list ", f"list {ZONE}", f"list {ZONE}/T00000"]


@pytest.mark.slow
def test_archives_that_cost_less_than_a_list_a_table_are_listed():
    poller = Poller(store := zone(10, archived=300, archives=10, page_size=5000), Config())
    assert [polled(store, poller)[1] for _ in range(2)] == [[f"page {ZONE}", "list Files", "list "]] * 2


@pytest.mark.slow
def test_among_many_tables_a_long_archive_costs_one_page():
    with_archives, without = zone(1000, archived=5000, archives=3), zone(1000)
    poller = Poller(with_archives, Config())
    for _ in range(3):
        listing, calls = polled(with_archives, poller)
        assert len(listing.tables) == 1000
        assert [len(table.files) for table in listing.tables] == [1] * 1000
        assert len(calls) <= len(polled(without)[1]) + 2 * 3


@pytest.mark.slow
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
@pytest.mark.parametrize(
    ("server", "lists"),
    [
        ("onelake_server", 3),
        *(pytest.param(name, lists, marks=pytest.mark.nightly) for name, lists in (("azurite", 3), ("s3_server", 5))),
    ],
)
def test_a_scan_of_1010_tables(request, server, lists):
    """The figures of docs/stores.md; without metadata, which only a first scan reads."""
    server = request.getfixturevalue(server)
    with server.in_use(), ThreadPoolExecutor(16) as pool:
        client = ((root := server.new_root()) / ZONE).object_store()
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
def test_scan_does_not_read_applied_files(onelake_server):
    pollers, seconds = [], ([], [])
    with onelake_server.in_use():
        for count in (0, by_night(5_000, 100_000)):
            root = onelake_server.new_root()
            folder = onelake_server.store / root.container / root.name.partition(".")[0] / ZONE / "T"
            (folder / "_FilesReadyToDelete").mkdir(parents=True)
            (folder / "_metadata.json").write_bytes(METADATA)
            (folder / f"{count + 1:020}.csv").write_bytes(b"id\n1\n")
            for number in range(1, count + 1):
                os.mknod(folder / f"_FilesReadyToDelete/{number:020}.csv")
            pollers.append(poller_of(root))
            pollers[-1].scan()
        for _ in range(10):
            for poller, took in zip(pollers, seconds, strict=True):
                begun = time.process_time()
                assert sum(poller.scan().requests.values()) <= 4
                took.append(time.process_time() - begun)
        shutil.rmtree(folder)
    assert min(seconds[1]) <= 3 * min(seconds[0])


ARCHIVE = f"{ZONE}/T/_FilesReadyToDelete"


@pytest.fixture
def opened_zone(zone_40, tmp_path):
    """Opens the zone of a store for reading, with a cache."""
    return lambda *callbacks, cache="cache", top=ZONE: FolderOfStore(zone_40, top, Cache(tmp_path / cache), *callbacks)


@pytest.fixture
def zone_40():
    store = ListedStorage()
    store.write(f"{ZONE}/T/_metadata.json", b"{}")
    for number in range(1, 41):
        store.write(f"{ZONE}/T/{number:03}.csv", b"%d" % number)
    store.write(f"{ARCHIVE}/000.csv", b"0")
    store.write(f"{ARCHIVE}/k=v/000.csv", b"00")
    store.write(f"{ZONE}/S.schema/U/k=v/1.csv", b"u")
    store.write("Files/Monitoring/tables.json", b"[]")
    store.calls.clear()
    return store


def everything(storage, folder=""):
    """Every path below a folder with what `list` and `stat` say of it."""
    found = {}
    for entry in storage.list(folder) or ():
        path = f"{folder}/{entry.name}".lstrip("/")
        assert storage.stat(path).kind is entry.kind
        found[path] = entry.kind, entry.size
        found |= everything(storage, path)
    return found


def test_it_lists_what_the_store_lists_archives_too(zone_40, opened_zone):
    assert everything(opened_zone()) == everything(zone_40)
    tree = opened_zone()
    with pytest.raises(FileNotFoundError):
        tree.open(ZONE)
    for path in ("nothing", f"{ZONE}/nothing", f"{ZONE}/T/_ProcessedFiles/1.csv", f"{ARCHIVE}/nothing/1.csv"):
        assert (tree.stat(path), tree.list(path)) == (None, None)
        with pytest.raises(FileNotFoundError):
            tree.open(path)


def test_a_zone_takes_one_list_and_an_archive_one_more(zone_40, opened_zone):
    tree = opened_zone()
    for _ in range(3):
        assert len(tree.scan(ZONE).list(f"{ZONE}/T")) == 42
        assert tree.stat(f"{ZONE}/T/_ProcessedFiles/001.csv") is None
    assert Counter(zone_40.calls) == {f"page {ZONE}": 1}
    for _ in range(3):
        assert tree.stat(f"{ARCHIVE}/k=v/000.csv").size == 2
    assert Counter(zone_40.calls) == {f"page {ZONE}": 1, f"page {ARCHIVE}": 1}


def test_what_changes_after_the_first_look_is_not_seen(zone_40, opened_zone):
    tree = opened_zone()
    tree.list(ZONE)
    zone_40.write(f"{ZONE}/T/041.csv", b"new")
    zone_40.write(f"{ZONE}/T/001.csv", b"other")
    assert tree.stat(f"{ZONE}/T/041.csv") is None
    assert tree.stat(f"{ZONE}/T/001.csv").size == 1
    with tree.open(f"{ZONE}/T/001.csv") as late, pytest.raises(StorageUnavailable, match="was replaced"):
        late.read(1)
    assert read(opened_zone(), f"{ZONE}/T/001.csv") == b"other"


def test_another_version_than_the_listed_one_is_not_opened(opened_zone):
    tree, path = opened_zone(), f"{ZONE}/T/003.csv"
    listed = tree.stat(path)
    assert tree.open(path, listed).read() == b"3"
    with pytest.raises(FileNotFoundError):
        tree.open(path, replace(listed, identity="other"))


def test_progress_counts_what_is_read_and_nothing_is_changed(opened_zone):
    shown = []
    tree = opened_zone(lambda _: None, lambda doing, count: shown.append((doing, count)))
    for number in (1, 2):
        read(tree, f"{ZONE}/T/{number:03}.csv")
    assert shown == [("reading", 1), ("reading", 2)]
    for change in (
        lambda: tree.write("a", b""),
        lambda: tree.move(f"{ZONE}/T/001.csv", "a"),
        lambda: tree.delete(f"{ZONE}/T/001.csv"),
    ):
        with pytest.raises(StorageUnavailable, match="opened for reading only"):
            change()


def test_a_range_is_downloaded_once(zone_40, opened_zone, tmp_path):
    content = bytes(range(256)) * 20_000  # 5,120,000 bytes
    zone_40.write("T/big", content)
    zone_40.write("T/small", b"small")
    for expected in ([65_536, 5], []):
        downloads = []
        cached = opened_zone(downloads.append, top="T")
        with cached.open("T/big") as file:
            file.seek(-8, os.SEEK_END)
            assert file.read() == content[-8:]
        assert read(cached, "T/small") == b"small"
        assert downloads == expected
    assert read(cached, "T/big") == content
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700


def test_a_damaged_or_lost_entry_is_downloaded_again(opened_zone, tmp_path):
    cached, path = opened_zone(), f"{ZONE}/T/010.csv"
    read(cached, path)
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_bytes(b"damaged")
    assert read(cached, path) == b"10"
    kept.unlink()
    assert read(cached, path) == b"10"


def test_the_oldest_make_room(tmp_path):
    cache = Cache(tmp_path, max_bytes=10)
    for number, name in enumerate("abc"):
        cache.put(name, b"1234")
        if (tmp_path / name).exists():
            os.utime(tmp_path / name, (number, number))
    assert [cache.get(name, 4) for name in "abc"] == [None, b"1234", b"1234"]
    os.utime(tmp_path / "c", (9, 9))
    cache = Cache(tmp_path, max_bytes=10)
    cache.put("d", b"1234")
    assert [cache.get(name, 4) for name in "bcd"] == [b"1234", None, b"1234"]
    cache.put("large", b"x" * 11)
    assert cache.get("large", 11) is None


@pytest.mark.slow
def test_keeping_a_piece_costs_the_same_among_many(tmp_path):
    def seconds(pieces):
        cache = Cache(tmp_path)
        cache._sizes = dict.fromkeys(map(str, range(pieces)), 0)
        began = time.process_time()
        for number in range(100):
            cache.put(f"new-{number}", b"x")
        return time.process_time() - began

    assert min(seconds(500_000) for _ in range(2)) < 5 * max(seconds(10) for _ in range(3))


def test_what_is_refused_is_not_downloaded(zone_40, opened_zone, tmp_path):
    with pytest.raises(KeyError, match="2"):  # bytes
        read(opened_zone({}.pop), f"{ZONE}/T/010.csv")
    assert not any(call.startswith("open") for call in zone_40.calls)
    assert list((tmp_path / "cache").iterdir()) == []
