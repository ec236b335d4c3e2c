"""Reports what is in the landing zone: folders, files and their identities, as they are now (chapter 1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.change_file import ChangeFileName
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.landing_zone.names import (
    METADATA_FILE,
    PARTNER_EVENTS_FILE,
    RESERVED_IN_TABLE,
    TABLES_OF_THE_SERVICE,
    TableName,
    first_sight_order,
    schema_of,
)
from mirror_engine.landing_zone.partner_events import MAX_BYTES, PartnerEvents, parse_partner_events
from mirror_engine.landing_zone.sightings import TableSighting, ZoneSighting
from mirror_engine.storage.base import Entry, Kind
from mirror_engine.table_folders import TableFolders, file_sighting, read_unchanged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.config import Config
    from mirror_engine.storage.base import Storage


@dataclass
class _View:
    """One look in the making."""

    zone: str
    tables: dict[TableName, Entry] = field(default_factory=dict)
    unlisted: set[str] = field(default_factory=set)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    partner: PartnerEvents | None = None


class Poller:
    """Looks at the landing zone; never trusts events, always lists.

    Args:
        storage: door 1.
        config: all options.
    """

    def __init__(self, storage: Storage, config: Config) -> None:
        self._storage = storage
        self._strict = config.strict
        self._table_folders = TableFolders(storage, strict=config.strict)
        self._partner_etag = ""
        self._partner: PartnerEvents | None = None

    def look(self) -> ZoneSighting:
        """What is there now (LZ-3.1).

        Returns:
            The sighting. Where there is no zone yet, an empty one with the identity `""`.

        Raises:
            StorageUnavailable: the zone could not be listed; nothing is known of any table (ME070).
        """
        view, zone = self._zone()
        if zone is None:
            return ZoneSighting(ZONE, "", diagnostics=tuple(view.diagnostics))
        for entry in self._zone_entries(view.zone, zone):
            self._place(view, entry)
        tables = tuple(self._tables(view))
        self._table_folders.keep(view.tables)
        if len(view.tables) > TABLES_OF_THE_SERVICE:
            view.diagnostics.append(self._said("ME007", view.zone, count=len(view.tables)))
        return ZoneSighting(
            view.zone, zone.identity, tables, frozenset(view.unlisted), tuple(view.diagnostics), view.partner
        )

    def _zone(self) -> tuple[_View, Entry | None]:
        """Which of the two layouts is read (LZ-1.1)."""
        found = {path: self._storage.stat(path) for path in (ZONE, OLDER_ZONE)}
        zones = [(path, entry) for path, entry in found.items() if entry and entry.kind is Kind.FOLDER]
        path, zone = zones[0] if zones else (ZONE, None)
        view = _View(path)
        for place, entry in found.items():
            if entry and entry.kind is not Kind.FOLDER:
                view.diagnostics.append(self._said("ME074" if entry.kind is Kind.OTHER else "ME002", place))
        if len(zones) > 1:
            view.diagnostics.append(self._said("ME001", OLDER_ZONE))
        return view, zone

    def _zone_entries(self, path: str, zone: Entry) -> Sequence[Entry]:
        """The zone's entries; a zone that went away, or another one, while it was listed says nothing of deletions."""
        entries = self._storage.list(path)
        after = self._storage.stat(path)
        if entries is None or after is None or after.identity != zone.identity:
            raise StorageUnavailable(f"{path}: went away while it was listed", "Check the mount that ROOT lies on.")
        return entries

    def _place(self, view: _View, entry: Entry) -> None:
        """Tell what an entry at the zone's top is (LZ-1.3, LZ-1.8)."""
        if entry.kind is Kind.FILE and entry.name == PARTNER_EVENTS_FILE:
            self._read_partner(view, entry)
        elif self._is_passed_over(view, entry.name, entry):
            return
        elif (schema := schema_of(entry.name)) is not None:
            self._place_schema(view, schema, entry)
        else:
            view.tables[TableName("", entry.name)] = entry

    def _place_schema(self, view: _View, schema: str, folder: Entry) -> None:
        """Tell what lies in a schema folder; one that cannot be listed proves no deletion (LZ-7.2)."""
        path = f"{view.zone}/{folder.name}"
        try:
            entries, after = self._storage.list(path), self._storage.stat(path)
        except StorageUnavailable:
            entries = after = None
        if entries is None or after is None or after.identity != folder.identity:
            view.diagnostics.append(self._said("ME070", folder.name))
            view.unlisted.add(folder.name)
            return
        for entry in entries:
            if not self._is_passed_over(view, f"{folder.name}/{entry.name}", entry):
                view.tables[TableName(schema, entry.name)] = entry

    def _is_passed_over(self, view: _View, path: str, entry: Entry) -> bool:
        """Whether an entry at the top or in a schema folder is no table, nor a schema; if so, say it."""
        if entry.kind is Kind.OTHER:
            view.diagnostics.append(self._said("ME074", path))
        elif entry.kind is Kind.FILE:
            self._say_stray(view, path)
        elif entry.name[0] in "._":
            self._say_hidden(view, path)
        else:
            return False
        return True

    def _tables(self, view: _View) -> list[TableSighting]:
        """Every table folder that can be seen, schema folders first, then by name."""
        sightings = []
        for name in sorted(view.tables, key=first_sight_order):
            try:
                sighting = self._table_folders.look(view.zone, name, view.tables[name])
            except StorageUnavailable:
                sighting = None
            if sighting:
                sightings.append(sighting)
            else:
                view.diagnostics.append(self._said("ME070", name.folder))
                view.unlisted.add(name.folder)
        return sightings

    def _read_partner(self, view: _View, entry: Entry) -> None:
        """Read the partner events if they are others than before; for display, so that nothing here is grave."""
        etag = file_sighting(entry.name, entry).etag
        if etag != self._partner_etag:
            try:
                content = read_unchanged(self._storage, f"{view.zone}/{entry.name}", entry, MAX_BYTES + 1)
            except StorageUnavailable:
                content = None
            self._partner_etag = "" if content is None else etag
            self._partner = None if content is None else parse_partner_events(content)
        view.partner = self._partner
        if view.partner is None:
            view.diagnostics.append(self._said("ME006", entry.name))

    def _say_stray(self, view: _View, path: str) -> None:
        """Say of a file beside the table folders that it is ignored (LZ-1.8, LZ-1.9)."""
        name = path.rpartition("/")[2]
        if name == PARTNER_EVENTS_FILE:
            view.diagnostics.append(self._said("ME006", path))
        else:
            code = "ME082" if name[0] in "._" and name != METADATA_FILE else "ME002"
            view.diagnostics.append(self._said(code, path, first=name[0]))

    def _say_hidden(self, view: _View, path: str) -> None:
        """Say of a hidden folder that it is skipped, the louder if it looks like a table or schema (LZ-1.6, LZ-1.7)."""
        name = path.rpartition("/")[2]
        may_be_meant = name[0] == "_" and name not in RESERVED_IN_TABLE
        is_meant = may_be_meant and (schema_of(name) is not None or self._holds_a_table(f"{view.zone}/{path}"))
        view.diagnostics.append(self._said("ME005" if is_meant else "ME082", path, first=name[0]))

    def _holds_a_table(self, folder: str) -> bool:
        signs = (METADATA_FILE, str(ChangeFileName(1)), str(ChangeFileName(1, "csv")))
        try:
            return any(self._storage.stat(f"{folder}/{sign}") for sign in signs)
        except StorageUnavailable:
            return False

    def _said(self, code: str, path: str, **details: Any) -> Diagnostic:  # noqa: ANN401 - what `diagnose` takes
        return diagnose(code, path, strict=self._strict, **details)
