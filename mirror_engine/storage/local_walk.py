"""The way to a place on a local disk: folder by folder, each opened from the one before, following no link."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from mirror_engine.storage.folder_identity import FOLDER_FLAGS
from mirror_engine.storage.local_failures import absence_allowed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


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
