"""One table to trace: its files as they were applied, archived ones at their old paths."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.engine.poller import Poller
from mirror_engine.engine.root_identity import has_content
from mirror_engine.errors import StorageUnavailable, UnknownTable, UsageError
from mirror_engine.landing_zone.metadata import Strategy
from mirror_engine.landing_zone.names import METADATA_FILE, find_table
from mirror_engine.landing_zone.progress import Applied
from mirror_engine.landing_zone.text import printable
from mirror_engine.monitoring.status import mirror_status
from mirror_engine.results import TableReference
from mirror_engine.storage.zone_view import RestoredView, Source, ZoneView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror_engine.config import Config
    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.planner import Plan
    from mirror_engine.landing_zone.listing import TableListing, ZoneListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.monitoring.status import TableStatus
    from mirror_engine.monitoring.status_results import FileStatus
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.base import HistoryEntry
    from mirror_engine.tools.snapshot import MirrorSnapshot


@dataclass(frozen=True)
class TraceContext:
    """One table, as it is and as it can be replayed."""

    context: EngineContext  # the mirror's own, to be read only
    name: TableName
    plan: Plan
    status: TableStatus
    progress: Progress | None  # of the folder's present generation; None before anything was applied
    applied: Applied  # all that was applied in it
    commits: tuple[HistoryEntry, ...]  # oldest first, as far back as the log reaches; none before anything was applied
    zone: str  # from ROOT
    storage: Storage  # ROOT with this table alone, archived files at their old paths, in the order they were applied
    listing: TableListing  # in that storage
    overwritten: frozenset[str]  # files whose content is not the applied one, as far as that is known (LZ-3.13)

    @property
    def reference(self) -> TableReference:
        """How results refer to it."""
        return TableReference.of(self.name, self.status.delta_folder)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The key columns of the metadata; empty in a keyless table; raises `UsageError` without metadata."""
        metadata = self.listing.usable
        if metadata is None and self.context.config.missing_metadata == "wait":
            raise UsageError(
                f"{self.name.normalized}: has no usable {METADATA_FILE}", "see what is wrong: mirror-engine status"
            )
        return metadata.key_columns if metadata else ()

    @cached_property
    def files(self) -> Mapping[str, FileStatus]:
        """The status of each change file, by path from the table folder."""
        return {file.path: file for file in self.status.files}

    def files_of_commit(self, path: str) -> tuple[str, ...]:
        """The files of the commit that a file went into, itself among them; empty if that is not known."""
        version = self.files[path].delta_version if path in self.files else None
        return next((commit.files for commit in self.commits if commit.version == version), ())


def open_trace(snapshot: MirrorSnapshot, table: str) -> TraceContext:
    """The table of that name, in any case; raises `UnknownTable` or `StorageUnavailable`."""
    context, zone = snapshot.context, snapshot.zone
    listings = {context.delta_folder(listing.name): listing for listing in zone.tables}
    try:
        delta_folder = find_table(table, list(listings), context.config.delta_default_schema)
    except UnknownTable:
        if zone.unlisted:  # it may be there
            raise _not_listed(zone, *sorted(zone.unlisted)) from None
        raise
    present = listings[delta_folder]
    name, folder = present.name, f"{zone.folder}/{present.name.folder}"
    plan = snapshot.plans[name]
    (status,) = mirror_status(Path(), context, zone, {name: plan}, engine_running=False, also=None).tables
    progress = None if any(plan.records("start_generation")) else context.ledger.progress(name)
    applied = Applied(context.ledger.applied(name), context.ledger.marks(name)) if progress else Applied()
    commits = tuple(reversed(context.delta.history(delta_folder))) if progress and progress.has_table else ()
    names = {*(other.name.folder for other in zone.tables if other.name != name), *zone.unlisted}
    others = {f"{zone.folder}/{other}": None for other in names}
    is_overwritten = bool(_overwritten(present, applied, context.storage, folder))
    restored = RestoredView(context.storage, archived_first=is_overwritten)
    storage: Storage = ZoneView(restored, others)
    listing = listing_of(storage, context.config, name)
    if progress:
        storage = ZoneView(storage, _as_applied(folder, listing, applied, commits, present))
        listing = listing_of(storage, context.config, name)
    overwritten = _overwritten(listing, applied, storage, folder)
    place = zone.folder, storage, listing
    return TraceContext(context, name, plan, status, progress, applied, commits, *place, overwritten)


def listing_of(storage: Storage, config: Config, name: TableName) -> TableListing:
    """List one table folder; raises `StorageUnavailable`."""
    zone = Poller(storage, config).scan()
    found = next((listing for listing in zone.tables if listing.name == name), None)
    if found is None:
        raise _not_listed(zone, name.folder)
    return found


def _not_listed(zone: ZoneListing, *folders: str) -> StorageUnavailable:
    names = ", ".join(map(printable, folders))
    kind = zone.error_of(
        [each for each in zone.unlisted if any(f"{folder}/".startswith(f"{each}/") for folder in folders)]
    )
    return kind(f"{names}: cannot be listed or read", "Check path and rights, and run it again.")


def _overwritten(listing: TableListing, known: Applied, storage: Storage, folder: str) -> frozenset[str]:
    """Files of other content than the applied ones of their names.

    An etag without its time, behind the last colon, says that they are the same; an archive in a store may hold copies.
    """
    applied = {path: file for path, file in known.files.items() if file.etag}
    others = (
        file.path
        for file in listing.files
        if file.path in applied and applied[file.path].etag.rpartition(":")[0] != file.etag.rpartition(":")[0]
    )
    return frozenset(path for path in others if not has_content(storage, f"{folder}/{path}", applied[path]))


def _as_applied(
    folder: str, listing: TableListing, applied: Applied, commits: Iterable[HistoryEntry], present: TableListing
) -> dict[str, Source | None]:
    """What a table folder must show so that it has the files that were applied, in their order.

    Archived files of earlier generations, which a stop and start leaves there, are hidden (LZ-7.7). Files that time
    orders get times in the order they were applied: some came late (LZ-3.6).
    """
    paths = [file.path for file in listing.files]
    known = {*applied.files, *(file.path for file in present.files)}
    mapping: dict[str, Source | None] = {f"{folder}/{path}": None for path in paths if path not in known}
    if listing.usable is not None and listing.usable.strategy is Strategy.LAST_UPDATE_TIME:
        order = dict.fromkeys([*(path for commit in commits for path in commit.files), *applied.files])
        ordered = [f"{folder}/{path}" for path in order if path in applied.files and path in paths]
        mapping |= {path: Source(path, rank) for rank, path in enumerate(ordered, start=1)}
    return mapping
