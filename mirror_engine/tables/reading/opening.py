"""The interface of an open change file, and the checks that it is the listed one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO, Protocol

import pyarrow as pa

from mirror_engine.errors import ConcurrentModification
from mirror_engine.storage.base import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import LandedFile
    from mirror_engine.landing_zone.schema import Column
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.reading.request import ReadRequest


class OpenFile(Protocol):
    """An open change file."""

    @property
    def columns(self) -> Sequence[Column]:
        """Data columns in file order, without the marker; observed types in Delta's words.

        A null-typed column has the type `VOID`. For text: the declared columns that the header names.
        """

    @property
    def marker(self) -> str | None:
        """The marker column's name as spelled; None for a marker-free file."""

    @property
    def naive_columns(self) -> frozenset[str]:
        """Timestamp columns without a time zone."""

    @property
    def utc_columns(self) -> frozenset[str]:
        """Timestamp columns with a time zone."""

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Warnings and information; grows while rows are read."""

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


IN_MEMORY_BYTES = 1 << 20


def in_memory(content: BinaryIO, size: int) -> BinaryIO:
    """Read a small file into memory, where Arrow needs no call of Python for each piece; a large one stays as it is.

    Args:
        content: at its beginning.
        size: how many bytes it should hold; of a file that holds more, one more is read.
    """
    return content if size > IN_MEMORY_BYTES else pa.BufferReader(content.read(size + 1))


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
