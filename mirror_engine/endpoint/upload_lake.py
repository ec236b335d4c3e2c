"""How files come into the store in parts: appended and flushed, or as blocks (endpoint chapters 3, 4 and 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.endpoint.conditions import NONE
from mirror_engine.endpoint.faults import EndpointFault, Fault
from mirror_engine.endpoint.pieces import assembled, chain_to, discard_all, listed
from mirror_engine.endpoint.properties import Properties
from mirror_engine.endpoint.readable_lake import met
from mirror_engine.endpoint.writable_lake import WritableLake, check_no_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.endpoint.address import Address
    from mirror_engine.endpoint.conditions import Conditions
    from mirror_engine.endpoint.uploads import Body
    from mirror_engine.storage.base import Entry


class UploadLake(WritableLake):
    """A lake that takes files in parts. Parts are put together by one thread per path, outside of the lake's lock."""

    def append(self, address: Address, position: int, body: Body) -> Properties:
        """Keep a piece of a file until a flush (rule 7.2); the last one per position wins. The file is unchanged.

        Raises:
            EndpointFault: PATH_NOT_FOUND the file was not created; PATH_CONFLICT a folder; INVALID_HEADER_VALUE
                the body is empty; INVALID_QUERY_PARAMETER_VALUE a negative position; MANAGED_FOLDER.
        """
        self._check_open(address)
        _check_not_empty(body)
        if position < 0:
            raise EndpointFault(Fault.INVALID_QUERY_PARAMETER_VALUE)
        with self._lock:
            entry = self._file(address)
            self._uploads.appends.keep(entry.identity, position, body)
        return Properties.of(entry)

    def flush(
        self, address: Address, position: int, conditions: Conditions = NONE, *, retain: bool = False
    ) -> Properties:
        """Commit all up to a position in one step (rule 7.3).

        Args:
            address: of a file.
            position: the file's length afterwards.
            conditions: on the file as it is now.
            retain: keep pieces beyond the position uncommitted (`retainUncommittedData`); else they are dropped.

        Raises:
            EndpointFault: PATH_NOT_FOUND, PATH_CONFLICT, PATH_ALREADY_EXISTS, CONDITION_NOT_MET,
                INVALID_FLUSH_POSITION, MANAGED_FOLDER.
        """
        self._check_open(address)
        appends = self._uploads.appends
        with self._commits.of(address.path):  # a client that lost the answer may ask again too soon
            with self._lock:
                before = self._file(address)
                conditions.check_write(Properties.of(before))
                pieces = appends.take(before.identity)
            try:
                chain = chain_to(position, pieces, before.size)
                after = self._extend(address, before, chain) if chain else before
            except BaseException:
                appends.put_back(before.identity, pieces)
                raise
            rest = {start: piece for start, piece in pieces.items() if retain and start >= position}
            discard_all(piece for start, piece in pieces.items() if start not in rest)
            appends.put_back(after.identity, rest)
        return Properties.of(after)

    def put_block(self, address: Address, block_id: str, body: Body) -> None:
        """Keep a block until a block list names it (rule 7.2).

        Raises:
            EndpointFault: MANAGED_FOLDER, PATH_CONFLICT a folder, INVALID_HEADER_VALUE the body is empty.
        """
        self._check_open(address)
        _check_not_empty(body)
        check_no_folder(self._standing(address))
        self._uploads.blocks.keep(address.path, block_id, body)

    def put_block_list(self, address: Address, block_ids: Sequence[str], conditions: Conditions = NONE) -> Properties:
        """A whole file of blocks, in that order, in one step; drops the blocks it does not name.

        A list repeated because its answer was lost changes nothing: its blocks are committed ones now.

        Raises:
            EndpointFault: INVALID_BLOCK_LIST; else as `create_file`.
        """
        with self._commits.of(address.path):
            found = Properties.maybe_of(self._standing(address))
            conditions.check_write(found)
            blocks = self._uploads.blocks.take(address.path)
            if found and not blocks and self._uploads.is_of_block_list(address.path, block_ids, found.etag):
                return found
            try:
                with assembled(self._storage, listed(block_ids, blocks)) as staged:
                    properties = self._publish(address, staged, conditions)
            except BaseException:
                self._uploads.blocks.put_back(address.path, blocks)
                raise
            self._uploads.remember_block_list(address.path, block_ids, properties.etag)
        discard_all(blocks.values())
        return properties

    def _extend(self, address: Address, before: Entry, chain: Sequence[Body]) -> Entry:
        """Show a file with more at its end, unless it was replaced while that was put together."""
        with met(), self._storage.open(address.path) as start:
            whole = assembled(self._storage, chain, start if before.size else None)
            with whole as staged, self._lock:
                now = self._file(address)
                if (now.identity, now.size) != (before.identity, before.size):
                    raise EndpointFault(Fault.PATH_NOT_FOUND, "The file appended to was replaced meanwhile.")
                return self._storage.publish(staged, address.path, self._now())


def _check_not_empty(body: Body) -> None:
    if body.size == 0:
        raise EndpointFault(Fault.INVALID_HEADER_VALUE, "Content-Length must not be zero.")
