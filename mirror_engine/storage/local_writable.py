"""A local disk that a server lets others write to: staged privately, shown by one rename."""

from __future__ import annotations

import errno
import os
import secrets
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, cast

from mirror_engine.storage.base import Kind
from mirror_engine.storage.folder_identity import look
from mirror_engine.storage.local import LocalStorage
from mirror_engine.storage.local_failures import absence_allowed, told
from mirror_engine.storage.local_staged import LocalStagedFile, opened_staging
from mirror_engine.storage.local_walk import made, opened_file, walked
from mirror_engine.storage.paths import parts_of
from mirror_engine.storage.writable import STAGING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror_engine.storage.base import Entry
    from mirror_engine.storage.writable import Discardable, StagedFile

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
                os.close(walked(self._root, parts, made))
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
            return look(name, folder)

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
            file = opened_file(name, folder)
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


class _answered(told):  # noqa: N801 - read as a word of a sentence
    """Lets through the errors that `WritableStorage` promises; all others are the disk's."""

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        is_invalid = isinstance(problem, OSError) and problem.errno == errno.EINVAL
        if not is_invalid and not isinstance(problem, (FileNotFoundError, FileExistsError, IsADirectoryError)):
            super().__exit__(kind, problem, trace)


def _kind(name: str, folder: int) -> Kind | None:
    with absence_allowed():
        return look(name, folder).kind
    return None


def _refuse(kind: type[OSError], code: int, path: str) -> NoReturn:
    raise kind(code, os.strerror(code), path)
