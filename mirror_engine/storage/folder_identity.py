"""Tells what stands at a name on a local disk, and its identity: inode and time of birth.

Renaming, writing in place and changes inside a folder keep both. The inode alone would not do: file systems hand
out a freed one at once. The device number is left out: a reboot or another mount changes it. Where a file system
knows no time of birth (some network shares), the inode is all there is, and a folder dropped and created again
may go unnoticed there. Where it counts time coarsely (4 ms on older Linux kernels), so may one that was born, seen,
dropped and born again within one tick.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import stat
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, cast

from mirror_engine.storage.base import Entry, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

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
