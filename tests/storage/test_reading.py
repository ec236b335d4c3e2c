"""A tree of a store for commands that only read: its moment, its requests, and what is read ahead."""

from __future__ import annotations

from collections import Counter

import pytest
from listed_storage import ListedStorage
from memory_storage import read

from mirror_engine.errors import StorageUnavailable
from mirror_engine.storage.reading import AHEAD, TreeAtOnce

ZONE, ARCHIVE = "Files/LandingZone", "Files/LandingZone/T/_FilesReadyToDelete"


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


def test_it_lists_what_the_store_lists_archives_too(store):
    assert everything(TreeAtOnce(store, ZONE)) == everything(store)
    tree = TreeAtOnce(store, ZONE)
    for path in ("nothing", f"{ZONE}/nothing", f"{ZONE}/T/_ProcessedFiles/1.csv", f"{ARCHIVE}/nothing/1.csv"):
        assert (tree.stat(path), tree.list(path)) == (None, None)
        with pytest.raises(FileNotFoundError):
            tree.open(path)


def test_a_zone_takes_one_list_and_an_archive_one_more(store):
    tree = TreeAtOnce(store, ZONE)
    for _ in range(3):
        assert len(tree.scan(ZONE).list(f"{ZONE}/T")) == 42
        assert tree.stat(f"{ZONE}/T/_ProcessedFiles/001.csv") is None
    assert Counter(store.calls) == {f"page {ZONE}": 1}
    for _ in range(3):
        assert tree.stat(f"{ARCHIVE}/k=v/000.csv").size == 2
    assert Counter(store.calls) == {f"page {ZONE}": 1, f"page {ARCHIVE}": 1}


def test_what_changes_after_the_first_look_is_not_seen(store):
    tree = TreeAtOnce(store, ZONE)
    tree.list(ZONE)
    store.write(f"{ZONE}/T/041.csv", b"new")
    store.write(f"{ZONE}/T/001.csv", b"other")
    assert tree.stat(f"{ZONE}/T/041.csv") is None
    assert tree.stat(f"{ZONE}/T/001.csv").size == 1
    with pytest.raises(FileNotFoundError):
        tree.open(f"{ZONE}/T/001.csv")


def test_one_file_is_read_alone_and_files_read_in_their_order_ahead(store):
    tree = TreeAtOnce(store, ZONE)
    assert read(tree, f"{ZONE}/T/003.csv") == b"3"
    assert store.calls.count(f"open {ZONE}/T/004.csv") == 0
    for number in range(3, 41):
        assert read(tree, f"{ZONE}/T/{number:03}.csv") == b"%d" % number
        assert sum(call.startswith("open") for call in store.calls) <= number + AHEAD
    assert [call for call, times in Counter(store.calls).items() if call.startswith("open") and times > 1] == [
        f"open {ZONE}/T/003.csv"
    ]


def test_a_file_that_fails_ahead_fails_when_it_is_opened(store, monkeypatch):
    tree, opened = TreeAtOnce(store, ZONE), store.open

    def failing(path, only=None):
        if path.endswith("004.csv"):
            raise StorageUnavailable("no answer")
        return opened(path, only)

    monkeypatch.setattr(store, "open", failing)
    assert [read(tree, f"{ZONE}/T/{number:03}.csv") for number in (1, 2, 3)] == [b"1", b"2", b"3"]
    with pytest.raises(StorageUnavailable):
        tree.open(f"{ZONE}/T/004.csv")
    assert read(tree, f"{ZONE}/T/005.csv") == b"5"


def test_progress_counts_what_is_read_and_nothing_is_changed(store):
    shown = []
    tree = TreeAtOnce(store, ZONE, lambda doing, count: shown.append((doing, count)))
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
