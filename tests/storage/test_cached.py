"""The cache of downloaded ranges, and the limit on downloads."""

from __future__ import annotations

import os
import stat

import pytest
from listed_storage import ListedStorage

from mirror_engine.errors import StorageUnavailable, UsageError
from mirror_engine.storage.cached import Cache, CachedStorage, Downloads

CONTENT = bytes(range(256)) * 20_000  # 5,120,000 bytes


@pytest.fixture
def store():
    store = ListedStorage()
    store.write("T/big", CONTENT)
    store.write("T/small", b"small")
    return store


def read(storage, path, start=0, size=-1):
    with storage.open(path) as file:
        file.seek(start, 2 if start < 0 else 0)
        return file.read(size)


def test_a_range_is_downloaded_once(store, tmp_path):
    for expected in (65_536 + 5, 0):
        downloads = Downloads()
        cached = CachedStorage(store, Cache(tmp_path / "cache"), downloads)
        assert read(cached, "T/big", -8) == CONTENT[-8:]
        assert read(cached, "T/small") == b"small"
        assert downloads.total == expected
    assert read(cached, "T/big") == CONTENT
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700


def test_another_version_is_another_file(store, tmp_path):
    cached = CachedStorage(store, Cache(tmp_path), Downloads())
    scan = cached.scan("T")
    assert read(scan, "T/small") == b"small"
    late = scan.open("T/big")
    store.write("T/small", b"other")
    store.write("T/big", CONTENT[::-1])
    assert read(scan, "T/small") == b"small"
    assert read(cached, "T/small") == b"other"
    with late, pytest.raises(StorageUnavailable, match="was replaced"):
        late.read(1)
    for path in ("T", "none"):
        with pytest.raises(FileNotFoundError):
            cached.open(path)


def test_a_damaged_or_lost_entry_is_downloaded_again(store, tmp_path):
    cached = CachedStorage(store, Cache(tmp_path), Downloads())
    read(cached, "T/small")
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(b"cut")
    assert read(cached, "T/small") == b"small"
    kept.unlink()
    assert read(cached, "T/small") == b"small"


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


def test_more_than_allowed_is_asked_for_once(store, tmp_path):
    asked = []
    cached = CachedStorage(store, Cache(tmp_path / "a"), Downloads(1000, asked.append))
    for path in ("T/small", "T/big", "T/big"):
        read(cached, path)
    assert len(asked) == 1
    assert asked[0] > 1000

    def refuse(size):
        raise UsageError(f"{size} bytes would be downloaded")

    cached = CachedStorage(store, Cache(tmp_path / "b"), Downloads(1000, refuse))
    for _ in range(2):
        with pytest.raises(UsageError, match="would be downloaded"):
            read(cached, "T/big")
    assert list((tmp_path / "b").iterdir()) == []
