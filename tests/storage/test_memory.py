"""What a test may do with storage in memory beyond the promise."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from mirror_engine.storage.base import Kind
from mirror_engine.storage.memory import MemoryStorage


def test_the_clock_gives_last_modified_and_may_be_overruled() -> None:
    now = [1000]
    storage = MemoryStorage(clock=lambda: now[0])
    storage.write("T/a", b"")
    now[0] = 2000
    storage.write("T/b", b"")
    storage.put("T/c", b"", modified_ns=5)
    assert [entry.modified_ns for entry in storage.list("T") or ()] == [1000, 2000, 5]


def test_writing_in_place_keeps_the_identity_and_putting_again_does_not() -> None:
    storage = MemoryStorage()
    storage.put("f", b"one")
    first = storage.stat("f")
    storage.write_in_place("f", b"two!")
    second = storage.stat("f")
    storage.put("f", b"one")
    third = storage.stat("f")
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.identity == second.identity != third.identity
    assert second.size == 4
    with pytest.raises(FileNotFoundError):
        storage.write_in_place("nothing", b"")


def test_an_odd_entry_is_seen_and_never_opened_nor_moved() -> None:
    storage = MemoryStorage()
    storage.put_odd("link")
    assert [entry.kind for entry in storage.list("") or ()] == [Kind.OTHER]
    with pytest.raises(FileNotFoundError):
        storage.open("link")
    storage.move("link", "elsewhere")
    storage.delete("link")
    assert storage.list("") == []


def test_threads_may_share_it() -> None:
    storage = MemoryStorage()

    def work(worker: int) -> None:
        for number in range(100):
            storage.write(f"T/{worker}-{number}", b"")
            storage.list("T")
            storage.move(f"T/{worker}-{number}", f"done/{worker}-{number}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(storage.list("done") or ()) == 800
    assert storage.list("T") == []
