"""Patience: how often, how long, and for what."""

from __future__ import annotations

import pytest
from memory_storage import MemoryStorage
from scripted_faults import Fault, Script, faulty

from mirror_engine.errors import StorageUnavailable
from mirror_engine.storage.retrying import PAUSES_SECONDS, RetryingStorage


def test_it_tries_again_with_growing_pauses_and_then_lets_the_failure_through() -> None:
    slept: list[float] = []
    script = Script(dict.fromkeys(range(1, 10), Fault.REFUSED))
    with pytest.raises(StorageUnavailable):
        RetryingStorage(faulty(MemoryStorage(), script), sleep=slept.append).list("a")
    assert slept == list(PAUSES_SECONDS) == sorted(slept)
    assert script.calls == ["list a"] * (len(PAUSES_SECONDS) + 1)


def test_it_does_not_wait_where_nothing_fails() -> None:
    slept: list[float] = []
    storage = RetryingStorage(MemoryStorage(), sleep=slept.append)
    storage.write("a", b"x")
    assert storage.open("a").read() == b"x"
    assert slept == []


def test_a_missing_file_is_an_answer_not_a_failure() -> None:
    slept: list[float] = []
    script = Script()
    with pytest.raises(FileNotFoundError):
        RetryingStorage(faulty(MemoryStorage(), script), sleep=slept.append).open("nothing")
    assert (slept, script.calls) == ([], ["open nothing"])


def test_a_refused_call_did_nothing_and_one_with_a_lost_answer_did_everything() -> None:
    storage = MemoryStorage()
    script = Script({1: Fault.REFUSED, 2: Fault.LOST_ANSWER})
    door = faulty(storage, script)
    with pytest.raises(StorageUnavailable):
        door.write("a", b"")
    assert storage.list("") == []
    with pytest.raises(StorageUnavailable):
        door.write("a", b"")
    assert storage.stat("a") is not None
    door.delete("a")
    assert script.calls == ["write a", "write a", "delete a"]
