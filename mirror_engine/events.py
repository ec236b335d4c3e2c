"""Events of the engine: a closed set of values, sent to every listener."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName

DropReason = Literal["deleted", "recreated", "rebuild", "removed"]


@dataclass(frozen=True)
class CycleStarted:
    """A cycle begins."""

    number: int


@dataclass(frozen=True)
class CycleEnded:
    """A cycle ended: committed batches, duration in seconds, and the store requests of its scan."""

    number: int
    batches: int
    seconds: float
    scan_requests: int | None = None


@dataclass(frozen=True)
class BatchStarted:
    """Files of one table are being read."""

    table: TableName
    files: int
    first: str
    last: str


@dataclass(frozen=True)
class FileRead:
    """One file of a batch has been read and accepted."""

    table: TableName
    path: str
    rows: int


@dataclass(frozen=True)
class CommitStarted:
    """All files of a batch have been read, and are being committed."""

    table: TableName
    files: int


@dataclass(frozen=True)
class BatchCommitted:
    """A batch is durably committed to the Delta table."""

    table: TableName
    version: int
    files: tuple[str, ...]
    rows: int
    seconds: float


@dataclass(frozen=True)
class TableDropped:
    """A Delta table was dropped, with its progress: its folder was deleted or recreated, or it is rebuilt (LZ-7).

    Or the table was removed by others, and its progress was forgotten.
    """

    table: TableName
    reason: DropReason


@dataclass(frozen=True)
class FolderMoved:
    """A table continues in another folder with the same content: copied, moved or mounted again (LZ-7.3)."""

    table: TableName


@dataclass(frozen=True)
class FilesArchived:
    """Applied change files were moved out of a table's folder (LZ-8.1)."""

    table: TableName
    files: int


@dataclass(frozen=True)
class ArchivedFilesDeleted:
    """Archived change files were deleted: their time was over (LZ-8.3)."""

    table: TableName
    files: int


@dataclass(frozen=True)
class TableMaintained:
    """A table's files were compacted, and expired ones deleted; `done` has the numbers."""

    table: TableName
    done: Mapping[str, int]
    seconds: float


@dataclass(frozen=True)
class TableHalted:
    """A table rejected a file or its metadata, and applies nothing further."""

    table: TableName
    diagnostic: Diagnostic


@dataclass(frozen=True)
class TableResumed:
    """A table is no longer halted: it continues, or its folder was deleted (`deleted`)."""

    table: TableName
    reason: Literal["deleted"] | None = None


@dataclass(frozen=True)
class DiagnosticRaised:
    """A warning or information about a table, or about the landing zone as a whole (table None)."""

    table: TableName | None
    diagnostic: Diagnostic


@dataclass(frozen=True)
class RetryScheduled:
    """A transient failure; it is retried `retry_seconds` from now (ME072)."""

    table: TableName | None
    message: str
    retry_seconds: float


@dataclass(frozen=True)
class ProgressRebuilt:
    """A table's progress was read from its Delta log: the ledger did not have it."""

    table: TableName
    version: int


@dataclass(frozen=True)
class SetupProgress:
    """Slow preparation: jars being fetched, the Spark session starting, a zone being copied.

    `done` of `total`, which is 0 where unknown; `doing` says in a word what is done with it.
    """

    what: str
    done: int = 0
    total: int = 0
    doing: str = "preparing"


Event = (
    CycleStarted
    | CycleEnded
    | BatchStarted
    | FileRead
    | CommitStarted
    | BatchCommitted
    | TableDropped
    | FolderMoved
    | FilesArchived
    | ArchivedFilesDeleted
    | TableMaintained
    | TableHalted
    | TableResumed
    | DiagnosticRaised
    | RetryScheduled
    | ProgressRebuilt
    | SetupProgress
)
Listener = Callable[[Event], None]


def ignore(_: Event) -> None:
    """Ignore every event."""
