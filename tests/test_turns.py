"""Who is worked on, and who comes next."""

from __future__ import annotations

import threading

from mirror_engine.engine.plan import Plan
from mirror_engine.engine.replayer import TableTask
from mirror_engine.engine.scheduler import TableScheduler
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.states import CaughtUp

NO_STOP = threading.Event()


def works(names):
    return [TableTask(Plan(TableName("", name), CaughtUp()), None, "", "") for name in names]


def test_who_waits_longest_comes_next_though_all_are_sent_home_and_others_come_anew():
    turns = TableScheduler(1, lambda _: None)
    taken = []
    for names in ("ABC", "ABCD", "ABCD", "ABCD", "ABCD"):
        turns.line_up(works(names))
        for work, _ in turns.taken(NO_STOP, None):
            taken.append(work.table.table)
            break
        turns.send_home()
    turns.close()
    assert taken == ["A", "B", "C", "A", "D"]


def test_who_lines_up_again_comes_after_those_who_wait():
    turns = TableScheduler(1, lambda _: None)
    turns.line_up(works("AB"))
    taken = []
    for work, _ in turns.taken(NO_STOP, None):
        taken.append(work.table.table)
        if len(taken) < 5:
            turns.line_up([work])
    turns.close()
    assert "".join(taken) == "ABABAB"


def test_a_thousand_that_wait_are_not_gone_through_for_each_that_lines_up_again():
    looked_at = 0

    class Counted(TableTask):
        @property
        def table(self):
            nonlocal looked_at
            looked_at += 1
            return super().table

    tables = 1000
    turns = TableScheduler(2, lambda _: None)
    turns.line_up([Counted(Plan(TableName("", str(number)), CaughtUp()), None, "", "") for number in range(tables)])
    taken = 0
    for work, _ in turns.taken(NO_STOP, None):
        taken += 1
        if taken <= tables:
            turns.line_up([work])
    turns.close()
    assert taken == 2 * tables
    assert looked_at < 100 * tables
