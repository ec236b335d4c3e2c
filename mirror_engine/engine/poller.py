"""Reports what is in the landing zone: folders, files and their identities, as they are now (chapter 1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.detection import ChangeFileName, hidden_name
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.landing_zone.listing import (
    LandedFile,
    MetadataAbsent,
    MetadataSighting,
    MetadataUnusable,
    MetadataUsable,
    TableListing,
    ZoneListing,
)
from mirror_engine.landing_zone.metadata import MAX_BYTES, PartnerEvents, parse, parse_partner_events
from mirror_engine.landing_zone.names import (
    CLEANED_FOLDERS,
    METADATA_FILE,
    PARTNER_EVENTS_FILE,
    RESERVED_IN_TABLE,
    TABLES_OF_THE_SERVICE,
    TableName,
    first_sight_order,
    schema_of,
)
from mirror_engine.landing_zone.partitions import DEEPEST, parse_level
from mirror_engine.storage.base import Entry, Kind, joined

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mirror_engine.config import Config
    from mirror_engine.storage.base import Storage

Listings = dict[str, "Sequence[Entry]"]  # a folder's entries, by its path from the table folder

TRIES = 3  # at a folder that changes while it is looked at


def file_sighting(path: str, entry: Entry) -> LandedFile:
    """A listed file as a sighting; `path` is from the table folder."""
    return LandedFile(path, entry.size, entry.modified_ns, entry.identity)


def is_as_sighted(storage: Storage, folder: str, file: LandedFile) -> bool:
    """Whether a file of a table folder (from ROOT) is still the one that was sighted: nobody has replaced it since.

    Raises:
        StorageUnavailable: nothing is known of it.
    """
    found = storage.stat(f"{folder}/{file.path}")
    return found is not None and file_sighting(file.path, found) == file


@dataclass(frozen=True)
class _Seen:
    """A table folder as it was at an earlier look."""

    identity: str
    listings: Listings
    listing: TableListing


class TableFolders:
    """Table folders, each remembered from look to look, so that only what changed is read again.

    Args:
        storage: door 1.
        strict: whether severities are those of `strict`.
    """

    def __init__(self, storage: Storage, *, strict: bool) -> None:
        self._storage = storage
        self._strict = strict
        self._seen: dict[TableName, _Seen] = {}

    def look(self, zone: str, name: TableName, entry: Entry) -> TableListing | None:
        """See a table folder in one state, never half before and half after a change.

        Args:
            zone: the landing zone, from ROOT.
            name: the table.
            entry: its folder as it was listed.

        Returns:
            The sighting; None where the folder went away, or changed each time it was looked at.

        Raises:
            StorageUnavailable: it could not be listed, or its metadata not be read.
        """
        folder, here = f"{zone}/{name.folder}", entry
        for _ in range(TRIES):
            seen = self._seen.get(name)
            listings = self._listings(folder)
            if listings is not None and seen and (seen.identity, seen.listings) == (here.identity, listings):
                return seen.listing
            metadata = None if listings is None else self._metadata(folder, name, listings[""])
            now = self._storage.stat(folder)
            if now is None or now.kind is not Kind.FOLDER:
                return None
            if listings is not None and metadata is not None and now.identity == here.identity:
                listing = _sighting(name, here.identity, metadata, listings, strict=self._strict)
                self._seen[name] = _Seen(here.identity, listings, listing)
                return listing
            here = now
        return None

    def keep(self, names: Collection[TableName]) -> None:
        """Forget all other tables."""
        self._seen = {name: seen for name, seen in self._seen.items() if name in names}

    def _listings(self, folder: str) -> Listings | None:
        """The folder and all Hive folders below it; None where one went away meanwhile (LZ-3.7)."""
        listings: Listings = {}
        pending = [""]
        while pending:
            below = pending.pop()
            entries = self._storage.list(joined(folder, below))
            if entries is None:
                return None
            listings[below] = entries
            if below.count("/") + bool(below) < DEEPEST:
                pending += [joined(below, entry.name) for entry in entries if _is_partition(entry)]
        return listings

    def _metadata(self, folder: str, name: TableName, entries: Sequence[Entry]) -> MetadataSighting | None:
        """The folder's metadata, read only if it is another than before; None where it changed while read (LZ-2.1)."""
        entry = next((each for each in entries if each.name == METADATA_FILE and each.kind is Kind.FILE), None)
        if entry is None:
            return MetadataAbsent()
        etag = file_sighting(METADATA_FILE, entry).etag
        seen = self._seen.get(name)
        before = seen.listing.metadata if seen else MetadataAbsent()
        if not isinstance(before, MetadataAbsent) and before.etag == etag:
            return before
        content = read_unchanged(self._storage, f"{folder}/{METADATA_FILE}", entry, MAX_BYTES + 1)
        if content is None:
            return None
        metadata, diagnostics = parse(content, f"{name.folder}/{METADATA_FILE}", strict=self._strict)
        return MetadataUsable(etag, metadata, diagnostics) if metadata else MetadataUnusable(etag, diagnostics)


def read_unchanged(storage: Storage, path: str, entry: Entry, most_bytes: int) -> bytes | None:
    """A small file's bytes, no more than `most_bytes`; None where it is no longer what was listed."""
    try:
        with storage.open(path) as file:
            content = file.read(most_bytes)
    except FileNotFoundError:
        return None
    return content if storage.stat(path) == entry else None


def _is_partition(entry: Entry) -> bool:
    return entry.kind is Kind.FOLDER and parse_level(entry.name) is not None


def _sighting(
    name: TableName, identity: str, metadata: MetadataSighting, listings: Mapping[str, Sequence[Entry]], *, strict: bool
) -> TableListing:
    files: list[LandedFile] = []
    diagnostics: list[Diagnostic] = []
    expected = metadata.metadata.extension if isinstance(metadata, MetadataUsable) else "a final name"
    for below, entries in listings.items():
        for entry in entries:
            path = joined(below, entry.name)
            code = None if path in listings else _passed_over(entry, path)
            if code == "ME021":
                diagnostics.append(hidden_name(f"{name.folder}/{path}", expected, strict=strict))
            elif code:
                diagnostics.append(diagnose(code, f"{name.folder}/{path}", strict=strict, first=entry.name[0]))
            elif entry.kind is Kind.FILE and path != METADATA_FILE:
                files.append(file_sighting(path, entry))
    return TableListing(
        name,
        identity,
        metadata,
        tuple(sorted(files, key=lambda file: file.path)),
        tuple(sorted(diagnostics, key=lambda said: said.path)),
    )


def _passed_over(entry: Entry, path: str) -> str | None:
    """The diagnostic for what is no change file; None for one that may be, and for the engine's own folders."""
    is_hidden = entry.name[0] in "._"
    if entry.kind is Kind.OTHER:
        return "ME074"
    if entry.kind is Kind.FOLDER:
        if path in CLEANED_FOLDERS:
            return None
        return "ME082" if is_hidden else "ME003"
    if entry.name == PARTNER_EVENTS_FILE:
        return "ME006"
    return "ME021" if is_hidden and path != METADATA_FILE else None


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

    def look(self) -> ZoneListing:
        """What is there now (LZ-3.1).

        Returns:
            The sighting. Where there is no zone yet, an empty one with the identity `""`.

        Raises:
            StorageUnavailable: the zone could not be listed; nothing is known of any table (ME070).
        """
        view, zone = self._zone()
        if zone is None:
            return ZoneListing(ZONE, "", diagnostics=tuple(view.diagnostics))
        for entry in self._zone_entries(view.zone, zone):
            self._place(view, entry)
        tables = tuple(self._tables(view))
        self._table_folders.keep(view.tables)
        if len(view.tables) > TABLES_OF_THE_SERVICE:
            view.diagnostics.append(self._said("ME007", view.zone, count=len(view.tables)))
        return ZoneListing(
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

    def _tables(self, view: _View) -> list[TableListing]:
        """Every table folder that can be seen, schema folders first, then by name."""
        listings = []
        for name in sorted(view.tables, key=first_sight_order):
            try:
                listing = self._table_folders.look(view.zone, name, view.tables[name])
            except StorageUnavailable:
                listing = None
            if listing:
                listings.append(listing)
            else:
                view.diagnostics.append(self._said("ME070", name.folder))
                view.unlisted.add(name.folder)
        return listings

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
