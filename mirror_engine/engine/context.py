"""Both doors, the ledger between them, and what else everyone in the corridor shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.events import DiagnosticRaised, Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror_engine.config import Config
    from mirror_engine.engine.ledger import Ledger
    from mirror_engine.events import Event
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.base import DeltaWriter


@dataclass(frozen=True)
class EngineContext:
    """What the corridor works on.

    Attributes:
        storage: door 1, the landing zone's files.
        writer: door 2, the mirrored tables.
        ledger: how far each table is.
        config: all options.
        clock: seconds since 1970.
        tell: sends an event to every listener.
    """

    storage: Storage
    writer: DeltaWriter
    ledger: Ledger
    config: Config
    clock: Callable[[], float]
    tell: Callable[[Event], None]

    def delta_folder(self, table: TableName) -> str:
        """Where a table's Delta table lies, from `ROOT/Tables` (LZ-1.4)."""
        return table.delta_folder(self.config.delta_default_schema)


class DiagnosticNotifier:
    """What holds now of every table, as far as it was told; None stands for the zone."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self._tell = tell
        self._told: dict[TableName | None, frozenset[Diagnostic]] = {}

    def update(self, table: TableName | None, diagnostics: Sequence[Diagnostic]) -> None:
        """Tell what did not hold before, and forget what is over."""
        before = self._told.get(table, frozenset())
        self._told[table] = frozenset(diagnostics)
        for diagnostic in diagnostics:
            if diagnostic not in before:
                self._tell(DiagnosticRaised(table, diagnostic))
