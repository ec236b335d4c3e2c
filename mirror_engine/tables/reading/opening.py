"""A change file, opened: what its header or footer says, and its rows as the file spells them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, NoReturn, Protocol, cast

import pyarrow as pa

from mirror_engine.errors import ConcurrentModification, StorageUnavailable
from mirror_engine.storage.base import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from typing_extensions import Buffer

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.schema import Column
    from mirror_engine.storage.base import Entry, Storage
    from mirror_engine.tables.reading.reader import ReadRequest


class OpenFile(Protocol):
    """One change file."""

    @property
    def columns(self) -> Sequence[Column]:
        """Its data columns in file order, the marker not among them; observed types in Delta's words.

        A null-typed one has the type `VOID`. For text: the declared columns that the header names.
        """

    @property
    def marker(self) -> str | None:
        """The marker column's name as spelled; None for a marker-free file."""

    @property
    def naive_columns(self) -> frozenset[str]:
        """Timestamp columns without a zone."""

    @property
    def utc_columns(self) -> frozenset[str]:
        """Timestamp columns with one."""

    @property
    def promised_rows(self) -> int | None:
        """How many rows a footer says there are; None where only reading them tells."""

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


class _ChangeBytes(io.RawIOBase):
    """A reader that turns every `OSError` of the one below into `StorageUnavailable`.

    Parsers raise `OSError` for what they cannot parse, too; behind this wrapper the two cannot be confused.
    """

    def __init__(self, handle: BinaryIO, path: str) -> None:
        super().__init__()
        self._handle = handle
        self._path = path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        try:
            return self._handle.read(-1 if size is None else size)
        except OSError as failed:
            self._fail(failed)

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer).cast("B")
        content = self.read(len(view))
        view[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        try:
            return self._handle.seek(offset, whence)
        except OSError as failed:
            self._fail(failed)

    def tell(self) -> int:
        return self._handle.tell()

    def _fail(self, failed: OSError) -> NoReturn:
        raise StorageUnavailable(
            f"{self._path}: reading failed: {failed.strerror or type(failed).__name__}"
        ) from failed


def guarded(handle: BinaryIO, path: str) -> BinaryIO:
    """The same bytes; a read that fails raises `StorageUnavailable`. Closing it leaves `handle` open."""
    cannot_fail = isinstance(handle, _ChangeBytes | pa.BufferReader)
    return handle if cannot_fail else cast("BinaryIO", _ChangeBytes(handle, path))


def at_hand(content: BinaryIO, size: int) -> BinaryIO:
    """A small file in memory, read once, where Arrow finds it without asking Python for each piece.

    Args:
        content: at its beginning.
        size: how many bytes it should hold; one that holds more has at least one more in memory, too.
    """
    return content if size > IN_MEMORY_BYTES else pa.BufferReader(content.read(size + 1))


@dataclass(frozen=True)
class SightedFile:
    """The file of a request, as it lies.

    Attributes:
        storage: door 1.
        path: from ROOT.
        name: from the landing zone's top, for messages.
        entry: what it was when it was sighted here.
    """

    storage: Storage
    path: str
    name: str
    entry: Entry

    def open(self) -> BinaryIO:
        """Its bytes, from the beginning.

        Raises:
            ConcurrentModification: it is gone.
            StorageUnavailable: it could not be opened.
        """
        try:
            return self.storage.open(self.path)
        except FileNotFoundError:
            raise ConcurrentModification(f"{self.name}: gone before it was read") from None

    def is_unchanged(self) -> bool:
        """Whether its size and its LastModified are what they were.

        Raises:
            ConcurrentModification: another file lies there, or none.
        """
        now = self.storage.stat(self.path)
        if now is None or now.identity != self.entry.identity:
            raise ConcurrentModification(f"{self.name}: replaced while it was read")
        return (now.size, now.modified_ns) == (self.entry.size, self.entry.modified_ns)

    def check_unchanged(self) -> None:
        """Hold it to be what it was.

        Raises:
            ConcurrentModification: it is not.
        """
        if not self.is_unchanged():
            raise ConcurrentModification(f"{self.name}: changed while it was looked at")


def sighted(storage: Storage, request: ReadRequest) -> SightedFile:
    """The file that a request asks for.

    Raises:
        ConcurrentModification: another file lies there than the poller saw, or none.
        StorageUnavailable: it could not be looked at.
    """
    path = f"{request.zone}/{request.path}"
    entry = storage.stat(path)
    if entry is None or entry.kind is not Kind.FILE or entry.identity != request.file.identity:
        raise ConcurrentModification(f"{request.path}: no longer the file that was seen")
    return SightedFile(storage, path, request.path, entry)
