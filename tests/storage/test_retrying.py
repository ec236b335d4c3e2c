"""Retries: how often, how long, and after which errors."""

from __future__ import annotations

import pytest
from memory_storage import MemoryStorage
from scripted_faults import Fault, Script, faulty

from mirror_engine.errors import StorageUnavailable
from mirror_engine.storage.retrying import PAUSES_SECONDS, RetryingStorage


def test_a_failing_call_is_retried_with_growing_pauses_and_then_raises():
    slept = []
    script = Script(dict.fromkeys(range(1, 10), Fault.REFUSED))
    with pytest.raises(StorageUnavailable):
        RetryingStorage(faulty(MemoryStorage(), script), sleep=slept.append).list("a")
    assert slept == list(PAUSES_SECONDS) == sorted(slept)
    assert script.calls == ["list a"] * (len(PAUSES_SECONDS) + 1)


def test_a_missing_file_is_not_retried():
    slept = []
    script = Script()
    with pytest.raises(FileNotFoundError):
        RetryingStorage(faulty(MemoryStorage(), script), sleep=slept.append).open("nothing")
    assert (slept, script.calls) == ([], ["open nothing"])
