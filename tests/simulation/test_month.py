"""A change costs on the last day of a month what it cost on the tenth: calls, bytes, rows of the ledger, the log."""

from __future__ import annotations

import pytest

from simulation.month import month

CHANGES = 100  # a day
KEPT_DAYS = 30  # that files which left their folder are known by name


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_change_costs_the_same_at_the_end_of_a_month():
    days = month(30, CHANGES)
    tenth, last = days[9], days[-1]
    assert last.calls <= 1.02 * tenth.calls
    assert last.written <= 1.05 * tenth.written
    assert last.rows <= CHANGES * (KEPT_DAYS + 8) + 50
    assert max(day.commits for day in days[20:]) <= 1.2 * max(day.commits for day in days[:20])
