"""What is read of a table folder, and against what: each file against the table as the file before leaves it.

Imports no Arrow: a start that reads no rows goes without.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, BinaryIO, Protocol

from mirror_engine.errors import ConcurrentModification
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.storage.base import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator, Sequence

    import pyarrow as pa

    from mirror_engine.config import Config
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import LandedFile
    from mirror_engine.landing_zone.metadata import Metadata
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.schema import Column, TableSchema
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.base import FileRows

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class TableContext:
    """What is known of a table before a file is read, and after.

    Attributes:
        schema: its columns; None before its first file.
        is_empty: whether it surely holds no row (LZ-5.5).
        naive_columns, utc_columns: columns whose timestamps came without and with a time zone (ME051).
        markers_seen: whether a file with markers came before (ME042).
        takes_files: whether files can be added to the table unchanged (passthrough).
        feeds_changes: whether the table has a change data feed, or had one.
    """

    schema: TableSchema | None = None
    is_empty: bool = True
    naive_columns: frozenset[str] = frozenset()
    utc_columns: frozenset[str] = frozenset()
    markers_seen: bool = False
    takes_files: bool = True
    feeds_changes: bool = False


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


def open_listed(storage: Storage, request: ReadRequest) -> BinaryIO:
    """Open the file of a request.

    Raises:
        ConcurrentModification: it is gone.
        StorageUnavailable: it could not be opened.
    """
    try:
        return storage.open(f"{request.zone}/{request.path}")
    except FileNotFoundError:
        raise ConcurrentModification(f"{request.path}: gone before it was read") from None


def listed_now(storage: Storage, request: ReadRequest) -> LandedFile:
    """The file of a request as it would be listed now: equal to the request's where it did not change since.

    Raises:
        ConcurrentModification: it was replaced or removed.
        StorageUnavailable: its entry could not be read.
    """
    entry = storage.stat(f"{request.zone}/{request.path}")
    if entry is None or entry.kind is not Kind.FILE or entry.identity != request.file.identity:
        raise ConcurrentModification(f"{request.path}: replaced or removed since it was listed")
    return replace(request.file, size=entry.size, modified_ns=entry.modified_ns)


def digest(handle: BinaryIO) -> str:
    """The digest of all bytes: BLAKE2b, 128 bits, hex."""
    handle.seek(0)
    hasher = blake2b(digest_size=16)
    while block := handle.read(_BLOCK_BYTES):
        hasher.update(block)
    return hasher.hexdigest()


class OpenFile(ABC):
    """An open change file.

    Args:
        handle: its bytes, seekable; stays open, and is the caller's to close after the last batch.
        path: for messages, from the landing zone's top.
        config: all options.

    Attributes:
        columns: data columns in file order, without the marker; observed types in Delta's words, `VOID` for a
            null-typed one. For text: the declared columns that the header names.
        marker: the marker column's name as spelled; None for a marker-free file.
        naive_columns, utc_columns: timestamp columns without and with a time zone.
        has_rows: whether it may hold a row.
    """

    columns: Sequence[Column] = ()
    marker: str | None = None
    naive_columns: frozenset[str] = frozenset()
    utc_columns: frozenset[str] = frozenset()
    has_rows: bool = True

    def __init__(self, handle: BinaryIO, path: str, config: Config) -> None:
        self._handle = handle
        self._size = handle.seek(0, os.SEEK_END)
        self._path = path
        self._config = config
        self._noted: dict[Diagnostic, None] = {}

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Warnings and information; grows while rows are read."""
        return list(self._noted)

    def _note(self, code: str, **details: object) -> None:
        """Add a diagnostic, once: rows are read more than once."""
        self._noted[self._diagnostic(code, **details)] = None

    def _diagnostic(self, code: str, row: int | None = None, /, **details: object) -> Diagnostic:
        return diagnose(code, self._path, row=row, strict=self._config.strict, **details)

    @abstractmethod
    def batches(self, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Rows in file order, in bounded batches, readable more than once.

        Args:
            columns: those that must be read, by the file's own names; all, where it is None. A format that cannot
                leave columns out gives all.

        Columns under the file's own names, in file order, each in the Arrow type of its observed Delta type (see
        `arrow_types`), then, where there is a marker, `MARKER_COLUMN` as int8, each of them one the protocol knows.

        Raises:
            RejectedFile: a row, cell or page cannot be read (ME024, ME037 for a marker outside int8, ME060,
                ME061, ME075).
        """


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
