"""The identity of ROOT, by which a moved ROOT differs from a recreated table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mirror_engine.engine.janitor import newest
from mirror_engine.engine.ledger import ROOT_IDENTITY
from mirror_engine.landing_zone.detection import sequence_of
from mirror_engine.landing_zone.layout import TABLES
from mirror_engine.landing_zone.listing import partition_of, size_of
from mirror_engine.storage.base import NO_IDENTITY, digest

if TYPE_CHECKING:
    from mirror_engine.engine.context import EngineContext
    from mirror_engine.landing_zone.listing import Entry, TableListing, ZoneListing
    from mirror_engine.landing_zone.progress import AppliedFile, FolderProgress, Progress
    from mirror_engine.storage.base import Storage


PLACES = "table_places"  # property of the ledger: identities of the folders that lead to Delta tables, as JSON


class FolderChange(Enum):
    """How a known table folder changed since it was last planned."""

    NONE = "none"
    MOVED = "moved"  # copied, moved or restored with its files
    RECREATED = "recreated"


class RootIdentity(NamedTuple):
    """Identities of folders that no publisher recreates: when they change, ROOT was copied, moved or restored."""

    tables: str
    zone: str

    def __str__(self) -> str:
        return "|".join(self)


@dataclass(frozen=True)
class RootIdentityCheck:
    """The identity of ROOT in one listing, and the known one."""

    context: EngineContext
    zone: ZoneListing
    now: RootIdentity  # the identity in this listing
    before: RootIdentity  # the known identity; `now` where none is known

    @classmethod
    def at(cls, context: EngineContext, zone: ZoneListing) -> RootIdentityCheck:
        """Look up the identity of ROOT; raises `StorageUnavailable`."""
        now = RootIdentity(_identity_of_tables(context.storage), zone.identity)
        known = context.ledger.get_property(ROOT_IDENTITY)
        return cls(context, zone, now, RootIdentity(*known.split("|", 1)) if known else now)

    def change_of(self, listing: TableListing, progress: Progress | None, known: FolderProgress) -> FolderChange:
        """Compare a table folder's identity with the known one: a new one means a copied ROOT or a recreated folder.

        In a recreated zone, and in a store whose folders have no identity, the content of the applied files that are
        still there decides; raises `StorageUnavailable` where it cannot be read.
        """
        if not progress or not progress.identity:  # nothing of it is known but what was lost
            return FolderChange.NONE
        if progress.identity == listing.identity:
            if listing.identity != NO_IDENTITY or not _is_begun_again(listing, known, self.context.config.first_file):
                return FolderChange.NONE
            if not any(0 < _watermark(known, file) == sequence_of(file.name) for file in listing.files):
                return FolderChange.RECREATED
        elif self.now == self.before:
            return FolderChange.RECREATED
        elif self.before.tables not in {"", self.now.tables}:  # "": there was no table yet
            return FolderChange.MOVED
        return FolderChange.MOVED if self._has_applied(listing, known) else FolderChange.RECREATED

    def is_mounted_again(self, listing: TableListing, known: FolderProgress) -> bool:
        """Whether a remounted folder is the known one, by its content.

        The newest file of the partition that was written last is there, which no cleanup takes: not in an older copy.
        Raises `StorageUnavailable`.
        """
        last = self.context.ledger.applied(listing.name, newest=1)
        marks = (known.marks.get(partition_of(path)) for path in last)
        stay = {newest(listing, mark) for mark in marks if mark}
        return stay <= known.applied.keys() and self._has_applied(listing, known)

    def _has_applied(self, listing: TableListing, known: FolderProgress) -> bool:
        """Whether a folder has applied files, each with the bytes that were applied; sizes are compared first."""
        storage, folder = self.context.storage, f"{self.zone.folder}/{listing.name.folder}"
        applied = known.applied  # those that are listed: the others are gone
        sizes = {file.path: file.size for file in listing.files}
        is_alike = all(not file.etag or size_of(file.etag) == sizes[path] for path, file in applied.items())
        same = (has_content(storage, f"{folder}/{path}", file) for path, file in applied.items())
        return bool(applied) and is_alike and all(same)


def are_tables_hidden(context: EngineContext, root: RootIdentity | None = None) -> bool:
    """Whether `ROOT/Tables` is another folder without any known Delta table: nobody deleted them.

    A store without folders cannot tell. `root` is its identity now, where that was looked up. Raises
    `StorageUnavailable`.
    """
    before = context.ledger.get_property(ROOT_IDENTITY).partition("|")[0]
    if before in {"", NO_IDENTITY} or before == (root.tables if root else _identity_of_tables(context.storage)):
        return False
    known = context.ledger.tables().items()
    folders = {context.delta_folder(table) for table, progress in known if progress.has_table}
    return bool(folders) and folders.isdisjoint(context.delta.tables())


class DeltaPlaces:
    """The folders that lead to Delta tables: `ROOT/Tables`, those of schemas, and tables behind a link or a mount.

    Where one is gone or another folder than before, and no known table is in it, nobody removed the tables: a disk is
    not mounted. Of a store nothing is known.
    """

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._known: dict[str, str] = json.loads(context.ledger.get_property(PLACES) or "{}")
        self._tables = {context.delta_folder(name) for name, each in context.ledger.tables().items() if each.has_table}
        self._identities: dict[str, str] = {}

    def hidden(self, folder: str) -> str | None:
        """Return which place on the way to a Delta folder, from `ROOT/Tables`, is not the known one; None for none."""
        return next((place for place in self._leading_to(folder) if place in self._hidden), None)

    def is_there(self, place: str) -> bool:
        """Whether a place is a folder now."""
        return bool(self._identity(place))

    def note(self) -> None:
        """Store the places as they are, but for those that are not the known ones. Raises `StorageUnavailable`."""
        delta, noted = self._context.delta, self._context.noted_places
        if not self._identity(""):  # a store, or nothing there yet
            return
        if not self._known:  # the ledger was lost
            noted.clear()
        apart = {folder for folder in sorted(self._tables - noted) if delta.folder_identity(folder)[1]}
        noted |= self._tables
        places = {place for folder in self._tables for place in self._leading_to(folder) if place != folder}
        places |= apart | (self._tables & self._known.keys())
        found = {each: self._known[each] if self._is_hidden(each) else self._identity(each) for each in sorted(places)}
        now = {place: identity for place, identity in found.items() if identity}
        if now != self._known:
            self._context.ledger.set_property(PLACES, json.dumps(now))

    def _identity(self, place: str) -> str:
        if place not in self._identities:
            self._identities[place] = self._context.delta.folder_identity(place)[0]
        return self._identities[place]

    @cached_property
    def _hidden(self) -> frozenset[str]:
        """The places that are not the known ones: few are known, whatever the number of tables."""
        return frozenset(filter(self._is_hidden, self._known))

    def _is_hidden(self, place: str) -> bool:
        before = self._known.get(place)
        return before is not None and self._identity(place) != before and self._is_bare(place)

    def _is_bare(self, place: str) -> bool:
        """Whether tables below a place are known, and all of them are gone."""
        below = {folder for folder in self._tables if place in self._leading_to(folder)}
        return bool(below) and below.isdisjoint(self._context.delta.tables())

    @staticmethod
    def _leading_to(folder: str) -> tuple[str, ...]:
        schema, _, _ = folder.rpartition("/")
        return ("", schema, folder) if schema else ("", folder)


def _identity_of_tables(storage: Storage) -> str:
    """The identity of `ROOT/Tables`; `""` where it is not there."""
    tables = storage.stat(TABLES)
    return tables.identity if tables else ""


def _watermark(known: FolderProgress, file: Entry) -> int:
    """The highest number applied in order in a file's partition; 0 for none."""
    mark = known.marks.get(file.partition)
    return mark.watermark if mark else 0


def _is_begun_again(listing: TableListing, known: FolderProgress, first_file: str) -> bool:
    """Whether an applied number is back, but the highest one, which stays (LZ-8.1), is gone or changed."""
    is_back = False
    for file in listing.files:
        applied, number, highest = known.applied.get(file.path), sequence_of(file.name), _watermark(known, file)
        if applied is None or not applied.is_same(file.etag, file.modified_ns):
            is_back |= 0 < number <= (highest if first_file == "lowest" else min(highest, 1))
        elif number == highest:
            return False
    return is_back


def has_content(storage: Storage, path: str, file: AppliedFile) -> bool:
    """Whether the file at a path from ROOT has the bytes that were applied; raises `StorageUnavailable`."""
    try:
        with storage.open(path) as handle:
            return digest(handle) == file.digest
    except FileNotFoundError:
        return False
