"""Diagnostics are reported when they appear, not again while they hold, again when they come back."""

from __future__ import annotations

from mirror_engine.engine.context import DiagnosticNotifier
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.names import TableName

ORDERS = TableName("", "Orders")


def test_a_diagnostic_is_reported_when_it_appears_and_when_it_comes_back():
    events = []
    notifier = DiagnosticNotifier(events.append)
    sub_folder, upper = diagnose("ME003", "Orders/a"), diagnose("ME005", "_Orders")
    for diagnostics in ([sub_folder], [sub_folder, upper], [upper], [sub_folder, upper]):
        notifier.update(ORDERS, diagnostics)
    assert [event.diagnostic for event in events] == [sub_folder, upper, sub_folder]
    notifier.update(None, [upper])
    assert events[-1].table is None
