"""What clients have sent but not committed yet: appended pieces and blocks, private until a flush or block list."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Generic, TypeVar

from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from mirror_engine.onelake.store import StagedFile, WritableStorage


_Name = TypeVar("_Name", int, str)


@dataclass
class _Draft(Generic[_Name]):
    touched_seconds: float
    pieces: dict[_Name, Body] = field(default_factory=dict)


class UploadBuffer(Generic[_Name]):
    """Bodies by what they will become part of, each under its position or block id; the last one per name wins.

    Args:
        expiry_seconds: after which a draft that nobody adds to is dropped.
        clock: seconds, never going back.
    """

    def __init__(self, expiry_seconds: float, clock: Callable[[], float]) -> None:
        self._expiry_seconds = expiry_seconds
        self._clock = clock
        self._drafts: dict[str, _Draft[_Name]] = {}  # the one touched longest ago comes first
        self._lock = threading.Lock()

    def keep(self, key: str, name: _Name, body: Body) -> None:
        """Add a body to a draft; it belongs to the draft from now on."""
        with self._lock:
            draft = self._drafts.pop(key, None) or _Draft(0.0)
            draft.touched_seconds = self._clock()
            self._drafts[key] = draft
            replaced = draft.pieces.get(name)
            draft.pieces[name] = body
            body.keep()
        if replaced:
            replaced.discard()

    def take(self, key: str) -> dict[_Name, Body]:
        """All bodies of a draft, which now belong to the caller; none where there is no draft."""
        with self._lock:
            draft = self._drafts.pop(key, None)
        return draft.pieces if draft else {}

    def put_back(self, key: str, pieces: Mapping[_Name, Body]) -> None:
        """Return bodies that were taken, but for those that were sent anew meanwhile."""
        with self._lock:
            draft = self._drafts.setdefault(key, _Draft(self._clock()))
            stale = [body for name, body in pieces.items() if draft.pieces.setdefault(name, body) is not body]
        for body in stale:
            body.discard()

    def drop(self, key: str) -> None:
        """Discard a draft, if there is one."""
        for body in self.take(key).values():
            body.discard()

    def drop_expired(self) -> None:
        """Discard what nobody added to for too long."""
        since = self._clock() - self._expiry_seconds
        with self._lock:
            expired = [key for key, draft in self._drafts.items() if draft.touched_seconds < since]
        for key in expired:
            self.drop(key)


@dataclass
class _Turn:
    lock: threading.Lock = field(default_factory=threading.Lock)
    wanted_by: int = 0


class KeyedLocks:
    """One at a time for each key; different keys never wait for each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[str, _Turn] = {}

    @contextmanager
    def of(self, key: str) -> Iterator[None]:
        """A block that only one thread is in."""
        with self._lock:
            turn = self._turns.setdefault(key, _Turn())
            turn.wanted_by += 1
        try:
            with turn.lock:
                yield
        finally:
            with self._lock:
                turn.wanted_by -= 1
                if not turn.wanted_by:
                    del self._turns[key]


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
            raise StorageApiError(StorageErrorCode.REQUEST_BODY_TOO_LARGE)
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
                raise StorageApiError(StorageErrorCode.SERVER_BUSY, message, {"Retry-After": str(RETRY_AFTER_SECONDS)})
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
        self.appends: UploadBuffer[int] = UploadBuffer(limits.expiry_seconds, clock)
        self.blocks: UploadBuffer[str] = UploadBuffer(limits.expiry_seconds, clock)
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
            raise StorageApiError(StorageErrorCode.REQUEST_BODY_TOO_LARGE)
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


def chain_to(position: int, pieces: Mapping[int, Body], length: int) -> list[Body]:
    """The pieces that lead from a file's length to a position; none where it is that long already.

    Raises:
        EndpointFault: INVALID_FLUSH_POSITION, there is a gap, or no piece ends there.
    """
    chain = []
    reached = length
    while reached < position and reached in pieces:
        chain.append(pieces[reached])
        reached += pieces[reached].size
    if reached != position:
        raise StorageApiError(StorageErrorCode.INVALID_FLUSH_POSITION)
    return chain


def listed(block_ids: Sequence[str], blocks: Mapping[str, Body]) -> list[Body]:
    """The blocks that a list names, in its order.

    Raises:
        EndpointFault: INVALID_BLOCK_LIST, one was not put.
    """
    if not blocks.keys() >= set(block_ids):
        raise StorageApiError(StorageErrorCode.INVALID_BLOCK_LIST)
    return [blocks[block_id] for block_id in block_ids]


@contextmanager
def assembled(storage: WritableStorage, pieces: Sequence[Body], start: BinaryIO | None = None) -> Iterator[StagedFile]:
    """One sealed file of all pieces in their order, after what `start` gives; discarded unless it is published.

    A single piece is that file itself and stays.
    """
    if len(pieces) == 1 and start is None:
        pieces[0].staged.seal()
        yield pieces[0].staged
        return
    staged = storage.stage()
    try:
        if start is not None:
            staged.copy_from(start)
        for piece in pieces:
            with piece.open() as reader:
                staged.copy_from(reader)
        staged.seal()
        yield staged
    finally:
        staged.discard()


def discard_all(pieces: Iterable[Body]) -> None:
    """Each of them; those published are only counted no longer."""
    for piece in pieces:
        piece.discard()
