"""Door 1 for a server: what it takes to let others write, one visible step at a time."""

from __future__ import annotations

import errno
import io
import os
import secrets
import shutil
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, NoReturn, Protocol, cast

from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.storage.base import Kind, Storage, parts_of
from mirror_engine.storage.local import (
    LocalStorage,
    ensure_folder,
    ignore_absent,
    open_file,
    open_folder,
    os_errors,
    stat_entry,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror_engine.storage.base import Entry

STAGING = f"{ENGINE}/staging"  # below the storage's ROOT: staged files, and what was taken away until it is deleted


class Discardable(Protocol):
    """Something private that only waits to be deleted."""

    def discard(self) -> None:
        """Delete it; repeatable. What is not discarded, a later `sweep` deletes."""


class StagedFile(Discardable, Protocol):
    """A private file on the storage's own file system: no path shows it until it is published.

    One thread writes it at a time. Every method raises `StorageUnavailable` when the disk fails. Discarding it
    once it is published has no effect.
    """

    @property
    def size(self) -> int:
        """Bytes written so far."""

    def write(self, content: bytes | memoryview) -> None:
        """Add to its end."""

    def copy_from(self, reader: BinaryIO) -> None:
        """Add all that the reader still gives; never the whole of it in memory."""

    def close(self) -> None:
        """Let go of the open file. A later write opens it again."""

    def open(self) -> BinaryIO:
        """A reader of what was written; closes it first. It keeps reading when the file is discarded meanwhile."""

    def seal(self) -> None:
        """Close it; what was written outlasts a crash of the machine. Repeatable, and slow."""


class WritableStorage(Storage, Protocol):
    """A `Storage` in which a server writes for others.

    All methods may be called by several threads at once. What stands on a path's way and is no folder (a symbolic
    link, too) is met as an absent folder: `FileNotFoundError`. Nothing is followed, nothing leaves ROOT.
    """

    def make_folder(self, path: str) -> Entry:
        """A folder, with the folders on its way; where it stands already, it is left alone (identity and all).

        Raises:
            FileExistsError: something else stands there or on the way.
        """

    def stage(self) -> StagedFile:
        """A new private file."""

    def publish(self, staged: StagedFile, path: str, modified_ns: int) -> Entry:
        """Show a staged file at a path in one step, replacing a file (or link) there; makes no folders.

        Args:
            staged: of this storage; sealed first where it is not.
            path: where.
            modified_ns: LastModified to be shown, in nanoseconds since 1970.

        Raises:
            FileNotFoundError: the folder it would lie in is absent.
            IsADirectoryError: a folder stands there.
        """

    def rename(self, source: str, target: str) -> None:
        """Rename a file, or a folder with all in it, in one step; identity and LastModified stay; makes no folders.

        A file replaces a file (or link), a folder nothing.

        Raises:
            FileNotFoundError: the source, or the folder that the target would lie in, is absent.
            FileExistsError: a folder stands at the target, or a file where a folder would go.
            OSError: a folder would come to lie inside itself (`errno.EINVAL`).
        """

    def touch(self, path: str, modified_ns: int) -> None:
        """Set a file's LastModified.

        Raises:
            FileNotFoundError: there is no regular file.
        """

    def take_away(self, path: str) -> Discardable:
        """Let a file, or a folder with all in it, vanish in one step; discarding what is returned deletes it.

        A folder made afterwards has another identity than the one taken away, however soon.

        Raises:
            FileNotFoundError: neither file nor folder stands there.
        """

    def sweep(self) -> None:
        """Delete what an earlier process left staged or half deleted; nobody else may be writing."""


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
        with os_errors("write", STAGING):
            self._opened().write(content)
        self.size += len(content)

    def copy_from(self, reader: BinaryIO) -> None:
        """See `StagedFile.copy_from`."""
        shutil.copyfileobj(reader, self, COPY_BYTES)

    def close(self) -> None:
        """See `StagedFile.close`."""
        with os_errors("write", STAGING):
            if self._file is not None:
                self._file.close()
                self._file = None

    def open(self) -> BinaryIO:
        """See `StagedFile.open`."""
        with os_errors("read", STAGING):
            if not self._is_made:
                self._opened()
        self.close()
        with os_errors("read", STAGING):
            return io.BufferedReader(io.FileIO(self._descriptor(READ_FLAGS)))

    def seal(self) -> None:
        """See `StagedFile.seal`."""
        if self._is_sealed:
            return
        with os_errors("write", STAGING):
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
        with os_errors("delete", STAGING), suppress(FileNotFoundError):
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
        return open_folder(root, parts)
    root.mkdir(parents=True, exist_ok=True)
    return open_folder(root, parts, _made_private)


def _made_private(name: str, folder: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, OWNER_ONLY, dir_fd=folder)


# A file system hands out a freed inode at once, and counts the time of birth in steps of up to 10 ms
TICK_SECONDS = 0.02
IN_THE_WAY = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EEXIST})


class WritableLocalStorage(LocalStorage):
    """A `WritableStorage` over a folder of this machine; the folder is made when something is first written."""

    def make_folder(self, path: str) -> Entry:
        """See `WritableStorage.make_folder`; the folder is on the disk when this returns."""
        parts = parts_of(path)
        if parts is None:
            _refuse(FileNotFoundError, errno.ENOENT, path)
        with _answered("make", path):
            self._root.mkdir(parents=True, exist_ok=True)
            try:
                os.close(open_folder(self._root, parts, ensure_folder))
            except OSError as problem:
                if problem.errno in IN_THE_WAY:
                    _refuse(FileExistsError, errno.EEXIST, path)
                raise
        return self.stat(path) or _refuse(FileNotFoundError, errno.ENOENT, path)

    def stage(self) -> StagedFile:
        """See `WritableStorage.stage`."""
        return LocalStagedFile(self._root)

    def publish(self, staged: StagedFile, path: str, modified_ns: int) -> Entry:
        """See `WritableStorage.publish`; the content is on the disk when this returns, the name may come later."""
        staged.seal()
        with _answered("write", path), self._private() as private, self._above(path) as (folder, name):
            hidden = cast("LocalStagedFile", staged).name
            os.utime(hidden, ns=(modified_ns, modified_ns), dir_fd=private, follow_symlinks=False)
            os.replace(hidden, name, src_dir_fd=private, dst_dir_fd=folder)
            return stat_entry(name, folder)

    def rename(self, source: str, target: str) -> None:
        """See `WritableStorage.rename`."""
        with (
            _answered("rename", source),
            self._above(source) as (origin, old),
            self._above(target) as (folder, new),
        ):
            kind, standing = _kind(old, origin), _kind(new, folder)
            if kind not in {Kind.FILE, Kind.FOLDER}:
                _refuse(FileNotFoundError, errno.ENOENT, source)
            is_same = source == target
            if not is_same and (standing is Kind.FOLDER or (standing and kind is Kind.FOLDER)):
                _refuse(FileExistsError, errno.EEXIST, target)
            os.rename(old, new, src_dir_fd=origin, dst_dir_fd=folder)

    def touch(self, path: str, modified_ns: int) -> None:
        """See `WritableStorage.touch`."""
        with _answered("touch", path), self._above(path) as (folder, name):
            file = open_file(name, folder)
            if file is None:
                _refuse(FileNotFoundError, errno.ENOENT, path)
            try:
                os.utime(file, ns=(modified_ns, modified_ns))
            finally:
                os.close(file)

    def take_away(self, path: str) -> Discardable:
        """See `WritableStorage.take_away`."""
        with _answered("delete", path), self._private() as private, self._above(path) as (folder, name):
            kind = _kind(name, folder)
            if kind not in {Kind.FILE, Kind.FOLDER}:
                _refuse(FileNotFoundError, errno.ENOENT, path)
            hidden = secrets.token_hex(16)
            os.rename(name, hidden, src_dir_fd=folder, dst_dir_fd=private)
        return _TakenAway(self, f"{STAGING}/{hidden}", TICK_SECONDS if kind is Kind.FOLDER else 0)

    def sweep(self) -> None:
        """See `WritableStorage.sweep`."""
        self.delete(STAGING)

    @contextmanager
    def _above(self, path: str) -> Iterator[tuple[int, str]]:
        """The open folder that a path lies in, and the path's last part.

        Raises:
            FileNotFoundError: there is none, or only by way of a link.
        """
        parts = parts_of(path)
        with self._folder(parts[:-1] if parts else None) as opened:
            if not parts or opened is None:
                _refuse(FileNotFoundError, errno.ENOENT, path)
            yield opened, parts[-1]

    @contextmanager
    def _private(self) -> Iterator[int]:
        opened = opened_staging(self._root)
        try:
            yield opened
        finally:
            os.close(opened)


class _TakenAway:
    """What was moved out of sight. A folder's inode is not freed before the clock of births has moved on."""

    def __init__(self, storage: WritableLocalStorage, path: str, pause_seconds: float) -> None:
        self._storage = storage
        self._path = path
        self._pause_seconds = pause_seconds

    def discard(self) -> None:
        """See `Discardable.discard`."""
        time.sleep(self._pause_seconds)
        self._storage.delete(self._path)


class _answered(os_errors):  # noqa: N801 - read as a word of a sentence
    """Lets through the errors that `WritableStorage` promises; all others are the disk's."""

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        is_invalid = isinstance(problem, OSError) and problem.errno == errno.EINVAL
        if not is_invalid and not isinstance(problem, (FileNotFoundError, FileExistsError, IsADirectoryError)):
            super().__exit__(kind, problem, trace)


def _kind(name: str, folder: int) -> Kind | None:
    with ignore_absent():
        return stat_entry(name, folder).kind
    return None


def _refuse(kind: type[OSError], code: int, path: str) -> NoReturn:
    raise kind(code, os.strerror(code), path)
