"""The scheduler: first in, first out, a batch per table; and growing pauses after failures."""

from __future__ import annotations

import math
import threading

import pytest
from shop import NO_STOP

from mirror_engine.clock import Clock
from mirror_engine.engine.planner import Plan
from mirror_engine.engine.replayer import Phase, TableTask
from mirror_engine.engine.scheduler import Backoff, TableScheduler
from mirror_engine.errors import InternalError, SetupError, StorageUnavailable
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.states import CaughtUp


def task(name, batches=1):
    """A task with steps that only the scheduler looks at."""
    plan = Plan(TableName("", name), CaughtUp(), tuple(range(batches)))
    return TableTask(plan, None, "", "", [Phase.APPLYING])


def take_step(task):
    task.steps.popleft()
    if not task.steps:
        task.end_phase()


def run_all(scheduler):
    try:
        return [(task.table.table, outcome) for task, outcome in scheduler.results()]
    finally:
        scheduler.close()


def test_tables_take_turns_batch_by_batch():
    ran = []
    gate = threading.Event()

    def run(task):
        assert gate.wait(60)
        ran.append(task.table.table)
        take_step(task)

    scheduler = TableScheduler(1, run)
    for name, batches in (("A", 1000), ("B", 2), ("C", 1)):
        scheduler.submit(task(name, batches), NO_STOP)
    gate.set()
    run_all(scheduler)
    assert "".join(ran[:8]) == "ABCABAAA"
    assert len(ran) == 1003


def test_as_many_batches_run_in_parallel_as_there_are_workers_but_one_per_table():
    running, together = [], threading.Barrier(3)

    def run(task):
        running.append(task.table)
        together.wait(60)
        assert len(set(running)) == len(running) == 3
        task.steps.clear()
        task.end_phase()

    scheduler = TableScheduler(3, run)
    for name in "ABC":
        scheduler.submit(task(name, 5), NO_STOP)
    run_all(scheduler)


PANIC = type("PanicException", (BaseException,), {})  # of deltalake: no `Exception`


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        *((error, error) for error in (StorageUnavailable("scripted"), SetupError("scripted"), KeyboardInterrupt())),
        (ZeroDivisionError(), InternalError),
        (PANIC("called `Option::unwrap()` on a `None` value"), InternalError),
    ],
)
def test_a_failed_batch_ends_its_task_and_no_other(error, outcome):
    def run(task):
        take_step(task)
        if task.table.table == "A":
            raise error

    scheduler = TableScheduler(1, run)
    for name in "AB":
        scheduler.submit(task(name, 2), NO_STOP)
    (table, found), *others = run_all(scheduler)
    assert (table, others) == ("A", [("B", None), ("B", None)])
    assert found is error if outcome is error else isinstance(found, outcome)


def test_once_stopped_no_further_batch_begins():
    stop = threading.Event()

    def run(task):
        take_step(task)
        stop.set()

    scheduler = TableScheduler(1, run)
    tasks = [task("A", 9), task("B")]
    for each in tasks:
        scheduler.submit(each, stop)
    run_all(scheduler)
    assert [len(task.steps) for task in tasks] == [8, 1]
    assert not scheduler.in_progress


def test_results_end_when_the_next_cycle_is_due_and_go_on_later():
    gate = threading.Event()

    def run(task):
        assert gate.wait(60)
        take_step(task)

    scheduler = TableScheduler(1, run)
    scheduler.submit(task("A"), NO_STOP)
    assert list(scheduler.results(lambda: True)) == []
    assert scheduler.in_progress.keys() == {TableName("", "A")}
    gate.set()
    assert run_all(scheduler) == [("A", None)]


def test_pauses_double_up_to_the_longest_until_success():
    """A float would overflow after 1,023 failures."""
    backoff, error = Backoff(100.0, 300.0, Clock()), StorageUnavailable("scripted")
    for _ in range(2):
        assert (backoff.failure, backoff.is_waiting, backoff.seconds_left) == (None, False, math.inf)
        pauses = [backoff.failed(error) for _ in range(2000)]
        assert (pauses[:4], pauses[-1]) == ([100.0, 200.0, 300.0, 300.0], 300.0)
        assert (backoff.failure, backoff.is_waiting) == (error, True)
        backoff.succeeded()
