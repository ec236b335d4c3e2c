"""The storage port: the files of a mirrored database, as the engine reads, moves and deletes them."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import TYPE_CHECKING, BinaryIO, NoReturn, Protocol, TypeVar

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.listing import Entry, Kind
from mirror_engine.landing_zone.text import printable
from mirror_engine.threads import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from concurrent.futures import Future


T = TypeVar("T")
R = TypeVar("R")

REQUESTS = 16  # to a store, at once: enough to hide 20 ms a request behind the work of one core
PAGE = 1000  # entries that a store lists by one request: S3's, the smallest
_BLOCK_BYTES = 1 << 20
NO_IDENTITY = "-"  # of a folder in a store without folders, S3 or GCS: nothing follows from it


class Storage(Protocol):
    """Files below one ROOT.

    Paths are relative to ROOT, `/` between parts, no leading slash, `""` for ROOT itself. No path leaves ROOT:
    one that would (`..`, a symbolic link on the way) counts as absent. Every method raises `StorageUnavailable` when
    the call failed and nothing is known of its effect; absence is never that error. Every call may be repeated, from
    any thread.
    """

    # Whether a call is a request to a store: slow, so that many run at once
    is_store: bool

    def list(self, folder: str) -> Sequence[Entry] | None:
        """List a folder, sorted by name by code point; None where there is no such folder."""

    def stat(self, path: str) -> Entry | None:
        """Look up one entry; None where it is absent. A symbolic link is `OTHER`."""

    def open(self, path: str, only: Entry | None = None) -> BinaryIO:
        """Open a regular file as a seekable reader, which reads no other file if the path is replaced.

        A read that fails raises `StorageUnavailable`, too, as one of a replaced file does in a store. There all reads
        are of one version; on a disk a file may be written in place meanwhile: see `look_again`.

        Raises:
            FileNotFoundError: there is no regular file, or it has another identity than `only`.
        """

    def write(self, path: str, content: bytes) -> None:
        """Write a whole file atomically, replacing the old one; makes the folders on the way. Repeatable."""

    def move(self, source: str, target: str, only: Entry | None = None) -> bool:
        """Rename a file atomically, replacing the target; makes the folders on the way.

        An absent source is no error, so that a move can be repeated. Where a store cannot rename, the file is copied
        and then deleted. False: the source is not the entry `only`, and stays where it is, or is absent.
        """

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with all in it; absent is no error. Symbolic links are removed, not followed."""

    def scan(self, folder: str) -> Storage:
        """Return a storage for reading what is in a folder now, in a store by as few requests as it takes.

        What it lists, looks up and opens may be of the moment of this call.
        """


class ReadOnly:
    """The part of a `Storage` that changes it, each call refused with `StorageUnavailable`."""

    def write(self, path: str, content: bytes) -> None:  # noqa: ARG002 - it is not written
        self.delete(path)

    def move(self, source: str, target: str, only: Entry | None = None) -> bool:  # noqa: ARG002 - it is not moved
        self.delete(source)

    def delete(self, path: str) -> NoReturn:
        raise StorageUnavailable(f"{path}: opened for reading only")


def at_once(
    storage: Storage,
    call: Callable[[T], R],
    items: Iterable[T],
    weight: Callable[[T], int] = lambda _: 0,
    most: int = 0,
) -> Generator[R, None, None]:
    """Call for each item and yield the results in order; with a store up to `REQUESTS` calls run at once.

    No call begins before the first result is asked for. At most `REQUESTS` are ahead of the results, and of them only
    as many as weigh `most` together, or one: what a call holds in memory. An error is raised where its result would
    come. When the iterator is closed, calls that have not begun are not made.
    """
    if not storage.is_store:
        for item in items:
            yield call(item)
        return
    ahead: deque[tuple[Future[R], int]] = deque()
    held = 0

    def first() -> R:
        nonlocal held
        future, taken = ahead.popleft()
        held -= taken
        return future.result()

    pool = threads().pool(REQUESTS, "requests")
    try:
        for item in items:
            taken = weight(item)
            while ahead and held + taken > most:
                yield first()
            ahead.append((pool.submit(call, item), taken))
            held += taken
            if len(ahead) == REQUESTS:
                yield first()
        while ahead:
            yield first()
    finally:
        pool.shutdown(cancel_futures=True)


def look_again(storage: Storage, path: str, listed: Entry, *, was_read: bool = True) -> Entry | None:
    """Return the entry of a file opened as `listed`; None if it was replaced or removed since.

    A store is asked only about a file that could not be read: what it read was that version. Raises
    `StorageUnavailable`.
    """
    found = listed if was_read and storage.is_store else storage.stat(path)
    return found if found and found.kind is Kind.FILE and found.identity == listed.identity else None


def digest(handle: BinaryIO, copy: BinaryIO | None = None) -> str:
    """The digest of all bytes, each of which also goes to `copy`: BLAKE2b, 128 bits, hex."""
    handle.seek(0)
    hasher = blake2b(digest_size=16)
    while block := handle.read(_BLOCK_BYTES):
        hasher.update(block)
        if copy is not None:
            copy.write(block)
    return hasher.hexdigest()


def changed_file(storage: Storage, folder: str, files: Sequence[Entry], listed: int) -> Entry | None:
    """Return the first of some files that is no longer as it was listed; None where all are.

    A store lists their folders, unless the table folder (from ROOT) has so many `listed` files in all that it is faster
    to look each up. Raises `StorageUnavailable`.
    """
    partitions = sorted({file.partition for file in files})
    pages, rounds = -(-listed // PAGE), -(-len(files) // REQUESTS)
    found: Iterable[Entry | None]
    if storage.is_store and len(partitions) < len(files) and pages <= rounds:
        lists = at_once(storage, lambda partition: storage.list(joined(folder, partition)), partitions)
        entries = {
            joined(partition, entry.name): entry
            for partition, present in zip(partitions, lists, strict=True)
            for entry in present or ()
        }
        found = [entries.get(file.path) for file in files]
    else:
        found = at_once(storage, lambda file: storage.stat(f"{folder}/{file.path}"), files)
    changed = (file for file, now in zip(files, found, strict=True) if now is None or not now.is_same(file))
    return next(changed, None)


def parts_of(path: str) -> tuple[str, ...] | None:
    """Split a path from ROOT; `()` for ROOT itself, None for an invalid path or one that would leave ROOT.

    None for `..`, `.`, an empty part (so an absolute path, too), NUL, and text that is no UTF-8.
    """
    if not path:
        return ()
    parts = tuple(path.split("/"))
    odd = "\0" in path or any(part in {"", ".", ".."} for part in parts) or not is_text(path)
    return None if odd else parts


def no_file_path(path: str) -> StorageUnavailable:
    """Return the error for writing to a path that leaves ROOT, or is ROOT."""
    return StorageUnavailable(f"{printable(path)}: is not a path of a file below ROOT", "Name a file inside ROOT.")


def name_alike(storage: Storage, path: str) -> str:
    """Return the path whose last part differs in case alone, from ROOT; `""` for none. Raises `StorageUnavailable`."""
    above, _, name = path.rpartition("/")
    names = (each.name for each in storage.list(above) or ())
    alike = next((each for each in names if each != name and each.casefold() == name.casefold()), "")
    return joined(above, alike) if alike else ""


def joined(folder: str, name: str) -> str:
    """Join two relative paths; either may be empty."""
    return f"{folder}/{name}" if folder and name else folder or name


def is_text(name: str) -> bool:
    """Whether a name is valid UTF-8; a local disk allows other names."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
