"""The bytes of an opened change file: a failing read is the storage's fault, never the publisher's."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO, NoReturn, cast

import pyarrow as pa

from mirror_engine.errors import StorageUnavailable

if TYPE_CHECKING:
    from typing_extensions import Buffer

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
