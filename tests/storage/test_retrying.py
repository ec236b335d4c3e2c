"""Retries: how often, how long, and after which errors."""

from __future__ import annotations

import pytest
from memory_storage import MemoryStorage
from scripted_faults import Fault, Script, faulty

from mirror_engine.errors import StorageUnavailable
from mirror_engine.storage.retrying import PAUSES_SECONDS, RetryingStorage


def test_a_failing_call_is_retried_with_growing_pauses_and_then_raises() -> None:
    slept: list[float] = []
    script = Script(dict.fromkeys(range(1, 10), Fault.REFUSED))
    with pytest.raises(StorageUnavailable):
        RetryingStorage(faulty(MemoryStorage(), script), sleep=slept.append).list("a")
    assert slept == list(PAUSES_SECONDS) == sorted(slept)
    assert script.calls == ["list a"] * (len(PAUSES_SECONDS) + 1)


def test_a_successful_call_does_not_wait() -> None:
    slept: list[float] = []
    storage = RetryingStorage(MemoryStorage(), sleep=slept.append)
    storage.write("a", b"x")
    assert storage.open("a").read() == b"x"
    assert slept == []


def test_a_missing_file_is_not_retried() -> None:
    slept: list[float] = []
    script = Script()
    with pytest.raises(FileNotFoundError):
        RetryingStorage(faulty(MemoryStorage(), script), sleep=slept.append).open("nothing")
    assert (slept, script.calls) == ([], ["open nothing"])


def test_a_refused_call_did_nothing_and_one_with_a_lost_answer_did_everything() -> None:
    storage = MemoryStorage()
    script = Script({1: Fault.REFUSED, 2: Fault.LOST_ANSWER})
    failing = faulty(storage, script)
    with pytest.raises(StorageUnavailable):
        failing.write("a", b"")
    assert storage.list("") == []
    with pytest.raises(StorageUnavailable):
        failing.write("a", b"")
    assert storage.stat("a") is not None
    failing.delete("a")
    assert script.calls == ["write a", "write a", "delete a"]
