"""Everything a client can do with files and folders, whatever dialect it speaks (endpoint chapters 3, 4 and 7).

Every method may be called by several threads at once and blocks only for quick steps on the disk; bodies stream to
a `Body` outside of all locks. `StorageUnavailable` is let through: answer it as SERVER_BUSY.

```python
with lake.receive(length) as body:      # length: the Content-Length, None where there is none
    async for chunk in request.stream():
        body.write(chunk)
    lake.append(address, position, body)  # or put, put_block
```
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.endpoint.conditions import NONE
from mirror_engine.endpoint.uploads import LIMITS, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mirror_engine.endpoint.address import Address
    from mirror_engine.endpoint.conditions import Conditions
    from mirror_engine.endpoint.items import Items
    from mirror_engine.endpoint.properties import Properties
    from mirror_engine.endpoint.switches import Switches
    from mirror_engine.endpoint.uploads import Body
    from mirror_engine.storage.writable import WritableStorage


@dataclass(frozen=True)
class Listed:
    """One line of a listing.

    Attributes:
        name: relative to the workspace, the item's segment as the client wrote it.
        properties: of what stands there.
    """

    name: str
    properties: Properties


@dataclass(frozen=True)
class LostFile:
    """A rename replaced a file that another rename had put there (rule 7.5)."""

    path: str


class Lake:
    """The store as clients see it.

    Args:
        storage: the store.
        items: its workspaces and items.
        switches: how it differs from the real service.
        clock: nanoseconds since 1970; gives LastModified.
        limits: of what clients may leave uncommitted.
        tell: is told what a publisher should know.
    """

    def __init__(  # noqa: PLR0913 - a composition root
        self,
        storage: WritableStorage,
        items: Items,
        switches: Switches,
        *,
        clock: Callable[[], int] = time.time_ns,
        limits: Limits = LIMITS,
        tell: Callable[[LostFile], None] = lambda _: None,
    ) -> None:
        self.items = items
        self.switches = switches
        self._storage = storage
        self._clock = clock
        self._limits = limits
        self._tell = tell

    # Looking

    def address(self, raw_path: bytes) -> Address:
        """See `address.parse`."""
        raise NotImplementedError

    def destination(self, raw_path: bytes) -> Address:
        """The same for what is to be created: `lenient` makes a missing workspace and item."""
        raise NotImplementedError

    def inside(self, folder: Address, directory: str) -> Address:
        """See `address.inside`."""
        raise NotImplementedError

    def properties(self, address: Address) -> Properties:
        """Of a file or folder, workspaces and items included.

        Raises:
            EndpointFault: PATH_NOT_FOUND.
        """
        raise NotImplementedError

    def children(self, folder: Address, start_from: str = "") -> Iterator[Listed]:
        """What lies directly in a folder, by name (code points; a folder sorts by its bare name).

        Args:
            folder: a folder's address, a workspace's too (then: its items).
            start_from: the first name to be listed, inclusive, as `Listed.name` spells it.

        Raises:
            EndpointFault: PATH_NOT_FOUND there is no folder; raised at once, not at the first step.
        """
        raise NotImplementedError

    def descendants(self, folder: Address, start_from: str = "") -> Iterator[Listed]:
        """All files and folders below, by whole name (code points, so `a`, `a.txt`, `a/b`); else as `children`."""
        raise NotImplementedError

    def read(self, address: Address, conditions: Conditions = NONE) -> tuple[Properties, BinaryIO]:
        """A file's properties and a seekable reader of just that content; the caller closes it.

        A folder gives its properties and an empty reader.

        Raises:
            EndpointFault: PATH_NOT_FOUND, NOT_MODIFIED, CONDITION_NOT_MET.
        """
        raise NotImplementedError

    # Making

    def create_folder(self, address: Address, conditions: Conditions = NONE) -> Properties:
        """A folder and its parents; a repeat changes nothing (rule 7.7).

        Raises:
            EndpointFault: MANAGED_FOLDER; PATH_ALREADY_EXISTS, CONDITION_NOT_MET; PATH_CONFLICT over a file.
        """
        raise NotImplementedError

    def create_file(self, address: Address, conditions: Conditions = NONE) -> Properties:
        """A file of 0 bytes, seen by all at once (rule 7.1), and its parents; drops what was there.

        Raises:
            EndpointFault: MANAGED_FOLDER; PATH_ALREADY_EXISTS, CONDITION_NOT_MET; PATH_CONFLICT over a folder.
        """
        raise NotImplementedError

    def receive(self, length: int | None = None) -> Body:
        """A place for a request's body; use it as a context manager.

        Raises:
            EndpointFault: REQUEST_BODY_TOO_LARGE at once where the length announced is too large; SERVER_BUSY.
        """
        raise NotImplementedError

    def append(self, address: Address, position: int, body: Body) -> Properties:
        """Keep a piece of a file until a flush (rule 7.2); the last one per position wins. The file is unchanged.

        Raises:
            EndpointFault: PATH_NOT_FOUND the file was not created; PATH_CONFLICT a folder; INVALID_HEADER_VALUE
                the body is empty; INVALID_QUERY_PARAMETER_VALUE a negative position.
        """
        raise NotImplementedError

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
                INVALID_FLUSH_POSITION.
        """
        raise NotImplementedError

    def put(self, address: Address, body: Body, conditions: Conditions = NONE) -> Properties:
        """A whole file in one step (Put Blob), with its parents.

        Raises:
            EndpointFault: as `create_file`.
        """
        raise NotImplementedError

    def put_block(self, address: Address, block_id: str, body: Body) -> None:
        """Keep a block until a block list names it (rule 7.2).

        Raises:
            EndpointFault: MANAGED_FOLDER, PATH_CONFLICT, INVALID_HEADER_VALUE the body is empty.
        """
        raise NotImplementedError

    def put_block_list(self, address: Address, block_ids: Sequence[str], conditions: Conditions = NONE) -> Properties:
        """A whole file of blocks, in that order, in one step; drops the blocks it does not name.

        Raises:
            EndpointFault: INVALID_BLOCK_LIST; else as `create_file`.
        """
        raise NotImplementedError

    def copy(
        self, source: Address, target: Address, conditions: Conditions = NONE, source_conditions: Conditions = NONE
    ) -> Properties:
        """A file's content at another place in one step, with its parents; of a folder, an empty folder.

        Raises:
            EndpointFault: SOURCE_PATH_NOT_FOUND, SOURCE_CONDITION_NOT_MET; else as `create_file`.
        """
        raise NotImplementedError

    def set_metadata(self, address: Address, conditions: Conditions = NONE) -> Properties:
        """A file gets a new entity tag and LastModified (rule 7.6); a folder stays as it is.

        Raises:
            EndpointFault: PATH_NOT_FOUND, CONDITION_NOT_MET.
        """
        raise NotImplementedError

    # Moving, removing

    def rename(
        self, source: Address, target: Address, conditions: Conditions = NONE, source_conditions: Conditions = NONE
    ) -> Properties:
        """Rename a file or folder in one step (rule 7.4); makes no parents.

        Raises:
            EndpointFault: INVALID_SOURCE_URI in another item; MANAGED_FOLDER; SOURCE_PATH_NOT_FOUND,
                SOURCE_CONDITION_NOT_MET; RENAME_DESTINATION_PARENT_PATH_NOT_FOUND; PATH_ALREADY_EXISTS for
                `If-None-Match: *`, and onto a folder; PATH_CONFLICT a folder onto a file or the reverse;
                INVALID_RENAME_SOURCE_PATH; CONDITION_NOT_MET.
        """
        raise NotImplementedError

    def delete(self, address: Address, conditions: Conditions = NONE) -> None:
        """Remove a file, or an empty folder.

        Raises:
            EndpointFault: PATH_NOT_FOUND, DIRECTORY_NOT_EMPTY, MANAGED_FOLDER, CONDITION_NOT_MET.
        """
        raise NotImplementedError

    def delete_all(self, address: Address, conditions: Conditions = NONE) -> None:
        """Remove a file, or a folder with all in it, in one step (rule 7.8).

        Raises:
            EndpointFault: PATH_NOT_FOUND, MANAGED_FOLDER, CONDITION_NOT_MET.
        """
        raise NotImplementedError
