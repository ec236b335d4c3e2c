"""Pauses: each longer than the one before, until a try goes well."""

from __future__ import annotations

from mirror_engine.engine.scheduler import Backoff
from mirror_engine.landing_zone.names import TableName

ORDERS, ITEMS, STORES = (TableName("", name) for name in ("Orders", "Items", "Stores"))


def test_pauses_double_up_to_the_longest():
    pauses = Backoff(100.0, 300.0)
    assert [pauses.begin(ORDERS) for _ in range(4)] == [100.0, 200.0, 300.0, 300.0]
    pauses.end([ORDERS])
    assert pauses.begin(ORDERS) == 100.0


def test_after_a_round_only_the_untried_and_the_failed_stay_put_off():
    pauses = Backoff(100.0, 300.0)
    for table in (ORDERS, ITEMS, STORES):
        pauses.begin(table)
    pauses.end_all_but({ORDERS}, {ITEMS: "failed again"})
    assert pauses.waiting == {ORDERS, ITEMS}
    assert pauses.begin(STORES) == 100.0
    assert pauses.begin(ORDERS) == 200.0
