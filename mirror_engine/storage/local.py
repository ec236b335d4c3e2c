"""Storage in a folder of this machine (Linux, macOS): no symbolic link is followed, no path leaves ROOT."""

from __future__ import annotations

import ctypes
import errno
import io
import os
import secrets
import stat
import struct
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, BinaryIO, cast

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.listing import Entry, Kind
from mirror_engine.landing_zone.text import printable
from mirror_engine.storage.base import is_text, no_file_path, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from typing_extensions import Buffer

    from mirror_engine.storage.base import Storage

# a socket cannot be opened: ENXIO
ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO})
HELP = {
    errno.EACCES: "Give the user that runs the engine rights to it.",
    errno.EPERM: "Give the user that runs the engine rights to it.",
    errno.EROFS: "Mount the file system for writing.",
    errno.ENOSPC: "Free space on the disk.",
    errno.EDQUOT: "Free space in the user's quota.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
    errno.ENFILE: "Raise the machine's limit of open files.",
    errno.EXDEV: "Keep a table folder on one file system.",
    errno.EISDIR: "Remove the folder at the file's path.",
    errno.ENOTDIR: "Remove the file or link at the folder's path.",
    errno.ELOOP: "Remove the link at the folder's path.",
    errno.EEXIST: "Remove the file or link at the folder's path.",
}
OTHER_HELP = "Check the disk, or the share that holds ROOT."
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
TEMPORARY_PREFIX = ".mirror-engine-"  # the protocol ignores names that begin with a dot (LZ-1.6)


@contextmanager
def os_errors(operation: str, path: str) -> Iterator[None]:
    """Raise `StorageUnavailable` for an OSError."""
    try:
        yield
    except OSError as error:
        message = f"{printable(path) or 'ROOT'}: cannot {operation} it: {error.strerror or error}"
        raise StorageUnavailable(message, HELP.get(error.errno or 0, OTHER_HELP)) from error


@contextmanager
def ignore_absent() -> Iterator[None]:
    """Suppress errors that say that a path is absent, or reached only through a link."""
    try:
        yield
    except OSError as error:
        if error.errno not in ABSENT:
            raise


_LIBC = ctypes.CDLL(None, use_errno=True)
_STATX_FLAGS = 0x100 | 0x1000  # AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH
_STATX_BASIC_STATS, _STATX_BTIME = 0x7FF, 0x800
_NO_STATX = frozenset({errno.ENOSYS, errno.EPERM})  # older sandboxes forbid system calls they do not know
_STATX_MOUNT_ROOT = 0x2000  # since Linux 5.8
# struct statx of linux/stat.h: mask, attributes, mode, inode, size, which attributes are known; seconds and nanoseconds
# of birth and modification; the device's major and minor number
_STATX = struct.Struct("=I4xQ12xH2xQQ8xQ16xqI20xqI12xII112x")


def stat_entry(name: str, folder: int) -> Entry:
    """Look up one entry of an open folder, without following a link; `""` is the opened folder or file itself.

    Python's `os.stat` has no time of birth on Linux; it makes the identity of a recreated folder a new one where the
    file system assigns the same inode again.

    Raises:
        OSError: the entry is absent, or cannot be looked up.
    """
    if sys.platform == "linux" and hasattr(_LIBC, "statx"):
        buffer = ctypes.create_string_buffer(_STATX.size)
        mask = _STATX_BASIC_STATS | _STATX_BTIME
        if _LIBC.statx(folder, os.fsencode(name), _STATX_FLAGS, mask, buffer) == 0:
            mask, attributes, mode, inode, size, known, born, born_ns, modified, modified_ns, *device = _STATX.unpack(
                buffer
            )
            born_ns = born * 1_000_000_000 + born_ns if mask & _STATX_BTIME else None
            entry = _entry(name, mode, size, modified * 1_000_000_000 + modified_ns, _identity(inode, born_ns))
            is_mount = bool(attributes & _STATX_MOUNT_ROOT)
            if name and not known & _STATX_MOUNT_ROOT:
                is_mount = os.makedev(*device) != os.fstat(folder).st_dev
            return replace(entry, is_mount=True) if is_mount else entry
        if (code := ctypes.get_errno()) not in _NO_STATX:
            raise OSError(code, os.strerror(code))
    found = os.stat(name, dir_fd=folder, follow_symlinks=False) if name else os.fstat(folder)
    birth = getattr(found, "st_birthtime", None)
    identity = _identity(found.st_ino, None if birth is None else round(birth * 1e9))
    entry = _entry(name, found.st_mode, found.st_size, found.st_mtime_ns, identity)
    return replace(entry, is_mount=True) if name and found.st_dev != os.fstat(folder).st_dev else entry


def _entry(name: str, mode: int, size: int, modified_ns: int, identity: str) -> Entry:
    if stat.S_ISDIR(mode):
        return Entry(name, 0, modified_ns, identity, kind=Kind.FOLDER)
    return Entry(name, size, modified_ns, identity, kind=Kind.FILE if stat.S_ISREG(mode) else Kind.OTHER)


def _identity(inode: int, born_ns: int | None) -> str:
    return f"{inode:x}" if born_ns is None else f"{inode:x}.{born_ns:x}"


def open_folder(root: Path, parts: Sequence[str], prepare: Callable[[str, int], None] | None = None) -> int:
    """Open a folder part by part, following no link below ROOT; the caller closes it.

    `prepare` is called for each part with the open folder above it.
    """
    opened = os.open(root, FOLDER_FLAGS & ~os.O_NOFOLLOW)
    try:
        for part in parts:
            if prepare is not None:
                prepare(part, opened)
            below = os.open(part, FOLDER_FLAGS, dir_fd=opened)
            os.close(opened)
            opened = below
    except BaseException:
        os.close(opened)
        raise
    return opened


def ensure_folder(name: str, folder: int) -> None:
    """Make a folder in an open one, durably, unless the name is taken."""
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
        os.fsync(folder)


def is_file(name: str, folder: int) -> bool:
    """Whether an open folder holds a regular file of this name."""
    with ignore_absent():
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def open_file(name: str, folder: int) -> int | None:
    """Open a regular file for reading; None for anything else, which is closed unread."""
    with ignore_absent():
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        if stat.S_ISREG(os.fstat(opened).st_mode):
            return opened
        os.close(opened)
    return None


def names_in(folder: int) -> Sequence[str]:
    """Names in an open folder."""
    return os.listdir(folder)


def _unlink(name: str, folder: int) -> bool:
    """Remove anything but a folder; False for a folder."""
    with ignore_absent():
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return False
        os.unlink(name, dir_fd=folder)
    return True


class LocalStorage:
    r"""A `Storage` over a folder of this machine.

    ROOT itself may be reached through a link; below it each part of a path is opened from the folder before, so
    that none is followed. A name that is no UTF-8 is listed as `OTHER`, its bytes spelled `\xNN`. A process that
    dies while writing may leave a file `.mirror-engine-*`; it may be deleted.
    """

    is_store = False

    def __init__(self, root: Path) -> None:
        self._root = root
        self._is_new = not root.exists()  # one that is moved away is not made again

    def list(self, folder: str) -> Sequence[Entry] | None:
        with os_errors("list", folder), self._folder(parts_of(folder)) as opened:
            if opened is None:
                return None
            return sorted(self._entries(names_in(opened), opened), key=attrgetter("path"))

    def stat(self, path: str) -> Entry | None:
        parts = parts_of(path)
        with os_errors("check", path), self._folder(None if parts is None else parts[:-1]) as opened:
            if parts is None or opened is None:
                return None
            entry = next(iter(self._entries([parts[-1] if parts else "."], opened)), None)
            return entry if entry is None or parts else replace(entry, path="")

    def open(self, path: str, only: Entry | None = None) -> BinaryIO:
        """Open a file; a failing read raises `StorageUnavailable`, too."""
        parts = parts_of(path)
        with os_errors("open", path), self._folder(parts[:-1] if parts else None) as opened:
            file = None if not parts or opened is None else open_file(parts[-1], opened)
            if file is not None and only and stat_entry("", file).identity != only.identity:
                os.close(file)
                file = None
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no regular file", path)
        return cast("BinaryIO", io.BufferedReader(_Reader(file, path)))

    def write(self, path: str, content: bytes) -> None:
        """Write a whole file. Not durable: status and lists are written again (docs/decisions/durability.md)."""
        with os_errors("write", path), self._ensured_folder(path) as (opened, name):
            temporary = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                # a Path has no open folder
                with open(os.open(temporary, flags, 0o666, dir_fd=opened), "wb") as file:  # noqa: PTH123
                    file.write(content)
                os.replace(temporary, name, src_dir_fd=opened, dst_dir_fd=opened)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=opened)
                raise

    def move(self, source: str, target: str, only: Entry | None = None) -> bool:
        """Move a regular file, never to another file system. Not durable: a file that is back is moved again.

        One that took the place of `only` at the last moment is moved back.
        """
        parts = parts_of(source)
        before = self.stat(source) if only else None
        if before and only and not before.is_same(only):
            return False
        with os_errors("move", source), self._folder(parts[:-1] if parts else None) as origin:
            if parts and origin is not None and is_file(parts[-1], origin):
                with self._ensured_folder(target) as (folder, name), suppress(FileNotFoundError):  # removed meanwhile
                    os.replace(parts[-1], name, src_dir_fd=origin, dst_dir_fd=folder)
        moved = self.stat(target) if only else None
        if only is None or (moved and moved.is_same(only)):
            return True
        if before and self.stat(source) is None:
            self.move(target, source)
        return False

    def delete(self, path: str) -> None:
        """Delete a file or folder; ROOT itself cannot be deleted."""
        parts = parts_of(path)
        with os_errors("delete", path), self._folder(parts[:-1] if parts else None) as opened:
            if not parts or opened is None:
                return
            if not _unlink(parts[-1], opened):
                self._delete_folder(parts)

    def scan(self, folder: str) -> Storage:  # noqa: ARG002 - lists cost nothing here
        return self

    def _delete_folder(self, top: tuple[str, ...]) -> None:
        """Remove a folder with all in it, however deep: no recursion, one open folder at a time."""
        pending = [top]
        while pending:
            folder = pending[-1]
            with self._folder(folder) as opened:
                names = [] if opened is None else [name for name in names_in(opened) if not _unlink(name, opened)]
            pending += [(*folder, name) for name in names]
            if names:
                continue
            *above, name = pending.pop()
            with self._folder(above) as opened, suppress(FileNotFoundError):
                if opened is not None:
                    os.rmdir(name, dir_fd=opened)

    def _entries(self, names: Sequence[str], folder: int) -> Iterator[Entry]:
        for name in names:
            try:
                entry = stat_entry(name, folder)
            except OSError as error:
                if error.errno in ABSENT:  # removed since it was listed
                    continue
                raise
            if not is_text(name):
                spelled = os.fsencode(name).decode("utf-8", "backslashreplace")
                entry = replace(entry, path=spelled, kind=Kind.OTHER)
            yield entry

    @contextmanager
    def _folder(self, parts: Sequence[str] | None) -> Iterator[int | None]:
        """An open folder; None where it is absent, or reached only through a link."""
        opened = None
        with ignore_absent():
            opened = None if parts is None else open_folder(self._root, parts)
        try:
            yield opened
        finally:
            if opened is not None:
                os.close(opened)

    @contextmanager
    def _ensured_folder(self, path: str) -> Iterator[tuple[int, str]]:
        """The open folder of a path, made where needed, and the path's last part."""
        parts = parts_of(path)
        if not parts:
            raise no_file_path(path)
        if self._is_new:
            self._root.mkdir(parents=True, exist_ok=True)
            self._is_new = False
        opened = open_folder(self._root, parts[:-1], ensure_folder)
        try:
            yield opened, parts[-1]
        finally:
            os.close(opened)


class _Reader(io.FileIO):
    """A file's bytes; a failing read is an error of the storage, not of the file."""

    def __init__(self, opened: int, path: str) -> None:
        super().__init__(opened)
        self._path = path

    def readinto(self, buffer: Buffer) -> int | None:
        with os_errors("read", self._path):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with os_errors("read", self._path):
            return super().readall()


def write_private(path: Path, content: bytes) -> None:
    """Write a file in one step, readable by its owner alone from the first byte on."""
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.replace(name, path)  # noqa: PTH105 - the name is text
