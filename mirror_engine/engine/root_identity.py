"""Where ROOT's own folders are: whether another folder identity means a copied ROOT, or a recreated table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.engine.ledger import ANCHOR
from mirror_engine.engine.plan import UpdateFolderIdentity
from mirror_engine.landing_zone.layout import TABLES
from mirror_engine.tables.reading.digest import digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.plan import Plan
    from mirror_engine.landing_zone.listing import TableListing, ZoneListing
    from mirror_engine.landing_zone.progress import AppliedFile, Progress
    from mirror_engine.storage.base import Storage


@dataclass(frozen=True)
class RootIdentity:
    """Identities of folders that no publisher makes anew: when they change, ROOT was copied, moved or restored."""

    tables: str
    zone: str

    def __str__(self) -> str:
        return f"{self.tables}|{self.zone}"

    @classmethod
    def parse(cls, text: str) -> RootIdentity:
        """Back from `str`."""
        tables, _, zone = text.partition("|")
        return cls(tables, zone)


@dataclass(frozen=True)
class RootIdentityCheck:
    """ROOT's own folders at one look at the zone, beside what is remembered of them.

    Attributes:
        context: the storage to look into, and the ledger that remembers.
        zone: the look.
        now: their identities at this look.
        before: as remembered; the same as `now` where nothing is.
    """

    context: EngineContext
    zone: ZoneListing
    now: RootIdentity
    before: RootIdentity

    @classmethod
    def at(cls, context: EngineContext, zone: ZoneListing) -> RootIdentityCheck:
        """Look where ROOT's own folders are.

        Raises:
            StorageUnavailable: ROOT cannot be looked at.
        """
        tables = context.storage.stat(TABLES)
        now = RootIdentity(tables.identity if tables else "", zone.identity)
        remembered = context.ledger.fact(ANCHOR)
        return cls(context, zone, now, RootIdentity.parse(remembered) if remembered else now)

    @property
    def is_mount_lost(self) -> bool:
        """Whether the zone may be the bare mount point of another: it is another than before, and empty."""
        return self.now.zone != self.before.zone and not self.zone.tables

    def has_moved(self, listing: TableListing, progress: Progress | None) -> bool:
        """Whether another folder identity means a copied ROOT; a recreated zone is told by its content.

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

        Args:
            plans: of all tables, as far as they were carried out.
            in_progress: root identities that the tasks in progress were planned with.

        Raises:
            StorageUnavailable: the ledger cannot be written.
        """
        ledger = self.context.ledger
        updates = [
            (plan.table, step.identity)
            for plan in plans
            for step in plan.steps
            if isinstance(step, UpdateFolderIdentity)
        ]
        recorded = {table: progress.identity for table, progress in ledger.tables().items()}
        is_recorded = all(recorded.get(table) == identity for table, identity in updates)
        is_certain = self.zone.identity and not self.zone.unlisted and not self.is_mount_lost
        is_new = str(self.now) != ledger.fact(ANCHOR)
        if is_new and is_certain and is_recorded and {*in_progress} <= {str(self.now)}:
            ledger.note(ANCHOR, str(self.now))


def _same_content(storage: Storage, folder: str, progress: Progress) -> bool:
    """Whether the applied files that lie in a folder are, byte for byte, those that were applied."""
    lying = [(path, file) for path, file in progress.applied.items() if storage.stat(f"{folder}/{path}")]
    return bool(lying) and all(_is_same(storage, f"{folder}/{path}", file) for path, file in lying)


def _is_same(storage: Storage, path: str, file: AppliedFile) -> bool:
    try:
        with storage.open(path) as handle:
            found, _ = digest(handle)
    except FileNotFoundError:
        return False
    return found == file.digest
