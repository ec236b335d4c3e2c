"""The lake: everything a client can do with files and folders, whatever dialect it speaks."""

from __future__ import annotations

import io
import threading
import time
from collections import deque
from dataclasses import KW_ONLY, dataclass
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.landing_zone.listing import Kind
from mirror_engine.onelake.addresses import OPEN_FOLDERS, address_of, check_form, segments_of
from mirror_engine.onelake.conditions import NONE, Properties
from mirror_engine.onelake.errors import MANAGED_FOLDERS, FabricApiError, StorageApiError, StorageErrorCode
from mirror_engine.onelake.items import SUFFIXES, display_name
from mirror_engine.onelake.store import COPY_BYTES, Uploads, assemble, contiguous_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror_engine.landing_zone.listing import Entry
    from mirror_engine.onelake.addresses import Address
    from mirror_engine.onelake.conditions import Conditions
    from mirror_engine.onelake.items import Items
    from mirror_engine.onelake.options import EmulatorOptions
    from mirror_engine.onelake.store import LocalStore, StagedFile

_Named: TypeAlias = "tuple[str, str, Entry]"  # the name that clients see, the path in the store, the entry

COMMIT_LOCKS = 64
MAX_BLOCK_LISTS = 1000  # remembered


@dataclass(eq=False)
class Lake:
    """The store as clients see it; symbolic links and the engine's own files do not exist for them.

    Methods are thread-safe and block for disk work only. Bodies stream to a `StagedFile`, which an upload keeps and
    everything else discards when its `with` ends. One lock makes a condition and the change it guards one step; bodies
    are received, assembled and fsynced outside of it.

    `StorageUnavailable` passes through: answer it as ServerBusy. All other errors are `StorageApiError`; a docstring
    names the codes that a method adds to PathNotFound, ConditionNotMet and those of a managed folder.
    """

    storage: LocalStore  # files that an earlier process left staged are deleted now
    items: Items
    options: EmulatorOptions
    _: KW_ONLY
    clock: Callable[[], int] = time.time_ns  # nanoseconds since 1970; gives Last-Modified
    # Gets the path of each file that a rename without a condition replaced; called outside of locks
    on_lost_file: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self._uploads = Uploads(self.storage, self.options.clock)
        self._last_ns = 0
        self._lock = threading.RLock()
        self._commits = [threading.Lock() for _ in range(COMMIT_LOCKS)]
        self._block_lists: deque[tuple[str, bytes, str]] = deque(maxlen=MAX_BLOCK_LISTS)
        self.storage.remove_stale()

    # Reading

    def find(self, address: Address) -> Properties | None:
        """Return properties of a file or folder; None if absent. PathNotFound for a link, which is not replaced."""
        entry = self.storage.stat(address.path)
        if entry and entry.kind is Kind.OTHER:
            raise StorageApiError(StorageErrorCode.PathNotFound)
        return Properties.of(entry) if entry else None

    def properties(self, address: Address) -> Properties:
        found = self.find(address)
        if found is None:
            raise StorageApiError(StorageErrorCode.PathNotFound)
        return found

    def list(
        self,
        folder: Address,
        start_from: str = "",
        *,
        recursive: bool = False,
        prefix: str = "",
        limit: int | None = None,
    ) -> Sequence[tuple[str, Properties]]:
        """Names and properties of what is in a folder (of a workspace: its items), or with `recursive` below it.

        Of a file: its own. What is behind the limit is not looked up.

        Names are relative to the workspace, with the item's segment as the client wrote it (with its type, where it
        wrote none), and sorted as a whole by code point (`a`, `a.txt`, `a/b`); `start_from` is the first, inclusive.
        """
        start_from = max(start_from, prefix)
        top: Iterable[_Named] | None
        if folder.item:
            top = self._named(folder.path, f"{folder.shown}/", start_from)
        else:
            suffix = "" if self.items.allow_bare_names else SUFFIXES[0]
            places = [(f"{item.name}{suffix}", item.path) for item in self.items.items(folder.workspace)]
            found = [(name, path, self.storage.stat(path)) for name, path in sorted(places)]
            top = [(name, path, entry) for name, path, entry in found if entry]
        if top is not None:
            walked = self._walk(top, start_from, recursive=recursive)
        else:
            file = self.properties(folder)
            if file.is_folder:
                raise StorageApiError(StorageErrorCode.PathNotFound)
            walked = iter([(folder.shown, file)])
        listed = (pair for pair in walked if pair[0] >= start_from)
        return list(islice(takewhile(lambda pair: pair[0].startswith(prefix), listed), limit))

    def _walk(self, named: Iterable[_Named], start_from: str, *, recursive: bool) -> Iterator[tuple[str, Properties]]:
        """Walk a tree in the order of names, but for folders before the first."""
        folders: list[tuple[str, str]] = []  # what is in one comes after all names before its own with a slash
        for following in chain(named, [None]):
            while folders and (following is None or folders[0][0] < following[0]):
                prefix, path = heappop(folders)
                yield from self._walk(self._named(path, prefix, start_from) or (), start_from, recursive=True)
            if following:
                name, path, entry = following
                yield name, Properties.of(entry)
                if recursive and entry.kind is Kind.FOLDER:
                    heappush(folders, (f"{name}/", path))

    def _named(self, path: str, prefix: str, start_from: str) -> Iterator[_Named] | None:
        """Visible entries of a folder from a name on, with the names that clients see; None where it is no folder."""

        def is_due(name: str) -> bool:
            inside = f"{prefix}{name}/"
            return inside >= start_from or start_from.startswith(inside)

        entries = self.storage.entries(path, is_due)
        if entries is None:
            return None
        return (
            (f"{prefix}{entry.name}", f"{path}/{entry.name}", entry)
            for entry in entries
            if entry.kind is not Kind.OTHER and not entry.name.startswith(ENGINE)
        )

    def read(self, address: Address, conditions: Conditions = NONE) -> tuple[Properties, BinaryIO]:
        """A file's properties and a seekable reader of just that content, for the caller to close; NotModified.

        A folder gives an empty reader.
        """
        while True:
            properties = self.properties(address)
            conditions.check_read(properties)
            if properties.is_folder:
                return properties, io.BytesIO()
            try:
                reader = self.storage.open(address.path)
            except FileNotFoundError:
                continue  # deleted or replaced since the stat
            if self.find(address) == properties:
                return properties, reader
            reader.close()

    def read_source(self, source: Address, conditions: Conditions) -> tuple[Properties, BinaryIO]:
        """As `read`, of the source of a copy: SourcePathNotFound, SourceConditionNotMet."""
        try:
            properties, reader = self.read(source)
        except StorageApiError as problem:
            raise StorageApiError(StorageErrorCode.SourcePathNotFound) from problem
        try:
            conditions.check_present(properties)
        except StorageApiError:
            reader.close()
            raise
        return properties, reader

    # Whole files and folders

    def destination(self, raw_path: bytes) -> Address:
        """The address of a path to be created; managed folder changes, where allowed, create workspace and item."""
        names = segments_of(raw_path)[:2] if self.options.allow_managed_folder_changes else ()
        try:
            if len(names) == 1:
                self.items.ensure_workspace(*names)
            elif names:
                check_form(self.items, names[1], None)
                self.items.ensure(names[0], display_name(names[1]))
        except FabricApiError as problem:
            message = "No workspace or item can have this name."
            raise StorageApiError(StorageErrorCode.InvalidUri, message) from problem
        return address_of(self.items, raw_path)

    def receive(self) -> StagedFile:
        """A new body, used as a context manager; writing may raise ServerBusy."""
        return self._uploads.receive()

    def create_folder(self, address: Address, conditions: Conditions = NONE) -> Properties:
        """Create a folder and its parents; a repeat changes nothing. PathAlreadyExists, PathConflict."""
        self._check_open(address, creates=True)
        with self._lock:
            conditions.check_write(self.find(address))
            return Properties.of(self.storage.make_folder(address.path))

    def create_file(self, address: Address, conditions: Conditions = NONE) -> Properties:
        """Create or truncate a file, visible at once with 0 bytes, and its parents. Errors as `create_folder`."""
        with self.receive() as body:
            return self.put(address, body, conditions)

    def put(self, address: Address, staged: StagedFile, conditions: Conditions = NONE) -> Properties:
        """Write a whole file in one step (Put Blob), and its parents. Errors as `create_folder`."""
        self._check_open(address, creates=True)
        staged.seal()
        with self._lock:
            replaced = self.find(address)
            conditions.check_write(replaced)
            _check_no_folder(replaced)
            self.storage.make_folder(address.path.rpartition("/")[0])
            entry = self.storage.publish(staged, address.path, self._now())
        if replaced:
            self._uploads.drop(replaced.identity)
        self._uploads.drop(address.path)
        return Properties.of(entry)

    def copy(
        self, source: Address, target: Address, conditions: Conditions = NONE, source_conditions: Conditions = NONE
    ) -> Properties:
        """Copy a file in one step, with parents; a folder becomes an empty folder. SOURCE_… errors, PathConflict."""
        self._check_open(target, creates=True)
        properties, reader = self.read_source(source, source_conditions)
        with reader:
            if properties.is_folder:
                return self.create_folder(target, conditions)
            with assemble(self.storage, [], reader) as staged:
                return self.put(target, staged, conditions)

    def set_metadata(self, address: Address, conditions: Conditions = NONE) -> Properties:
        """Give a file a new ETag and Last-Modified; a folder stays as it is."""
        with self._lock:
            present = self.properties(address)
            conditions.check_present(present)
            if not present.is_folder:
                self.storage.touch(address.path, self._now())
            return self.properties(address)

    def rename(
        self, source: Address, target: Address, conditions: Conditions = NONE, source_conditions: Conditions = NONE
    ) -> Properties:
        """Rename a file or folder in one step within its item; creates no parents.

        A file replaces a file, a folder nothing. InvalidSourceUri, SOURCE_… errors, PathAlreadyExists,
        RenameDestinationParentPathNotFound, PathConflict, InvalidRenameSourcePath.
        """
        self._check_open(source)
        self._check_open(target)
        if source.item is None or target.item is None or source.item.id != target.item.id:
            raise StorageApiError(StorageErrorCode.InvalidSourceUri, "A rename stays within one item.")
        with self._lock:
            present = self.find(source)
            if present is None:
                raise StorageApiError(StorageErrorCode.SourcePathNotFound)
            source_conditions.check_present(present)
            replaced = self.find(target)
            conditions.check_write(replaced)
            is_lost = replaced is not None and replaced.size > 0 and source.path != target.path and conditions == NONE
            is_lost = is_lost and not target.path.rpartition("/")[2].startswith("_")  # as `_metadata.json` does
            if replaced and is_lost:  # before the engine can see it
                self.options.history.note_replaced(target.path, replaced.identity, present.identity)
            self.storage.rename(source.path, target.path)
            renamed = present  # which it stays; the engine may have moved it already
            if self.options.rename_updates_mtime:
                renamed = self.set_metadata(target)
        if replaced and source.path != target.path:
            self._uploads.drop(replaced.identity)
        if is_lost:
            self.on_lost_file(target.path)
        return renamed

    def delete(self, address: Address, conditions: Conditions = NONE, *, recursive: bool = False) -> None:
        """Delete a file, an empty folder, or with `recursive` a whole folder, in one step. DirectoryNotEmpty."""
        self._check_open(address)
        with self._lock:
            present = self.properties(address)
            conditions.check_present(present)
            if not recursive and self.storage.list(address.path):
                raise StorageApiError(StorageErrorCode.DirectoryNotEmpty)
            discard = self.storage.move_to_trash(address.path)
        self._uploads.drop(present.identity)
        discard()

    # Files in parts

    def append(self, address: Address, position: int, body: StagedFile) -> Properties:
        """Keep a part of a file until a flush; the last one per position wins. The file is unchanged.

        PathConflict, InvalidHeaderValue for an empty body.
        """
        self._check_open(address)
        _check_not_empty(body)
        body.seal()
        with self._lock:
            present = self._file(address)
            self._uploads.keep(present.identity, position, body)
        return present

    def flush(
        self, address: Address, position: int, conditions: Conditions = NONE, *, retains: bool = False
    ) -> Properties:
        """Commit all parts up to a position, the file's length then, in one step; `retains` those beyond it.

        InvalidFlushPosition, PathAlreadyExists, PathConflict.
        """
        self._check_open(address)
        with self._commit_lock(address):  # a client that lost the response may retry while this one runs
            with self._lock:
                before = self._file(address)
                conditions.check_write(before)
            with self._uploads.taken(before.identity) as parts:
                chain = contiguous_parts(position, parts, before.size)
                if not chain and not self._has(address, {at: part for at, part in parts.items() if at < position}):
                    message = "The appended data starts before the end of the file and would not be written."
                    raise StorageApiError(StorageErrorCode.InvalidFlushPosition, message)
                after = self._extend(address, before, chain) if chain else before
                if retains:
                    self._uploads.put_back(after.identity, parts, [start for start in parts if start >= position])
                return after

    def _has(self, address: Address, parts: Mapping[int, StagedFile]) -> bool:
        """Whether a file already contains these parts, as after a flush whose response was lost."""
        _, reader = self.read(address)
        with reader:
            for start, part in parts.items():
                reader.seek(start)
                with part.open() as sent:
                    while chunk := sent.read(COPY_BYTES):
                        if reader.read(len(chunk)) != chunk:
                            return False
        return True

    def _extend(self, address: Address, before: Properties, chain: Sequence[StagedFile]) -> Properties:
        """Publish a file with more at its end, unless it was replaced while that was assembled."""
        _, start = self.read(address)
        with start, assemble(self.storage, chain, start if before.size else None) as staged, self._lock:
            now = self._file(address)
            if (now.identity, now.size) != (before.identity, before.size):
                message = "The file was replaced during the flush."
                raise StorageApiError(StorageErrorCode.PathNotFound, message)
            self.options.history.note_continued(now.identity, staged.identity)  # before the engine can see it
            entry = self.storage.publish(staged, address.path, self._now())
            self.options.history.forget_continued(now.identity)
            self._uploads.move(now.identity, staged.identity)
            return Properties.of(entry)

    def put_block(self, address: Address, block_id: str, body: StagedFile) -> None:
        """Keep a block until a block list names it.

        PathConflict, InvalidHeaderValue for an empty body, InvalidBlobOrBlock for an id of another length.
        """
        self._check_open(address)
        _check_not_empty(body)
        _check_no_folder(self.find(address))
        body.seal()
        self._uploads.keep(address.path, block_id, body)

    def put_block_list(self, address: Address, block_ids: Sequence[str], conditions: Conditions = NONE) -> Properties:
        """Write a whole file of blocks in that order, in one step; drops other blocks. InvalidBlockList.

        A list repeated because its response was lost changes nothing.
        """
        digest = blake2b(repr(block_ids).encode(errors="surrogatepass"), digest_size=16).digest()
        with self._commit_lock(address):
            present = self.find(address)
            conditions.check_write(present)
            with self._uploads.taken(address.path) as blocks:
                with self._lock:
                    if present and not blocks and (address.path, digest, present.etag) in self._block_lists:
                        return present
                if not blocks.keys() >= set(block_ids):
                    raise StorageApiError(StorageErrorCode.InvalidBlockList)
                with assemble(self.storage, [blocks[block_id] for block_id in block_ids]) as staged:
                    properties = self.put(address, staged, conditions)
            with self._lock:
                self._block_lists.append((address.path, digest, properties.etag))
        return properties

    # Steps

    def _file(self, address: Address) -> Properties:
        present = self.properties(address)
        _check_no_folder(present)
        return present

    def _check_open(self, address: Address, *, creates: bool = False) -> None:
        """Clients create, rename and delete below `Files` and `Tables` only.

        ArtifactIdMissing, OperationNotAllowedOnThePath; PathAlreadyExists where it would create what is there.
        """
        if address.is_open or self.options.allow_managed_folder_changes:
            return
        code = StorageErrorCode.OperationNotAllowedOnThePath
        if address.item is None:
            code = StorageErrorCode.ArtifactIdMissing
        elif creates and address.parts and address.parts[0] in OPEN_FOLDERS and self.find(address):
            code = StorageErrorCode.PathAlreadyExists
        raise StorageApiError(code, headers=MANAGED_FOLDERS)

    def _commit_lock(self, address: Address) -> threading.Lock:
        return self._commits[hash(address.path) % COMMIT_LOCKS]

    def _now(self) -> int:
        """Return the time, never the same twice: with the identity it makes the ETag."""
        self._last_ns = max(self.clock(), self._last_ns + 1)
        return self._last_ns


def _check_no_folder(present: Properties | None) -> None:
    if present and present.is_folder:
        raise StorageApiError(StorageErrorCode.PathConflict)


def _check_not_empty(body: StagedFile) -> None:
    if body.size == 0:
        raise StorageApiError(StorageErrorCode.InvalidHeaderValue, "Content-Length must not be zero.")
