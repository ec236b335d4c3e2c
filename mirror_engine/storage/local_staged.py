"""A private file on a local disk, in a folder that only its owner may look into."""

from __future__ import annotations

import io
import os
import secrets
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, cast

from mirror_engine.storage.local_failures import told
from mirror_engine.storage.local_walk import walked
from mirror_engine.storage.writable import STAGING

if TYPE_CHECKING:
    from pathlib import Path

COPY_BYTES = 1 << 20
OWNER_ONLY = 0o700
APPEND_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class LocalStagedFile:
    """A `StagedFile` of a `WritableLocalStorage`.

    Args:
        root: the storage's.
    """

    def __init__(self, root: Path) -> None:
        self.name = secrets.token_hex(16)
        self.size = 0
        self._root = root
        self._file: BinaryIO | None = None
        self._is_made = False
        self._is_sealed = False

    def write(self, content: bytes | memoryview) -> None:
        """See `StagedFile.write`."""
        with told("write", STAGING):
            self._opened().write(content)
        self.size += len(content)

    def copy_from(self, reader: BinaryIO) -> None:
        """See `StagedFile.copy_from`."""
        shutil.copyfileobj(reader, self, COPY_BYTES)

    def close(self) -> None:
        """See `StagedFile.close`."""
        with told("write", STAGING):
            if self._file is not None:
                self._file.close()
                self._file = None

    def open(self) -> BinaryIO:
        """See `StagedFile.open`."""
        with told("read", STAGING):
            if not self._is_made:
                self._opened()
        self.close()
        with told("read", STAGING):
            return io.BufferedReader(io.FileIO(self._descriptor(READ_FLAGS)))

    def seal(self) -> None:
        """See `StagedFile.seal`."""
        if self._is_sealed:
            return
        with told("write", STAGING):
            file = self._opened()
            file.flush()
            if self.size:  # of an empty file there is nothing to lose
                os.fsync(file.fileno())
        self.close()
        self._is_sealed = True

    def discard(self) -> None:
        """See `StagedFile.discard`."""
        with suppress(OSError):  # what was not written must not be missed
            if self._file is not None:
                self._file.close()
        self._file = None
        with told("delete", STAGING), suppress(FileNotFoundError):
            folder = opened_staging(self._root)
            try:
                os.unlink(self.name, dir_fd=folder)
            finally:
                os.close(folder)

    def _opened(self) -> BinaryIO:
        if self._file is None:
            made = 0 if self._is_made else os.O_CREAT | os.O_EXCL
            self._file = cast("BinaryIO", os.fdopen(self._descriptor(APPEND_FLAGS | made), "ab"))
            self._is_made = True
            self._is_sealed = False
        return self._file

    def _descriptor(self, flags: int) -> int:
        folder = opened_staging(self._root)
        try:
            return os.open(self.name, flags, 0o666, dir_fd=folder)
        finally:
            os.close(folder)


def opened_staging(root: Path) -> int:
    """The open folder of staged files, made where needed; the caller closes it."""
    parts = STAGING.split("/")
    with suppress(FileNotFoundError):
        return walked(root, parts)
    root.mkdir(parents=True, exist_ok=True)
    return walked(root, parts, _made_private)


def _made_private(name: str, folder: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, OWNER_ONLY, dir_fd=folder)
