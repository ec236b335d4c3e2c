"""How files and folders come into the store whole: create, put, copy (endpoint chapters 3, 4 and 7)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from mirror_engine.endpoint.address import segments_of
from mirror_engine.endpoint.conditions import NONE
from mirror_engine.endpoint.drafts import Turns
from mirror_engine.endpoint.faults import EndpointFault, Fault
from mirror_engine.endpoint.items import NameInUse, NameUnusable
from mirror_engine.endpoint.pieces import assembled
from mirror_engine.endpoint.properties import Properties
from mirror_engine.endpoint.readable_lake import ReadableLake, met
from mirror_engine.endpoint.stamps import stamp_of
from mirror_engine.storage.base import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror_engine.endpoint.address import Address
    from mirror_engine.endpoint.conditions import Conditions
    from mirror_engine.endpoint.items import Items
    from mirror_engine.endpoint.switches import Switches
    from mirror_engine.endpoint.uploads import Body, Uploads
    from mirror_engine.storage.base import Entry
    from mirror_engine.storage.writable import StagedFile, WritableStorage


class WritableLake(ReadableLake):
    """A lake that takes files.

    One lock makes a condition and what it guards one step; bodies stream, are put together and reach the disk
    outside of it.

    Args:
        storage: the store.
        items: its workspaces and items.
        switches: how it differs from the real service.
        uploads: what is not committed yet.
        clock: nanoseconds since 1970; gives LastModified.
    """

    def __init__(
        self, storage: WritableStorage, items: Items, switches: Switches, uploads: Uploads, clock: Callable[[], int]
    ) -> None:
        super().__init__(storage, items, switches)
        self._uploads = uploads
        self._clock = clock
        self._last_ns = 0
        self._lock = threading.RLock()
        self._commits = Turns()

    def destination(self, raw_path: bytes) -> Address:
        """The address of what is to be created; `lenient` makes a missing workspace and item.

        Raises:
            EndpointFault: as `address`.
        """
        names = segments_of(raw_path)[:2] if self.switches.lenient else ()
        try:
            if len(names) == 1:
                self.items.ensure_workspace(*names)
            elif names:
                self.items.ensure(*names)
        except (NameInUse, NameUnusable) as problem:
            raise EndpointFault(Fault.INVALID_URI, "No workspace or item can be called so.") from problem
        return self.address(raw_path)

    def create_folder(self, address: Address, conditions: Conditions = NONE) -> Properties:
        """A folder and its parents; a repeat changes nothing (rule 7.7).

        Raises:
            EndpointFault: MANAGED_FOLDER; PATH_ALREADY_EXISTS, CONDITION_NOT_MET; PATH_CONFLICT over a file.
        """
        self._check_open(address)
        with self._lock:
            found = self._standing(address)
            conditions.check_write(Properties.maybe_of(found))
            return Properties.of(self._make_folder(address.path))

    def create_file(self, address: Address, conditions: Conditions = NONE) -> Properties:
        """A file of 0 bytes, seen by all at once (rule 7.1), and its parents; drops what was there.

        Raises:
            EndpointFault: MANAGED_FOLDER; PATH_ALREADY_EXISTS, CONDITION_NOT_MET; PATH_CONFLICT over a folder.
        """
        with self.receive() as body:
            return self.put(address, body, conditions)

    def receive(self, length: int | None = None) -> Body:
        """A place for a request's body; use it as a context manager.

        Raises:
            EndpointFault: REQUEST_BODY_TOO_LARGE at once where the length announced is too large.
        """
        return self._uploads.receive(length)

    def put(self, address: Address, body: Body, conditions: Conditions = NONE) -> Properties:
        """A whole file in one step (Put Blob), with its parents.

        Raises:
            EndpointFault: as `create_file`.
        """
        return self._publish(address, body.staged, conditions)

    def copy(
        self, source: Address, target: Address, conditions: Conditions = NONE, source_conditions: Conditions = NONE
    ) -> Properties:
        """A file's content at another place in one step, with its parents; of a folder, an empty folder.

        Raises:
            EndpointFault: SOURCE_PATH_NOT_FOUND, SOURCE_CONDITION_NOT_MET; else as `create_file`.
        """
        self._check_open(target)
        try:
            found, reader = self.read(source)
        except EndpointFault as problem:
            raise EndpointFault(Fault.SOURCE_PATH_NOT_FOUND) from problem
        with reader:
            source_conditions.check_source(found)
            if found.is_folder:
                return self.create_folder(target, conditions)
            with assembled(self._storage, [], reader) as staged:
                return self._publish(target, staged, conditions)

    def set_metadata(self, address: Address, conditions: Conditions = NONE) -> Properties:
        """A file gets a new entity tag and LastModified (rule 7.6); a folder stays as it is.

        Raises:
            EndpointFault: PATH_NOT_FOUND, CONDITION_NOT_MET.
        """
        with self._lock:
            found = self._present(address)
            conditions.check_write(Properties.of(found))
            if found.kind is Kind.FILE:
                with met():
                    self._storage.touch(address.path, self._now())
            return self.properties(address)

    def _publish(self, address: Address, staged: StagedFile, conditions: Conditions) -> Properties:
        self._check_open(address)
        staged.seal()
        with self._lock:
            found = self._standing(address)
            conditions.check_write(Properties.maybe_of(found))
            check_no_folder(found)
            entry = self._show(address, staged)
        if found:
            self._uploads.appends.drop(found.identity)
        self._uploads.blocks.drop(address.path)
        return Properties.of(entry)

    def _show(self, address: Address, staged: StagedFile) -> Entry:
        try:
            return self._storage.publish(staged, address.path, self._now())
        except FileNotFoundError:
            self._make_folder(address.path.rpartition("/")[0])
            with met():
                return self._storage.publish(staged, address.path, self._now())

    def _make_folder(self, path: str) -> Entry:
        try:
            return self._storage.make_folder(path)
        except FileExistsError as problem:
            raise EndpointFault(self._what_bars(path)) from problem

    def _what_bars(self, path: str) -> Fault:
        """A file on the way is a conflict; a link is not to be seen (rule 9.5)."""
        parts = path.split("/")
        ways = (self._storage.stat("/".join(parts[: end + 1])) for end in range(len(parts)))
        return Fault.PATH_NOT_FOUND if any(way and way.kind is Kind.OTHER for way in ways) else Fault.PATH_CONFLICT

    def _file(self, address: Address) -> Entry:
        found = self._present(address)
        check_no_folder(found)
        return found

    def _check_open(self, address: Address) -> None:
        """Clients make, rename and delete below `Files` and `Tables` only (chapter 7)."""
        if not (address.is_open or self.switches.lenient):
            raise EndpointFault(Fault.MANAGED_FOLDER)

    def _now(self) -> int:
        """Never the same twice: with the identity it makes the entity tag."""
        self._last_ns = max(self._clock(), self._last_ns + 1)
        return stamp_of(self._last_ns)


def check_no_folder(found: Entry | None) -> None:
    """Whether a file may stand there.

    Raises:
        EndpointFault: PATH_CONFLICT, a folder does.
    """
    if found and found.kind is Kind.FOLDER:
        raise EndpointFault(Fault.PATH_CONFLICT)
