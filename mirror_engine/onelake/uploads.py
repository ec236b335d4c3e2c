"""Uncommitted uploads: appended parts and blocks, private until a flush or block list commits them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Generic, TypeVar
from weakref import WeakValueDictionary

from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Self

    from mirror_engine.onelake.store import LocalStore, StagedFile

GIB = 1 << 30
RETRY_AFTER_SECONDS = 30
MAX_BLOCK_LISTS = 1000  # remembered

_Name = TypeVar("_Name", int, str)


@dataclass(frozen=True)
class Limits:
    """Limits of what clients may leave uncommitted.

    Attributes:
        body_bytes: of one request.
        staging_bytes: of all bodies that are arriving or uncommitted.
        expiry_seconds: after which an upload without new parts is dropped.
    """

    body_bytes: int = 4 * GIB
    staging_bytes: int = 64 * GIB
    expiry_seconds: float = 24 * 3600


LIMITS = Limits()


class Quota:
    """Bytes that bodies take on the disk; thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self.used_bytes = 0
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """Account bytes, or give them back with a negative size; SERVER_BUSY where they do not fit."""
        with self._lock:
            if size > 0 and self.used_bytes + size > self._limit_bytes:
                message = "Too much is uncommitted; flush, or wait until it is dropped."
                raise StorageApiError(StorageErrorCode.SERVER_BUSY, message, {"Retry-After": str(RETRY_AFTER_SECONDS)})
            self.used_bytes += size


class Body:
    """A request's body in a staged file; leaving the `with` discards it unless it was kept."""

    def __init__(self, staged: StagedFile, quota: Quota, limit_bytes: int) -> None:
        self.staged = staged
        self._quota = quota
        self._limit_bytes = limit_bytes
        self._accounted_bytes = 0
        self._is_kept = False

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self.staged.size

    def write(self, content: bytes | memoryview) -> None:
        """Add the next bytes; REQUEST_BODY_TOO_LARGE, SERVER_BUSY."""
        if self.size + len(content) > self._limit_bytes:
            raise StorageApiError(StorageErrorCode.REQUEST_BODY_TOO_LARGE)
        self._quota.add(len(content))
        self._accounted_bytes += len(content)
        self.staged.write(content)

    def keep(self) -> None:
        """Let it outlive its request."""
        self._is_kept = True

    def discard(self) -> None:
        """Delete it, or only give its quota back once it is published; repeatable."""
        self._quota.add(-self._accounted_bytes)
        self._accounted_bytes = 0
        self.staged.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_kept:
            self.staged.close()
        else:
            self.discard()


@dataclass
class _Upload(Generic[_Name]):
    touched_seconds: float
    parts: dict[_Name, Body] = field(default_factory=dict)


class UploadBuffer(Generic[_Name]):
    """Bodies of uploads, each under its position or block id; the last one per name wins.

    Args:
        expiry_seconds: after which an upload without new parts is dropped.
        clock: monotonic seconds.
    """

    def __init__(self, expiry_seconds: float, clock: Callable[[], float]) -> None:
        self._expiry_seconds = expiry_seconds
        self._clock = clock
        self._uploads: dict[str, _Upload[_Name]] = {}
        self._lock = threading.Lock()

    def keep(self, key: str, name: _Name, body: Body) -> None:
        """Add a body to an upload, which owns it from now on."""
        with self._lock:
            upload = self._uploads.setdefault(key, _Upload(0.0))
            upload.touched_seconds = self._clock()
            replaced = upload.parts.get(name)
            upload.parts[name] = body
            body.keep()
        if replaced:
            replaced.discard()

    def take(self, key: str) -> dict[_Name, Body]:
        """Remove and return all bodies of an upload; the caller owns them."""
        with self._lock:
            upload = self._uploads.pop(key, None)
        return upload.parts if upload else {}

    def put_back(self, key: str, parts: Mapping[_Name, Body]) -> None:
        """Return bodies that were taken, except those that were sent again since."""
        with self._lock:
            upload = self._uploads.setdefault(key, _Upload(self._clock()))
            stale = [body for name, body in parts.items() if upload.parts.setdefault(name, body) is not body]
        discard_all(stale)

    def drop(self, key: str) -> None:
        """Discard an upload, if there is one."""
        discard_all(self.take(key).values())

    def drop_expired(self) -> None:
        """Discard uploads without new parts for too long."""
        since = self._clock() - self._expiry_seconds
        with self._lock:
            expired = [key for key, upload in self._uploads.items() if upload.touched_seconds < since]
        for key in expired:
            self.drop(key)


class _Lock:
    """A lock that can be referenced weakly."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class KeyedLocks:
    """One lock per key, for as long as it is used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: WeakValueDictionary[str, _Lock] = WeakValueDictionary()

    @contextmanager
    def of(self, key: str) -> Iterator[None]:
        """A block that only one thread per key is in."""
        with self._lock:
            keyed = self._locks.setdefault(key, _Lock())
        with keyed.lock:
            yield


class Uploads:
    """All uncommitted uploads; thread-safe.

    Attributes:
        appends: parts by the identity of their file (so they follow its renames), and position.
        blocks: by path, and block id.

    Args:
        storage: where they are staged.
        limits: see `Limits`.
        clock: monotonic seconds.
    """

    def __init__(
        self, storage: LocalStore, limits: Limits = LIMITS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.appends: UploadBuffer[int] = UploadBuffer(limits.expiry_seconds, clock)
        self.blocks: UploadBuffer[str] = UploadBuffer(limits.expiry_seconds, clock)
        self._storage = storage
        self._limits = limits
        self._quota = Quota(limits.staging_bytes)
        self._block_lists: OrderedDict[str, tuple[tuple[str, ...], str]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def used_bytes(self) -> int:
        """On the disk, arriving or uncommitted."""
        return self._quota.used_bytes

    def receive(self, length: int | None) -> Body:
        """A new body, after dropping what has expired; REQUEST_BODY_TOO_LARGE by its announced length."""
        self.appends.drop_expired()
        self.blocks.drop_expired()
        if length is not None and length > self._limits.body_bytes:
            raise StorageApiError(StorageErrorCode.REQUEST_BODY_TOO_LARGE)
        return Body(self._storage.stage(), self._quota, self._limits.body_bytes)

    def remember_block_list(self, path: str, block_ids: Sequence[str], etag: str) -> None:
        """Remember that this list made the file with that tag."""
        with self._lock:
            self._block_lists[path] = (tuple(block_ids), etag)
            self._block_lists.move_to_end(path)
            if len(self._block_lists) > MAX_BLOCK_LISTS:
                self._block_lists.popitem(last=False)

    def is_of_block_list(self, path: str, block_ids: Sequence[str], etag: str) -> bool:
        """Whether just this list made the file with that tag."""
        with self._lock:
            return self._block_lists.get(path) == (tuple(block_ids), etag)


def contiguous_parts(position: int, parts: Mapping[int, Body], length: int) -> list[Body]:
    """The parts from a file's length to a position without a gap; else INVALID_FLUSH_POSITION."""
    chain = []
    reached = length
    while reached < position and reached in parts:
        chain.append(parts[reached])
        reached += parts[reached].size
    if reached != position:
        raise StorageApiError(StorageErrorCode.INVALID_FLUSH_POSITION)
    return chain


@contextmanager
def assemble(storage: LocalStore, parts: Sequence[Body], start: BinaryIO | None = None) -> Iterator[StagedFile]:
    """One sealed file of `start` and all parts in order; discarded unless it is published.

    A single part is that file itself.
    """
    if len(parts) == 1 and start is None:
        parts[0].staged.seal()
        yield parts[0].staged
        return
    staged = storage.stage()
    try:
        if start is not None:
            staged.copy_from(start)
        for part in parts:
            with part.staged.open() as reader:
                staged.copy_from(reader)
        staged.seal()
        yield staged
    finally:
        staged.discard()


def discard_all(bodies: Iterable[Body]) -> None:
    """Discard each body; of published ones, only give the quota back."""
    for body in bodies:
        body.discard()
