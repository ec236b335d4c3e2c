"""Tells a diagnostic when it appears, and not again while it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.events import DiagnosticRaised, Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName


class Announcements:
    """What holds now of every table, as far as it was told; None stands for the zone."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self._tell = tell
        self._told: dict[TableName | None, frozenset[Diagnostic]] = {}

    def say(self, table: TableName | None, diagnostics: Sequence[Diagnostic]) -> None:
        """Tell what did not hold before, and forget what is over."""
        before = self._told.get(table, frozenset())
        self._told[table] = frozenset(diagnostics)
        for diagnostic in diagnostics:
            if diagnostic not in before:
                self._tell(DiagnosticRaised(table, diagnostic))
