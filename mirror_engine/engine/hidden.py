"""Known tables whose folder is not there, but may only be hidden: a lost mount or a link is no deletion (LZ-7.2).

Neither is another `ROOT/Tables` without the Delta tables.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from mirror_engine.engine.root_identity import DeltaPlaces, are_tables_hidden
from mirror_engine.landing_zone.layout import TABLES
from mirror_engine.landing_zone.listing import UNLISTED, Kind, unlisted
from mirror_engine.landing_zone.names import SCHEMA_SUFFIX
from mirror_engine.storage.base import NO_IDENTITY, joined, name_alike

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.root_identity import RootIdentityCheck
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import TableListing, ZoneListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.storage.base import Storage

MOUNTS = "mounts"  # property of the ledger: identities of mounted folders in the zone, by path, as JSON
LINK, FILE = "is a symbolic link or special file, which is not followed", "is a file, not a folder"
_STRAYS = {"ME074": LINK, "ME002": FILE}  # by the diagnostic of what is where a folder is to be
RESTORE = "mount or restore the former folder; `mirror-engine rebuild --table {} --yes --lose-rows` gives a table up"
RESTORE_TABLES = (
    "mount or restore the former folder in its place; if it is gone for good, `mirror-engine rebuild --replay` "
    "applies the archived change files again"
)
REPLACE = "put the folder itself in its place, or remove what is there to drop the table"


@dataclass(frozen=True)
class HiddenFolders:
    """The parts of one listing that may hide the folders of known tables."""

    context: EngineContext
    zone: ZoneListing
    root: RootIdentityCheck

    def missing(self, table: TableName, progress: Progress) -> Diagnostic | None:
        """Return why the folder of a known table that is not listed may be hidden; None where it was deleted.

        Raises `StorageUnavailable`.
        """
        places = _places(table)
        for place in places:
            if place in self.zone.unlisted:
                return self._unlisted.get(place) or unlisted(place)
        if self._zone:
            return self._zone
        for place in places:
            if place in self._strays:
                return unlisted(place, self._strays[place], REPLACE)
        return self._renamed(table, progress) or self.remounted(table)

    @cached_property
    def tables(self) -> Diagnostic | None:
        """Why all Delta tables may be hidden; None where they are not. Raises `StorageUnavailable`."""
        if not are_tables_hidden(self.context, self.root.now):
            return None
        return _tables_hidden(TABLES, is_there=bool(self.root.now.tables))

    def of_delta(self, table: TableName) -> Diagnostic | None:
        """Return why a table's Delta table may be hidden, or would be made in a substitute; None where it is not."""
        place = self._delta.hidden(self.context.delta_folder(table))
        return None if place is None else _tables_hidden(joined(TABLES, place), is_there=self._delta.is_there(place))

    def remounted(self, table: TableName) -> Diagnostic | None:
        """Return why another folder in the place of a table's may hide it; None where no mount there changed."""
        now, before = self.zone.mounts, self._mounts
        for place in _places(table):
            if now.get(place) != before.get(place):
                finding = "has another file system mounted at it" if place in now else "has lost its mount"
                return unlisted(place, finding, RESTORE.format(table.normalized))
        return None

    def remember(self) -> None:
        """Store the mounts of this listing, and the places of Delta tables, as the known ones.

        Raises `StorageUnavailable`.
        """
        if self.zone.mounts != self._mounts:
            self.context.ledger.set_property(MOUNTS, json.dumps(self.zone.mounts))
        self._delta.note()

    @cached_property
    def _delta(self) -> DeltaPlaces:
        return DeltaPlaces(self.context)

    @cached_property
    def _mounts(self) -> Mapping[str, str]:
        known: dict[str, str] = json.loads(self.context.ledger.get_property(MOUNTS) or "{}")
        return known

    @cached_property
    def _unlisted(self) -> Mapping[str, Diagnostic]:
        return {found.path: found for found in self.zone.diagnostics if found.code == UNLISTED}

    @cached_property
    def _strays(self) -> Mapping[str, str]:
        """Descriptions of what is in the place of folders, by path."""
        return {found.path: _STRAYS[found.code] for found in self.zone.diagnostics if found.code in _STRAYS}

    @cached_property
    def _zone(self) -> Diagnostic | None:
        """Why the whole zone may be hidden or replaced; None if it is the known one."""
        if not self.zone.identity:
            return _absent(self.context.storage, self.zone.folder)
        if self.root.now.zone == self.root.before.zone:
            return None
        finding = f"`{self.zone.folder}` is another folder than before"
        return unlisted("", f"{finding}{'' if self.zone.tables else ', and empty'}", RESTORE.format("TABLE"))

    @cached_property
    def _by_folded_name(self) -> Mapping[str, TableListing]:
        return {listing.name.folder.casefold(): listing for listing in self.zone.tables}

    def _renamed(self, table: TableName, progress: Progress) -> Diagnostic | None:
        """Return a finding if a table or schema folder has its name in another case (LZ-7.6)."""
        *above, folder = _places(table)
        found = self._by_folded_name.get(folder.casefold())
        if found is None or found.identity != progress.identity or found.identity == NO_IDENTITY:
            found = next(filter(None, (self._by_folded_name.get(place.casefold()) for place in above)), None)
        if found is None:
            return None
        help = "rename it back, or delete it to drop the table"
        return unlisted(folder, f"was renamed to `{found.name.folder}`", help)


def _tables_hidden(place: str, *, is_there: bool) -> Diagnostic:
    finding = "is another folder than before, without the Delta tables" if is_there else "is missing"
    return unlisted("", f"`{place}` {finding}", RESTORE_TABLES, place=place)


def _places(table: TableName) -> tuple[str, ...]:
    """The folders that lead to a table's change files, from the zone's top."""
    return (f"{table.schema}{SCHEMA_SUFFIX}", table.folder) if table.schema else (table.folder,)


def _absent(storage: Storage, zone: str) -> Diagnostic:
    """Describe what is at the path of a missing zone."""
    parts = zone.split("/")
    for depth in range(1, len(parts) + 1):
        place = "/".join(parts[:depth])
        found = storage.stat(place)
        if found is None:
            if near := name_alike(storage, place):
                return unlisted("", f"`{place}` is missing, but `{near}` is there", f"rename `{near}` to `{place}`")
            break
        if found.kind is not Kind.FOLDER:
            finding = f"`{place}` {LINK if found.kind is Kind.OTHER else FILE}"
            return unlisted("", finding, "put the folder itself in its place")
    return unlisted("", f"`{zone}` is missing", RESTORE.format("TABLE"))
