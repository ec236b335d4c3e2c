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
    with pytest.raises(FileNotFoundError):  # is no failing call
        RetryingStorage(MemoryStorage(), sleep=pytest.fail).open("nothing")
