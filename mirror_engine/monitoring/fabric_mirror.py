"""A mirrored database that Fabric mirrors: its tables with the progress that Fabric made.

Fabric's commits name no change files. What it has applied follows from what its cleanup leaves: it moves every applied
file but the newest of a partition (LZ-8.1, docs/decisions/fabric-progress.md).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from mirror_engine.engine.ledger import MIRROR
from mirror_engine.engine.poller import Poller
from mirror_engine.errors import StorageUnavailable, TransientError, UsageError
from mirror_engine.landing_zone.detection import detect, marks_after, number_of
from mirror_engine.landing_zone.metadata import Metadata, Strategy
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import Applied, AppliedFile, FolderProgress, Progress
from mirror_engine.landing_zone.schema import TableSchema
from mirror_engine.monitoring.fabric_files import read_replicator, read_tables, seconds_of
from mirror_engine.monitoring.status_results import FabricReport
from mirror_engine.storage.base import at_once
from mirror_engine.storage.zone_view import RestoredView
from mirror_engine.tables.base import DeltaReader, RecordHead, TableSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.landing_zone.listing import Entry, TableListing, ZoneListing
    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.base import HistoryEntry, RowChoice

GENERATION = "fabric"  # of the progress that Fabric made
_UNKNOWN_VERSION = -1
_UNREAD = TableSnapshot(_UNKNOWN_VERSION, TableSchema(()), None, _UNKNOWN_VERSION)


@dataclass(frozen=True)
class FabricTables(DeltaReader):
    """The Delta tables of a mirrored database that Fabric mirrors, with records of the progress that Fabric made."""

    reader: DeltaReader  # of the tables, none of which carries a record of this engine
    replicator: FabricReport  # what Fabric says about the mirrored database
    entries: Mapping[TableName, Mapping[str, Any]]  # what `tables.json` says about each table (LZ-9.1)
    snapshots: Mapping[str, TableSnapshot]  # by Delta folder, those that are in the landing zone with a record
    applied: Mapping[str, Applied]  # the same way, what Fabric has applied, as far as its cleanup tells

    def words(self, table: TableName) -> dict[str, Any]:
        """Fabric's words for a table, by field of `TableStatus`."""
        entry = self.entries.get(table)
        status = None if entry is None else str(entry.get("status") or "")
        return {"fabric_status": status, "fabric_error": str((entry or {}).get("errorMessage") or "") or None}

    def tables(self) -> Sequence[str]:
        return self.reader.tables()

    def snapshot(self, table: str) -> TableSnapshot | None:
        return self.snapshots.get(table) or self.reader.snapshot(table)

    def log_stamp(self, table: str, since: int) -> str:
        return self.reader.log_stamp(table, since)

    def needed_stamp(self, table: str) -> str:
        return self.reader.needed_stamp(table)

    def rows(self, table: str, **choice: Unpack[RowChoice]) -> pa.Table | None:
        return self.reader.rows(table, **choice)

    def history(self, table: str, *, limit: int | None = None, until: int | None = None) -> Sequence[HistoryEntry]:  # noqa: ARG002 - see below
        """The newest commit alone: Fabric's commits name no change files."""
        return self.reader.history(table, limit=1, until=until)

    def latest_external_change(self, table: str, since: int, columns: str = "") -> int:  # noqa: ARG002 - as declared
        """Return None: every commit is Fabric's."""
        return -1

    def applied_since(self, table: str, snapshot: TableSnapshot, known: Progress | None) -> Applied:  # noqa: ARG002 - the same
        return self.applied.get(table, Applied())

    def make_durable(self, table: str, since: int) -> None:
        """Do nothing: the commits are Fabric's."""


def as_fabric_has_it(context: EngineContext, zone: ZoneListing) -> EngineContext:
    """Return the context with Fabric's progress where Fabric mirrors this mirrored database; else as it is.

    Fabric does where its monitoring files are there, and this engine has left progress in no ledger and no Delta table.
    On this machine a copy of it has tables: an engine of ours writes such files, too. Of a table that cannot be read,
    the ledger gets the progress that its archive shows. Raises `StorageUnavailable`.
    """
    is_ours = context.ledger.tables() or context.ledger.get_property(MIRROR)
    if is_ours or not (found := read_replicator(context.storage)):
        return context
    snapshots, unread = _snapshots(context.storage, context.delta)
    is_bare = not (snapshots or unread or zone.tables or context.storage.is_store)
    if is_bare or _has_our_progress(context.delta, snapshots, unread):
        return context
    entries = {
        TableName(str(entry.get("sourceSchemaName") or ""), str(entry.get("sourceTableName") or "")): entry
        for entry in read_tables(context.storage)
    }
    applied_by_fabric: dict[str, Applied] = {}
    restored = Poller(RestoredView(context.storage), context.config).scan() if snapshots or unread else zone
    listed = {listing.name: listing for listing in zone.tables}
    for with_archives in restored.tables:
        name = with_archives.name
        folder, listing = context.delta_folder(name), listed.get(name)
        if listing is None or not (folder in snapshots or folder in unread):
            continue
        metrics = entries.get(name, {}).get("metrics")
        metrics = metrics if isinstance(metrics, dict) else {}
        synced_at, snapshot = seconds_of(str(metrics.get("lastSyncTimeUtc") or "")), snapshots.get(folder, _UNREAD)
        if folder in snapshots:
            commits = (commit.committed_at.timestamp() for commit in context.delta.history(folder, limit=1))
            synced_at = synced_at or next(commits, 0.0)
        progress, applied = progress_of(listing, with_archives.files, snapshot, metrics, synced_at)
        if folder in unread:
            context.ledger.record(name, progress, applied)
        else:
            record = RecordHead("", "", progress, name.folder)
            snapshots[folder] = replace(snapshot, record=record, record_version=snapshot.version)
            applied_by_fabric[folder] = applied
    replicator = FabricReport(str(found.get("status") or ""), str(found.get("errorMessage") or "") or None)
    return replace(context, reader=FabricTables(context.delta, replicator, entries, snapshots, applied_by_fabric))


def _has_our_progress(
    reader: DeltaReader, snapshots: Mapping[str, TableSnapshot], unread: Mapping[str, TransientError]
) -> bool:
    """Whether a table has progress of this engine, also one whose log is damaged."""
    if any(snapshot.record for snapshot in snapshots.values()):
        return True
    for folder in (*snapshots, *unread):
        with suppress(TransientError):
            if reader.is_mirrored(folder):
                return True
    return False


def refuse_fabrics(root: Place, storage: Storage, reader: DeltaReader) -> None:
    """Refuse a mirrored database that Fabric mirrors: an engine would replace its files and move those it reads.

    Raises `StorageUnavailable`, and `UsageError` where no Delta table next to its files has progress of this engine.
    """
    if not read_replicator(storage):
        return
    snapshots, unread = _snapshots(storage, reader)
    if not _has_our_progress(reader, snapshots, unread):
        if failed := next((error for error in unread.values() if isinstance(error, StorageUnavailable)), None):
            raise failed
        help = "look at it with status, plan or compare, or copy its landing zone with pull and sync the copy"
        raise UsageError(f"{root} is mirrored by Fabric; nothing was written there", help)


def progress_of(
    listing: TableListing,
    files: Iterable[Entry],
    snapshot: TableSnapshot,
    metrics: Mapping[str, Any],
    synced_at: float,
) -> tuple[Progress, Applied]:
    """Return the progress that Fabric has made with a table, from its files, also archived ones, and its Delta table.

    `metrics` are those of its entry in `tables.json`, `synced_at` is when it was synced last, in seconds since 1970.
    """
    metadata = listing.usable or Metadata()
    rows, size = (metrics.get(name) for name in ("processedRowCount", "processedByte"))
    present = {file.path for file in listing.files}
    archived = [file for file in files if file.path not in present]
    is_sequential = metadata.strategy is Strategy.SEQUENTIAL
    unknown = [replace(file, identity="", modified_ns=0) for file in archived]  # when they were applied
    applied = _applied(Applied(), unknown, is_sequential=is_sequential)
    detection = detect(listing.name, listing.files, metadata, FolderProgress(applied.marks))
    first: dict[str, Entry] = {}  # by partition, in reading order
    for file in (*detection.ready, *detection.later):
        first.setdefault(file.partition, file)
    following = {place: mark.watermark + 1 for place, mark in applied.marks.items() if mark.watermark}
    newest = [  # the newest applied one is not archived: it follows those that are, or it was synced
        file
        for file in first.values()
        if number_of(file.path) == following.get(file.partition, 0) or file.modified_ns / 1e9 <= synced_at
    ]
    applied = _applied(applied, newest, is_sequential=is_sequential)
    progress = Progress(
        GENERATION,
        listing.identity,
        batch=1,
        delta_version=snapshot.version,
        key_columns=metadata.key_columns,
        declared_columns=metadata.definition,
        files_processed=len(applied.files),
        rows_processed=rows if isinstance(rows, int) else 0,
        bytes_processed=size if isinstance(size, int) else 0,
        last_commit_at=synced_at,
        configured_at=synced_at or 1.0,
    )
    return progress, applied


def _applied(before: Applied, files: Iterable[Entry], *, is_sequential: bool) -> Applied:
    """The applied files, these ones included."""
    applied = {
        file.path: AppliedFile(file.etag if file.identity else "", "", _UNKNOWN_VERSION, 0, file.modified_ns)
        for file in files
    }
    marks = marks_after(before.marks, applied, in_order=is_sequential)
    return Applied({**before.files, **applied}, {**before.marks, **marks})


def _snapshots(storage: Storage, reader: DeltaReader) -> tuple[dict[str, TableSnapshot], dict[str, TransientError]]:
    """By Delta folder, the tables that can be read, and why others cannot."""
    unread: dict[str, TransientError] = {}

    def read(folder: str) -> TableSnapshot | None:
        try:
            return reader.snapshot(folder)
        except TransientError as error:
            unread[folder] = error
            return None

    folders = reader.tables()
    found = zip(folders, at_once(storage, read, folders), strict=True)
    return {folder: snapshot for folder, snapshot in found if snapshot}, unread
