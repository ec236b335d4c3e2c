"""Listings: the folders and files of a landing zone as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.metadata import Metadata, PartnerEvents
    from mirror_engine.landing_zone.names import TableName


def partition_of(path: str) -> str:
    """The Hive folder of a file, both from the table folder; `""` at its top."""
    return path.rpartition("/")[0]


@dataclass(frozen=True)
class LandedFile:
    """One file in a table folder."""

    path: str  # from the table folder, `/` between parts: `00000000000000000001.parquet`, `day=1/….parquet`
    size: int  # in bytes
    modified_ns: int  # LastModified in nanoseconds since 1970, UTC
    # Set by the storage when the file is created; kept by writing in place, changed by deleting and landing again, or
    # by renaming another file over it (LZ-3.11)
    identity: str
    replaced: str = ""  # identity of the file whose place it took; `""` where the storage does not know

    @property
    def etag(self) -> str:
        """A value that changes whenever the content may have changed."""
        return f"{self.identity}:{self.size}:{self.modified_ns}"

    def has_grown_since(self, etag: str) -> bool:
        """Whether more was written to the file with this etag; False for another file in its place (ME071)."""
        identity, size, _ = etag.rsplit(":", 2)
        return identity == self.identity and int(size) < self.size

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
    files: tuple[LandedFile, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()  # of ignored paths (ME003, ME021 for `_` names, ME074)

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
    # Schema and table folders that could not be listed, or kept changing during the scan: nothing below is dropped or
    # applied
    unlisted: frozenset[str] = frozenset()
    diagnostics: tuple[Diagnostic, ...] = ()  # about the zone itself and files outside tables
    partner: PartnerEvents | None = None  # the publisher's own words; None if it left none
    # To a store that the scan took, by kind; empty on this machine
    requests: Mapping[str, int] = field(default_factory=dict, compare=False)
