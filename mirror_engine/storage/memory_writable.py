"""The writable storage in memory: the same promise as on a disk, for tests and for endpoints that keep nothing."""

from __future__ import annotations

import errno
import io
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from mirror_engine.storage.memory import File, Folder, MemoryStorage
from mirror_engine.storage.paths import parts_of

if TYPE_CHECKING:
    from mirror_engine.storage.base import Entry
    from mirror_engine.storage.memory import Node
    from mirror_engine.storage.writable import Discardable, StagedFile


class WritableMemoryStorage(MemoryStorage):
    """A `WritableStorage` in this process; what is staged lies in memory, too."""

    def make_folder(self, path: str) -> Entry:
        """See `WritableStorage.make_folder`."""
        with self._lock:
            parts = _parts(path)
            folder = self._root
            for part in parts:
                below = folder.inside.get(part)
                if below is None:
                    below = Folder(self._clock(), self._identity())
                    self._change(folder, part, below)
                if not isinstance(below, Folder):
                    _refuse(FileExistsError, errno.EEXIST, path)
                folder = below
            return folder.entry(parts[-1] if parts else "")

    def stage(self) -> StagedFile:
        """See `WritableStorage.stage`."""
        return _Staged()

    def publish(self, staged: StagedFile, path: str, modified_ns: int) -> Entry:
        """See `WritableStorage.publish`."""
        with staged.open() as reader:
            file = File(reader.read(), modified_ns, self._identity())
        with self._lock:
            folder, name = self._above(path)
            if isinstance(folder.inside.get(name), Folder):
                _refuse(IsADirectoryError, errno.EISDIR, path)
            self._change(folder, name, file)
            return file.entry(name)

    def rename(self, source: str, target: str) -> None:
        """See `WritableStorage.rename`."""
        with self._lock:
            origin, old = self._above(source)
            folder, new = self._above(target)
            node, standing = origin.inside.get(old), folder.inside.get(new)
            if not isinstance(node, (File, Folder)):
                _refuse(FileNotFoundError, errno.ENOENT, source)
            if source == target:
                return
            if isinstance(standing, Folder) or (standing and isinstance(node, Folder)):
                _refuse(FileExistsError, errno.EEXIST, target)
            if f"{target}/".startswith(f"{source}/"):
                _refuse(OSError, errno.EINVAL, target)
            self._change(origin, old, None)
            self._change(folder, new, node)

    def touch(self, path: str, modified_ns: int) -> None:
        """See `WritableStorage.touch`."""
        with self._lock:
            folder, name = self._above(path)
            file = folder.inside.get(name)
            if not isinstance(file, File):
                _refuse(FileNotFoundError, errno.ENOENT, path)
            folder.inside[name] = replace(file, modified_ns=modified_ns)

    def take_away(self, path: str) -> Discardable:
        """See `WritableStorage.take_away`."""
        with self._lock:
            folder, name = self._above(path)
            if not isinstance(folder.inside.get(name), (File, Folder)):
                _refuse(FileNotFoundError, errno.ENOENT, path)
            self._change(folder, name, None)
        return _Staged()

    def sweep(self) -> None:
        """See `WritableStorage.sweep`; what nobody holds is gone anyway."""

    def _above(self, path: str) -> tuple[Folder, str]:
        parts = _parts(path)
        folder: Node | None = self._find(parts[:-1]) if parts else None
        if not isinstance(folder, Folder):
            _refuse(FileNotFoundError, errno.ENOENT, path)
        return folder, parts[-1]


class _Staged:
    """A `StagedFile` in memory."""

    def __init__(self) -> None:
        self._content = bytearray()

    @property
    def size(self) -> int:
        return len(self._content)

    def write(self, content: bytes | memoryview) -> None:
        self._content += content

    def copy_from(self, reader: BinaryIO) -> None:
        shutil.copyfileobj(reader, self)

    def close(self) -> None:
        pass

    def open(self) -> BinaryIO:
        return io.BytesIO(bytes(self._content))

    def seal(self) -> None:
        pass

    def discard(self) -> None:
        self._content = bytearray()


def _parts(path: str) -> tuple[str, ...]:
    parts = parts_of(path)
    return _refuse(FileNotFoundError, errno.ENOENT, path) if parts is None else parts


def _refuse(kind: type[OSError], code: int, path: str) -> NoReturn:
    raise kind(code, os.strerror(code), path)
