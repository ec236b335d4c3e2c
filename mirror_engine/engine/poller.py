"""Scans of the landing zone: table folders, change files and metadata, as they are now."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.detection import hidden_name, numbered_name
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.landing_zone.listing import (
    LandedFile,
    MetadataAbsent,
    MetadataListing,
    MetadataUnusable,
    MetadataUsable,
    TableListing,
    ZoneListing,
)
from mirror_engine.landing_zone.metadata import MAX_BYTES, PartnerEvents, parse, parse_partner_events
from mirror_engine.landing_zone.names import (
    CLEANED_FOLDERS,
    MAX_FABRIC_TABLES,
    METADATA_FILE,
    PARTNER_EVENTS_FILE,
    RESERVED_IN_TABLE,
    TableName,
    ownership_order,
    schema_of,
)
from mirror_engine.landing_zone.partitions import MAX_DEPTH, parse_name
from mirror_engine.storage.base import Entry, Kind, joined

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mirror_engine.config import Config
    from mirror_engine.storage.base import Storage

Listings = dict[str, "Sequence[Entry]"]  # a folder's entries, by its path from the table folder

MAX_SCANS = 3  # of a folder that changes while it is scanned


def landed_file(path: str, entry: Entry) -> LandedFile:
    """Return a listed file; `path` is from the table folder."""
    return LandedFile(path, entry.size, entry.modified_ns, entry.identity)


def is_unchanged(storage: Storage, folder: str, file: LandedFile) -> bool:
    """Whether a file of a table folder (from ROOT) is still the one that was listed.

    Raises:
        StorageUnavailable: nothing is known of it.
    """
    entry = storage.stat(f"{folder}/{file.path}")
    return entry is not None and landed_file(file.path, entry) == file


@dataclass(frozen=True)
class _Scanned:
    """A table folder as it was at an earlier scan."""

    identity: str
    listings: Listings
    listing: TableListing


class TableFolders:
    """Scans table folders, and reads again only what changed since the last scan.

    Args:
        storage: of the landing zone.
        strict: whether severities are those of `strict`.
    """

    def __init__(self, storage: Storage, *, strict: bool) -> None:
        self._storage = storage
        self._strict = strict
        self._scanned: dict[TableName, _Scanned] = {}

    def scan(self, zone: str, name: TableName, entry: Entry) -> TableListing | None:
        """List a table folder in one state, never half before and half after a change.

        Args:
            zone: the landing zone, from ROOT.
            name: the table.
            entry: its folder as it was listed.

        Returns:
            The listing; None where the folder disappeared, or changed during each scan.

        Raises:
            StorageUnavailable: the folder could not be listed, or its metadata not be read.
        """
        folder, here = f"{zone}/{name.folder}", entry
        for _ in range(MAX_SCANS):
            before = self._scanned.get(name)
            listings = self._listings(folder)
            if listings is not None and before and (before.identity, before.listings) == (here.identity, listings):
                return before.listing
            metadata = None if listings is None else self._metadata(folder, name, listings[""])
            now = self._storage.stat(folder)
            if now is None or now.kind is not Kind.FOLDER:
                return None
            if listings is not None and metadata is not None and now.identity == here.identity:
                listing = _listing(name, here.identity, metadata, listings, strict=self._strict)
                self._scanned[name] = _Scanned(here.identity, listings, listing)
                return listing
            here = now
        return None

    def keep(self, names: Collection[TableName]) -> None:
        """Forget all other tables."""
        self._scanned = {name: scanned for name, scanned in self._scanned.items() if name in names}

    def _listings(self, folder: str) -> Listings | None:
        """List the folder and all Hive folders below it; None where one disappeared meanwhile (LZ-3.7)."""
        listings: Listings = {}
        pending = [""]
        while pending:
            below = pending.pop()
            entries = self._storage.list(joined(folder, below))
            if entries is None:
                return None
            listings[below] = entries
            if below.count("/") + bool(below) < MAX_DEPTH:
                pending += [joined(below, entry.name) for entry in entries if _is_partition(entry)]
        return listings

    def _metadata(self, folder: str, name: TableName, entries: Sequence[Entry]) -> MetadataListing | None:
        """Return the folder's metadata, read only if it changed; None where it changed while it was read (LZ-2.1)."""
        entry = next((entry for entry in entries if entry.name == METADATA_FILE and entry.kind is Kind.FILE), None)
        if entry is None:
            return MetadataAbsent()
        etag = landed_file(METADATA_FILE, entry).etag
        before = self._scanned.get(name)
        known = before.listing.metadata if before else MetadataAbsent()
        if not isinstance(known, MetadataAbsent) and known.etag == etag:
            return known
        content = read_unchanged(self._storage, f"{folder}/{METADATA_FILE}", entry, MAX_BYTES + 1)
        if content is None:
            return None
        metadata, diagnostics = parse(content, f"{name.folder}/{METADATA_FILE}", strict=self._strict)
        return MetadataUsable(etag, metadata, diagnostics) if metadata else MetadataUnusable(etag, diagnostics)


def read_unchanged(storage: Storage, path: str, entry: Entry, max_bytes: int) -> bytes | None:
    """Return at most `max_bytes` of a file; None where it is no longer the listed one."""
    try:
        with storage.open(path) as file:
            content = file.read(max_bytes)
    except FileNotFoundError:
        return None
    return content if storage.stat(path) == entry else None


def _is_partition(entry: Entry) -> bool:
    return entry.kind is Kind.FOLDER and parse_name(entry.name) is not None


def _listing(
    name: TableName, identity: str, metadata: MetadataListing, listings: Mapping[str, Sequence[Entry]], *, strict: bool
) -> TableListing:
    files: list[LandedFile] = []
    diagnostics: list[Diagnostic] = []
    expected = metadata.metadata.extension if isinstance(metadata, MetadataUsable) else "a final name"
    for below, entries in listings.items():
        for entry in entries:
            path = joined(below, entry.name)
            code = None if path in listings else _ignored_because(entry, path)
            if code == "ME021":
                diagnostics.append(hidden_name(f"{name.folder}/{path}", expected, strict=strict))
            elif code:
                diagnostics.append(diagnose(code, f"{name.folder}/{path}", strict=strict, first=entry.name[0]))
            elif entry.kind is Kind.FILE and path != METADATA_FILE:
                files.append(landed_file(path, entry))
    return TableListing(
        name,
        identity,
        metadata,
        tuple(sorted(files, key=lambda file: file.path)),
        tuple(sorted(diagnostics, key=lambda diagnostic: diagnostic.path)),
    )


def _ignored_because(entry: Entry, path: str) -> str | None:
    """Return the diagnostic for an entry that is ignored; None for possible change files and the engine's folders."""
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
class _Scan:
    """A scan of the zone in progress."""

    zone: str
    tables: dict[TableName, Entry] = field(default_factory=dict)
    unlisted: set[str] = field(default_factory=set)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    partner: PartnerEvents | None = None


class Poller:
    """Scans the landing zone; always by listing, never by events.

    Args:
        storage: of the landing zone.
        config: all options.
    """

    def __init__(self, storage: Storage, config: Config) -> None:
        self._storage = storage
        self._strict = config.strict
        self._table_folders = TableFolders(storage, strict=config.strict)
        self._partner_etag = ""
        self._partner: PartnerEvents | None = None

    def scan(self) -> ZoneListing:
        """List the landing zone (LZ-3.1).

        Returns:
            The listing. Where there is no zone yet, an empty one with the identity `""`.

        Raises:
            StorageUnavailable: the zone could not be listed; nothing is known of any table (ME070).
        """
        scan, zone = self._zone()
        if zone is None:
            return ZoneListing(ZONE, "", diagnostics=tuple(scan.diagnostics))
        for entry in self._zone_entries(scan.zone, zone):
            self._add(scan, entry)
        tables = tuple(self._tables(scan))
        self._table_folders.keep(scan.tables)
        if len(scan.tables) > MAX_FABRIC_TABLES:
            scan.diagnostics.append(self._diagnose("ME007", scan.zone, count=len(scan.tables)))
        return ZoneListing(
            scan.zone, zone.identity, tables, frozenset(scan.unlisted), tuple(scan.diagnostics), scan.partner
        )

    def _zone(self) -> tuple[_Scan, Entry | None]:
        """Choose which of the two layouts is read (LZ-1.1)."""
        folders = {path: self._storage.stat(path) for path in (ZONE, OLDER_ZONE)}
        zones = [(path, entry) for path, entry in folders.items() if entry and entry.kind is Kind.FOLDER]
        path, zone = zones[0] if zones else (ZONE, None)
        scan = _Scan(path)
        for place, entry in folders.items():
            if entry and entry.kind is not Kind.FOLDER:
                scan.diagnostics.append(self._diagnose("ME074" if entry.kind is Kind.OTHER else "ME002", place))
        if len(zones) > 1:
            scan.diagnostics.append(self._diagnose("ME001", OLDER_ZONE))
        return scan, zone

    def _zone_entries(self, path: str, zone: Entry) -> Sequence[Entry]:
        """List the zone; if it disappeared or was replaced meanwhile, nothing follows about deletions."""
        entries = self._storage.list(path)
        after = self._storage.stat(path)
        if entries is None or after is None or after.identity != zone.identity:
            raise StorageUnavailable(f"{path}: disappeared during the scan", "Check the mount of ROOT.")
        return entries

    def _add(self, scan: _Scan, entry: Entry) -> None:
        """Add an entry of the zone: a schema folder, a table folder or a stray (LZ-1.3, LZ-1.8)."""
        if entry.kind is Kind.FILE and entry.name == PARTNER_EVENTS_FILE:
            self._read_partner(scan, entry)
        elif self._is_ignored(scan, entry.name, entry):
            return
        elif (schema := schema_of(entry.name)) is not None:
            self._add_schema(scan, schema, entry)
        else:
            scan.tables[TableName("", entry.name)] = entry

    def _add_schema(self, scan: _Scan, schema: str, folder: Entry) -> None:
        """Add the table folders of a schema folder; one that cannot be listed proves no deletion (LZ-7.2)."""
        path = f"{scan.zone}/{folder.name}"
        try:
            entries, after = self._storage.list(path), self._storage.stat(path)
        except StorageUnavailable:
            entries = after = None
        if entries is None or after is None or after.identity != folder.identity:
            scan.diagnostics.append(self._diagnose("ME070", folder.name))
            scan.unlisted.add(folder.name)
            return
        for entry in entries:
            if not self._is_ignored(scan, f"{folder.name}/{entry.name}", entry):
                scan.tables[TableName(schema, entry.name)] = entry

    def _is_ignored(self, scan: _Scan, path: str, entry: Entry) -> bool:
        """Whether an entry of the zone or a schema folder is neither table nor schema; if so, report it."""
        if entry.kind is Kind.OTHER:
            scan.diagnostics.append(self._diagnose("ME074", path))
        elif entry.kind is Kind.FILE:
            self._report_stray(scan, path)
        elif entry.name[0] in "._":
            self._report_hidden(scan, path)
        else:
            return False
        return True

    def _tables(self, scan: _Scan) -> list[TableListing]:
        """List every table folder, schema folders first, then by name."""
        listings = []
        for name in sorted(scan.tables, key=ownership_order):
            try:
                listing = self._table_folders.scan(scan.zone, name, scan.tables[name])
            except StorageUnavailable:
                listing = None
            if listing:
                listings.append(listing)
            else:
                scan.diagnostics.append(self._diagnose("ME070", name.folder))
                scan.unlisted.add(name.folder)
        return listings

    def _read_partner(self, scan: _Scan, entry: Entry) -> None:
        """Read the partner events if they changed; they are only shown, so an error here stops nothing."""
        etag = landed_file(entry.name, entry).etag
        if etag != self._partner_etag:
            try:
                content = read_unchanged(self._storage, f"{scan.zone}/{entry.name}", entry, MAX_BYTES + 1)
            except StorageUnavailable:
                content = None
            self._partner_etag = "" if content is None else etag
            self._partner = None if content is None else parse_partner_events(content)
        scan.partner = self._partner
        if scan.partner is None:
            scan.diagnostics.append(self._diagnose("ME006", entry.name))

    def _report_stray(self, scan: _Scan, path: str) -> None:
        """Report an ignored file next to table folders (LZ-1.8, LZ-1.9)."""
        name = path.rpartition("/")[2]
        if name == PARTNER_EVENTS_FILE:
            scan.diagnostics.append(self._diagnose("ME006", path))
        else:
            code = "ME082" if name[0] in "._" and name != METADATA_FILE else "ME002"
            scan.diagnostics.append(self._diagnose(code, path, first=name[0]))

    def _report_hidden(self, scan: _Scan, path: str) -> None:
        """Report an ignored hidden folder, as a warning if it looks like a table or schema (LZ-1.6, LZ-1.7)."""
        name = path.rpartition("/")[2]
        has_table_name = name[0] == "_" and name not in RESERVED_IN_TABLE
        looks_like_table = has_table_name and (
            schema_of(name) is not None or self._contains_table(f"{scan.zone}/{path}")
        )
        scan.diagnostics.append(self._diagnose("ME005" if looks_like_table else "ME082", path, first=name[0]))

    def _contains_table(self, folder: str) -> bool:
        signs = (METADATA_FILE, numbered_name(1), numbered_name(1, "csv"))
        try:
            return any(self._storage.stat(f"{folder}/{sign}") for sign in signs)
        except StorageUnavailable:
            return False

    def _diagnose(self, code: str, path: str, **details: Any) -> Diagnostic:  # noqa: ANN401 - what `diagnose` takes
        return diagnose(code, path, strict=self._strict, **details)
