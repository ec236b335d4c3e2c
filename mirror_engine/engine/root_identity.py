"""ROOT: the lock that one engine holds, and the identity by which a moved ROOT differs from a recreated table."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from filelock import FileLock, Timeout

from mirror_engine.engine.ledger import ROOT_IDENTITY, Ledger
from mirror_engine.engine.plan import UpdateFolderIdentity
from mirror_engine.errors import RootLocked, StorageUnavailable
from mirror_engine.events import ignore
from mirror_engine.landing_zone.detection import sequence_of
from mirror_engine.landing_zone.layout import LEASE_ID, LEDGER, LOCK, TABLES
from mirror_engine.storage.base import NO_IDENTITY
from mirror_engine.storage.roots import check_place, state_folder
from mirror_engine.tables.log.durability import sync_folder
from mirror_engine.tables.reading.request import digest

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.lease import Holder
    from mirror_engine.engine.plan import Plan
    from mirror_engine.events import Listener
    from mirror_engine.landing_zone.listing import TableListing, ZoneListing
    from mirror_engine.landing_zone.progress import AppliedFile, Progress
    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.store_url import Place


LOCK_TIMEOUT_SECONDS = 0.5  # `status` holds the lock for a moment, too


@contextmanager
def lock_root(
    root: Place, emit: Listener = ignore, stop: threading.Event | None = None
) -> Iterator[Callable[[], None]]:
    """Hold ROOT for one engine, and make the folders that an engine needs; `emit` gets the event of a wait.

    Yields what makes certain that it is still held, or raises `RootLocked` or `StorageUnavailable`. A wait ends with
    `RootLocked` once `stop` is set. The ledger of this machine is removed where another machine's engine has run since.

    Raises:
        UsageError: it is a folder of another ROOT.
        RootLocked: another engine is running on it.
        StorageUnavailable: it cannot be written.
    """
    check_place(root)
    state = state_folder(root)
    lock = FileLock(state / LOCK, timeout=LOCK_TIMEOUT_SECONDS)
    try:
        if isinstance(root, Path):
            (root / TABLES).mkdir(exist_ok=True)
            sync_folder(root)  # makes the folder of all tables durable
            (root / LOCK).parent.mkdir(exist_ok=True)
        else:
            (state / LOCK).parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise RootLocked(f"{root}: another engine is running here", "Stop it first, or wait for it.") from None
    except OSError as error:
        message = f"{state}: cannot be written: {error.strerror or error}"
        raise StorageUnavailable(message, "An engine needs a ROOT it can write to.") from error
    try:
        if isinstance(root, Path):
            yield lambda: None
            return
        from mirror_engine.engine.lease import hold_lease, lease_file  # noqa: PLC0415 - of a ROOT in a store

        discard = partial(Ledger.discard, state / LEDGER)
        with hold_lease(root, lease_file(root), state / LEASE_ID, emit, discard, stop) as lease:
            yield lease.check
    finally:
        lock.release()


def is_locked(root: Place) -> bool:
    """Whether an engine of this machine is running on ROOT; False where this cannot be asked."""
    lock = state_folder(root) / LOCK
    if not lock.exists():
        return False
    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # without the right to write, the lock cannot be tried
        return False


def lease_of(root: Place) -> tuple[Holder | None, bool]:
    """Return who holds the lease of a ROOT in a store, and whether this machine's ledger is that engine's.

    Raises:
        StorageUnavailable: it cannot be read.
    """
    if isinstance(root, Path):
        return None, True
    from mirror_engine.engine.lease import holder_of, last_id, lease_file  # noqa: PLC0415 - of a ROOT in a store

    holder = holder_of(lease_file(root).read())
    return holder, holder is not None and holder.id == last_id(state_folder(root) / LEASE_ID)


class FolderChange(Enum):
    """What became of a known table folder since it was planned last."""

    NONE = "none"
    MOVED = "moved"  # copied, moved or restored with its files
    RECREATED = "recreated"


class RootIdentity(NamedTuple):
    """Identities of folders that no publisher recreates: when they change, ROOT was copied, moved or restored."""

    tables: str
    zone: str

    def __str__(self) -> str:
        return "|".join(self)


@dataclass(frozen=True)
class RootIdentityCheck:
    """The identity of ROOT in one listing, and the known one.

    Attributes:
        context: its ledger stores the known identity.
        zone: the listing.
        now: the identity in this listing.
        before: the known identity; `now` where none is known.
    """

    context: EngineContext
    zone: ZoneListing
    now: RootIdentity
    before: RootIdentity

    @classmethod
    def at(cls, context: EngineContext, zone: ZoneListing) -> RootIdentityCheck:
        """Look up the identity of ROOT.

        Raises:
            StorageUnavailable: ROOT cannot be read.
        """
        tables = context.storage.stat(TABLES)
        now = RootIdentity(tables.identity if tables else "", zone.identity)
        known = context.ledger.get_property(ROOT_IDENTITY)
        return cls(context, zone, now, RootIdentity(*known.split("|", 1)) if known else now)

    @property
    def is_mount_lost(self) -> bool:
        """Whether the zone may be the empty mount point of the known one: its identity is new, and it is empty."""
        return self.now.zone != self.before.zone and not self.zone.tables

    def change_of(self, listing: TableListing, progress: Progress | None) -> FolderChange:
        """Whether a table folder is the known one: a new identity may mean a copied ROOT, or a recreated folder.

        In a recreated zone, and in a store whose folders have no identity, the content decides.

        Raises:
            StorageUnavailable: the content could not be read.
        """
        if not progress:
            return FolderChange.NONE
        if progress.identity == listing.identity:
            if listing.identity != NO_IDENTITY or not _is_begun_again(
                listing, progress, self.context.config.first_file
            ):
                return FolderChange.NONE
            if not _has_newest(listing, progress):
                return FolderChange.RECREATED
        elif self.now == self.before:
            return FolderChange.RECREATED
        elif self.before.tables not in {"", self.now.tables}:  # "": there was no table yet
            return FolderChange.MOVED
        is_same = _same_content(self.context.storage, f"{self.zone.folder}/{listing.name.folder}", progress)
        return FolderChange.MOVED if is_same else FolderChange.RECREATED

    def remember(self, plans: Iterable[Plan], in_progress: Iterable[str]) -> None:
        """Store `now` as the known identity, if the listing is certain and every moved folder's identity is recorded.

        `in_progress`: the root identities that the tasks in progress were planned with.

        Raises:
            StorageUnavailable: the ledger cannot be written.
        """
        ledger = self.context.ledger
        updates = {
            (p.table, step.identity) for p in plans for step in p.steps if isinstance(step, UpdateFolderIdentity)
        }
        is_recorded = updates <= {(table, progress.identity) for table, progress in ledger.tables().items()}
        is_certain = self.zone.identity and not self.zone.unlisted and not self.is_mount_lost
        is_new = str(self.now) != ledger.get_property(ROOT_IDENTITY)
        if is_new and is_certain and is_recorded and {*in_progress} <= {str(self.now)}:
            ledger.set_property(ROOT_IDENTITY, str(self.now))


def _is_begun_again(listing: TableListing, progress: Progress, first_file: str) -> bool:
    """Whether an applied number is back, and no file with the highest one, which stays (LZ-8.1), is as it was."""
    is_back = False
    for file in listing.files:
        applied, number = progress.applied.get(file.path), sequence_of(file.name)
        highest = progress.watermarks.get(file.partition, 0)
        if applied is None or not applied.is_same(file.etag, file.modified_ns):
            is_back |= 0 < number <= (highest if first_file == "lowest" else min(highest, 1))
        elif number == highest:
            return False
    return is_back


def _has_newest(listing: TableListing, progress: Progress) -> bool:
    """Whether a file with the highest applied number is there, whatever it holds."""
    return any(sequence_of(file.name) == progress.watermarks.get(file.partition) for file in listing.files)


def _same_content(storage: Storage, folder: str, progress: Progress) -> bool:
    """Whether the applied files that are still in a folder have the digests they were applied with."""
    present = [(path, file) for path, file in progress.applied.items() if storage.stat(f"{folder}/{path}")]
    return bool(present) and all(has_content(storage, f"{folder}/{path}", file) for path, file in present)


def has_content(storage: Storage, path: str, file: AppliedFile) -> bool:
    """Whether the file at a path from ROOT has the bytes that were applied; raises `StorageUnavailable`."""
    try:
        with storage.open(path) as handle:
            return digest(handle) == file.digest
    except FileNotFoundError:
        return False
