"""What a client can see of the store, whatever dialect it speaks (endpoint chapters 3, 4, 7 and 9)."""

from __future__ import annotations

import io
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.endpoint import address as addresses
from mirror_engine.endpoint.conditions import NONE
from mirror_engine.endpoint.faults import EndpointFault, Fault
from mirror_engine.endpoint.late import HEAD, LISTS, Ghost
from mirror_engine.endpoint.properties import Properties
from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.landing_zone.names import METADATA_FILE
from mirror_engine.storage.base import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirror_engine.endpoint.address import Address
    from mirror_engine.endpoint.conditions import Conditions
    from mirror_engine.endpoint.items import Items
    from mirror_engine.endpoint.switches import Switches
    from mirror_engine.storage.base import Entry
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


class ReadableLake:
    """The store as clients see it; links and the engine's own files are not to be seen (rule 9.5).

    Args:
        storage: the store.
        items: its workspaces and items.
        switches: how it differs from the real service.
    """

    def __init__(self, storage: WritableStorage, items: Items, switches: Switches) -> None:
        self.items = items
        self.switches = switches
        self._storage = storage

    def address(self, raw_path: bytes) -> Address:
        """See `address.parse`."""
        return addresses.parse(raw_path, self.items)

    def inside(self, folder: Address, directory: str) -> Address:
        """See `address.inside`."""
        return addresses.inside(folder, directory, self.items)

    def properties(self, address: Address) -> Properties:
        """Of a file or folder, workspaces and items included.

        Raises:
            EndpointFault: PATH_NOT_FOUND.
        """
        return Properties.of(self._present(address))

    def seen(self, address: Address) -> Properties:
        """The same, but for names that are not to be known yet.

        Raises:
            EndpointFault: PATH_NOT_FOUND.
        """
        if self.switches.late.is_hidden(address.path, HEAD):
            raise EndpointFault(Fault.PATH_NOT_FOUND)
        return self.properties(address)

    def stands(self, address: Address) -> bool:
        """Whether something is there."""
        return self._standing(address) is not None

    def ghost(self, folder: Address) -> Ghost:
        """A folder as it is now, to be remembered.

        Raises:
            EndpointFault: PATH_NOT_FOUND.
        """
        entry, folders, contents = self._present(folder), {}, {}
        pending = [folder.path]
        while pending:
            path = pending.pop()
            folders[path] = self._storage.list(path) or ()
            for each in folders[path]:
                if each.kind is Kind.FOLDER:
                    pending.append(f"{path}/{each.name}")
                elif each.name == METADATA_FILE and each.kind is Kind.FILE:
                    with met(), self._storage.open(f"{path}/{each.name}") as file:
                        contents[f"{path}/{each.name}"] = file.read()
        return Ghost(folder.path, entry, folders, contents)

    def children(self, folder: Address, start_from: str = "") -> Iterator[Listed]:
        """What lies directly in a folder, by name (code points; a folder sorts by its bare name).

        Args:
            folder: a folder's address, a workspace's too (then: its items).
            start_from: the first name to be listed, inclusive, as `Listed.name` spells it.

        Raises:
            EndpointFault: PATH_NOT_FOUND there is no folder; raised at once, not at the first step.
        """
        above = _prefix(folder)
        listed = (Listed(above + entry.name, Properties.of(entry)) for entry in self._inside(folder))
        return (line for line in listed if line.name >= start_from)

    def descendants(self, folder: Address, start_from: str = "") -> Iterator[Listed]:
        """All files and folders below, by whole name (code points, so `a`, `a.txt`, `a/b`); else as `children`."""
        return self._walk(folder, self._inside(folder), start_from)

    def read(self, address: Address, conditions: Conditions = NONE) -> tuple[Properties, BinaryIO]:
        """A file's properties and a seekable reader of just that content; the caller closes it.

        A folder gives its properties and an empty reader.

        Raises:
            EndpointFault: PATH_NOT_FOUND, NOT_MODIFIED, CONDITION_NOT_MET.
        """
        while True:
            entry = self._present(address)
            conditions.check_read(Properties.of(entry))
            if entry.kind is Kind.FOLDER:
                return Properties.of(entry), io.BytesIO()
            try:
                reader = self._storage.open(address.path)
            except FileNotFoundError:
                continue  # it went away, or something else took its place
            if self._storage.stat(address.path) == entry:
                return Properties.of(entry), reader
            reader.close()  # somebody replaced it between the two calls

    def _walk(self, folder: Address, inside: Sequence[Entry], start_from: str) -> Iterator[Listed]:
        """Depth first; a folder's line comes at its bare name, what lies in it where `name/` sorts. No recursion."""
        pending = [_steps(folder.path, _prefix(folder), inside)]
        while pending:
            step = next(pending[-1], None)
            if step is None:
                pending.pop()
            elif step.is_way_in:
                if step.name >= start_from or start_from.startswith(step.name):
                    pending.append(_steps(step.path, step.name, self._visible(step.path) or ()))
            elif step.name >= start_from:
                yield Listed(step.name, Properties.of(step.entry))

    def _inside(self, folder: Address) -> Sequence[Entry]:
        visible = self._visible(folder.path)
        if visible is None:
            raise EndpointFault(Fault.PATH_NOT_FOUND)
        if folder.item:
            return visible
        items = {item.name for item in self.items.items(folder.workspace)}
        return [entry for entry in visible if entry.name in items]

    def _visible(self, path: str) -> Sequence[Entry] | None:
        entries = self._storage.list(path)
        return entries and [entry for entry in entries if self._is_shown(path, entry)]

    def _is_shown(self, path: str, entry: Entry) -> bool:
        if entry.kind is Kind.OTHER or entry.name.startswith(ENGINE):
            return False
        return not self.switches.late.is_hidden(f"{path}/{entry.name}", LISTS)

    def _present(self, address: Address) -> Entry:
        found = self._standing(address)
        if found is None:
            raise EndpointFault(Fault.PATH_NOT_FOUND)
        return found

    def _standing(self, address: Address) -> Entry | None:
        """What stands at an address; a link is refused, as it may neither be seen nor replaced.

        Raises:
            EndpointFault: PATH_NOT_FOUND, a link.
        """
        found = self._storage.stat(address.path)
        if found and found.kind is Kind.OTHER:
            raise EndpointFault(Fault.PATH_NOT_FOUND)
        return found


@dataclass(frozen=True)
class _Step:
    """Of a walk: a line to be listed, or the way into a folder."""

    name: str
    path: str
    entry: Entry
    is_way_in: bool


def _steps(path: str, prefix: str, entries: Sequence[Entry]) -> Iterator[_Step]:
    steps = [_Step(prefix + entry.name, f"{path}/{entry.name}", entry, False) for entry in entries]
    steps += [
        _Step(f"{prefix}{entry.name}/", f"{path}/{entry.name}", entry, True)
        for entry in entries
        if entry.kind is Kind.FOLDER
    ]
    return iter(sorted(steps, key=lambda step: step.name))


def _prefix(folder: Address) -> str:
    return f"{folder.shown}/" if folder.shown else ""


@contextmanager
def met() -> Iterator[None]:
    """What somebody beside the endpoint did between two calls is answered as if it had been so before."""
    try:
        yield
    except FileNotFoundError as problem:
        raise EndpointFault(Fault.PATH_NOT_FOUND) from problem
    except (FileExistsError, IsADirectoryError) as problem:
        raise EndpointFault(Fault.PATH_CONFLICT) from problem
