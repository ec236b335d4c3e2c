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
import io
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.landing_zone.diagnostics import printable
from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.landing_zone.names import METADATA_FILE
from mirror_engine.onelake import requests as addresses
from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.onelake.items import NameInUse, NameUnusable
from mirror_engine.onelake.requests import NONE, segments_of
from mirror_engine.onelake.uploads import LIMITS, KeyedLocks, Limits, Uploads, assembled, chain_to, discard_all, listed
from mirror_engine.onelake.visibility import HEAD, LISTS, DeletedFolder, stamp_of
from mirror_engine.storage.base import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mirror_engine.onelake.faults import EmulatorOptions
    from mirror_engine.onelake.items import Items
    from mirror_engine.onelake.requests import Address, Conditions
    from mirror_engine.onelake.store import Discardable, StagedFile, WritableStorage
    from mirror_engine.onelake.uploads import Body
    from mirror_engine.storage.base import Entry


@dataclass(frozen=True)
class Properties:
    """Of a file or folder.

    Attributes:
        is_folder: else it is a file.
        size: in bytes; 0 for a folder.
        etag: in quotes, as in the header.
        modified_ns: LastModified in nanoseconds since 1970; the wire shows whole seconds (rule 9).
    """

    is_folder: bool
    size: int
    etag: str
    modified_ns: int

    @staticmethod
    def of(entry: Entry) -> Properties:
        """Of what a storage shows; a folder's tag is its identity, a file's its identity and content's time."""
        is_folder = entry.kind is Kind.FOLDER
        known = entry.identity if is_folder else f"{entry.identity} {entry.modified_ns} {entry.size}"
        return Properties(is_folder, entry.size, f'"{_tag(known)}"', entry.modified_ns)

    @staticmethod
    def maybe_of(entry: Entry | None) -> Properties | None:
        """The same; None of nothing."""
        return None if entry is None else Properties.of(entry)


def _tag(known: str) -> str:
    return f"0x8D{blake2b(known.encode(), digest_size=8).hexdigest()[:13].upper()}"


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

    def __init__(self, storage: WritableStorage, items: Items, switches: EmulatorOptions) -> None:
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
            raise StorageApiError(StorageErrorCode.PATH_NOT_FOUND)
        return self.properties(address)

    def stands(self, address: Address) -> bool:
        """Whether something is there."""
        return self._standing(address) is not None

    def ghost(self, folder: Address) -> DeletedFolder:
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
        return DeletedFolder(folder.path, entry, folders, contents)

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
            raise StorageApiError(StorageErrorCode.PATH_NOT_FOUND)
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
            raise StorageApiError(StorageErrorCode.PATH_NOT_FOUND)
        return found

    def _standing(self, address: Address) -> Entry | None:
        """What stands at an address; a link is refused, as it may neither be seen nor replaced.

        Raises:
            EndpointFault: PATH_NOT_FOUND, a link.
        """
        found = self._storage.stat(address.path)
        if found and found.kind is Kind.OTHER:
            raise StorageApiError(StorageErrorCode.PATH_NOT_FOUND)
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
        raise StorageApiError(StorageErrorCode.PATH_NOT_FOUND) from problem
    except (FileExistsError, IsADirectoryError) as problem:
        raise StorageApiError(StorageErrorCode.PATH_CONFLICT) from problem


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
        self,
        storage: WritableStorage,
        items: Items,
        switches: EmulatorOptions,
        uploads: Uploads,
        clock: Callable[[], int],
    ) -> None:
        super().__init__(storage, items, switches)
        self._uploads = uploads
        self._clock = clock
        self._last_ns = 0
        self._lock = threading.RLock()
        self._commits = KeyedLocks()

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
            raise StorageApiError(StorageErrorCode.INVALID_URI, "No workspace or item can be called so.") from problem
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
        except StorageApiError as problem:
            raise StorageApiError(StorageErrorCode.SOURCE_PATH_NOT_FOUND) from problem
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
            raise StorageApiError(self._what_bars(path)) from problem

    def _what_bars(self, path: str) -> StorageErrorCode:
        """A file on the way is a conflict; a link is not to be seen (rule 9.5)."""
        parts = path.split("/")
        ways = (self._storage.stat("/".join(parts[: end + 1])) for end in range(len(parts)))
        return (
            StorageErrorCode.PATH_NOT_FOUND
            if any(way and way.kind is Kind.OTHER for way in ways)
            else StorageErrorCode.PATH_CONFLICT
        )

    def _file(self, address: Address) -> Entry:
        found = self._present(address)
        check_no_folder(found)
        return found

    def _check_open(self, address: Address) -> None:
        """Clients make, rename and delete below `Files` and `Tables` only (chapter 7)."""
        if not (address.is_open or self.switches.lenient):
            raise StorageApiError(StorageErrorCode.MANAGED_FOLDER)

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
        raise StorageApiError(StorageErrorCode.PATH_CONFLICT)


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
            raise StorageApiError(StorageErrorCode.INVALID_QUERY_PARAMETER_VALUE)
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
                    raise StorageApiError(
                        StorageErrorCode.PATH_NOT_FOUND, "The file appended to was replaced meanwhile."
                    )
                return self._storage.publish(staged, address.path, self._now())


def _check_not_empty(body: Body) -> None:
    if body.size == 0:
        raise StorageApiError(StorageErrorCode.INVALID_HEADER_VALUE, "Content-Length must not be zero.")


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
        switches: EmulatorOptions,
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
            raise StorageApiError(StorageErrorCode.INVALID_SOURCE_URI, "A rename stays within one item.")
        with self._lock:
            found = self._standing(source)
            if found is None:
                raise StorageApiError(StorageErrorCode.SOURCE_PATH_NOT_FOUND)
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
                raise StorageApiError(StorageErrorCode.DIRECTORY_NOT_EMPTY)
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
            missing = (
                StorageErrorCode.SOURCE_PATH_NOT_FOUND
                if has_parent
                else StorageErrorCode.RENAME_DESTINATION_PARENT_PATH_NOT_FOUND
            )
            raise StorageApiError(missing) from problem
        except FileExistsError as problem:
            raise StorageApiError(StorageErrorCode.PATH_CONFLICT) from problem
        except OSError as problem:
            if problem.errno == errno.EINVAL:
                raise StorageApiError(StorageErrorCode.INVALID_RENAME_SOURCE_PATH) from problem
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
        raise StorageApiError(StorageErrorCode.INVALID_RENAME_SOURCE_PATH)
    raise StorageApiError(
        StorageErrorCode.PATH_ALREADY_EXISTS if replaced.kind is found.kind else StorageErrorCode.PATH_CONFLICT
    )
