"""Announcements: told when it appears, not again while it holds, again when it comes back."""

from __future__ import annotations

from mirror_engine.engine.context import DiagnosticNotifier
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.names import TableName

ORDERS = TableName("", "Orders")


def test_a_diagnostic_is_told_once_while_it_holds_and_anew_when_it_is_back():
    told = []
    announcements = DiagnosticNotifier(told.append)
    sub_folder, upper = diagnose("ME003", "Orders/a"), diagnose("ME005", "_Orders")
    for held in ([sub_folder], [sub_folder, upper], [upper], [sub_folder, upper]):
        announcements.say(ORDERS, held)
    assert [event.diagnostic for event in told] == [sub_folder, upper, sub_folder]
    announcements.say(None, [upper])
    assert told[-1].table is None
