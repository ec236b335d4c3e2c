"""The cycle: when the next one follows at once, and when it waits."""

from __future__ import annotations

import threading

import pytest
from shop import Shop, row

from mirror_engine.engine.replayer import Replayer

NO_STOP = threading.Event()


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


def test_a_cycle_follows_at_once_until_one_finds_nothing_to_do(shop):
    shop.orders().insert(row(1))
    with shop.engine() as running:
        waits = []
        for _ in range(2):
            running.cycle(NO_STOP)
            waits.append(running.engine.next_cycle_seconds(60.0))
    assert waits == [0.0, 60.0]


def test_a_plan_that_changes_nothing_is_not_repeated_without_a_pause(shop, monkeypatch):
    shop.orders().insert(row(1))
    monkeypatch.setattr(Replayer, "advance", lambda _, task: task.steps.clear())
    with shop.engine() as running:
        waits = []
        for _ in range(3):
            running.cycle(NO_STOP)
            waits.append(running.engine.next_cycle_seconds(60.0))
    assert waits == [0.0, 60.0, 60.0]
