"""How requests do blocking work: on threads, and bodies in pieces."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from anyio import to_thread

from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.onelake.limits import MAX_TEXT_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from typing_extensions import ParamSpec

    from mirror_engine.onelake.lake import Lake
    from mirror_engine.onelake.requests import LakeRequest
    from mirror_engine.onelake.uploads import Body

    _Given = ParamSpec("_Given")

_Answer = TypeVar("_Answer")

PIECE_BYTES = 1 << 20


async def quick(call: Callable[_Given, _Answer], *given: _Given.args, **named: _Given.kwargs) -> _Answer:
    """Make a blocking call on a thread."""
    return await to_thread.run_sync(partial(call, *given, **named))


@asynccontextmanager
async def received(lake: Lake, call: LakeRequest) -> AsyncIterator[Body]:
    """A request's body, on the disk; discarded afterwards unless the lake took it over.

    Raises:
        EndpointFault: REQUEST_BODY_TOO_LARGE, SERVER_BUSY.
    """
    with await quick(lake.receive, call.length) as body:
        async for piece in call.body:
            await quick(body.write, piece)
        yield body


async def document(call: LakeRequest) -> bytes:
    """A small body, whole.

    Raises:
        EndpointFault: REQUEST_BODY_TOO_LARGE.
    """
    return await bounded(call.body)


async def bounded(body: AsyncIterator[bytes], most_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """A body of few bytes, whole.

    Raises:
        EndpointFault: REQUEST_BODY_TOO_LARGE.
    """
    read = bytearray()
    async for piece in body:
        read += piece
        if len(read) > most_bytes:
            raise StorageApiError(StorageErrorCode.REQUEST_BODY_TOO_LARGE)
    return bytes(read)


async def sent(file: BinaryIO, start: int, length: int) -> AsyncIterator[bytes]:
    """A part of a file, piece by piece; closes it at the end."""
    try:
        await quick(file.seek, start)
        while length > 0 and (piece := await quick(file.read, min(length, PIECE_BYTES))):
            length -= len(piece)
            yield piece
    finally:
        file.close()
