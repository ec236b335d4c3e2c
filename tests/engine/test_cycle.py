"""The cycle: when the next one follows at once, and when it waits."""

from __future__ import annotations

import threading

import pytest
from shop import Shop, row

from mirror_engine.engine.replayer import Replayer
from mirror_engine.errors import TableDamaged
from mirror_engine.landing_zone.states import Halted

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
            waits.append(running.next_cycle_seconds(60.0))
    assert waits == [0.0, 60.0]


def test_a_plan_that_changes_nothing_is_not_repeated_without_a_pause(shop, monkeypatch):
    shop.orders().insert(row(1))
    monkeypatch.setattr(Replayer, "advance", lambda _, task: task.steps.clear())
    with shop.engine() as running:
        waits = []
        for _ in range(3):
            running.cycle(NO_STOP)
            waits.append(running.next_cycle_seconds(60.0))
    assert waits == [0.0, 60.0, 60.0]


def test_a_table_found_damaged_is_halted_by_the_next_cycle_without_a_retry(shop, monkeypatch):
    shop.orders().insert(row(1))

    def damaged(*_, **__):
        raise TableDamaged("dbo/Orders", "commit 1 is cut off")

    def advance(*_):
        monkeypatch.setattr(shop.writer, "snapshot", damaged)
        damaged()

    monkeypatch.setattr(Replayer, "advance", advance)
    with shop.engine() as running:
        running.cycle(NO_STOP)
        assert running.last.failures == {}
        running.cycle(NO_STOP)
        (plan,) = running.last.plans.values()
    assert isinstance(plan.state, Halted)
    assert plan.state.diagnostic.code == "ME081"


def test_a_diagnostic_is_reported_when_it_appears_and_when_it_comes_back(shop):
    stray = shop.publisher.path / "stray.txt"
    with shop.engine() as running:
        for is_there in (True, True, False, True):
            stray.touch() if is_there else stray.unlink()
            running.cycle(NO_STOP)
    assert shop.said() == ["ME002", "ME002"]
