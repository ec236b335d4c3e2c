"""The store's folder, written for clients one visible step at a time: staged files, rename, trash."""

from __future__ import annotations

import errno
import io
import os
import secrets
import shutil
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, NoReturn, cast

from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.storage.base import Kind, parts_of
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

STAGING = f"{ENGINE}/staging"  # staged files, and trash until it is deleted
COPY_BYTES = 1 << 20
OWNER_ONLY = 0o700
APPEND_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
TICK_SECONDS = 0.02  # file systems reuse a freed inode at once, and count birth times in steps of up to 10 ms
NOT_A_FOLDER = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EEXIST})


class StagedFile:
    """A private file on the store's file system, at no client's path until it is published.

    One thread writes it at a time. Every method raises `StorageUnavailable` when the disk fails.

    Args:
        root: the store's folder.
    """

    def __init__(self, root: Path) -> None:
        self.name = secrets.token_hex(16)
        self.size = 0
        self._root = root
        self._file: BinaryIO | None = None
        self._is_created = False
        self._is_sealed = False

    def write(self, content: bytes | memoryview) -> None:
        """Append."""
        with os_errors("write", STAGING):
            self._opened().write(content)
        self.size += len(content)

    def copy_from(self, reader: BinaryIO) -> None:
        """Append what the reader still gives, in chunks."""
        shutil.copyfileobj(reader, self, COPY_BYTES)

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        with os_errors("write", STAGING):
            if self._file is not None:
                self._file.close()
                self._file = None

    def open(self) -> BinaryIO:
        """A reader, after closing the file; it keeps reading when the file is discarded."""
        with os_errors("read", STAGING):
            if not self._is_created:
                self._opened()
        self.close()
        with os_errors("read", STAGING):
            return io.BufferedReader(io.FileIO(self._descriptor(READ_FLAGS)))

    def seal(self) -> None:
        """Close the file and fsync it; repeatable, and slow."""
        if self._is_sealed:
            return
        with os_errors("write", STAGING):
            file = self._opened()
            file.flush()
            if self.size:  # an empty file has nothing to lose
                os.fsync(file.fileno())
        self.close()
        self._is_sealed = True

    def discard(self) -> None:
        """Delete it; repeatable, and without effect once it is published."""
        with suppress(OSError):  # unwritten content is of no use
            if self._file is not None:
                self._file.close()
        self._file = None
        with os_errors("delete", STAGING), suppress(FileNotFoundError), staging_folder(self._root) as folder:
            os.unlink(self.name, dir_fd=folder)

    def _opened(self) -> BinaryIO:
        if self._file is None:
            create = 0 if self._is_created else os.O_CREAT | os.O_EXCL
            self._file = cast("BinaryIO", os.fdopen(self._descriptor(APPEND_FLAGS | create), "ab"))
            self._is_created = True
            self._is_sealed = False
        return self._file

    def _descriptor(self, flags: int) -> int:
        with staging_folder(self._root) as folder:
            return os.open(self.name, flags, 0o666, dir_fd=folder)


class Trash:
    """A deleted file or folder, not removed yet.

    A folder's inode is freed only after the clock of birth times has moved on: a new folder gets another identity.
    """

    def __init__(self, store: LocalStore, path: str, delay_seconds: float) -> None:
        self._store = store
        self._path = path
        self._delay_seconds = delay_seconds

    def discard(self) -> None:
        """Remove it from disk; repeatable. `remove_stale` removes what was not discarded."""
        time.sleep(self._delay_seconds)
        self._store.delete(self._path)


class LocalStore(LocalStorage):
    """Storage in which the emulator writes for clients; thread-safe.

    A symbolic link or file where a folder is needed counts as an absent folder: `FileNotFoundError`. The store's
    folder is created at the first write.
    """

    def make_folder(self, path: str) -> Entry:
        """Create a folder and its parents durably; an existing one keeps its identity.

        Raises:
            FileExistsError: the path or a parent is not a folder.
        """
        parts = parts_of(path)
        if parts is None:
            _fail(FileNotFoundError, errno.ENOENT, path)
        with _storage_errors("make", path):
            self._root.mkdir(parents=True, exist_ok=True)
            try:
                os.close(open_folder(self._root, parts, ensure_folder))
            except OSError as problem:
                if problem.errno in NOT_A_FOLDER:
                    _fail(FileExistsError, errno.EEXIST, path)
                raise
        return self.stat(path) or _fail(FileNotFoundError, errno.ENOENT, path)

    def stage(self) -> StagedFile:
        """A new private file."""
        return StagedFile(self._root)

    def publish(self, staged: StagedFile, path: str, modified_ns: int) -> Entry:
        """Move a staged file to a path in one step, replacing a file (or link); creates no folders.

        Its content is durable when this returns, its name may not be.

        Raises:
            FileNotFoundError: the parent folder is absent.
            IsADirectoryError: the path is a folder.
        """
        staged.seal()
        with (
            _storage_errors("write", path),
            staging_folder(self._root) as private,
            self._parent(path) as (folder, name),
        ):
            os.utime(staged.name, ns=(modified_ns, modified_ns), dir_fd=private, follow_symlinks=False)
            os.replace(staged.name, name, src_dir_fd=private, dst_dir_fd=folder)
            return stat_entry(name, folder)

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder in one step, keeping identity and Last-Modified; a file may replace a file.

        Raises:
            FileNotFoundError: the source or the target's parent folder is absent.
            FileExistsError: the target is a folder, or a file where the source is a folder.
            OSError: a folder would be moved into itself (`errno.EINVAL`).
        """
        with (
            _storage_errors("rename", source),
            self._parent(source) as (origin, old),
            self._parent(target) as (folder, new),
        ):
            kind, replaced = _kind(old, origin), _kind(new, folder)
            if kind not in {Kind.FILE, Kind.FOLDER}:
                _fail(FileNotFoundError, errno.ENOENT, source)
            if source != target and (replaced is Kind.FOLDER or (replaced and kind is Kind.FOLDER)):
                _fail(FileExistsError, errno.EEXIST, target)
            os.rename(old, new, src_dir_fd=origin, dst_dir_fd=folder)

    def touch(self, path: str, modified_ns: int) -> None:
        """Set a file's Last-Modified.

        Raises:
            FileNotFoundError: there is no regular file.
        """
        with _storage_errors("touch", path), self._parent(path) as (folder, name):
            file = open_file(name, folder)
            if file is None:
                _fail(FileNotFoundError, errno.ENOENT, path)
            try:
                os.utime(file, ns=(modified_ns, modified_ns))
            finally:
                os.close(file)

    def move_to_trash(self, path: str) -> Trash:
        """Remove a file, or a folder with all in it, in one step; discard the result to free its space.

        Raises:
            FileNotFoundError: there is neither file nor folder.
        """
        with (
            _storage_errors("delete", path),
            staging_folder(self._root) as private,
            self._parent(path) as (folder, name),
        ):
            kind = _kind(name, folder)
            if kind not in {Kind.FILE, Kind.FOLDER}:
                _fail(FileNotFoundError, errno.ENOENT, path)
            hidden = secrets.token_hex(16)
            os.rename(name, hidden, src_dir_fd=folder, dst_dir_fd=private)
        return Trash(self, f"{STAGING}/{hidden}", TICK_SECONDS if kind is Kind.FOLDER else 0)

    def remove_stale(self) -> None:
        """Delete staged files and trash of an earlier process; no other process may be writing."""
        self.delete(STAGING)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """The open parent folder and the last name of a path; FileNotFoundError where it is absent."""
        parts = parts_of(path)
        with self._folder(parts[:-1] if parts else None) as opened:
            if not parts or opened is None:
                _fail(FileNotFoundError, errno.ENOENT, path)
            yield opened, parts[-1]


@contextmanager
def staging_folder(root: Path) -> Iterator[int]:
    """The open staging folder, created for its owner alone."""
    parts = STAGING.split("/")
    try:
        folder = open_folder(root, parts)
    except FileNotFoundError:
        root.mkdir(parents=True, exist_ok=True)
        folder = open_folder(root, parts, _make_private)
    try:
        yield folder
    finally:
        os.close(folder)


def _make_private(name: str, folder: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, OWNER_ONLY, dir_fd=folder)


class _storage_errors(os_errors):  # noqa: N801 - a context manager
    """Map OS errors to `StorageUnavailable`, except those that the methods document."""

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        is_invalid = isinstance(problem, OSError) and problem.errno == errno.EINVAL
        if not is_invalid and not isinstance(problem, (FileNotFoundError, FileExistsError, IsADirectoryError)):
            super().__exit__(kind, problem, trace)


def _kind(name: str, folder: int) -> Kind | None:
    with ignore_absent():
        return stat_entry(name, folder).kind
    return None


def _fail(kind: type[OSError], code: int, path: str) -> NoReturn:
    raise kind(code, os.strerror(code), path)
