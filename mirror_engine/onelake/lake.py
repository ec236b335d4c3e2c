"""The lake: everything a client can do with files and folders, whatever dialect it speaks.

Methods are thread-safe and block for disk work only; bodies stream to a staged `Body` outside of all locks.
`StorageUnavailable` passes through: answer it as SERVER_BUSY. All other errors are `StorageApiError`; a docstring names
the codes that a method adds to PATH_NOT_FOUND, CONDITION_NOT_MET and MANAGED_FOLDER.

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
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.landing_zone.names import METADATA_FILE
from mirror_engine.onelake import address as addresses
from mirror_engine.onelake.conditions import NONE, ListedPath, Properties
from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.onelake.items import NameInUse, NameUnusable
from mirror_engine.onelake.uploads import LIMITS, KeyedLocks, Limits, Uploads, assemble, contiguous_parts, discard_all
from mirror_engine.onelake.visibility import HEAD, LISTS, DeletedFolder, modified_time
from mirror_engine.storage.base import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mirror_engine.onelake.address import Address
    from mirror_engine.onelake.conditions import Conditions
    from mirror_engine.onelake.faults import EmulatorOptions
    from mirror_engine.onelake.items import Items
    from mirror_engine.onelake.store import LocalStore, StagedFile
    from mirror_engine.onelake.uploads import Body
    from mirror_engine.storage.base import Entry


class Lake:
    """The store as clients see it; symbolic links and the engine's own files do not exist for them.

    One lock makes a condition and the change it guards one step; bodies are received, assembled and fsynced outside
    of it.

    Args:
        storage: the store; files that an earlier process left staged are deleted now.
        items: its workspaces and items.
        options: how it differs from OneLake.
        clock: nanoseconds since 1970; gives Last-Modified.
        limits: of uncommitted uploads.
        on_lost_file: gets the path of each file that a rename without a condition replaced; called outside of locks.
    """

    def __init__(  # noqa: PLR0913 - three parts, three settings
        self,
        storage: LocalStore,
        items: Items,
        options: EmulatorOptions,
        *,
        clock: Callable[[], int] = time.time_ns,
        limits: Limits = LIMITS,
        on_lost_file: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.items = items
        self.options = options
        self._storage = storage
        self._uploads = Uploads(storage, limits)
        self._clock = clock
        self._on_lost_file = on_lost_file
        self._last_ns = 0
        self._lock = threading.RLock()
        self._commits = KeyedLocks()
        storage.remove_stale()

    # Reading

    def address(self, raw_path: bytes) -> Address:
        """Resolve a request's path."""
        return addresses.parse(raw_path, self.items)

    def inside(self, folder: Address, directory: str) -> Address:
        """Resolve a path below a folder."""
        return addresses.inside(folder, directory, self.items)

    def properties(self, address: Address) -> Properties:
        """Properties of a file, folder, item or workspace."""
        return Properties.of(self._present(address))

    def visible_properties(self, address: Address) -> Properties:
        """The same; PATH_NOT_FOUND, too, while HEAD does not see a delayed name."""
        if self.options.delays.is_hidden(address.path, HEAD):
            raise StorageApiError(StorageErrorCode.PATH_NOT_FOUND)
        return self.properties(address)

    def exists(self, address: Address) -> bool:
        """Whether there is a file or folder."""
        return self._find(address) is not None

    def children(self, folder: Address, start_from: str = "") -> Iterator[ListedPath]:
        """The direct entries of a folder (of a workspace: its items), by name in code point order.

        Args:
            folder: must exist; checked at once, not at the first step.
            start_from: the first name, inclusive, as `ListedPath.name` spells it.
        """
        prefix = _prefix(folder)
        entries = (ListedPath(prefix + entry.name, Properties.of(entry)) for entry in self._entries(folder))
        return (entry for entry in entries if entry.name >= start_from)

    def descendants(self, folder: Address, start_from: str = "") -> Iterator[ListedPath]:
        """All files and folders below a folder by whole name (so `a`, `a.txt`, `a/b`); else as `children`."""
        return self._walk(folder, self._entries(folder), start_from)

    def read(self, address: Address, conditions: Conditions = NONE) -> tuple[Properties, BinaryIO]:
        """A file's properties and a seekable reader of just that content, for the caller to close; NOT_MODIFIED.

        A folder gives an empty reader.
        """
        while True:
            entry = self._present(address)
            properties = Properties.of(entry)
            conditions.check_read(properties)
            if properties.is_folder:
                return properties, io.BytesIO()
            try:
                reader = self._storage.open(address.path)
            except FileNotFoundError:
                continue  # deleted or replaced since the stat
            if self._storage.stat(address.path) == entry:
                return properties, reader
            reader.close()

    def snapshot_folder(self, folder: Address) -> DeletedFolder:
        """A folder with all entries below it, for the engine to see after its deletion."""
        entry, folders, contents = self._present(folder), {}, {}
        pending = [folder.path]
        while pending:
            path = pending.pop()
            folders[path] = self._storage.list(path) or ()
            for child in folders[path]:
                if child.kind is Kind.FOLDER:
                    pending.append(f"{path}/{child.name}")
                elif child.name == METADATA_FILE and child.kind is Kind.FILE:
                    with _api_errors(), self._storage.open(f"{path}/{child.name}") as file:
                        contents[f"{path}/{child.name}"] = file.read()
        return DeletedFolder(folder.path, entry, folders, contents)

    # Whole files and folders

    def destination(self, raw_path: bytes) -> Address:
        """The address of a path to be created; managed folder changes, where allowed, create workspace and item."""
        names = addresses.segments_of(raw_path)[:2] if self.options.allow_managed_folder_changes else ()
        try:
            if len(names) == 1:
                self.items.ensure_workspace(*names)
            elif names:
                self.items.ensure(*names)
        except (NameInUse, NameUnusable) as problem:
            message = "No workspace or item can have this name."
            raise StorageApiError(StorageErrorCode.INVALID_URI, message) from problem
        return self.address(raw_path)

    def receive(self, length: int | None = None) -> Body:
        """A new body, used as a context manager; REQUEST_BODY_TOO_LARGE by its announced length."""
        return self._uploads.receive(length)

    def create_folder(self, address: Address, conditions: Conditions = NONE) -> Properties:
        """Create a folder and its parents; a repeat changes nothing. PATH_ALREADY_EXISTS, PATH_CONFLICT."""
        self._check_open(address)
        with self._lock:
            conditions.check_write(_properties(self._find(address)))
            return Properties.of(self._make_folder(address.path))

    def create_file(self, address: Address, conditions: Conditions = NONE) -> Properties:
        """Create or truncate a file, visible at once with 0 bytes, and its parents. Errors as `create_folder`."""
        with self.receive() as body:
            return self.put(address, body, conditions)

    def put(self, address: Address, body: Body, conditions: Conditions = NONE) -> Properties:
        """Write a whole file in one step (Put Blob), and its parents. Errors as `create_folder`."""
        return self._publish(address, body.staged, conditions)

    def copy(
        self, source: Address, target: Address, conditions: Conditions = NONE, source_conditions: Conditions = NONE
    ) -> Properties:
        """Copy a file in one step, with parents; a folder becomes an empty folder. SOURCE_… errors, PATH_CONFLICT."""
        self._check_open(target)
        try:
            properties, reader = self.read(source)
        except StorageApiError as problem:
            raise StorageApiError(StorageErrorCode.SOURCE_PATH_NOT_FOUND) from problem
        with reader:
            source_conditions.check_source(properties)
            if properties.is_folder:
                return self.create_folder(target, conditions)
            with assemble(self._storage, [], reader) as staged:
                return self._publish(target, staged, conditions)

    def set_metadata(self, address: Address, conditions: Conditions = NONE) -> Properties:
        """Give a file a new ETag and Last-Modified; a folder stays as it is."""
        with self._lock:
            entry = self._present(address)
            conditions.check_write(Properties.of(entry))
            if entry.kind is Kind.FILE:
                with _api_errors():
                    self._storage.touch(address.path, self._now())
            return self.properties(address)

    def rename(
        self, source: Address, target: Address, conditions: Conditions = NONE, source_conditions: Conditions = NONE
    ) -> Properties:
        """Rename a file or folder in one step within its item; creates no parents.

        A file replaces a file, a folder nothing. INVALID_SOURCE_URI, SOURCE_… errors, PATH_ALREADY_EXISTS,
        RENAME_DESTINATION_PARENT_PATH_NOT_FOUND, PATH_CONFLICT, INVALID_RENAME_SOURCE_PATH.
        """
        self._check_open(source)
        self._check_open(target)
        if source.item is None or target.item is None or source.item.id != target.item.id:
            raise StorageApiError(StorageErrorCode.INVALID_SOURCE_URI, "A rename stays within one item.")
        with self._lock:
            entry = self._find(source)
            if entry is None:
                raise StorageApiError(StorageErrorCode.SOURCE_PATH_NOT_FOUND)
            source_conditions.check_source(Properties.of(entry))
            replaced = self._find(target)
            conditions.check_write(_properties(replaced))
            _check_replaceable(entry, replaced)
            self._move(source.path, target.path)
            if self.options.rename_updates_mtime:
                self.set_metadata(target)
            renamed = self.properties(target)
        if replaced and source.path != target.path:
            self._uploads.appends.drop(replaced.identity)
            if conditions == NONE and not replaced.name.startswith("_"):  # `_metadata.json` is meant to be replaced
                self._on_lost_file(target.path)
        return renamed

    def delete(self, address: Address, conditions: Conditions = NONE, *, recursive: bool = False) -> None:
        """Delete a file, an empty folder, or with `recursive` a whole folder, in one step. DIRECTORY_NOT_EMPTY."""
        self._check_open(address)
        with self._lock:
            entry = self._present(address)
            conditions.check_write(Properties.of(entry))
            if not recursive and self._storage.list(address.path):
                raise StorageApiError(StorageErrorCode.DIRECTORY_NOT_EMPTY)
            with _api_errors():
                trash = self._storage.move_to_trash(address.path)
        self._uploads.appends.drop(entry.identity)
        trash.discard()

    # Files in parts

    def append(self, address: Address, position: int, body: Body) -> Properties:
        """Keep a part of a file until a flush; the last one per position wins. The file is unchanged.

        PATH_CONFLICT, INVALID_HEADER_VALUE for an empty body, INVALID_QUERY_PARAMETER_VALUE.
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
        """Commit all parts up to a position in one step. INVALID_FLUSH_POSITION, PATH_ALREADY_EXISTS, PATH_CONFLICT.

        Args:
            address: of a file.
            position: the file's length afterwards.
            conditions: on the file as it is now.
            retain: keep parts beyond the position uncommitted; else they are dropped.
        """
        self._check_open(address)
        appends = self._uploads.appends
        with self._commits.of(address.path):  # a client that lost the response may retry while this one runs
            with self._lock:
                before = self._file(address)
                conditions.check_write(Properties.of(before))
                parts = appends.take(before.identity)
            try:
                chain = contiguous_parts(position, parts, before.size)
                after = self._extend(address, before, chain) if chain else before
            except BaseException:
                appends.put_back(before.identity, parts)
                raise
            rest = {start: part for start, part in parts.items() if retain and start >= position}
            discard_all(part for start, part in parts.items() if start not in rest)
            appends.put_back(after.identity, rest)
        return Properties.of(after)

    def put_block(self, address: Address, block_id: str, body: Body) -> None:
        """Keep a block until a block list names it. PATH_CONFLICT, INVALID_HEADER_VALUE for an empty body."""
        self._check_open(address)
        _check_not_empty(body)
        _check_no_folder(self._find(address))
        self._uploads.blocks.keep(address.path, block_id, body)

    def put_block_list(self, address: Address, block_ids: Sequence[str], conditions: Conditions = NONE) -> Properties:
        """Write a whole file of blocks in that order, in one step; drops other blocks. INVALID_BLOCK_LIST.

        A list repeated because its response was lost changes nothing.
        """
        with self._commits.of(address.path):
            present = _properties(self._find(address))
            conditions.check_write(present)
            blocks = self._uploads.blocks.take(address.path)
            if present and not blocks and self._uploads.is_of_block_list(address.path, block_ids, present.etag):
                return present
            try:
                with assemble(self._storage, _listed_blocks(block_ids, blocks)) as staged:
                    properties = self._publish(address, staged, conditions)
            except BaseException:
                self._uploads.blocks.put_back(address.path, blocks)
                raise
            self._uploads.remember_block_list(address.path, block_ids, properties.etag)
        discard_all(blocks.values())
        return properties

    # Steps

    def _walk(self, folder: Address, entries: Sequence[Entry], start_from: str) -> Iterator[ListedPath]:
        """Depth first, without recursion; a folder's entries sort at `name/`, after `name.txt`."""
        pending = [_steps(folder.path, _prefix(folder), entries)]
        while pending:
            step = next(pending[-1], None)
            if step is None:
                pending.pop()
                continue
            name, path, entry = step
            if name.endswith("/"):
                if name >= start_from or start_from.startswith(name):
                    pending.append(_steps(path, name, self._visible(path) or ()))
            elif name >= start_from:
                yield ListedPath(name, Properties.of(entry))

    def _entries(self, folder: Address) -> Sequence[Entry]:
        visible = self._visible(folder.path)
        if visible is None:
            raise StorageApiError(StorageErrorCode.PATH_NOT_FOUND)
        if folder.item:
            return visible
        items = {item.name for item in self.items.items(folder.workspace)}
        return [entry for entry in visible if entry.name in items]

    def _visible(self, path: str) -> Sequence[Entry] | None:
        entries = self._storage.list(path)
        return entries and [entry for entry in entries if self._is_visible(path, entry)]

    def _is_visible(self, path: str, entry: Entry) -> bool:
        if entry.kind is Kind.OTHER or entry.name.startswith(ENGINE):
            return False
        return not self.options.delays.is_hidden(f"{path}/{entry.name}", LISTS)

    def _find(self, address: Address) -> Entry | None:
        """The file or folder, or None; PATH_NOT_FOUND for a link, which is neither seen nor replaced."""
        entry = self._storage.stat(address.path)
        if entry and entry.kind is Kind.OTHER:
            raise StorageApiError(StorageErrorCode.PATH_NOT_FOUND)
        return entry

    def _present(self, address: Address) -> Entry:
        entry = self._find(address)
        if entry is None:
            raise StorageApiError(StorageErrorCode.PATH_NOT_FOUND)
        return entry

    def _file(self, address: Address) -> Entry:
        entry = self._present(address)
        _check_no_folder(entry)
        return entry

    def _check_open(self, address: Address) -> None:
        """Clients create, rename and delete below `Files` and `Tables` only."""
        if not (address.is_open or self.options.allow_managed_folder_changes):
            raise StorageApiError(StorageErrorCode.MANAGED_FOLDER)

    def _now(self) -> int:
        """Never the same time twice: with the identity it makes the ETag."""
        self._last_ns = max(self._clock(), self._last_ns + 1)
        return modified_time(self._last_ns)

    def _publish(self, address: Address, staged: StagedFile, conditions: Conditions) -> Properties:
        self._check_open(address)
        staged.seal()
        with self._lock:
            replaced = self._find(address)
            conditions.check_write(_properties(replaced))
            _check_no_folder(replaced)
            try:
                entry = self._storage.publish(staged, address.path, self._now())
            except FileNotFoundError:
                self._make_folder(address.path.rpartition("/")[0])
                with _api_errors():
                    entry = self._storage.publish(staged, address.path, self._now())
        if replaced:
            self._uploads.appends.drop(replaced.identity)
        self._uploads.blocks.drop(address.path)
        return Properties.of(entry)

    def _extend(self, address: Address, before: Entry, chain: Sequence[Body]) -> Entry:
        """Publish a file with more at its end, unless it was replaced while that was assembled."""
        with _api_errors(), self._storage.open(address.path) as start:
            whole = assemble(self._storage, chain, start if before.size else None)
            with whole as staged, self._lock:
                now = self._file(address)
                if (now.identity, now.size) != (before.identity, before.size):
                    message = "The file was replaced during the flush."
                    raise StorageApiError(StorageErrorCode.PATH_NOT_FOUND, message)
                return self._storage.publish(staged, address.path, self._now())

    def _make_folder(self, path: str) -> Entry:
        try:
            return self._storage.make_folder(path)
        except FileExistsError as problem:
            parts = path.split("/")
            parents = (self._storage.stat("/".join(parts[: end + 1])) for end in range(len(parts)))
            is_link = any(entry and entry.kind is Kind.OTHER for entry in parents)
            code = StorageErrorCode.PATH_NOT_FOUND if is_link else StorageErrorCode.PATH_CONFLICT
            raise StorageApiError(code) from problem

    def _move(self, source: str, target: str) -> None:
        try:
            self._storage.rename(source, target)
        except FileNotFoundError as problem:
            parent = self._storage.stat(target.rpartition("/")[0])
            has_parent = parent is not None and parent.kind is Kind.FOLDER
            code = (
                StorageErrorCode.SOURCE_PATH_NOT_FOUND
                if has_parent
                else StorageErrorCode.RENAME_DESTINATION_PARENT_PATH_NOT_FOUND
            )
            raise StorageApiError(code) from problem
        except FileExistsError as problem:
            raise StorageApiError(StorageErrorCode.PATH_CONFLICT) from problem
        except OSError as problem:
            if problem.errno == errno.EINVAL:
                raise StorageApiError(StorageErrorCode.INVALID_RENAME_SOURCE_PATH) from problem
            raise


def _steps(path: str, prefix: str, entries: Sequence[Entry]) -> Iterator[tuple[str, str, Entry]]:
    """Names to list and, with a slash at the end, folders to enter, in code point order."""
    steps = [(prefix + entry.name, f"{path}/{entry.name}", entry) for entry in entries]
    steps += [(f"{name}/", below, entry) for name, below, entry in steps if entry.kind is Kind.FOLDER]
    return iter(sorted(steps, key=lambda step: step[0]))


def _prefix(folder: Address) -> str:
    return f"{folder.shown}/" if folder.shown else ""


def _properties(entry: Entry | None) -> Properties | None:
    return None if entry is None else Properties.of(entry)


def _check_no_folder(entry: Entry | None) -> None:
    if entry and entry.kind is Kind.FOLDER:
        raise StorageApiError(StorageErrorCode.PATH_CONFLICT)


def _check_not_empty(body: Body) -> None:
    if body.size == 0:
        raise StorageApiError(StorageErrorCode.INVALID_HEADER_VALUE, "Content-Length must not be zero.")


def _listed_blocks(block_ids: Sequence[str], blocks: Mapping[str, Body]) -> list[Body]:
    if not blocks.keys() >= set(block_ids):
        raise StorageApiError(StorageErrorCode.INVALID_BLOCK_LIST)
    return [blocks[block_id] for block_id in block_ids]


def _check_replaceable(entry: Entry, replaced: Entry | None) -> None:
    if replaced is None or replaced.kind is entry.kind is Kind.FILE:
        return
    if replaced.identity == entry.identity:
        raise StorageApiError(StorageErrorCode.INVALID_RENAME_SOURCE_PATH)
    raise StorageApiError(
        StorageErrorCode.PATH_ALREADY_EXISTS if replaced.kind is entry.kind else StorageErrorCode.PATH_CONFLICT
    )


@contextmanager
def _api_errors() -> Iterator[None]:
    """Map file errors caused by changes outside of the emulator to 404 and 409."""
    try:
        yield
    except FileNotFoundError as problem:
        raise StorageApiError(StorageErrorCode.PATH_NOT_FOUND) from problem
    except (FileExistsError, IsADirectoryError) as problem:
        raise StorageApiError(StorageErrorCode.PATH_CONFLICT) from problem
