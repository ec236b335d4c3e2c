"""Everything a client can do with files and folders, whatever dialect it speaks (endpoint chapters 3, 4 and 7).

Every method may be called by several threads at once and blocks only for steps on the disk; bodies stream to a
`Body` outside of all locks. `StorageUnavailable` is let through: answer it as SERVER_BUSY.

```python
with lake.receive(length) as body:      # length: the Content-Length, None where there is none
    async for chunk in request.stream():
        body.write(chunk)
    lake.append(address, position, body)  # or put, put_block
```
"""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.endpoint.conditions import NONE
from mirror_engine.endpoint.faults import EndpointFault, Fault
from mirror_engine.endpoint.properties import Properties
from mirror_engine.endpoint.readable_lake import Listed, met
from mirror_engine.endpoint.upload_lake import UploadLake
from mirror_engine.endpoint.uploads import LIMITS, Limits, Uploads
from mirror_engine.landing_zone.diagnostics import printable
from mirror_engine.storage.base import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror_engine.endpoint.address import Address
    from mirror_engine.endpoint.conditions import Conditions
    from mirror_engine.endpoint.items import Items
    from mirror_engine.endpoint.switches import Switches
    from mirror_engine.storage.base import Entry
    from mirror_engine.storage.writable import Discardable, WritableStorage

__all__ = ["Lake", "Listed", "LostFile"]


@dataclass(frozen=True)
class LostFile:
    """A rename without conditions replaced a file: what it held is lost (rule 7.5).

    Attributes:
        path: from the store's top.
    """

    path: str

    @property
    def words(self) -> str:
        """For a person."""
        return f"{printable(self.path)}: a rename without a condition replaced this file; what it held is lost"


class Lake(UploadLake):
    """The store as clients see it.

    Args:
        storage: the store; what an earlier process left staged in it is deleted now.
        items: its workspaces and items.
        switches: how it differs from the real service.
        clock: nanoseconds since 1970; gives LastModified.
        limits: of what clients may leave uncommitted.
        tell: is told what a publisher should know; called outside of all locks.
    """

    def __init__(  # noqa: PLR0913 - three parts and three ways to differ from the default
        self,
        storage: WritableStorage,
        items: Items,
        switches: Switches,
        *,
        clock: Callable[[], int] = time.time_ns,
        limits: Limits = LIMITS,
        tell: Callable[[LostFile], None] = lambda _: None,
    ) -> None:
        super().__init__(storage, items, switches, Uploads(storage, limits), clock)
        self._tell = tell
        storage.sweep()

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
        self._check_open(source)
        self._check_open(target)
        if source.item is None or target.item is None or source.item.id != target.item.id:
            raise EndpointFault(Fault.INVALID_SOURCE_URI, "A rename stays within one item.")
        with self._lock:
            found = self._standing(source)
            if found is None:
                raise EndpointFault(Fault.SOURCE_PATH_NOT_FOUND)
            source_conditions.check_source(Properties.of(found))
            replaced = self._standing(target)
            conditions.check_write(Properties.maybe_of(replaced))
            _check_kinds(found, replaced)
            self._move(source.path, target.path)
            if self.switches.rename_touches:
                self.set_metadata(target)
            renamed = self.properties(target)
        if replaced and source.path != target.path:
            self._forget(replaced, target, conditions)
        return renamed

    def delete(self, address: Address, conditions: Conditions = NONE) -> None:
        """Remove a file, or an empty folder.

        Raises:
            EndpointFault: PATH_NOT_FOUND, DIRECTORY_NOT_EMPTY, MANAGED_FOLDER, CONDITION_NOT_MET.
        """
        with self._lock:
            found = self._removable(address, conditions)
            if self._storage.list(address.path):
                raise EndpointFault(Fault.DIRECTORY_NOT_EMPTY)
            taken = self._take_away(address)
        self._dispose(found, taken)

    def delete_all(self, address: Address, conditions: Conditions = NONE) -> None:
        """Remove a file, or a folder with all in it, in one step (rule 7.8).

        Raises:
            EndpointFault: PATH_NOT_FOUND, MANAGED_FOLDER, CONDITION_NOT_MET.
        """
        with self._lock:
            found = self._removable(address, conditions)
            taken = self._take_away(address)
        self._dispose(found, taken)

    def _move(self, source: str, target: str) -> None:
        try:
            self._storage.rename(source, target)
        except FileNotFoundError as problem:
            folder = self._storage.stat(target.rpartition("/")[0])
            has_parent = folder is not None and folder.kind is Kind.FOLDER
            missing = Fault.SOURCE_PATH_NOT_FOUND if has_parent else Fault.RENAME_DESTINATION_PARENT_PATH_NOT_FOUND
            raise EndpointFault(missing) from problem
        except FileExistsError as problem:
            raise EndpointFault(Fault.PATH_CONFLICT) from problem
        except OSError as problem:
            if problem.errno == errno.EINVAL:
                raise EndpointFault(Fault.INVALID_RENAME_SOURCE_PATH) from problem
            raise

    def _forget(self, replaced: Entry, target: Address, conditions: Conditions) -> None:
        """What was appended to a replaced file; tell of a lost one. What begins with `_` is meant to be replaced."""
        self._uploads.appends.drop(replaced.identity)
        if conditions == NONE and not replaced.name.startswith("_"):
            self._tell(LostFile(target.path))

    def _removable(self, address: Address, conditions: Conditions) -> Entry:
        self._check_open(address)
        found = self._present(address)
        conditions.check_write(Properties.of(found))
        return found

    def _take_away(self, address: Address) -> Discardable:
        with met():
            return self._storage.take_away(address.path)

    def _dispose(self, found: Entry, taken: Discardable) -> None:
        self._uploads.appends.drop(found.identity)
        taken.discard()


def _check_kinds(found: Entry, replaced: Entry | None) -> None:
    """A file replaces a file, a folder nothing (chapter 13.4)."""
    if replaced is None or replaced.kind is found.kind is Kind.FILE:
        return
    if replaced.identity == found.identity:
        raise EndpointFault(Fault.INVALID_RENAME_SOURCE_PATH)
    raise EndpointFault(Fault.PATH_ALREADY_EXISTS if replaced.kind is found.kind else Fault.PATH_CONFLICT)
