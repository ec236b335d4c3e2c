"""Calls to a store that run at once: their order, errors, number and end."""

from __future__ import annotations

import threading

import pytest
from memory_storage import MemoryStorage

from mirror_engine.errors import StorageUnavailable
from mirror_engine.storage.base import REQUESTS, at_once


@pytest.fixture
def memory_store():
    storage = MemoryStorage()
    storage.is_store = True
    return storage


def test_results_are_in_order_on_a_disk_and_in_a_store(memory_store):
    assert list(at_once(MemoryStorage(), str, range(50))) == list(at_once(memory_store, str, range(50)))
    assert list(at_once(memory_store, str, [])) == []


def test_so_many_calls_run_at_once_in_a_store_alone(memory_store):
    all_here = threading.Barrier(REQUESTS, timeout=20)
    assert len(list(at_once(memory_store, lambda _: all_here.wait(), range(REQUESTS)))) == REQUESTS
    threads = set(at_once(MemoryStorage(), lambda _: threading.current_thread(), range(3)))
    assert threads == {threading.current_thread()}


def test_no_more_are_ahead_than_may_run_at_once(memory_store):
    begun = []
    results = at_once(memory_store, begun.append, range(100))
    assert begun == []
    next(results)
    results.close()
    assert len(begun) <= REQUESTS


@pytest.mark.parametrize("weights", [[1] * 20, [9, 1, 1, 9, 9, 1, 1, 1], [4, 4, 4], [0] * 40])
def test_calls_ahead_of_results_are_bounded_by_weight(memory_store, weights):
    begun = []
    for number, _ in enumerate(at_once(memory_store, begun.append, range(len(weights)), weights.__getitem__, 4)):
        ahead = [weights[each] for each in begun if each > number]
        assert sum(ahead) <= 4
        assert len(ahead) < REQUESTS
    assert sorted(begun) == list(range(len(weights)))


@pytest.mark.parametrize(("weight", "at_once_here"), [(1, 4), (9, 1)])
def test_as_many_calls_run_at_once_as_their_weight_allows(memory_store, weight, at_once_here):
    all_here = threading.Barrier(at_once_here, timeout=20)
    calls = at_once(memory_store, lambda _: all_here.wait(), range(4), lambda _: weight, 4)
    assert len(list(calls)) == 4


@pytest.mark.parametrize("is_store", [False, True])
@pytest.mark.parametrize("error", [StorageUnavailable("gone"), StopIteration()])
def test_an_error_comes_where_its_result_would(memory_store, is_store, error):
    memory_store.is_store = is_store

    def call(number):
        if number == 3:
            raise error
        return number

    results = at_once(memory_store, call, range(100))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises((StorageUnavailable, RuntimeError)):
        next(results)
