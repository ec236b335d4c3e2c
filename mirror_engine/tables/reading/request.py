"""What is read of a table folder, and against what: each file against the table as the file before leaves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from mirror_engine.landing_zone.listing import LandedFile
    from mirror_engine.landing_zone.metadata import Metadata
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.schema import TableSchema
    from mirror_engine.tables.base import FileRows


@dataclass(frozen=True)
class TableContext:
    """What is known of a table before a file is read, and after.

    Attributes:
        schema: its columns; None before its first file.
        is_empty: whether it surely holds no row (LZ-5.5).
        naive_columns, utc_columns: columns whose timestamps came without and with a time zone (ME051).
        markers_seen: whether a file with markers came before (ME042).
        takes_files: whether files can be added to the table unchanged (passthrough).
    """

    schema: TableSchema | None = None
    is_empty: bool = True
    naive_columns: frozenset[str] = frozenset()
    utc_columns: frozenset[str] = frozenset()
    markers_seen: bool = False
    takes_files: bool = True


@dataclass(frozen=True)
class ReadFile:
    """One valid file, and the table's context after it."""

    rows: FileRows
    facts: TableContext


@dataclass(frozen=True)
class ReadRequest:
    """One file to read.

    Attributes:
        zone: the landing zone, from ROOT.
        table: the table folder.
        file: the file as the poller listed it.
        metadata: in force for it.
        facts: the table's context before this file.
    """

    zone: str
    table: TableName
    file: LandedFile
    metadata: Metadata
    facts: TableContext = field(default_factory=TableContext)

    @property
    def path(self) -> str:
        """The file from the landing zone's top, for messages."""
        return f"{self.table.folder}/{self.file.path}"


@dataclass(frozen=True)
class PendingFiles:
    """Pending change files of one table folder, in detection order; see `ReadRequest`.

    Attributes:
        facts: the table's context before the first of them.
    """

    zone: str
    table: TableName
    files: Sequence[LandedFile]
    metadata: Metadata
    facts: TableContext

    def request(self, place: int, facts: TableContext) -> ReadRequest:
        """For the file at a place, with the context before it."""
        return ReadRequest(self.zone, self.table, self.files[place], self.metadata, facts)


class OrderedReader(Protocol):
    """Reads pending files, each against the context after the one before."""

    def in_order(self, pending: PendingFiles) -> Generator[ReadFile, None, None]:
        """The files, one after the other on demand; closing it gives back what was read beyond.

        Raises:
            RejectedFile: the next file breaks the protocol; nothing of it may be applied.
            ConcurrentModification: a file was replaced or removed since it was listed.
            StorageUnavailable: the storage or the scratch folder failed.
        """


class LazyReader:
    """`OrderedReader` that imports and makes another one for the first file."""

    def __init__(self, make: Callable[[], OrderedReader]) -> None:
        self._reader = cache(make)

    def in_order(self, pending: PendingFiles) -> Generator[ReadFile, None, None]:
        return self._reader().in_order(pending)
