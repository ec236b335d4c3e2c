"""Stop and start, as the service does it: every Delta table goes, progress is forgotten (LZ-7.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.events import DiagnosticRaised
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.recovery import recover

if TYPE_CHECKING:
    from mirror_engine.doors import Doors
    from mirror_engine.engine import Engine
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.sightings import ZoneSighting


def restart(doors: Doors, engine: Engine, zone: ZoneSighting) -> list[TableName]:
    """Drop all, and tell of each table how many rows cannot be rebuilt from what still lies in the zone (ME069).

    Returns:
        The tables that had a Delta table.

    Raises:
        TransientError: a table could not be dropped; the others before it are.
    """
    recover(doors)
    known = doors.ledger.tables()
    lying = {sighting.name: {file.path for file in sighting.files} for sighting in zone.tables}
    for table, progress in known.items():
        rows = sum(file.rows for path, file in progress.applied.items() if path not in lying.get(table, ()))
        if rows:
            doors.tell(DiagnosticRaised(table, diagnose("ME069", table.folder, count=rows)))
        engine.drop(table, diagnose("ME065", table.folder))
    return sorted(table for table, progress in known.items() if progress.has_table)
