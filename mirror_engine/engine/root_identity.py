"""ROOT: the lock that one engine holds, and the identity by which a moved ROOT differs from a recreated table."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from filelock import FileLock, Timeout

from mirror_engine.engine.ledger import ROOT_IDENTITY
from mirror_engine.engine.plan import UpdateFolderIdentity
from mirror_engine.errors import RootLocked, StorageUnavailable
from mirror_engine.landing_zone.layout import LOCK, TABLES
from mirror_engine.storage.roots import check_place
from mirror_engine.tables.log.durability import sync_folder
from mirror_engine.tables.reading.request import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.plan import Plan
    from mirror_engine.landing_zone.listing import TableListing, ZoneListing
    from mirror_engine.landing_zone.progress import AppliedFile, Progress
    from mirror_engine.storage.base import Storage


LOCK_TIMEOUT_SECONDS = 0.5  # `status` holds the lock for a moment, too


@contextmanager
def lock_root(root: Path) -> Iterator[None]:
    """Hold ROOT for one engine, and make the folders that an engine needs there.

    Raises:
        UsageError: it is a folder of another ROOT.
        RootLocked: another engine is running on it.
        StorageUnavailable: it cannot be written.
    """
    check_place(root)
    lock = FileLock(root / LOCK, timeout=LOCK_TIMEOUT_SECONDS)
    try:
        (root / TABLES).mkdir(exist_ok=True)
        sync_folder(root)  # makes the folder of all tables durable
        (root / LOCK).parent.mkdir(exist_ok=True)
        lock.acquire()
    except Timeout:
        raise RootLocked(f"{root}: another engine is running here", "Stop it first, or wait for it.") from None
    except OSError as error:
        message = f"{root}: cannot be written: {error.strerror or error}"
        raise StorageUnavailable(message, "An engine needs a ROOT it can write to.") from error
    try:
        yield
    finally:
        lock.release()


def is_locked(root: Path) -> bool:
    """Whether an engine is running on ROOT; False where this cannot be asked."""
    lock = root / LOCK
    if not lock.exists():
        return False
    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # without the right to write, the lock cannot be tried
        return False


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

    def has_moved(self, listing: TableListing, progress: Progress | None) -> bool:
        """Whether a new folder identity means a copied ROOT; in a recreated zone, the content decides.

        Raises:
            StorageUnavailable: the content could not be read.
        """
        if not progress or progress.identity == listing.identity or self.now == self.before:
            return False
        if self.now.tables != self.before.tables:
            return True
        return _same_content(self.context.storage, f"{self.zone.folder}/{listing.name.folder}", progress)

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
