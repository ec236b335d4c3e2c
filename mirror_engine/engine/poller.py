"""Scans of the landing zone: table folders, change files and metadata, as they are now."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import NoAccess, StorageUnavailable
from mirror_engine.landing_zone.detection import FOLDER_OF_TABLES, NESTED_TABLE, is_data, numbered_name
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.landing_zone.listing import (
    Entry,
    Kind,
    MetadataAbsent,
    MetadataListing,
    MetadataUnusable,
    MetadataUsable,
    TableListing,
    ZoneListing,
    unlisted,
)
from mirror_engine.landing_zone.metadata import MAX_BYTES, PartnerEvents, parse, parse_partner_events
from mirror_engine.landing_zone.names import (
    CLEANED_FOLDERS,
    MAX_FABRIC_TABLES,
    METADATA_FILE,
    PARTNER_EVENTS_FILE,
    RESERVED_IN_TABLE,
    SCHEMA_SUFFIX,
    TableName,
    meant_schema,
    ownership_order,
    schema_of,
)
from mirror_engine.landing_zone.partitions import MAX_DEPTH, parse_name
from mirror_engine.storage.base import at_once, joined, look_again

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mirror_engine.config import Config
    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.requests import Requests

MAX_SCANS = 3  # of a folder that changes while it is scanned
_SEARCHED_LEVELS, _SEARCHED_FOLDERS = 3, 10  # of an unexpected sub-folder, for tables in the wrong place
_SIGNS_OF_A_TABLE = (METADATA_FILE, numbered_name(1), numbered_name(1, "csv"))


def read_unchanged(storage: Storage, path: str, entry: Entry) -> bytes | None:
    """Return a file of at most `MAX_BYTES`, or one byte more; None where it is no longer the listed one."""
    try:
        with storage.open(path, entry) as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    return content if look_again(storage, path, entry) == entry else None


def _ignored_in_table(entry: Entry, path: str) -> str | None:
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
    return "ME082" if is_hidden and path != METADATA_FILE else None


@dataclass(frozen=True)
class _Folder:
    """A table folder, or a Hive folder in it, as it was listed; paths are from the table folder."""

    entries: Sequence[Entry]
    files: Sequence[Entry] = field(compare=False)  # that may be change files
    folders: Sequence[str] = field(compare=False)  # Hive folders
    ignored: Sequence[tuple[str, str]] = field(compare=False)  # other paths, each with its diagnostic's code

    @classmethod
    def of(cls, below: str, entries: Sequence[Entry]) -> _Folder:
        """Sort the entries of the folder `below`."""
        files, folders, ignored = [], [], []
        has_hive_folders = below.count("/") + bool(below) < MAX_DEPTH
        for entry in entries:
            path = joined(below, entry.name)
            if entry.kind is Kind.FOLDER and has_hive_folders and parse_name(entry.name):
                folders.append(path)
            elif code := _ignored_in_table(entry, path):
                ignored.append((path, code))
            elif entry.kind is Kind.FILE and path != METADATA_FILE:
                files.append(replace(entry, path=path) if below else entry)
        return cls(entries, files, folders, ignored)


Listings = dict[str, _Folder]  # by path from the table folder


class Poller:
    """Scans the landing zone, always by listing: events only say where. `requests` counts those of its storage."""

    def __init__(self, storage: Storage, config: Config, requests: Requests | None = None) -> None:
        self._storage = storage
        self._requests = requests
        self._view = storage  # one scan of it
        self._strict = config.strict
        self._scanned: dict[TableName, tuple[Listings, TableListing]] = {}  # as they were at the last scan
        self._partner_etag = ""
        self._partner: PartnerEvents | None = None

    def scan(self, only: Collection[TableName] | None = None) -> ZoneListing:
        """List the landing zone (LZ-3.1); without one, the listing is empty and has the identity `""`.

        Args:
            only: tables whose folders are listed; all others that are there and were listed before are as they were
                then. None: all are listed.

        Raises:
            StorageUnavailable: the zone could not be listed; nothing is known of any table (ME070).
        """
        before = self._requests.by_kind() if self._requests else {}
        self._view = self._storage.scan(ZONE)
        scan, zone = self._zone()
        entries = self._listed(scan.zone, zone) if zone else ()
        if entries is None:  # nothing follows about deletions
            raise StorageUnavailable(f"{scan.zone}: disappeared during the scan", "Check the mount of ROOT.")
        for entry in entries:
            self._add(scan, entry)
        names = sorted(scan.tables, key=ownership_order)
        known = {} if only is None else {name: self._as_before(scan, name) for name in names if name not in only}
        listed = [name for name in names if not known.get(name)]
        known |= zip(listed, at_once(self._view, partial(self._table, scan), listed), strict=True)
        found = [known[name] for name in names]
        for name in (name for name, listing in zip(names, found, strict=True) if listing is None):
            scan.leave_out(name.folder)
        tables = [listing for listing in found if listing]
        self._scanned = {name: scanned for name, scanned in self._scanned.items() if name in scan.tables}
        if (count := len(scan.tables)) >= MAX_FABRIC_TABLES:  # Fabric already speaks of the 1,000th (LZ-7.10)
            is_beyond = self._strict and count > MAX_FABRIC_TABLES
            scan.diagnostics.append(diagnose("ME007", "", strict=is_beyond, count=count))
        left_out, denied, diagnostics = frozenset(scan.unlisted), frozenset(scan.denied), tuple(scan.diagnostics)
        requests = self._requests.since(before) if self._requests else {}
        identity = zone.identity if zone else ""
        return ZoneListing(
            scan.zone, identity, tuple(tables), left_out, denied, scan.mounts, diagnostics, scan.partner, requests
        )

    def _zone(self) -> tuple[_Scan, Entry | None]:
        """Choose which of the two layouts is read (LZ-1.1)."""
        folders = {path: self._view.stat(path) for path in (ZONE, OLDER_ZONE)}
        zones = [path for path, entry in folders.items() if entry and entry.kind is Kind.FOLDER]
        scan = _Scan(zones[0] if zones else ZONE, self._strict)
        for path, entry in folders.items():
            if entry and entry.kind is not Kind.FOLDER:
                scan.diagnose("ME074" if entry.kind is Kind.OTHER else "ME002", path, place=path)
        if len(zones) > 1:
            scan.diagnose("ME001", OLDER_ZONE, place=OLDER_ZONE)
        return scan, folders[scan.zone] if zones else None

    def _listed(self, path: str, folder: Entry) -> Sequence[Entry] | None:
        """List a folder; None where it disappeared or was replaced meanwhile."""
        entries, after = self._view.list(path), self._view.stat(path)
        return entries if after and after.identity == folder.identity else None

    def _add(self, scan: _Scan, entry: Entry) -> None:
        """Add an entry of the zone: a schema folder, a table folder or a stray (LZ-1.3, LZ-1.8)."""
        schema = schema_of(entry.name)
        scan.note_mount(entry.name, entry)
        if entry.kind is Kind.FILE and entry.name == PARTNER_EVENTS_FILE:
            scan.partner = self._partner_events(f"{scan.zone}/{entry.name}", entry)
            if scan.partner is None:
                scan.diagnose("ME006", entry.name)
        elif code := self._ignored_in_zone(f"{scan.zone}/{entry.name}", entry):
            scan.diagnose(code, entry.name, first=entry.name[0])
        elif schema is None:
            scan.tables[TableName("", entry.name)] = entry
        else:
            self._add_schema(scan, schema, entry)

    def _add_schema(self, scan: _Scan, schema: str, folder: Entry) -> None:
        """Add the table folders of a schema folder; one that cannot be listed proves no deletion (LZ-7.2)."""
        place = f"{scan.zone}/{folder.name}"
        try:
            entries = self._listed(place, folder)
        except StorageUnavailable as error:
            entries = None
            scan.note_failure(folder.name, error)
        if entries is None:
            scan.leave_out(folder.name)
        for entry in entries or ():
            if code := self._ignored_in_zone(f"{place}/{entry.name}", entry):
                scan.diagnose(code, f"{folder.name}/{entry.name}", first=entry.name[0])
            else:
                scan.tables[TableName(schema, entry.name)] = entry
                scan.note_mount(f"{folder.name}/{entry.name}", entry)

    def _as_before(self, scan: _Scan, name: TableName) -> TableListing | None:
        """The last listing of a table folder; None if the folder was replaced since."""
        _, known = self._scanned.get(name, (None, None))
        return known if known and known.identity == scan.tables[name].identity else None

    def _table(self, scan: _Scan, name: TableName) -> TableListing | None:
        """List a table folder in one state, reading again only what changed; None where that cannot be done."""
        try:
            return self._unchanging(scan.zone, name, scan.tables[name])
        except StorageUnavailable as error:
            scan.note_failure(name.folder, error)
            return None

    def _unchanging(self, zone: str, name: TableName, entry: Entry) -> TableListing | None:
        """List a table folder; None where it disappeared, or changed during each scan."""
        folder, here = f"{zone}/{name.folder}", entry
        for _ in range(MAX_SCANS):
            known_listings, known = self._scanned.get(name, ({}, None))
            listings = self._listings(folder, known_listings)
            if listings and known and known.identity == here.identity and known_listings == listings:
                return known
            metadata = self._metadata(folder, name, listings[""].entries) if listings else None
            now = self._view.stat(folder)
            if now is None or now.kind is not Kind.FOLDER:
                return None
            if listings and metadata and now.identity == here.identity:
                listing = self._listing(zone, name, here.identity, metadata, listings)
                self._scanned[name] = listings, listing
                return listing
            here = now
        return None

    def _listings(self, folder: str, known: Listings) -> Listings | None:
        """List the folder and all Hive folders below it; None where one disappeared meanwhile (LZ-3.7).

        A folder that is listed as before is the object in `known`.
        """
        listings: Listings = {}
        pending = [""]
        while pending:
            below = pending.pop()
            entries = self._view.list(joined(folder, below))
            if entries is None:
                return None
            before = known.get(below)
            listings[below] = before if before and before.entries == entries else _Folder.of(below, entries)
            pending += listings[below].folders
        return listings

    def _metadata(self, folder: str, name: TableName, entries: Sequence[Entry]) -> MetadataListing | None:
        """Return the folder's metadata, read only if it changed; None where it changed while it was read (LZ-2.1)."""
        entry = next((entry for entry in entries if entry.name == METADATA_FILE and entry.kind is Kind.FILE), None)
        if entry is None:
            return MetadataAbsent()
        etag = entry.etag
        known = self._scanned[name][1].metadata if name in self._scanned else MetadataAbsent()
        if not isinstance(known, MetadataAbsent) and known.etag == etag:
            return known
        content = read_unchanged(self._view, f"{folder}/{METADATA_FILE}", entry)
        if content is None:
            return None
        metadata, diagnostics = parse(content, f"{name.folder}/{METADATA_FILE}", strict=self._strict)
        return MetadataUsable(etag, metadata, diagnostics) if metadata else MetadataUnusable(etag, diagnostics)

    def _listing(
        self, zone: str, name: TableName, identity: str, metadata: MetadataListing, listings: Listings
    ) -> TableListing:
        files = [file for listed in listings.values() for file in listed.files]
        diagnostics: list[Diagnostic] = []
        for path, code in (ignored for listed in listings.values() for ignored in listed.ignored):
            hidden = {"first": path.rpartition("/")[2][0]}
            more = self._nested(zone, name, path, metadata) if code == "ME003" else hidden
            diagnostics.append(diagnose(code, f"{name.folder}/{path}", strict=self._strict, **more))
        schema, _, rest = name.table.partition(".")
        is_nested = any(found.code == "ME003" for found in diagnostics)  # which says that it may be a schema
        is_suffix = meant_schema(name.table) != f"{name.table}{SCHEMA_SUFFIX}"  # `shop.Schema`, with files of its own
        if schema and rest[:1] not in {"", ".", "_"} and not (name.schema or is_nested or is_suffix):
            diagnostics.append(diagnose("ME097", name.folder, schema=schema, rest=rest))
        files.sort(key=lambda file: file.path)
        diagnostics.sort(key=lambda diagnostic: diagnostic.path)
        return TableListing(name, identity, metadata, tuple(files), tuple(diagnostics))

    def _nested(self, zone: str, name: TableName, path: str, metadata: MetadataListing) -> dict[str, Any]:
        """Details of ME003: what a sub-folder of a table folder seems to be, and what to do."""
        depth = self._depth_of_data(f"{zone}/{name.folder}/{path}")
        if depth is None:
            return {"kind": "unexpected subfolder", "help": "put change files directly into the table folder"}
        if depth:
            moved = f"`{path}`" if schema_of(path) else "its table folders"
            return {"kind": FOLDER_OF_TABLES, "help": f"move {moved} to the top of the landing zone"}
        if isinstance(metadata, MetadataUsable) and metadata.metadata.partitioned:
            help = "name partition folders `column=value`, such as `day=2026-11-02`"
        elif schema_of(name.table):
            help = f"schemas are at the top of the landing zone: move `{name.table}` there"
        elif name.schema:
            help = "move its files into a table folder"
        else:
            schema = f"if `{name.table}` is a schema, rename it to `{meant_schema(name.table)}`"
            help = f"{schema}; otherwise move its files into a table folder"
        return {"kind": NESTED_TABLE, "help": help}

    def _depth_of_data(self, folder: str) -> int | None:
        """How many levels below a folder change files or metadata are; None if none of the first folders has any."""
        level = [folder]
        for depth in range(_SEARCHED_LEVELS):
            below: list[str] = []
            for place in level[:_SEARCHED_FOLDERS]:
                try:
                    entries = self._view.list(place) or ()
                except StorageUnavailable:
                    continue
                if any(entry.name == METADATA_FILE or is_data(entry.name) for entry in entries):
                    return depth
                below += [f"{place}/{entry.name}" for entry in entries if entry.kind is Kind.FOLDER]
            level = below
        return None

    def _ignored_in_zone(self, path: str, entry: Entry) -> str | None:
        """Return the diagnostic for an entry next to table folders (LZ-1.6 to LZ-1.9); None for table and schema."""
        name, is_hidden = entry.name, entry.name[0] in "._"
        if entry.kind is Kind.OTHER:
            return "ME074"
        if entry.kind is Kind.FILE and name == PARTNER_EVENTS_FILE:
            return "ME006"
        if entry.kind is Kind.FILE:
            return "ME082" if is_hidden and name != METADATA_FILE else "ME002"
        if not is_hidden:
            return None
        may_be_table = name[0] == "_" and name not in RESERVED_IN_TABLE
        looks_like_table = may_be_table and (schema_of(name) is not None or self._contains_table(path))
        return "ME005" if looks_like_table else "ME082"

    def _contains_table(self, folder: str) -> bool:
        try:
            return any(self._view.stat(f"{folder}/{sign}") for sign in _SIGNS_OF_A_TABLE)
        except StorageUnavailable:
            return False

    def _partner_events(self, path: str, entry: Entry) -> PartnerEvents | None:
        """Read the partner events if they changed; they are only shown, so an error here stops nothing."""
        etag = entry.etag
        if etag != self._partner_etag:
            try:
                content = read_unchanged(self._view, path, entry)
            except StorageUnavailable:
                content = None
            self._partner_etag = "" if content is None else etag
            self._partner = None if content is None else parse_partner_events(content)
        return self._partner


@dataclass
class _Scan:
    """A scan of the zone in progress."""

    zone: str
    strict: bool
    tables: dict[TableName, Entry] = field(default_factory=dict)
    unlisted: set[str] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)
    mounts: dict[str, str] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    partner: PartnerEvents | None = None

    def diagnose(self, code: str, path: str, **details: Any) -> None:  # noqa: ANN401 - what `diagnose` takes
        """Add a diagnostic about a path from the zone's top."""
        self.diagnostics.append(diagnose(code, path, strict=self.strict, **details))

    def note_mount(self, path: str, folder: Entry) -> None:
        """Note a folder where a file system is mounted at it."""
        if folder.is_mount:
            self.mounts[path] = folder.identity

    def note_failure(self, folder: str, error: StorageUnavailable) -> None:
        """Note a folder to which a store gave no access."""
        if isinstance(error, NoAccess):
            self.denied.add(folder)

    def leave_out(self, folder: str) -> None:
        """Note a folder that could not be listed."""
        self.diagnostics.append(unlisted(folder))
        self.unlisted.add(folder)
