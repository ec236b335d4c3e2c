"""Uncommitted uploads: appended parts and blocks, private until a flush or block list commits them."""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.onelake.store import StagedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mirror_engine.clock import Clock
    from mirror_engine.onelake.store import LocalStore

GIB = 1 << 30
COPY_BYTES = 1 << 20
RETRY_AFTER_SECONDS = 30


@dataclass(frozen=True)
class Limits:
    """Limits of what clients may leave uncommitted."""

    body_bytes: int = 4 * GIB  # of one request
    staging_bytes: int = 64 * GIB  # of all bodies that are arriving or uncommitted
    expiry_seconds: float = 24 * 3600  # after which an upload without new parts is dropped


LIMITS = Limits()


class Body(StagedFile):
    """A request's body in a staged file; `account` takes its bytes, and takes them back when it is discarded."""

    def __init__(self, storage: LocalStore, limit_bytes: int, account: Callable[[int], None]) -> None:
        super().__init__(storage)
        self._limit_bytes = limit_bytes
        self._account = account
        self._accounted_bytes = 0

    def write(self, content: bytes | memoryview) -> None:
        """Add the next bytes; RequestBodyTooLarge, ServerBusy."""
        if self.size + len(content) > self._limit_bytes:
            raise StorageApiError(StorageErrorCode.RequestBodyTooLarge)
        self._account(len(content))
        self._accounted_bytes += len(content)
        super().write(content)

    def discard(self) -> None:
        self._account(-self._accounted_bytes)
        self._accounted_bytes = 0
        super().discard()


@dataclass
class _Upload:
    touched_seconds: float
    parts: dict[Any, Body] = field(default_factory=dict)  # by position or block id


class Uploads:
    """All uncommitted uploads; thread-safe.

    An upload's key is the identity of the file that is appended to (so it follows renames), or the path of the file
    that blocks are put for. Its parts are named by position or block id; the last one per name wins.
    """

    def __init__(self, storage: LocalStore, limits: Limits, clock: Clock) -> None:
        self.used_bytes = 0  # on the disk, arriving or uncommitted
        self._storage = storage
        self._limits = limits
        self._now = clock.monotonic
        self._uploads: dict[str, _Upload] = {}
        self._lock = threading.Lock()

    def receive(self, length: int | None) -> Body:
        """A new body, after dropping what has expired; RequestBodyTooLarge by its announced length."""
        since = self._now() - self._limits.expiry_seconds
        with self._lock:
            expired = [key for key, upload in self._uploads.items() if upload.touched_seconds < since]
        for key in expired:
            self.drop(key)
        if length is not None and length > self._limits.body_bytes:
            raise StorageApiError(StorageErrorCode.RequestBodyTooLarge)
        return Body(self._storage, self._limits.body_bytes, self._account)

    def keep(self, key: str, name: int | str, body: Body) -> None:
        """Add a body to an upload, which owns it from now on."""
        with self._lock:
            upload = self._uploads.setdefault(key, _Upload(0.0))
            upload.touched_seconds = self._now()
            replaced = upload.parts.get(name)
            upload.parts[name] = body
            body.is_kept = True
        if replaced:
            replaced.discard()

    def take(self, key: str) -> dict[Any, Body]:
        """Remove and return all parts of an upload; the caller owns them."""
        with self._lock:
            upload = self._uploads.pop(key, None)
        return upload.parts if upload else {}

    def put_back(self, key: str, parts: Mapping[Any, Body]) -> None:
        """Return parts that were taken, except those that were sent again since."""
        if not parts:
            return
        with self._lock:
            upload = self._uploads.setdefault(key, _Upload(self._now()))
            stale = [body for name, body in parts.items() if upload.parts.setdefault(name, body) is not body]
        for body in stale:
            body.discard()

    def drop(self, key: str) -> None:
        """Discard an upload, if there is one."""
        for body in self.take(key).values():
            body.discard()

    def _account(self, size: int) -> None:
        with self._lock:
            if size > 0 and self.used_bytes + size > self._limits.staging_bytes:
                message = "Too much is uncommitted; flush, or wait until it is dropped."
                raise StorageApiError(StorageErrorCode.ServerBusy, message, {"Retry-After": str(RETRY_AFTER_SECONDS)})
            self.used_bytes += size


def contiguous_parts(position: int, parts: Mapping[int, Body], length: int) -> list[Body]:
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
def assemble(storage: LocalStore, parts: Sequence[Body], start: BinaryIO | None = None) -> Iterator[StagedFile]:
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
