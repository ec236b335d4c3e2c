"""Gathers what `status` and Fabric's files show, from one look at the zone and its plans."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from mirror_engine.errors import StorageUnavailable, TransientError
from mirror_engine.ledger import NEXT_POLL
from mirror_engine.monitoring.fabric_files import FabricTable, beat, last_beat, write
from mirror_engine.monitoring.status import MirrorStatus, table_status

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mirror_engine.doors import Doors
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.sightings import ZoneSighting
    from mirror_engine.steps import Plan

BEAT_SECONDS = 30.0


def mirror_status(
    root: Path, doors: Doors, zone: ZoneSighting, plans: Mapping[TableName, Plan], *, engine_running: bool
) -> MirrorStatus:
    """Everything there is to know of a mirror at one moment."""
    files = {sighting.name: sighting.files for sighting in zone.tables}
    next_poll = doors.ledger.fact(NEXT_POLL)
    return MirrorStatus(
        str(root),
        zone.folder if zone.identity else "",
        tuple(
            table_status(
                plan,
                doors.ledger.progress(table),
                files.get(table, ()),
                rows_live=_rows_live(doors, table),
                default_schema=doors.config.schema_of_bare_tables,
                now=doors.clock(),
            )
            for table, plan in plans.items()
        ),
        zone.diagnostics,
        engine_running,
        last_beat(doors.storage),
        float(next_poll) if engine_running and next_poll else None,
        zone.partner,
    )


def _rows_live(doors: Doors, table: TableName) -> int | None:
    progress = doors.ledger.progress(table)
    if not progress or not progress.has_table:  # another folder's table may lie at its place
        return None
    try:
        return doors.writer.row_count(doors.delta_folder(table))
    except TransientError:  # the plan tells what is wrong with it
        return None


class Traces:
    """Fabric's own files, `replicator.json` and `tables.json`, as an engine leaves them (LZ-9.1)."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._left: list[FabricTable] | None = None
        self._left_at = 0.0

    def leave(self, plans: Mapping[TableName, Plan]) -> None:
        """Rewrite both after a cycle: where they would say something new, and with each heartbeat.

        Raises:
            StorageUnavailable: they could not be written.
        """
        doors = self._doors
        tables = [FabricTable(table, plan.state, doors.ledger.progress(table)) for table, plan in plans.items()]
        if tables == self._left and time.monotonic() - self._left_at < BEAT_SECONDS:
            return
        self._left = None
        write(
            doors.storage,
            tables,
            mirror=doors.ledger.mirror,
            now=doors.clock(),
            default_schema=doors.config.schema_of_bare_tables,
        )
        self._left, self._left_at = tables, time.monotonic()


class Heart:
    """Beats while a cycle takes long, so that a heartbeat is never older than a minute (LZ-9.1)."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heart", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._stopped.wait(BEAT_SECONDS):
            with suppress(StorageUnavailable):  # the cycle meets the same storage, and says so
                beat(self._doors.storage, now=self._doors.clock(), table_count=len(self._doors.ledger.tables()))
