"""What clients have sent but not committed yet: appended pieces and blocks, private until a flush or block list."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.endpoint.drafts import Drafts
from mirror_engine.endpoint.faults import EndpointFault, Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from mirror_engine.storage.writable import StagedFile, WritableStorage

GIB = 1 << 30
RETRY_AFTER_SECONDS = 30
REMEMBERED_LISTS = 1000


@dataclass(frozen=True)
class Limits:
    """Of what clients may leave uncommitted (rule 9.6).

    Attributes:
        body_bytes: of one request.
        staging_bytes: of all bodies together that are on their way or uncommitted.
        expiry_seconds: after which what nobody adds to is dropped.
    """

    body_bytes: int = 4 * GIB
    staging_bytes: int = 64 * GIB
    expiry_seconds: float = 24 * 3600


LIMITS = Limits()


class Body:
    """A request's body on its way to the disk; leaving the `with` discards it unless it was kept.

    Args:
        staged: where it goes; to be published by whoever commits it.
        quota: what all bodies together take.
        limit_bytes: of this one.
    """

    def __init__(self, staged: StagedFile, quota: Quota, limit_bytes: int) -> None:
        self.staged = staged
        self._quota = quota
        self._limit_bytes = limit_bytes
        self._counted_bytes = 0
        self._is_kept = False

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self.staged.size

    def write(self, content: bytes | memoryview) -> None:
        """Add the next bytes.

        Raises:
            EndpointFault: REQUEST_BODY_TOO_LARGE, or SERVER_BUSY while too much is uncommitted.
        """
        if self.size + len(content) > self._limit_bytes:
            raise EndpointFault(Fault.REQUEST_BODY_TOO_LARGE)
        self._quota.add(len(content))
        self._counted_bytes += len(content)
        self.staged.write(content)

    def open(self) -> BinaryIO:
        """A reader of what was written."""
        return self.staged.open()

    def keep(self) -> None:
        """Let it outlast its request."""
        self._is_kept = True

    def discard(self) -> None:
        """Delete it, or only stop counting it where it was published; repeatable."""
        self._quota.add(-self._counted_bytes)
        self._counted_bytes = 0
        self.staged.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        if self._is_kept:
            self.staged.close()
        else:
            self.discard()


class Quota:
    """Bytes that bodies take on the disk; safe to share between threads."""

    def __init__(self, limit_bytes: int) -> None:
        self.taken_bytes = 0
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """Count bytes, or with a negative size take them back.

        Raises:
            EndpointFault: SERVER_BUSY, it would be too much; nothing was counted.
        """
        with self._lock:
            if size > 0 and self.taken_bytes + size > self._limit_bytes:
                message = "Too much is uncommitted; flush, or wait until it is dropped."
                raise EndpointFault(Fault.SERVER_BUSY, message, {"Retry-After": str(RETRY_AFTER_SECONDS)})
            self.taken_bytes += size


class Uploads:
    """All that is uncommitted; safe to share between threads.

    Attributes:
        appends: pieces by the identity of the file they were appended to (so they follow its renames), and position.
        blocks: by the path they were put to, and block id.

    Args:
        storage: where it is staged.
        limits: how much of it there may be, and for how long.
        clock: seconds, never going back.
    """

    def __init__(
        self, storage: WritableStorage, limits: Limits = LIMITS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.appends: Drafts[int] = Drafts(limits.expiry_seconds, clock)
        self.blocks: Drafts[str] = Drafts(limits.expiry_seconds, clock)
        self._storage = storage
        self._limits = limits
        self._quota = Quota(limits.staging_bytes)
        self._block_lists: OrderedDict[str, tuple[tuple[str, ...], str]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def taken_bytes(self) -> int:
        """On the disk, on their way or uncommitted."""
        return self._quota.taken_bytes

    def receive(self, length: int | None) -> Body:
        """A place for a body of an announced length; drops what has expired first.

        Raises:
            EndpointFault: REQUEST_BODY_TOO_LARGE.
        """
        self.appends.drop_expired()
        self.blocks.drop_expired()
        if length is not None and length > self._limits.body_bytes:
            raise EndpointFault(Fault.REQUEST_BODY_TOO_LARGE)
        return Body(self._storage.stage(), self._quota, self._limits.body_bytes)

    def remember_block_list(self, path: str, block_ids: Sequence[str], etag: str) -> None:
        """That this list made the file with that tag; the newest lists are remembered."""
        with self._lock:
            self._block_lists[path] = (tuple(block_ids), etag)
            self._block_lists.move_to_end(path)
            if len(self._block_lists) > REMEMBERED_LISTS:
                self._block_lists.popitem(last=False)

    def is_of_block_list(self, path: str, block_ids: Sequence[str], etag: str) -> bool:
        """Whether the file with that tag was made by just this list: then its blocks are committed ones."""
        with self._lock:
            return self._block_lists.get(path) == (tuple(block_ids), etag)
