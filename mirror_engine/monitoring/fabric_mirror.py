"""A mirrored database that Fabric mirrors: its progress, from its tables, its archives and its monitoring files.

Fabric's commits name no change files. What it has applied follows from what its cleanup leaves: it moves every applied
file but the newest of a partition (LZ-8.1, decision 0043).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from mirror_engine.engine.poller import Poller
from mirror_engine.errors import TransientError, UsageError
from mirror_engine.landing_zone.detection import detect, number_of
from mirror_engine.landing_zone.metadata import Metadata, Strategy
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import AppliedFile, Progress
from mirror_engine.landing_zone.schema import TableSchema
from mirror_engine.monitoring.fabric_files import read_replicator, read_tables, seconds_of
from mirror_engine.storage.zone_view import RestoredView
from mirror_engine.tables.base import BatchRecord, TableSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.landing_zone.listing import LandedFile, TableListing, ZoneListing
    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.base import DeltaWriter, HistoryEntry

GENERATION = "fabric"  # of the progress that Fabric made
_UNKNOWN_VERSION = -1
_UNREAD = TableSnapshot(_UNKNOWN_VERSION, TableSchema(()), None, _UNKNOWN_VERSION)


@dataclass(frozen=True)
class FabricEntry:
    """What Fabric says about one table in `tables.json` (LZ-9.1).

    Attributes:
        status: in Fabric's word, as `Replicating`.
        error: its message; `""` for none.
        rows, bytes: processed; 0 where it does not say.
        synced_at: seconds since 1970 of the last sync; 0 for none.
    """

    status: str
    error: str = ""
    rows: int = 0
    bytes: int = 0
    synced_at: float = 0.0


@dataclass(frozen=True)
class FabricReplicator:
    """What Fabric says about the mirrored database in `replicator.json`: its status, and an error's message or `""`."""

    status: str
    error: str = ""


@dataclass(frozen=True)
class FabricTables:
    """The Delta tables of a mirrored database that Fabric mirrors, each with a record of the progress Fabric has made.

    A `DeltaWriter` for reading: what it does not define itself is its writer's.

    Attributes:
        writer: of the tables, none of which carries a record of this engine.
        replicator: what Fabric says about the mirrored database.
        entries: what Fabric says about each table.
        snapshots: by Delta folder, those that are in the landing zone with a record.
        unread: by Delta folder, why a table cannot be read.
    """

    writer: DeltaWriter
    replicator: FabricReplicator
    entries: Mapping[TableName, FabricEntry]
    snapshots: Mapping[str, TableSnapshot]
    unread: Mapping[str, TransientError]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - every other method of `DeltaWriter`
        return getattr(self.writer, name)

    def words(self, table: TableName) -> dict[str, Any]:
        """Fabric's words for a table, by field of `TableStatus`."""
        entry = self.entries.get(table)
        return {"fabric_status": entry.status if entry else None, "fabric_error": (entry and entry.error) or None}

    def snapshot(self, table: str) -> TableSnapshot | None:
        """The table, with its record.

        Raises:
            TransientError: it could not be read.
        """
        if table in self.unread:
            raise self.unread[table]
        return self.snapshots.get(table) or self.writer.snapshot(table)

    def history(self, table: str, *, limit: int | None = None) -> Sequence[HistoryEntry]:  # noqa: ARG002 - see below
        """The newest commit alone: Fabric's commits name no change files."""
        return self.writer.history(table, limit=1)

    def latest_external_change(self, table: str, since: int) -> int:  # noqa: ARG002 - as writers are called
        """None: all are Fabric's."""
        return -1

    def make_durable(self, table: str, since: int) -> None:
        """Do nothing: they are Fabric's."""


def as_fabric_has_it(context: EngineContext, zone: ZoneListing) -> EngineContext:
    """Return the context with Fabric's progress where Fabric mirrors this mirrored database; else as it is.

    Fabric does where its monitoring files are there, and this engine has left progress in no ledger and no Delta table.
    Of a table that cannot be read, the ledger gets the progress that its archive shows.

    Raises:
        StorageUnavailable: the monitoring files or an archive could not be read.
    """
    if context.ledger.tables() or not (found := read_replicator(context.storage)):
        return context
    snapshots, unread = _snapshots(context.writer)
    if any(snapshot.record for snapshot in snapshots.values()):
        return context
    entries = {
        TableName(str(entry.get("sourceSchemaName") or ""), str(entry.get("sourceTableName") or "")): _entry(entry)
        for entry in read_tables(context.storage)
    }
    restored = Poller(RestoredView(context.storage), context.config).scan() if snapshots or unread else zone
    listed = {listing.name: listing for listing in zone.tables}
    for with_archives in restored.tables:
        name = with_archives.name
        folder, listing = context.delta_folder(name), listed.get(name)
        if listing and (snapshot := snapshots.get(folder)):
            entry = entries.get(name, FabricEntry(""))
            entry = replace(entry, synced_at=entry.synced_at or _committed_at(context.writer, folder))
            progress = progress_of(listing, with_archives.files, snapshot, entry)
            record = BatchRecord("", "", progress, (), name.folder)
            snapshots[folder] = replace(snapshot, record=record, record_version=snapshot.version)
        elif listing and folder in unread:
            entry = entries.get(name, FabricEntry(""))
            context.ledger.record(name, progress_of(listing, with_archives.files, _UNREAD, entry))
    replicator = FabricReplicator(str(found.get("status") or ""), str(found.get("errorMessage") or ""))
    tables = FabricTables(context.writer, replicator, entries, snapshots, unread)
    return replace(context, writer=cast("DeltaWriter", tables))


def refuse_fabrics(root: Place, storage: Storage, writer: DeltaWriter) -> None:
    """Refuse a mirrored database that Fabric mirrors: an engine would replace its files and move those it reads.

    Raises:
        UsageError: its monitoring files are there, and no Delta table has progress of this engine.
        StorageUnavailable: they could not be read.
    """
    if read_replicator(storage) and not any(each.record for each in _snapshots(writer)[0].values()):
        help = "look at it with status, plan or compare, or copy its landing zone with pull and sync the copy"
        raise UsageError(f"{root} is mirrored by Fabric; nothing was written there", help)


def progress_of(
    listing: TableListing, files: Iterable[LandedFile], snapshot: TableSnapshot, entry: FabricEntry
) -> Progress:
    """Return the progress that Fabric has made with a table.

    Args:
        listing: the table folder.
        files: those of the folder and its archives.
        snapshot: of its Delta table.
        entry: what Fabric says about it, with the time of its last sync or commit.
    """
    metadata = listing.usable or Metadata()
    present = {file.path for file in listing.files}
    archived = [file for file in files if file.path not in present]
    is_sequential = metadata.strategy is Strategy.SEQUENTIAL
    watermarks: dict[str, int] = {}
    for file in archived if is_sequential else ():
        if number := number_of(file.path):
            watermarks[file.partition] = max(number, watermarks.get(file.partition, 0))
    progress = Progress(
        GENERATION,
        listing.identity,
        batch=1,
        delta_version=snapshot.version,
        watermarks=watermarks,
        applied={file.path: AppliedFile("", "", _UNKNOWN_VERSION, 0, 0) for file in archived},
        key_columns=metadata.key_columns,
        declared_columns=metadata.definition,
        rows_processed=entry.rows,
        bytes_processed=entry.bytes,
        last_commit_at=entry.synced_at,
        configured_at=entry.synced_at or 1.0,
    )
    detection = detect(listing.name, listing.files, metadata, progress)
    first: dict[str, LandedFile] = {}  # by partition, in reading order
    for file in (*detection.ready, *detection.later):
        first.setdefault(file.partition, file)
    newest = [file for file in first.values() if _is_kept(file, watermarks, entry.synced_at)]
    numbers = {file.partition: number_of(file.path) for file in newest if is_sequential}
    return replace(
        progress,
        watermarks={**progress.watermarks, **numbers},
        applied={
            **progress.applied,
            **{file.path: AppliedFile(file.etag, "", _UNKNOWN_VERSION, 0, file.modified_ns) for file in newest},
        },
    )


def _is_kept(file: LandedFile, watermarks: Mapping[str, int], synced_at: float) -> bool:
    """Whether the first file that is not archived is the newest applied one: it follows those, or it was synced."""
    return number_of(file.path) == watermarks.get(file.partition, -1) + 1 or file.modified_ns / 1e9 <= synced_at


def _snapshots(writer: DeltaWriter) -> tuple[dict[str, TableSnapshot], dict[str, TransientError]]:
    """By Delta folder, the tables that can be read, and why others cannot."""
    snapshots, unread = {}, {}
    for folder in writer.tables():
        try:
            if snapshot := writer.snapshot(folder):
                snapshots[folder] = snapshot
        except TransientError as error:  # noqa: PERF203 - one try per table is the purpose
            unread[folder] = error
    return snapshots, unread


def _committed_at(writer: DeltaWriter, folder: str) -> float:
    return next((commit.timestamp_ms / 1000 for commit in writer.history(folder, limit=1)), 0.0)


def _entry(entry: Mapping[str, Any]) -> FabricEntry:
    metrics = entry.get("metrics")
    numbers = metrics if isinstance(metrics, dict) else {}
    rows, size = (numbers.get(name) for name in ("processedRowCount", "processedByte"))
    return FabricEntry(
        str(entry.get("status") or ""),
        str(entry.get("errorMessage") or ""),
        rows if isinstance(rows, int) else 0,
        size if isinstance(size, int) else 0,
        seconds_of(str(numbers.get("lastSyncTimeUtc") or "")),
    )
