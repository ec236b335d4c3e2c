"""Door 1 on a local disk (Linux, macOS): no symbolic link is followed, no path leaves ROOT."""

from __future__ import annotations

import errno
import io
import os
import secrets
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO, cast

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.diagnostics import printable
from mirror_engine.storage.base import Entry, Kind
from mirror_engine.storage.folder_identity import copies_on_change, copy_up, look
from mirror_engine.storage.local_failures import absence_allowed, told
from mirror_engine.storage.local_walk import is_file, made, names_in, opened_file, unlinked, walked
from mirror_engine.storage.paths import is_text, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from typing_extensions import Buffer

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
