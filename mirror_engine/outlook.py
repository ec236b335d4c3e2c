"""What bears on every table's plan: who owns a Delta folder, whether ROOT was moved, what must not be dropped."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mirror_engine.errors import TransientError
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.layout import TABLES
from mirror_engine.landing_zone.names import SCHEMA_SUFFIX, TABLES_OF_THE_SERVICE, TableName, conflicts
from mirror_engine.ledger import ANCHOR
from mirror_engine.planner import Circumstances, plan, plan_gone
from mirror_engine.recovery import Anchor, owner_of, same_content

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mirror_engine.doors import Doors
    from mirror_engine.landing_zone.sightings import TableSighting, ZoneSighting
    from mirror_engine.steps import Plan


class Outlook:
    """Plans for a whole zone; reads both doors, changes nothing but the remembered anchor."""

    def __init__(self, doors: Doors, foreign: Collection[str]) -> None:
        self._doors = doors
        self._foreign = foreign
        self.anchor = Anchor("", "")
        self._known_anchor = self.anchor

    def look_at(self, zone: ZoneSighting) -> None:
        """Take in where ROOT's own folders are now.

        Raises:
            StorageUnavailable: ROOT cannot be looked at.
        """
        tables = self._doors.storage.stat(TABLES)
        self.anchor = Anchor(tables.identity if tables else "", zone.identity)
        known = self._doors.ledger.fact(ANCHOR)
        self._known_anchor = Anchor.parse(known) if known else self.anchor

    def settle(self, zone: ZoneSighting) -> None:
        """Remember the anchor, once every folder's identity has been learned."""
        is_certain = zone.identity and not zone.unlisted and not self._is_mount_lost(zone)
        if is_certain and str(self.anchor) != self._doors.ledger.fact(ANCHOR):
            self._doors.ledger.note(ANCHOR, str(self.anchor))

    def plans(self, zone: ZoneSighting, only: Collection[TableName] | None = None) -> dict[TableName, Plan]:
        """The plan of every table there is or was, or of those named."""
        refusals = self._refusals(zone)
        plans = {
            sighting.name: plan(
                sighting,
                self._doors.ledger.progress(sighting.name),
                self._circumstances(refusals.get(sighting.name), moved=self._is_moved(zone, sighting)),
            )
            for sighting in zone.tables
            if only is None or sighting.name in only
        }
        for table in self._gone(zone):
            progress = self._doors.ledger.progress(table)
            if progress and (only is None or table in only):
                plans[table] = plan_gone(table, progress, self._circumstances(None, moved=False))
        return plans

    def _circumstances(self, refusal: Diagnostic | None, *, moved: bool) -> Circumstances:
        return Circumstances(self._doors.config, self._doors.clock(), refusal, moved)

    def _is_moved(self, zone: ZoneSighting, sighting: TableSighting) -> bool:
        """Whether another folder identity means a copied ROOT; a recreated zone is told by its content."""
        progress = self._doors.ledger.progress(sighting.name)
        if not progress or progress.identity == sighting.identity or self.anchor == self._known_anchor:
            return False
        if self.anchor.tables != self._known_anchor.tables:
            return True
        return same_content(self._doors.storage, f"{zone.folder}/{sighting.name.folder}", progress)

    def _gone(self, zone: ZoneSighting) -> Iterator[TableName]:
        """Known tables whose folders are surely gone: a zone that is away or could not be listed proves nothing."""
        if not zone.identity or self._is_mount_lost(zone) or "" in zone.unlisted:
            return
        sighted = {sighting.name for sighting in zone.tables}
        for table in self._doors.ledger.tables():
            schema_folder = f"{table.schema}{SCHEMA_SUFFIX}" if table.schema else ""
            if table not in sighted and not zone.unlisted & {schema_folder, table.folder}:
                yield table

    def _is_mount_lost(self, zone: ZoneSighting) -> bool:
        """Whether the zone may be the bare mount point of another: it is another than before, and empty."""
        return zone.identity != self._known_anchor.zone and not zone.tables

    def _refusals(self, zone: ZoneSighting) -> dict[TableName, Diagnostic]:
        """Tables that the zone leaves no place for (ME004, ME007 under strict) or whose place is taken."""
        names = [sighting.name for sighting in zone.tables]
        owners = [name for name in self._doors.ledger.tables() if self._owns(name)]  # their folders seen or not
        refusals: dict[TableName, Diagnostic] = {}
        for second, owner in conflicts({*names, *owners}, self._doors.config.schema_of_bare_tables).items():
            loser, winner = (owner, second) if self._owns(second) and not self._owns(owner) else (second, owner)
            refusals[loser] = self._taken(loser, winner.folder)
        for name in names:
            if self._is_foreign(self._doors.delta_folder(name)):
                refusals.setdefault(name, self._taken(name, "another program"))
        if self._doors.config.strict and len(names) > TABLES_OF_THE_SERVICE:
            for name in sorted(names, key=self._first_seen)[TABLES_OF_THE_SERVICE:]:
                refusals.setdefault(name, diagnose("ME007", name.folder, strict=True, count=len(names)))
        return refusals

    def _is_foreign(self, folder: str) -> bool:
        """Whether a table that was not ours when the engine started still lies there."""
        if folder not in self._foreign:
            return False
        try:
            state = self._doors.writer.state(folder)
        except TransientError:
            return True
        return state is not None and owner_of(self._doors, folder, state) is None

    def _first_seen(self, table: TableName) -> tuple[float, TableName]:
        progress = self._doors.ledger.progress(table)
        return (progress.armed_at if progress and progress.armed_at else math.inf, table)

    def _owns(self, table: TableName) -> bool:
        progress = self._doors.ledger.progress(table)
        return progress is not None and progress.has_table

    def _taken(self, table: TableName, owner: str) -> Diagnostic:
        return diagnose("ME004", table.folder, table=self._doors.delta_folder(table), folder=owner)
