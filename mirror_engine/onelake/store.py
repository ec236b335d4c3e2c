"""The store's folder, written for clients one visible step at a time: staged files, rename, trash."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Self

from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.landing_zone.listing import Kind
from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.storage.base import is_text, parts_of
from mirror_engine.storage.local import (
    LocalStorage,
    ensure_folder,
    ignore_absent,
    names_in,
    open_folder,
    os_errors,
    stat_entry,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror_engine.clock import Clock
    from mirror_engine.landing_zone.listing import Entry

ENTRIES_AT_ONCE = 256  # are looked up in an open folder
STAGING = f"{ENGINE}/staging"  # staged files, and trash until it is deleted
OWNER_ONLY = 0o700
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
TICK_SECONDS = 0.02  # file systems reuse a freed inode at once, and count birth times in steps of up to 10 ms
NOT_A_FOLDER = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EEXIST})


class StagedFile:
    """A private file on the store's file system; no client sees it until it is published.

    One thread writes it at a time; leaving the `with` discards it unless it `is_kept`. Every method raises
    `StorageUnavailable` when the disk fails. `account` takes its bytes, and takes them back when it is discarded.
    """

    def __init__(self, storage: LocalStore, account: Callable[[int], None] = lambda _: None) -> None:
        self.name = secrets.token_hex(16)
        self.size = 0
        self.is_kept = False
        self._storage = storage
        self._account = account
        self._accounted_bytes = 0
        self._file = self._open(CREATE_FLAGS, "wb")
        with os_errors("open", STAGING):
            self.identity = stat_entry("", self._file.fileno()).identity  # it keeps it when it is published

    def write(self, content: bytes | memoryview) -> None:
        """Append, until it is sealed; what `account` raises."""
        self._account(len(content))
        self._accounted_bytes += len(content)
        with os_errors("write", STAGING):
            self._file.write(content)
        self.size += len(content)

    def seal(self) -> None:
        """Fsync the file and close it; repeatable, and slow."""
        if self._file.closed:
            return
        with os_errors("write", STAGING):
            self._file.flush()
            if self.size:  # an empty file has nothing to lose
                os.fsync(self._file.fileno())
            self._file.close()

    def open(self) -> IO[bytes]:
        """A reader of the sealed file, which keeps reading when the file is discarded."""
        return self._open(READ_FLAGS, "rb")

    def discard(self) -> None:
        """Delete it; repeatable, and without effect once it is published."""
        self._account(-self._accounted_bytes)
        self._accounted_bytes = 0
        with suppress(OSError):  # unwritten content is of no use
            self._file.close()
        with os_errors("delete", STAGING), suppress(FileNotFoundError), self._storage.staging_folder() as folder:
            os.unlink(self.name, dir_fd=folder)

    def _open(self, flags: int, mode: str) -> IO[bytes]:
        with os_errors("open", STAGING), self._storage.staging_folder() as folder:
            return os.fdopen(os.open(self.name, flags, 0o666, dir_fd=folder), mode)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_kept:
            self.discard()


class LocalStore(LocalStorage):
    """Storage in which the emulator writes for clients; thread-safe.

    A symbolic link or file where a folder is needed counts as an absent folder. What a method adds to PathNotFound
    and `StorageUnavailable` it names. The store's folder is created at the first write.
    """

    def entries(self, folder: str, is_due: Callable[[str], bool]) -> Iterator[Entry] | None:
        """List entries with matching names in order, looked up lazily; None if there is no folder."""
        parts = parts_of(folder)
        with os_errors("list", folder), self._folder(parts) as opened:
            if opened is None:
                return None
            names = sorted(name for name in names_in(opened) if is_text(name) and is_due(name))

        def looked_up() -> Iterator[Entry]:
            for start in range(0, len(names), ENTRIES_AT_ONCE):
                with os_errors("list", folder), self._folder(parts) as opened:
                    some = [] if opened is None else [*self._entries(names[start : start + ENTRIES_AT_ONCE], opened)]
                yield from some

        return looked_up()

    def make_folder(self, path: str) -> Entry:
        """Create a folder and its parents durably; an existing one keeps its identity. PathConflict."""
        parts = parts_of(path)
        if parts is None:
            raise StorageApiError(StorageErrorCode.PathNotFound)
        with os_errors("make", path):
            self._root.mkdir(parents=True, exist_ok=True)
            try:
                os.close(open_folder(self._root, parts, ensure_folder))
            except OSError as problem:
                if problem.errno not in NOT_A_FOLDER:
                    raise
                found = [self.stat("/".join(parts[:end])) for end in range(1, len(parts) + 1)]
                is_link = any(entry and entry.kind is Kind.OTHER for entry in found)
                code = StorageErrorCode.PathNotFound if is_link else StorageErrorCode.PathConflict
                raise StorageApiError(code) from problem
        entry = self.stat(path)
        if entry is None:  # deleted meanwhile
            raise StorageApiError(StorageErrorCode.PathNotFound)
        return entry

    def publish(self, staged: StagedFile, path: str, modified_ns: int) -> Entry:
        """Move a staged file to a path in one step, replacing a file (or link); creates no folders. PathConflict.

        Its content is durable when this returns, its name may not be.
        """
        staged.seal()
        with _errors("write", path), self.staging_folder() as private, self._parent(path) as (folder, name):
            os.utime(staged.name, ns=(modified_ns, modified_ns), dir_fd=private, follow_symlinks=False)
            published = replace(stat_entry(staged.name, private), path=name)  # later an engine may have moved it
            os.replace(staged.name, name, src_dir_fd=private, dst_dir_fd=folder)
            return published

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder in one step, keeping identity and Last-Modified; a file may replace a file.

        SourcePathNotFound, RenameDestinationParentPathNotFound, InvalidRenameSourcePath,
        PathAlreadyExists, PathConflict.
        """
        with (
            _errors("rename", source),
            self._parent(source, StorageErrorCode.SourcePathNotFound) as (origin, old),
            self._parent(target, StorageErrorCode.RenameDestinationParentPathNotFound) as (folder, new),
        ):
            kind, replaced = _kind(old, origin), _kind(new, folder)
            if kind not in {Kind.FILE, Kind.FOLDER}:
                raise StorageApiError(StorageErrorCode.SourcePathNotFound)
            if kind is Kind.FOLDER and f"{target}/".startswith(f"{source}/"):
                raise StorageApiError(StorageErrorCode.InvalidRenameSourcePath)
            if kind is replaced is Kind.FOLDER:
                raise StorageApiError(StorageErrorCode.PathAlreadyExists)
            if replaced and Kind.FOLDER in {kind, replaced}:
                raise StorageApiError(StorageErrorCode.PathConflict)
            os.rename(old, new, src_dir_fd=origin, dst_dir_fd=folder)

    def touch(self, path: str, modified_ns: int) -> None:
        with _errors("touch", path), self._parent(path) as (folder, name):
            if _kind(name, folder) is not Kind.FILE:
                raise StorageApiError(StorageErrorCode.PathNotFound)
            os.utime(name, ns=(modified_ns, modified_ns), dir_fd=folder, follow_symlinks=False)

    def move_to_trash(self, path: str) -> Callable[[], None]:
        """Remove a file, or a folder with all in it, in one step; the result frees its space, and can be repeated.

        A folder's inode is freed only after the clock of birth times has moved on: a new folder gets another identity.
        """
        with _errors("delete", path), self.staging_folder() as private, self._parent(path) as (folder, name):
            kind = _kind(name, folder)
            if kind not in {Kind.FILE, Kind.FOLDER}:
                raise StorageApiError(StorageErrorCode.PathNotFound)
            hidden = secrets.token_hex(16)
            os.rename(name, hidden, src_dir_fd=folder, dst_dir_fd=private)

        def discard() -> None:
            if kind is Kind.FOLDER:
                time.sleep(TICK_SECONDS)
            self.delete(f"{STAGING}/{hidden}")

        return discard

    def remove_stale(self) -> None:
        """Delete staged files and trash of an earlier process; no other process may be writing."""
        self.delete(STAGING)

    @contextmanager
    def staging_folder(self) -> Iterator[int]:
        """The open staging folder, created for its owner alone."""
        parts = STAGING.split("/")
        try:
            folder = open_folder(self._root, parts)
        except FileNotFoundError:
            self._root.mkdir(parents=True, exist_ok=True)
            folder = open_folder(self._root, parts, _make_private)
        try:
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _parent(self, path: str, absent: StorageErrorCode = StorageErrorCode.PathNotFound) -> Iterator[tuple[int, str]]:
        parts = parts_of(path)
        with self._folder(parts[:-1] if parts else None) as opened:
            if not parts or opened is None:
                raise StorageApiError(absent)
            yield opened, parts[-1]


def _make_private(name: str, folder: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, OWNER_ONLY, dir_fd=folder)


@contextmanager
def _errors(operation: str, path: str) -> Iterator[None]:
    """Map what others changed meanwhile to 404 and 409, and a failing disk to `StorageUnavailable`."""
    with os_errors(operation, path):
        try:
            yield
        except FileNotFoundError as problem:
            raise StorageApiError(StorageErrorCode.PathNotFound) from problem
        except (FileExistsError, IsADirectoryError) as problem:
            raise StorageApiError(StorageErrorCode.PathConflict) from problem


def _kind(name: str, folder: int) -> Kind | None:
    with ignore_absent():
        return stat_entry(name, folder).kind
    return None


STAGING_BYTES = 64 << 30  # at most, of all bodies that are arriving or uncommitted
MAX_PARTS = 100_000  # of all uploads: Azure's limit of uncommitted blocks of one
EXPIRY_SECONDS = 24 * 3600.0  # after which an upload without new parts is dropped
COPY_BYTES = 1 << 20
RETRY_AFTER_SECONDS = 30


@dataclass
class _Upload:
    touched_seconds: float
    parts: dict[Any, StagedFile] = field(default_factory=dict)  # by position or block id


class Uploads:
    """All uncommitted uploads; thread-safe.

    An upload's key is the identity of the file that is appended to (so it follows renames), or the path of the file
    that blocks are put for. Its parts are named by position or block id; the last one per name wins.
    """

    def __init__(self, storage: LocalStore, clock: Clock) -> None:
        self.used_bytes = 0  # on the disk, arriving or uncommitted
        self.part_count = 0  # uncommitted
        self._storage = storage
        self._now = clock.monotonic
        self._uploads: dict[str, _Upload] = {}
        self._lock = threading.Lock()

    def receive(self) -> StagedFile:
        """A new body, after dropping what has expired; it raises ServerBusy where too much is uncommitted."""
        since = self._now() - EXPIRY_SECONDS
        with self._lock:
            expired = [key for key, upload in self._uploads.items() if upload.touched_seconds < since]
        for key in expired:
            self.drop(key)
        return StagedFile(self._storage, self._account)

    def keep(self, key: str, name: int | str, body: StagedFile) -> None:
        """Add a body to an upload, which owns it from now on; ServerBusy where there are too many."""
        with self._lock:
            upload = self._uploads.get(key) or _Upload(0.0)
            replaced = upload.parts.get(name)
            if isinstance(name, str) and _length(next(iter(upload.parts), name)) != _length(name):
                raise StorageApiError(StorageErrorCode.InvalidBlobOrBlock)
            if not replaced and self.part_count >= MAX_PARTS:
                raise _too_much()
            self._uploads[key] = upload
            upload.touched_seconds = self._now()
            upload.parts[name] = body
            self.part_count += not replaced
            body.is_kept = True
        if replaced:
            replaced.discard()

    @contextmanager
    def taken(self, key: str) -> Iterator[dict[Any, StagedFile]]:
        """Take all parts of an upload. They are discarded afterwards; on failure, put back unless sent again."""
        with self._lock:
            upload = self._uploads.pop(key, None)
        parts = upload.parts if upload else {}
        try:
            yield parts
        except BaseException:
            self.put_back(key, parts, parts)
            raise
        finally:
            with self._lock:
                self.part_count -= len(parts)
            for body in parts.values():
                body.discard()

    def put_back(self, key: str, parts: dict[Any, StagedFile], names: Iterable[int | str]) -> None:
        """Give some taken parts back to an upload; what was sent again meanwhile wins."""
        with self._lock:
            for name in list(names):
                upload = self._uploads.setdefault(key, _Upload(self._now()))
                if upload.parts.setdefault(name, parts[name]) is parts[name]:
                    del parts[name]

    def move(self, key: str, to: str) -> None:
        """Move parts that were sent meanwhile for a file to its successor."""
        with self._lock:
            if upload := self._uploads.pop(key, None):
                self._uploads[to] = upload

    def drop(self, key: str) -> None:
        with self.taken(key):
            pass

    def _account(self, size: int) -> None:
        with self._lock:
            if size > 0 and self.used_bytes + size > STAGING_BYTES:
                raise _too_much()
            self.used_bytes += size


def _length(block_id: str) -> int:
    """Length of Base64 without padding, from which the decoded length follows."""
    return len(block_id.rstrip("="))


def _too_much() -> StorageApiError:
    message = "Too much is uncommitted; flush, or wait until it is dropped."
    return StorageApiError(StorageErrorCode.ServerBusy, message, {"Retry-After": str(RETRY_AFTER_SECONDS)})


def contiguous_parts(position: int, parts: Mapping[int, StagedFile], length: int) -> list[StagedFile]:
    """The parts from a file's length to a position without a gap; else InvalidFlushPosition."""
    chain = []
    reached = length
    while reached < position and reached in parts:
        chain.append(parts[reached])
        reached += parts[reached].size
    if reached != position:
        raise StorageApiError(StorageErrorCode.InvalidFlushPosition)
    return chain


@contextmanager
def assemble(storage: LocalStore, parts: Sequence[StagedFile], start: BinaryIO | None = None) -> Iterator[StagedFile]:
    """One sealed file of `start` and all parts in order, discarded on exit; a single part is that file itself."""
    if len(parts) == 1 and start is None:
        yield parts[0]
        return
    with StagedFile(storage) as staged:
        if start is not None:
            shutil.copyfileobj(start, staged, COPY_BYTES)
        for part in parts:
            with part.open() as reader:
                shutil.copyfileobj(reader, staged, COPY_BYTES)
        staged.seal()
        yield staged
