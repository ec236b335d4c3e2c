"""When a table may be worked on next, and why not now."""

from __future__ import annotations

import math

import pytest

from mirror_engine.clock import Clock
from mirror_engine.engine.planner import Plan
from mirror_engine.engine.replayer import Phase
from mirror_engine.engine.turns import TableTurn, Turns
from mirror_engine.errors import StorageUnavailable
from mirror_engine.events import RetryScheduled
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.states import Behind, CaughtUp

ORDERS, ITEMS = TableName("", "Orders"), TableName("", "Items")
BOTH = [Phase.APPLYING, Phase.CLEANING]
ERROR = StorageUnavailable("scripted")


@pytest.fixture
def clock():
    return Clock(monotonic=lambda: 0.0)


@pytest.fixture
def turn(clock):
    return TableTurn(clock)


def test_retry_of_one_phase_leaves_the_other_its_turn(turn, clock):
    assert turn.phases(is_held=False) == BOTH
    assert turn.failed(ERROR, Phase.CLEANING) == 1.0
    assert (turn.phases(is_held=False), turn.waits_for, turn.seconds_left) == ([Phase.APPLYING], ERROR, 1.0)
    clock.advance(seconds=1)
    assert (turn.phases(is_held=False), turn.waits_for, turn.failure) == (BOTH, None, ERROR)


def test_retry_before_its_time_prolongs_no_pause(turn, clock):
    turn.failed(ERROR, Phase.APPLYING)
    clock.advance(seconds=0.5)
    assert turn.failed(ERROR, Phase.APPLYING) is None
    assert turn.seconds_left == 0.5


def test_held_table_is_cleaned_and_not_applied(turn):
    assert turn.phases(is_held=True) == [Phase.CLEANING]


def test_due_retry_with_nothing_to_do_is_forgotten(turn, clock):
    turn.failed(ERROR, Phase.APPLYING)
    turn.begin([], has_steps=False)
    assert turn.failure is ERROR
    clock.advance(seconds=1)
    turn.begin([Phase.APPLYING], has_steps=True)
    assert turn.failure is ERROR
    turn.begin([], has_steps=False)
    assert (turn.failure, turn.seconds_left) == (None, math.inf)


def test_same_plan_is_not_repeated_at_once(turn):
    first, second = (Plan(ORDERS, state) for state in (Behind(1), CaughtUp()))
    assert [turn.end(BOTH, plan) for plan in (first, first, second)] == [True, False, True]
    assert not turn.end([Phase.CLEANING], first), "cleaning alone changes no plan"
    turn.begin(BOTH, has_steps=False)
    assert turn.end(BOTH, second), "a cycle without steps came between"
    turn.failed(ERROR, Phase.APPLYING)
    assert turn.end(BOTH, second), "it failed meanwhile"


def test_next_retry_leaves_out_tables_in_progress(clock):
    events = []
    turns = Turns(clock, events.append)
    for name, error in ((ORDERS, ERROR), (ITEMS, ERROR), (ITEMS, ERROR)):
        turns.retry(name, error)
    assert events == [RetryScheduled(name, str(ERROR), 1.0) for name in (ORDERS, ITEMS)]
    clock.advance(seconds=0.75)
    turns.retry(None, ERROR)
    assert [turns.retry_seconds(longest) for longest in (60.0, 0.1)] == [0.25, 0.1]
    assert turns.retry_seconds(60.0, {ORDERS, ITEMS}) == 1.0
    turns[ORDERS].succeeded(Phase.APPLYING)
    clock.advance(seconds=10)
    assert (turns.failures(), turns.retried) == ({ITEMS: ERROR, None: ERROR}, {ORDERS, ITEMS})
    turns.give_up([ITEMS])
    assert (turns.retry_seconds(60.0), turns.retried) == (0.0, {ITEMS})
    turns.keep([])
    assert list(turns.failures()) == [None]
