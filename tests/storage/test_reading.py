"""A folder of a store for commands that only read: its moment, its requests, its cache, and what is read ahead."""

from __future__ import annotations

import os
import stat
from collections import Counter

import pytest
from listed_storage import ListedStorage
from memory_storage import read

from mirror_engine.errors import StorageUnavailable
from mirror_engine.storage.listing import AHEAD, Cache, FolderOfStore

ZONE, ARCHIVE = "Files/LandingZone", "Files/LandingZone/T/_FilesReadyToDelete"


@pytest.fixture
def opened(store, tmp_path):
    """Opens the zone of a store for reading, with a cache."""
    return lambda *callbacks, cache="cache", top=ZONE: FolderOfStore(store, top, Cache(tmp_path / cache), *callbacks)


@pytest.fixture
def store():
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


def test_it_lists_what_the_store_lists_archives_too(store, opened):
    assert everything(opened()) == everything(store)
    tree = opened()
    with pytest.raises(FileNotFoundError):
        tree.open(ZONE)
    for path in ("nothing", f"{ZONE}/nothing", f"{ZONE}/T/_ProcessedFiles/1.csv", f"{ARCHIVE}/nothing/1.csv"):
        assert (tree.stat(path), tree.list(path)) == (None, None)
        with pytest.raises(FileNotFoundError):
            tree.open(path)


def test_a_zone_takes_one_list_and_an_archive_one_more(store, opened):
    tree = opened()
    for _ in range(3):
        assert len(tree.scan(ZONE).list(f"{ZONE}/T")) == 42
        assert tree.stat(f"{ZONE}/T/_ProcessedFiles/001.csv") is None
    assert Counter(store.calls) == {f"page {ZONE}": 1}
    for _ in range(3):
        assert tree.stat(f"{ARCHIVE}/k=v/000.csv").size == 2
    assert Counter(store.calls) == {f"page {ZONE}": 1, f"page {ARCHIVE}": 1}


def test_what_changes_after_the_first_look_is_not_seen(store, opened):
    tree = opened()
    tree.list(ZONE)
    store.write(f"{ZONE}/T/041.csv", b"new")
    store.write(f"{ZONE}/T/001.csv", b"other")
    assert tree.stat(f"{ZONE}/T/041.csv") is None
    assert tree.stat(f"{ZONE}/T/001.csv").size == 1
    with tree.open(f"{ZONE}/T/001.csv") as late, pytest.raises(StorageUnavailable, match="was replaced"):
        late.read(1)
    assert read(opened(), f"{ZONE}/T/001.csv") == b"other"


def test_one_file_is_read_alone_and_files_read_in_their_order_ahead(store, opened):
    tree = opened()
    assert read(tree, f"{ZONE}/T/003.csv") == b"3"
    assert store.calls.count(f"open {ZONE}/T/004.csv") == 0
    for number in range(3, 41):
        assert read(tree, f"{ZONE}/T/{number:03}.csv") == b"%d" % number
        assert sum(call.startswith("open") for call in store.calls) <= number + AHEAD
    tree._pool.shutdown()
    assert sum(call.startswith("open") for call in store.calls) == 38 + 1  # _metadata.json ahead


def test_a_file_that_fails_ahead_fails_when_it_is_opened(store, opened, monkeypatch):
    tree, open_file = opened(), store.open

    def failing(path, only=None):
        if path.endswith("004.csv"):
            raise StorageUnavailable("no answer")
        return open_file(path, only)

    monkeypatch.setattr(store, "open", failing)
    assert [read(tree, f"{ZONE}/T/{number:03}.csv") for number in (1, 2, 3)] == [b"1", b"2", b"3"]
    with pytest.raises(StorageUnavailable):
        tree.open(f"{ZONE}/T/004.csv")
    assert read(tree, f"{ZONE}/T/005.csv") == b"5"


def test_progress_counts_what_is_read_and_nothing_is_changed(opened):
    shown = []
    tree = opened(lambda _: None, lambda doing, count: shown.append((doing, count)))
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


def test_a_range_is_downloaded_once(store, opened, tmp_path):
    content = bytes(range(256)) * 20_000  # 5,120,000 bytes
    store.write("T/big", content)
    store.write("T/small", b"small")
    for expected in ([65_536, 5], []):
        downloads = []
        cached = opened(downloads.append, top="T")
        with cached.open("T/big") as file:
            file.seek(-8, os.SEEK_END)
            assert file.read() == content[-8:]
        assert read(cached, "T/small") == b"small"
        assert downloads == expected
    assert read(cached, "T/big") == content
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700


def test_a_damaged_or_lost_entry_is_downloaded_again(opened, tmp_path):
    cached, path = opened(), f"{ZONE}/T/010.csv"
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


def test_what_is_refused_is_not_downloaded(store, opened, tmp_path):
    with pytest.raises(KeyError, match="2"):  # bytes
        read(opened({}.pop), f"{ZONE}/T/010.csv")
    assert not any(call.startswith("open") for call in store.calls)
    assert list((tmp_path / "cache").iterdir()) == []
