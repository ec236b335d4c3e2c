"""What clients have sent but not committed yet: appended pieces and blocks, private until a flush or block list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from mirror_engine.storage.writable import StagedFile, WritableStorage

GIB = 1 << 30


@dataclass(frozen=True)
class Limits:
    """Of what clients may leave uncommitted (rule 9.6).

    Attributes:
        body_bytes: of one request.
        staging_bytes: of all that is uncommitted together.
        expiry_seconds: after which what nobody adds to is dropped.
    """

    body_bytes: int = 4 * GIB
    staging_bytes: int = 64 * GIB
    expiry_seconds: float = 24 * 3600


LIMITS = Limits()


class Body:
    """A request's body on its way to the disk; leaving the `with` discards it unless it was taken over.

    Args:
        staged: where it goes.
        uploads: who counts.
    """

    def __init__(self, staged: StagedFile, uploads: Uploads) -> None:
        self._staged = staged
        self._uploads = uploads

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._staged.size

    def write(self, content: bytes | memoryview) -> None:
        """Add the next bytes.

        Raises:
            EndpointFault: REQUEST_BODY_TOO_LARGE, or SERVER_BUSY while too much is uncommitted.
        """
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        raise NotImplementedError


class Uploads:
    """Skeleton; see the next commit."""

    def __init__(self, storage: WritableStorage, limits: Limits) -> None:
        self._storage = storage
        self._limits = limits
