"""Plans for a whole zone, as it was at one look: what bears on every table is brought together here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirror_engine.anchor import Moored
from mirror_engine.errors import StorageUnavailable, TableDamaged
from mirror_engine.inspector import damage_of
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.names import SCHEMA_SUFFIX, TableName
from mirror_engine.landing_zone.register import Severity
from mirror_engine.landing_zone.states import Waiting
from mirror_engine.places import around, changed_by_others, taken_places
from mirror_engine.planner import Circumstances, plan, plan_gone
from mirror_engine.steps import InspectFiles

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from mirror_engine.doors import Doors
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.landing_zone.sightings import TableSighting, ZoneSighting
    from mirror_engine.recovery import DeltaFolders
    from mirror_engine.steps import Plan


@dataclass(frozen=True)
class Look:
    """Everything that is known of a mirror at one moment, to be read only.

    Attributes:
        doors: both, and a copy of the ledger that agrees with the Delta logs.
        zone: what the poller saw.
        plans: per table.
    """

    doors: Doors
    zone: ZoneSighting
    plans: Mapping[TableName, Plan]


@dataclass(frozen=True)
class Settled:
    """A plan in which nothing is to be done, and what it was made from: both are made anew when they change."""

    sighting: TableSighting
    progress: Progress
    plan: Plan


class Outlook:
    """One look at the zone, from which every table's plan is made; reads both doors, changes nothing.

    Args:
        doors: both, and the ledger.
        found: Delta tables of other programs, and damaged ones, as `recover` found them.
        zone: the look.
        before: what was planned by earlier looks; it is brought up to this one.

    Raises:
        StorageUnavailable: ROOT cannot be looked at.
    """

    def __init__(
        self, doors: Doors, found: DeltaFolders, zone: ZoneSighting, before: dict[TableName, Settled] | None = None
    ) -> None:
        self.found = found
        self._before = {} if before is None else before
        self._doors = doors
        self._zone = zone
        self.moored = Moored.at(doors, zone)

    def plans(
        self, only: Collection[TableName] | None = None, but: Collection[TableName] = ()
    ) -> dict[TableName, Plan]:
        """The plan of every table there is or was, or of those named, by what the ledger knows now.

        Args:
            only: these tables; None for all.
            but: tables at hand, which leave those alone that share a place with them, too.

        Raises:
            StorageUnavailable: a folder's content could not be read.
        """
        if only is not None and not only:
            return {}
        names = [sighting.name for sighting in self._zone.tables]
        refusals = taken_places(self._doors, self.found.foreign, names)
        known = self._doors.ledger.tables()
        wanted = (known.keys() | names if only is None else {*only}) - around(self._doors, {*known, *names}, but)
        plans = {
            sighting.name: self._plan(sighting, refusals.get(sighting.name))
            for sighting in self._zone.tables
            if sighting.name in wanted
        }
        circumstances = Circumstances(self._doors.config, self._doors.clock())
        for table in self._gone():
            progress = self._doors.ledger.progress(table)
            if progress and table in wanted:
                plans[table] = plan_gone(table, progress, circumstances)
        return plans

    def plans_after(self, worked: Collection[TableName], others: Collection[TableName]) -> dict[TableName, Plan]:
        """What is left of tables whose steps were done; of others, too, where one that went made room (LZ-1.5)."""
        sighted = {sighting.name for sighting in self._zone.tables}
        return self.plans(worked if sighted.issuperset(worked) else {*worked, *others})

    def _plan(self, sighting: TableSighting, refusal: Diagnostic | None) -> Plan:
        progress = self._doors.ledger.progress(sighting.name)
        moved = self.moored.has_moved(sighting, progress)
        begins_anew = progress is not None and progress.identity != sighting.identity and not moved
        said = None if begins_anew or refusal else self._said_of_its_delta_table(sighting.name, progress)
        if said and said.severity is Severity.ERROR:
            refusal = said
        made = self._planned(sighting, progress, Circumstances(self._doors.config, self._doors.clock(), refusal, moved))
        if progress and progress.owed and not refusal and not begins_anew:
            made = replace(made, steps=(InspectFiles(), *made.steps))
        return replace(made, diagnostics=(*made.diagnostics, said)) if said and not refusal else made

    def _planned(self, sighting: TableSighting, progress: Progress | None, circumstances: Circumstances) -> Plan:
        """A plan; the one made before where it was made from the very same, and time alone does not change it."""
        before = self._before.pop(sighting.name, None)
        is_plain = not circumstances.refusal and not circumstances.moved
        if before and is_plain and before.sighting is sighting and before.progress is progress:
            made = before.plan
        else:
            made = plan(sighting, progress, circumstances)
        if is_plain and progress and not made.steps and not isinstance(made.state, Waiting):
            self._before[sighting.name] = Settled(sighting, progress, made)
        return made

    def _said_of_its_delta_table(self, table: TableName, progress: Progress | None) -> Diagnostic | None:
        """That it cannot be read (ME081), or that its rows are not ours alone (ME080)."""
        folder = self._doors.delta_folder(table)
        if progress and progress.damage:
            return damage_of(table, progress.damage)
        try:
            if folder in self.found.damaged:
                raise self.found.damaged[folder]
            version = changed_by_others(self._doors, table, progress) if progress else -1
        except TableDamaged as error:
            return diagnose("ME081", table.folder, fault=error.fault, remedy=error.hint.rstrip("."))
        except StorageUnavailable:
            return None  # who needs the table meets the same, and says so
        return diagnose("ME080", table.folder, version=version) if version >= 0 else None

    def _gone(self) -> Iterator[TableName]:
        """Known tables whose folders are surely gone: a zone that is away or could not be listed proves nothing."""
        zone = self._zone
        if not zone.identity or self.moored.is_mount_lost or "" in zone.unlisted:
            return
        sighted = {sighting.name for sighting in zone.tables}
        for table in self._doors.ledger.tables():
            schema_folder = f"{table.schema}{SCHEMA_SUFFIX}" if table.schema else ""
            if table not in sighted and not zone.unlisted & {schema_folder, table.folder}:
                yield table
