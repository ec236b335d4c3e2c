"""Listings: the folders and files of a landing zone as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import NoAccess, StorageUnavailable
from mirror_engine.landing_zone.diagnostics import diagnose

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.metadata import Metadata, PartnerEvents
    from mirror_engine.landing_zone.names import TableName

UNLISTED = "ME070"


def partition_of(path: str) -> str:
    """The Hive folder of a file, both from the table folder; `""` at its top."""
    return path.rpartition("/")[0]


def unlisted(
    path: str, finding: str = "cannot be listed or read", help: str = "check path and permissions", *, place: str = ""
) -> Diagnostic:
    """Return ME070 for a folder of which nothing is known: none of its tables is dropped (LZ-7.2).

    `place` is the path from ROOT of a folder outside the landing zone.
    """
    details: dict[str, Any] = {"place": place} if place else {}
    return diagnose(UNLISTED, path, finding=finding, help=help, **details)


class Kind(StrEnum):
    """The kind of an entry."""

    FILE = "file"
    FOLDER = "folder"
    OTHER = "other"  # a symbolic link, a socket, a device: listed, never followed


def size_of(etag: str) -> int:
    """Return the size in bytes that an `Entry.etag` holds."""
    return int(etag.rsplit(":", 2)[1])


def time_of(etag: str) -> int:
    """Return the LastModified in nanoseconds since 1970 that an `Entry.etag` holds."""
    return int(etag.rpartition(":")[2])


@dataclass(frozen=True)
class Entry:
    """One file or folder, as it was listed."""

    path: str  # from the folder that was listed, or the table folder: `day=1/….parquet`; `""` for ROOT itself
    size: int  # in bytes; 0 for a folder
    modified_ns: int  # LastModified in nanoseconds since 1970, UTC
    # Set by the storage when it is created. Of a file: kept by writing in place and by renaming it, changed by deleting
    # and landing again, or by renaming another file over it (LZ-3.11); in a store its ETag, which a copy may change. Of
    # a folder: kept by changes inside it, new after drop and recreate; `NO_IDENTITY` where the store has no folders
    identity: str
    replaced: str = ""  # identity of the file whose place it took; `""` where the storage does not know
    kind: Kind = Kind.FILE
    # Former identities of this same file, where the storage replaces a file to write more to it (a flush, LZ-3.13)
    continues: tuple[str, ...] = ()
    is_mount: bool = False  # whether it is a folder at which a file system is mounted; False where that is not known

    def is_same(self, other: Entry) -> bool:
        """Whether both are one file with one content, whatever its name."""
        return (self.kind, self.size, self.modified_ns, self.identity) == (
            other.kind,
            other.size,
            other.modified_ns,
            other.identity,
        )

    @property
    def etag(self) -> str:
        """A value that changes whenever the content may have changed."""
        return f"{self.identity}:{self.size}:{self.modified_ns}"

    def is_file_of(self, identity: str) -> bool:
        """Whether this file is the one that had an identity, whatever was written to it since (LZ-3.11)."""
        return identity == self.identity or identity in self.continues

    def has_grown_since(self, etag: str) -> bool:
        """Whether more was written to the file with this etag; False for another file in its place (ME071)."""
        identity, _, _ = etag.rsplit(":", 2)
        return self.is_file_of(identity) and size_of(etag) < self.size

    @property
    def partition(self) -> str:
        """The Hive folder, from the table folder; `""` at its top."""
        return partition_of(self.path)

    @property
    def name(self) -> str:
        """Its name without folders."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class MetadataAbsent:
    """The folder has no `_metadata.json`."""


@dataclass(frozen=True)
class MetadataUnusable:
    """A `_metadata.json` that cannot be used; the first diagnostic is the error."""

    etag: str
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True)
class MetadataUsable:
    """A usable `_metadata.json`."""

    etag: str
    metadata: Metadata
    diagnostics: tuple[Diagnostic, ...] = ()


MetadataListing = MetadataAbsent | MetadataUnusable | MetadataUsable


@dataclass(frozen=True)
class TableListing:
    """One table folder."""

    name: TableName
    identity: str  # the folder's creation stamp (LZ-7.3): new after drop and recreate, kept by changes inside
    metadata: MetadataListing
    # Every regular file that may be a change file: directly inside, or in Hive folders (`k=v/…`). Reserved and `_` or
    # `.` names are not among them
    files: tuple[Entry, ...] = ()
    diagnostics: tuple[
        Diagnostic, ...
    ] = ()  # of its name (ME097) and of ignored paths (ME003, ME021 for `_` names, ME074)

    @property
    def usable(self) -> Metadata | None:
        """Its metadata; None if unusable."""
        return self.metadata.metadata if isinstance(self.metadata, MetadataUsable) else None


@dataclass(frozen=True)
class ZoneListing:
    """The whole landing zone."""

    folder: str  # the zone, from ROOT: `Files/LandingZone`, or `LandingZone`
    identity: str  # the zone folder's creation stamp; `""` while there is no zone, which is not an emptied one
    tables: tuple[TableListing, ...] = ()  # every table folder, schema folders first, then by name
    # Schema and table folders that could not be listed, kept changing during the scan, or may be hidden: nothing below
    # is dropped or applied. ME070 is among the diagnostics for each, or for the zone as a whole
    unlisted: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()  # of these, those to which a store gave no access
    # Identities of schema and table folders at which a file system is mounted, by path
    mounts: Mapping[str, str] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()  # about the zone itself and files outside tables
    partner: PartnerEvents | None = None  # the publisher's own words; None if it left none
    # To a store that the scan took, by kind; empty on this machine
    requests: Mapping[str, int] = field(default_factory=dict, compare=False)

    def error_of(self, folders: Collection[str]) -> type[StorageUnavailable]:
        """The kind of error for folders that are not listed: `NoAccess` if that is why all of them are not."""
        return NoAccess if folders and self.denied.issuperset(folders) else StorageUnavailable
