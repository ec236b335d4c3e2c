"""Sees one table folder: its metadata, its change files, and what is passed over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.landing_zone.change_file import hidden_name
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.metadata import MAX_BYTES, parse
from mirror_engine.landing_zone.names import CLEANED_FOLDERS, METADATA_FILE, PARTNER_EVENTS_FILE
from mirror_engine.landing_zone.partitions import DEEPEST, parse_level
from mirror_engine.landing_zone.sightings import (
    FileSighting,
    MetadataAbsent,
    MetadataSighting,
    MetadataUnusable,
    MetadataUsable,
    TableSighting,
)
from mirror_engine.storage.base import Entry, Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.storage.base import Storage

Listings = dict[str, "Sequence[Entry]"]  # a folder's entries, by its path from the table folder

TRIES = 3  # at a folder that changes while it is looked at


def file_sighting(path: str, entry: Entry) -> FileSighting:
    """A listed file as a sighting; `path` is from the table folder."""
    return FileSighting(path, entry.size, entry.modified_ns, entry.identity)


def is_as_sighted(storage: Storage, folder: str, file: FileSighting) -> bool:
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
    sighting: TableSighting


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

    def look(self, zone: str, name: TableName, entry: Entry) -> TableSighting | None:
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
                return seen.sighting
            metadata = None if listings is None else self._metadata(folder, name, listings[""])
            now = self._storage.stat(folder)
            if now is None or now.kind is not Kind.FOLDER:
                return None
            if listings is not None and metadata is not None and now.identity == here.identity:
                sighting = _sighting(name, here.identity, metadata, listings, strict=self._strict)
                self._seen[name] = _Seen(here.identity, listings, sighting)
                return sighting
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
            entries = self._storage.list(_joined(folder, below))
            if entries is None:
                return None
            listings[below] = entries
            if below.count("/") + bool(below) < DEEPEST:
                pending += [_joined(below, entry.name) for entry in entries if _is_partition(entry)]
        return listings

    def _metadata(self, folder: str, name: TableName, entries: Sequence[Entry]) -> MetadataSighting | None:
        """The folder's metadata, read only if it is another than before; None where it changed while read (LZ-2.1)."""
        entry = next((each for each in entries if each.name == METADATA_FILE and each.kind is Kind.FILE), None)
        if entry is None:
            return MetadataAbsent()
        etag = file_sighting(METADATA_FILE, entry).etag
        seen = self._seen.get(name)
        before = seen.sighting.metadata if seen else MetadataAbsent()
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


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder and name else folder or name


def _is_partition(entry: Entry) -> bool:
    return entry.kind is Kind.FOLDER and parse_level(entry.name) is not None


def _sighting(
    name: TableName, identity: str, metadata: MetadataSighting, listings: Mapping[str, Sequence[Entry]], *, strict: bool
) -> TableSighting:
    files: list[FileSighting] = []
    diagnostics: list[Diagnostic] = []
    expected = metadata.metadata.extension if isinstance(metadata, MetadataUsable) else "a final name"
    for below, entries in listings.items():
        for entry in entries:
            path = _joined(below, entry.name)
            code = None if path in listings else _passed_over(entry, path)
            if code == "ME021":
                diagnostics.append(hidden_name(f"{name.folder}/{path}", expected, strict=strict))
            elif code:
                diagnostics.append(diagnose(code, f"{name.folder}/{path}", strict=strict, first=entry.name[0]))
            elif entry.kind is Kind.FILE and path != METADATA_FILE:
                files.append(file_sighting(path, entry))
    return TableSighting(
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
