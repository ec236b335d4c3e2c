"""Door 1 on a local disk (Linux, macOS): no symbolic link is followed, no path leaves ROOT."""

from __future__ import annotations

import ctypes
import errno
import io
import os
import platform
import secrets
import stat
import sys
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, cast

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.diagnostics import printable
from mirror_engine.storage.base import Entry, Kind, is_text, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from typing_extensions import Buffer

ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
HELP = {
    errno.EACCES: "Give the user that runs the engine rights to it.",
    errno.EPERM: "Give the user that runs the engine rights to it.",
    errno.EROFS: "Mount the file system for writing.",
    errno.ENOSPC: "Free space on the disk.",
    errno.EDQUOT: "Free space in the user's quota.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
    errno.ENFILE: "Raise the machine's limit of open files.",
    errno.EXDEV: "Keep a table folder on one file system.",
    errno.EISDIR: "Remove the folder that stands where a file must go.",
    errno.ENOTDIR: "Remove the file or link that stands where a folder must be.",
    errno.ELOOP: "Remove the link that stands where a folder must be.",
    errno.EEXIST: "Remove the file or link that stands where a folder must be.",
}
OTHER_HELP = "Check the disk, or the share that ROOT lies on."


class told:  # noqa: N801 - read as a word of a sentence, and cheaper than a generator
    """Turns the system's errors into ours, with help."""

    def __init__(self, operation: str, path: str) -> None:
        self._operation = operation
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, problem: BaseException | None, __: object) -> None:
        if isinstance(problem, OSError):
            place = printable(self._path) or "ROOT"
            message = f"{place}: cannot {self._operation} it: {problem.strerror or problem}"
            raise StorageUnavailable(message, HELP.get(problem.errno or 0, OTHER_HELP)) from problem


class absence_allowed:  # noqa: N801 - as above
    """Lets what is absent, or reached only by way of a link, count as nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, problem: BaseException | None, __: object) -> bool:
        return isinstance(problem, OSError) and problem.errno in ABSENT


AT_SYMLINK_NOFOLLOW = 0x100
STATX_BASIC_STATS = 0x7FF
STATX_BTIME = 0x800
STATX_SYSCALLS = {"x86_64": 332, "aarch64": 291}
UNKNOWN_SYSCALL = -1  # answers ENOSYS
OVERLAY_MAGIC = 0x794C7630
NO_STATX = frozenset({errno.ENOSYS, errno.EPERM})  # older sandboxes forbid what they do not know
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


_LIBC = ctypes.CDLL(None, use_errno=True)


def _statx_function() -> Callable[..., int]:
    arguments = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)
    if hasattr(_LIBC, "statx"):
        _LIBC.statx.argtypes = arguments
        return cast("Callable[..., int]", _LIBC.statx)
    _LIBC.syscall.argtypes = (ctypes.c_long, *arguments)
    return partial(_LIBC.syscall, STATX_SYSCALLS.get(platform.machine(), UNKNOWN_SYSCALL))


_call_statx = _statx_function()


class _Timestamp(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_uint32), ("reserved", ctypes.c_int32))


class _Statx(ctypes.Structure):
    """`struct statx` of linux/stat.h; 256 bytes on every architecture."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("block_size", ctypes.c_uint32),
        ("attributes", ctypes.c_uint64),
        ("links", ctypes.c_uint32),
        ("user", ctypes.c_uint32),
        ("group", ctypes.c_uint32),
        ("mode", ctypes.c_uint16),
        ("padding", ctypes.c_uint16),
        ("inode", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("blocks", ctypes.c_uint64),
        ("attributes_mask", ctypes.c_uint64),
        ("accessed", _Timestamp),
        ("born", _Timestamp),
        ("changed", _Timestamp),
        ("modified", _Timestamp),
        ("rest", ctypes.c_uint64 * 16),
    )


def look(name: str, folder: int) -> Entry:
    """What stands at `name` in an open folder; a symbolic link is not followed.

    Raises:
        OSError: nothing stands there, or it cannot be told.
    """
    entry = _statx(name, folder) if sys.platform == "linux" else None
    return entry or _stat(name, folder)


def copy_up(name: str, folder: int) -> None:
    """Let an overlay file system make its own copy of a folder now, so that its identity will last.

    In a container the folders of the image are copied, with a new time of birth, at the first change inside: an
    applied table folder would look like a recreated one. Setting its permissions to what they are is such a change.
    Where that is not allowed nothing is done.
    """
    with suppress(OSError):
        opened = os.open(name, FOLDER_FLAGS, dir_fd=folder)
        try:
            os.fchmod(opened, stat.S_IMODE(os.fstat(opened).st_mode))
        finally:
            os.close(opened)


def copies_on_change(folder: int) -> bool:
    """Whether an open folder lies on an overlay file system, as in most containers."""
    if sys.platform != "linux":
        return False
    found = ctypes.create_string_buffer(512)  # struct statfs, whose first word is the type
    failed = _LIBC.fstatfs(folder, found)
    return not failed and ctypes.c_long.from_buffer(found).value == OVERLAY_MAGIC


def _statx(name: str, folder: int) -> Entry | None:
    found = _Statx()
    wanted = STATX_BASIC_STATS | STATX_BTIME
    if _call_statx(folder, os.fsencode(name), AT_SYMLINK_NOFOLLOW, wanted, ctypes.byref(found)) != 0:
        code = ctypes.get_errno()
        if code in NO_STATX:
            return None
        raise OSError(code, os.strerror(code))
    born = _nanoseconds(found.born) if found.mask & STATX_BTIME else None
    return _entry(name, found.mode, found.size, _nanoseconds(found.modified), _identity(found.inode, born))


def _stat(name: str, folder: int) -> Entry:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    born = getattr(found, "st_birthtime", None)
    identity = _identity(found.st_ino, None if born is None else round(born * 1e9))
    return _entry(name, found.st_mode, found.st_size, found.st_mtime_ns, identity)


def _entry(name: str, mode: int, size: int, modified_ns: int, identity: str) -> Entry:
    if stat.S_ISDIR(mode):
        return Entry(name, Kind.FOLDER, 0, modified_ns, identity)
    return Entry(name, Kind.FILE if stat.S_ISREG(mode) else Kind.OTHER, size, modified_ns, identity)


def _identity(inode: int, born_ns: int | None) -> str:
    return f"{inode:x}" if born_ns is None else f"{inode:x}.{born_ns:x}"


def _nanoseconds(moment: _Timestamp) -> int:
    return int(moment.seconds) * 1_000_000_000 + int(moment.nanoseconds)


def walked(root: Path, parts: Sequence[str], prepare: Callable[[str, int], None] | None = None) -> int:
    """Open a folder part by part, following no link below ROOT; the caller closes it."""
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


def made(name: str, folder: int) -> None:
    """Make a folder in an open one, unless something stands there."""
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
        os.fsync(folder)


def names_in(folder: int) -> Sequence[str]:
    """What an open folder holds, in no order."""
    with os.scandir(folder) as found:
        return [each.name for each in found]


def is_file(name: str, folder: int) -> bool:
    """Whether a regular file stands in an open folder."""
    with absence_allowed():
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def opened_file(name: str, folder: int) -> int | None:
    """A regular file, open for reading; a pipe or a device is not even touched."""
    if not is_file(name, folder):
        return None
    with absence_allowed():
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        if stat.S_ISREG(os.fstat(opened).st_mode):
            return opened
        os.close(opened)
    return None


def unlinked(name: str, folder: int) -> bool:
    """Remove anything but a folder; False where one stands there."""
    with absence_allowed():
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return False
        os.unlink(name, dir_fd=folder)
    return True


TEMPORARY_PREFIX = ".mirror-engine-"  # the protocol skips names that begin with a dot (LZ-1.6)


class LocalStorage:
    r"""A `Storage` over a folder of this machine.

    ROOT itself may be reached through a link; below it each part of a path is opened from the folder before, so
    that none is followed. A name that is no UTF-8 is listed as `OTHER`, its bytes spelled `\xNN`. A process that
    dies while writing may leave a file `.mirror-engine-*`; it may be deleted.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._copied_up: set[str] = set()

    def list(self, folder: str) -> Sequence[Entry] | None:
        """See `Storage.list`."""
        with told("list", folder), self._folder(parts_of(folder)) as opened:
            if opened is None:
                return None
            return sorted(self._entries(names_in(opened), opened), key=lambda entry: entry.name)

    def stat(self, path: str) -> Entry | None:
        """See `Storage.stat`."""
        parts = parts_of(path)
        with told("look at", path), self._folder(None if parts is None else parts[:-1]) as opened:
            if parts is None or opened is None:
                return None
            found = next(iter(self._entries([parts[-1] if parts else "."], opened)), None)
            return found if found is None or parts else replace(found, name="")

    def open(self, path: str) -> BinaryIO:
        """See `Storage.open`; a failing read raises `StorageUnavailable`, too."""
        parts = parts_of(path)
        with told("open", path), self._folder(parts[:-1] if parts else None) as opened:
            file = None if not parts or opened is None else opened_file(parts[-1], opened)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no regular file", path)
        return cast("BinaryIO", io.BufferedReader(_Reader(file, path)))

    def write(self, path: str, content: bytes) -> None:
        """See `Storage.write`; the content is on the disk when this returns."""
        with told("write", path), self._made_folder(path) as (opened, name):
            temporary = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
            try:
                _write_durably(temporary, content, opened)
                os.replace(temporary, name, src_dir_fd=opened, dst_dir_fd=opened)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=opened)
                raise
            os.fsync(opened)

    def move(self, source: str, target: str) -> None:
        """See `Storage.move`; only a regular file is moved, and never from one file system to another."""
        parts = parts_of(source)
        with told("move", source), self._folder(parts[:-1] if parts else None) as origin:
            if not parts or origin is None or not is_file(parts[-1], origin):
                return
            with self._made_folder(target) as (destination, name):
                with suppress(FileNotFoundError):  # the source went away meanwhile
                    os.replace(parts[-1], name, src_dir_fd=origin, dst_dir_fd=destination)
                os.fsync(destination)
            os.fsync(origin)

    def delete(self, path: str) -> None:
        """See `Storage.delete`; ROOT itself cannot be deleted."""
        parts = parts_of(path)
        with told("delete", path), self._folder(parts[:-1] if parts else None) as opened:
            if not parts or opened is None:
                return
            if not unlinked(parts[-1], opened):
                self._delete_folder(parts)
            os.fsync(opened)

    def _delete_folder(self, top: tuple[str, ...]) -> None:
        """Remove a folder with all in it, however deep: no recursion, one open folder at a time."""
        pending = [top]
        while pending:
            folder = pending[-1]
            with self._folder(folder) as opened:
                names = [] if opened is None else [n for n in names_in(opened) if not unlinked(n, opened)]
            pending += [(*folder, name) for name in names]
            if not names:
                self._remove_emptied(pending.pop())

    def _remove_emptied(self, folder: tuple[str, ...]) -> None:
        with self._folder(folder[:-1]) as above:
            if above is not None:
                with suppress(FileNotFoundError):
                    os.rmdir(folder[-1], dir_fd=above)

    def _entries(self, names: Sequence[str], folder: int) -> Iterator[Entry]:
        for name in names:
            with absence_allowed():  # gone since it was listed
                entry = look(name, folder)
                if entry.kind is Kind.FOLDER and entry.identity not in self._copied_up and copies_on_change(folder):
                    copy_up(name, folder)
                    entry = look(name, folder)
                    self._copied_up.add(entry.identity)
                yield entry if is_text(name) else replace(entry, name=_spelled(name), kind=Kind.OTHER)

    @contextmanager
    def _folder(self, parts: Sequence[str] | None) -> Iterator[int | None]:
        """An open folder; None where there is none or only by way of a link."""
        opened = None
        with absence_allowed():
            opened = None if parts is None else walked(self._root, parts)
        try:
            yield opened
        finally:
            if opened is not None:
                os.close(opened)

    @contextmanager
    def _made_folder(self, path: str) -> Iterator[tuple[int, str]]:
        """The open folder that a path lies in, made where needed, and the path's last part."""
        parts = parts_of(path)
        if not parts:
            raise StorageUnavailable(f"{printable(path)}: is no file's path below ROOT", "Name a file inside ROOT.")
        self._root.mkdir(parents=True, exist_ok=True)
        opened = walked(self._root, parts[:-1], made)
        try:
            yield opened, parts[-1]
        finally:
            os.close(opened)


class _Reader(io.FileIO):
    """A file's bytes; what fails while they are read is the storage's fault, not the file's."""

    def __init__(self, opened: int, path: str) -> None:
        super().__init__(opened)
        self._path = path

    def readinto(self, buffer: Buffer) -> int | None:
        with told("read", self._path):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with told("read", self._path):
            return super().readall()


def _write_durably(name: str, content: bytes, folder: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(name, flags, 0o666, dir_fd=folder), "wb") as file:  # noqa: PTH123 - a Path knows no open folder
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _spelled(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")
