"""How pieces become a file: the chain that reaches a position, and one staged file of many."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.endpoint.faults import EndpointFault, Fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mirror_engine.endpoint.uploads import Body
    from mirror_engine.storage.writable import StagedFile, WritableStorage


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
        raise EndpointFault(Fault.INVALID_FLUSH_POSITION)
    return chain


def listed(block_ids: Sequence[str], blocks: Mapping[str, Body]) -> list[Body]:
    """The blocks that a list names, in its order.

    Raises:
        EndpointFault: INVALID_BLOCK_LIST, one was not put.
    """
    if not blocks.keys() >= set(block_ids):
        raise EndpointFault(Fault.INVALID_BLOCK_LIST)
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
