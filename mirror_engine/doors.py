"""Both doors, the ledger between them, and what else everyone in the corridor shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror_engine.config import Config
    from mirror_engine.delta.base import DeltaWriter
    from mirror_engine.events import Event
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.ledger import Ledger
    from mirror_engine.storage.base import Storage


@dataclass(frozen=True)
class Doors:
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
        return table.delta_folder(self.config.schema_of_bare_tables)
