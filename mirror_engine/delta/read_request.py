"""What is asked of a reader of change files, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from mirror_engine.delta.base import FileRows
    from mirror_engine.landing_zone.column_types import TableSchema
    from mirror_engine.landing_zone.metadata import Metadata
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.sightings import FileSighting


@dataclass(frozen=True)
class TableFacts:
    """What is known of a table before a file is read, and after: each file is read against the facts before it.

    Attributes:
        schema: its columns; None before its first file.
        is_empty: whether it surely holds no row (LZ-5.5).
        naive_columns, utc_columns: timestamp columns that came so (ME051).
        markers_seen: whether a file with markers came before (ME042).
        takes_files: whether files can become part of the table as they lie.
    """

    schema: TableSchema | None = None
    is_empty: bool = True
    naive_columns: frozenset[str] = frozenset()
    utc_columns: frozenset[str] = frozenset()
    markers_seen: bool = False
    takes_files: bool = True


@dataclass(frozen=True)
class ReadFile:
    """One file, read and found good, and the facts after it."""

    rows: FileRows
    facts: TableFacts


@dataclass(frozen=True)
class Foretold:
    """What is expected of a file before its rows are read: the facts after it, and what it counts for in a batch."""

    facts: TableFacts
    counted_bytes: int


@dataclass(frozen=True)
class ReadRequest:
    """What to read, and against what.

    Attributes:
        zone: the landing zone, from ROOT.
        table: the table folder.
        file: the file as the poller saw it.
        metadata: in force for it.
        facts: the table's before this file.
    """

    zone: str
    table: TableName
    file: FileSighting
    metadata: Metadata
    facts: TableFacts = field(default_factory=TableFacts)

    @property
    def path(self) -> str:
        """The file from the landing zone's top, for messages."""
        return f"{self.table.folder}/{self.file.path}"


@dataclass(frozen=True)
class WaitingFiles:
    """Change files of one table folder that wait to be read, in detection order; see `ReadRequest`.

    Attributes:
        facts: the table's before the first of them.
    """

    zone: str
    table: TableName
    files: Sequence[FileSighting]
    metadata: Metadata
    facts: TableFacts

    def request(self, place: int, facts: TableFacts) -> ReadRequest:
        """For the file at a place, with the facts before it."""
        return ReadRequest(self.zone, self.table, self.files[place], self.metadata, facts)


class ReadsInOrder(Protocol):
    """Reads waiting files, each against the facts after the one before; where it does so changes nothing."""

    def in_order(self, waiting: WaitingFiles) -> Generator[ReadFile, None, None]:
        """The files, one after the other as they are asked for; what was read beyond goes when it is closed.

        Raises:
            PublisherError: the next file breaks the protocol; nothing of it may be applied.
            ZoneChanged: another file lies there than was sighted, or none.
            StorageUnavailable: the storage or the scratch folder failed.
        """


class ReadsAtNeed:
    """`ReadsInOrder` by another one, made for the first file: where none waits, nothing is imported to read it."""

    def __init__(self, make: Callable[[], ReadsInOrder]) -> None:
        self._made = cache(make)

    def in_order(self, waiting: WaitingFiles) -> Generator[ReadFile, None, None]:
        """See `ReadsInOrder`."""
        return self._made().in_order(waiting)
