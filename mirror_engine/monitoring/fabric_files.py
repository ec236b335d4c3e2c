"""Fabric's monitoring files: its statuses, its error messages (LZ-9, LZ-10), and its progress where Fabric mirrors.

Fabric's commits name no change files. What it has applied follows from what its cleanup leaves: it moves every applied
file but the newest of a partition (LZ-8.1, decision 0043).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast
from uuid import UUID, uuid5

from mirror_engine.engine.ledger import MIRROR
from mirror_engine.engine.poller import Poller
from mirror_engine.errors import RootLocked, StorageUnavailable, TransientError, UsageError
from mirror_engine.landing_zone.detection import detect, marks_after, number_of
from mirror_engine.landing_zone.layout import MONITORING, ZONE
from mirror_engine.landing_zone.metadata import Metadata, Strategy
from mirror_engine.landing_zone.names import MAX_FABRIC_TABLES, METADATA_FILE, TableName
from mirror_engine.landing_zone.progress import Applied, AppliedFile, FolderProgress, Progress
from mirror_engine.landing_zone.schema import TableSchema
from mirror_engine.landing_zone.states import CaughtUp, Empty, Halted, Unconfigured, Unlisted
from mirror_engine.storage.base import at_once
from mirror_engine.storage.zone_view import RestoredView
from mirror_engine.tables.base import DeltaReader, RecordHead, TableSnapshot
from mirror_engine.threads import threads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.planner import Plan
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import Entry, TableListing, ZoneListing
    from mirror_engine.landing_zone.states import TableState
    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.base import Chosen, DeltaWriter, HistoryEntry

REPLICATOR_FILE = f"{MONITORING}/replicator.json"
TABLES_FILE = f"{MONITORING}/tables.json"
HEARTBEAT_SECONDS = 30.0
BUSY_SECONDS = 1.0  # between two writes while there is work
NEVER = "0001-01-01T00:00:00"  # .NET's DateTime.MinValue, which Fabric shows for no time
WORDED = frozenset({"ME009", "ME010", "ME023", "ME024", "ME044", "ME060"})  # Fabric's message was observed
INVALID_INPUT = "InputValidationError"
SCHEMA_MERGE = "SchemaMergeFailure"
INTERNAL = "InternalError"
THROTTLED = "The replication is being throttled and expected to continue at {time}."  # E9
TOO_MANY_TABLES = "The tables count might exceed the limit, there could be some tables missing."  # E8

_MESSAGES = Path(__file__).with_name("fabric_messages.json")
_SHAPES = {"ME009": "E3", "ME010": "E4", "ME023": "E2", "ME044": "E5", "ME060": "E6"}  # of messages; others E10
GENERATION = "fabric"  # of the progress that Fabric made
_UNKNOWN_VERSION = -1
_UNREAD = TableSnapshot(_UNKNOWN_VERSION, TableSchema(()), None, _UNKNOWN_VERSION)
_INTEGER_NAMES = {"byte": "SByte", "short": "Int16", "integer": "Int32", "long": "Int64"}
_DAY_SECONDS = 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class FabricTable(NamedTuple):
    """The facts behind a table's entry in `tables.json`; no progress if the ledger does not know it yet."""

    name: TableName
    state: TableState
    progress: Progress | None


Entries: TypeAlias = Mapping[TableName, tuple[FabricTable, str]]  # of `tables.json`, each with what it was made from


def fabric_message(
    diagnostic: Diagnostic, table: TableName, artifact: str, *, default_schema: str = "dbo"
) -> tuple[str, str]:
    """Fabric's error code and message for a rejection, shapes E1 to E6 and E10.

    `artifact` is the mirrored database's GUID; `default_schema` that of tables outside a schema folder, or `""`.
    """
    details, code = dict(diagnostic.details), diagnostic.code
    is_parquet = code in {"ME023", "ME024"} and diagnostic.path.lower().endswith(".parquet")
    shape = "E1" if is_parquet else _SHAPES.get(code, "E10")
    schema = table.schema or default_schema
    facts = {
        "zone": ZONE,
        "folder": table.folder,
        "path": diagnostic.path,
        "name": f"{schema}\\{table.table}" if schema else table.table,
        "kind": "metadata" if shape == "E3" or diagnostic.path.endswith(METADATA_FILE) else "data",
        "message": diagnostic.message,
        "found": diagnostic.full_message,
        "invalid": "Parquet file size is 0 bytes" if code == "ME023" else diagnostic.message,
        "conversion": _conversion(details.get("type", ""), details.get("fault", "")),
        "artifact": artifact,
    }
    texts: dict[str, str] = json.loads(_MESSAGES.read_text(encoding="utf-8"))
    return SCHEMA_MERGE if shape == "E5" else INVALID_INPUT, texts[shape].format_map({**details, **facts})


def _conversion(kind: str, fault: str) -> str:
    """.NET's message for a cell that is not of its column's Delta type."""
    if kind in {"date", "timestamp"}:
        return "String was not recognized as a valid DateTime."
    if fault == "out of range" and kind in _INTEGER_NAMES:
        return f"System.OverflowException: Value was either too large or too small for an {_INTEGER_NAMES[kind]}."
    return "System.FormatException: Input string was not in a correct format."


def fabric_error(table: FabricTable, mirror: str, now: float, default_schema: str) -> tuple[str, str]:
    """Fabric's error code and message for a table; both empty if there is none."""
    match table.state:
        case Halted(diagnostic):
            return fabric_message(diagnostic, table.name, str(UUID(mirror)), default_schema=default_schema)
        case Empty(expired=True):  # E7
            days = int((now - (table.progress.configured_at if table.progress else now)) // _DAY_SECONDS)
            return INTERNAL, f"This table has been stuck in Snapshotting for {days} days"
        case _:
            return "", ""


def fabric_status(state: TableState, progress: Progress | None) -> str | None:
    """Fabric's table status (LZ-9.6): a blocked or halted table keeps its former one; None for a folder not listed."""
    if isinstance(state, Unconfigured):
        return None
    if isinstance(state, Empty) and state.expired:
        return "Failed"
    if progress is None:
        return "Initialized"
    return "Replicating" if progress.has_table or progress.files_processed else "Snapshotting"


def write(  # noqa: PLR0913 - independent facts
    storage: Storage,
    tables: Sequence[FabricTable],
    *,
    mirror: str,
    now: float,
    known: float | None = None,
    default_schema: str = "dbo",
    before: Entries = MappingProxyType({}),
) -> Entries:
    """Rewrite both files, each atomically (LZ-9.1); of all table folders, unconfigured ones are left out (LZ-9.6).

    `mirror` is this ROOT's mirror id, `now` in seconds since 1970, `known` the time since which tables wait where it is
    another. `before` is what the last call returned: entries of tables that did not change are not made again. Raises
    `StorageUnavailable`.
    """
    known = now if known is None else known
    entries: dict[TableName, tuple[FabricTable, str]] = {}
    for table in tables:
        same = before.get(table.name)
        if same and same[0] == table and not isinstance(table.state, Empty):  # that changes with time
            entries[table.name] = same
        elif not isinstance(table.state, Unconfigured):
            entries[table.name] = table, _json(_entry(table, mirror, known, default_schema))
    texts = ",\n".join(text for _, text in entries.values())
    storage.write(TABLES_FILE, f'{{"tables": [\n{texts}\n]}}'.encode())
    _write_json(storage, REPLICATOR_FILE, replicator(now, table_count=len(entries)))
    return entries


def write_stopped(storage: Storage, *, now: float) -> None:
    """Set the status in both files to `Stopped`; all else stays as last written. Raises `StorageUnavailable`."""
    tables = [{**entry, "status": "Stopped"} for entry in read_tables(storage)]
    _write_json(storage, TABLES_FILE, {"tables": tables})
    _write_json(storage, REPLICATOR_FILE, replicator(now, table_count=len(tables), status="Stopped"))


def write_replicator(storage: Storage, *, now: float, status: str = "Running", error: str = "") -> None:
    """Rewrite `replicator.json` alone, with an error's message if there is one. Raises `StorageUnavailable`."""
    _write_json(storage, REPLICATOR_FILE, replicator(now, status=status, error=error))


def read_tables(storage: Storage) -> list[dict[str, Any]]:
    """The entries of `tables.json`; none if it was never written or has another form. Raises `StorageUnavailable`."""
    entries = _read_json(storage, TABLES_FILE).get("tables")
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def last_heartbeat(storage: Storage) -> float | None:
    """Seconds since 1970 of the last heartbeat; None if there is none, or none that can be parsed.

    Raises `StorageUnavailable`.
    """
    return seconds_of(str(_read_json(storage, REPLICATOR_FILE).get("lastHeartbeatTime") or "")) or None


def seconds_of(text: str) -> float:
    """Seconds since 1970 of a time as Fabric writes it, in UTC; 0 for none."""
    whole, _, fraction = text.partition("+")[0].rstrip("Z").partition(".")
    try:
        return max(0.0, datetime.fromisoformat(f"{whole}.{fraction[:6]:0<6}+00:00").timestamp())
    except ValueError:
        return 0.0


def replicator(now: float, *, table_count: int = 0, status: str = "Running", error: str = "") -> dict[str, str]:
    """The content of `replicator.json`; error E8 from the 1,000th table on (LZ-7.10)."""
    error = error or (TOO_MANY_TABLES if table_count >= MAX_FABRIC_TABLES else "")
    code, heartbeat = INTERNAL if error else "", f"{dotnet(now)}+00:00"
    return {"status": status, "errorCode": code, "errorMessage": error, "lastHeartbeatTime": heartbeat}


def _read_json(storage: Storage, path: str) -> dict[str, Any]:
    try:
        with storage.open(path) as file:
            content = json.load(file)
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _entry(table: FabricTable, mirror: str, now: float, default_schema: str) -> dict[str, Any]:
    name, state, progress = table
    code, message = fabric_error(table, mirror, now, default_schema)
    return {
        # by folder: two folders may share one normalized name, `a.schema/b` and `a.b`
        "id": str(uuid5(UUID(mirror), name.folder)),
        "status": fabric_status(state, progress),
        "errorCode": code,
        "errorMessage": message,
        "normalizedTableName": name.normalized,
        "sourceTableName": name.table,
        "sourceSchemaName": name.schema,
        "sourceObjectType": "Table",
        "metrics": {
            "processedRowCount": progress.rows_processed if progress else 0,
            "processedByte": progress.bytes_processed if progress else 0,
            "lastSourceCommitTimeUtc": NEVER,
            "lastSyncTimeUtc": f"{dotnet(progress.last_commit_at)}Z" if progress and progress.has_table else NEVER,
        },
    }


def _write_json(storage: Storage, path: str, content: Mapping[str, Any]) -> None:
    storage.write(path, _json(content).encode())


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False)


def dotnet(seconds: float) -> str:
    """`2026-11-02T08:15:29.5000000`, without a zone: ticks of 100 ns, always seven digits (LZ-9.1)."""
    whole, fraction = divmod(round(seconds * 10_000_000), 10_000_000)
    return f"{(_EPOCH + timedelta(seconds=whole)).isoformat(timespec='seconds')[:-6]}.{fraction:07d}"


class MonitoringFiles:
    """Writer of both files for a running engine (LZ-9.1)."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._written: list[FabricTable] | None = None
        self._written_at = -math.inf
        self._entries: Entries = {}
        self._waiting: Mapping[TableName, Plan] | None = None  # what was not written yet

    def write(self, plans: Mapping[TableName, Plan]) -> None:
        """Rewrite both files after a cycle if they changed, and with each heartbeat; once a second while there is work.

        Raises `StorageUnavailable`, and `RootLocked` where ROOT was lost to another engine, whose files they are now.
        """
        is_busy = any(plan.steps for plan in plans.values())  # so that another cycle follows
        if is_busy and self._context.clock.monotonic() - self._written_at < BUSY_SECONDS:
            self._waiting = plans
            return
        self._write(plans)
        self._waiting = None

    def close(self) -> None:
        """Write what no further cycle writes; an error stops nothing."""
        with suppress(StorageUnavailable, RootLocked):
            if self._waiting is not None:
                self._write(self._waiting)

    def _write(self, plans: Mapping[TableName, Plan]) -> None:
        context, ledger = self._context, self._context.ledger
        listed = {table: plan.state for table, plan in plans.items() if not isinstance(plan.state, Unlisted)}
        tables = [FabricTable(table, state, ledger.progress(table)) for table, state in listed.items()]
        for table, progress in ledger.tables().items():
            if table not in listed and progress.configured_at:  # its folder may still be there
                rejected = progress.rejection and Halted(progress.rejection.diagnostic, 0)
                tables.append(FabricTable(table, rejected or CaughtUp(), progress))
        now = context.clock.monotonic()
        if tables == self._written and now - self._written_at < HEARTBEAT_SECONDS:
            return
        self._written = None
        context.check_lock()
        schema = context.config.delta_default_schema
        times = {"now": context.clock(), "known": context.now}
        self._entries = write(
            context.storage, tables, mirror=ledger.mirror, **times, default_schema=schema, before=self._entries
        )
        self._written, self._written_at = tables, now


@contextmanager
def heartbeat(context: EngineContext) -> Iterator[None]:
    """Write heartbeats in a thread during long cycles, so that the last is at most a minute old (LZ-9.1)."""
    stopped = threads().event()

    def run() -> None:
        while not stopped.wait(HEARTBEAT_SECONDS):
            with suppress(StorageUnavailable, RootLocked):  # the cycle reports the same failure
                context.check_lock()
                content = replicator(context.clock(), table_count=len(context.ledger.tables()))
                _write_json(context.storage, REPLICATOR_FILE, content)

    thread = threads().start(run, "heartbeat")
    try:
        yield
    finally:
        stopped.set()
        thread.join()


@dataclass(frozen=True)
class FabricTables(DeltaReader):
    """The Delta tables of a mirrored database that Fabric mirrors, with records of the progress that Fabric made."""

    reader: DeltaReader  # of the tables, none of which carries a record of this engine
    # What Fabric says about the mirrored database: `status`, and an error's message or None
    replicator: Mapping[str, str | None]
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

    def rows(
        self, table: str, *, version: int | None = None, limit: int | None = None, where: Chosen | None = None
    ) -> pa.Table | None:
        return self.reader.rows(table, version=version, limit=limit, where=where)

    def history(self, table: str, *, limit: int | None = None, until: int | None = None) -> Sequence[HistoryEntry]:  # noqa: ARG002 - see below
        """The newest commit alone: Fabric's commits name no change files."""
        return self.reader.history(table, limit=1, until=until)

    def latest_external_change(self, table: str, since: int, columns: str = "") -> int:  # noqa: ARG002 - as declared
        """None: all are Fabric's."""
        return -1

    def applied_since(self, table: str, snapshot: TableSnapshot, version: int) -> Applied:  # noqa: ARG002 - the same
        return self.applied.get(table, Applied())

    def make_durable(self, table: str, since: int) -> None:
        """Do nothing: they are Fabric's."""


def as_fabric_has_it(context: EngineContext, zone: ZoneListing) -> EngineContext:
    """Return the context with Fabric's progress where Fabric mirrors this mirrored database; else as it is.

    Fabric does where its monitoring files are there, and this engine has left progress in no ledger and no Delta table.
    On this machine a copy of it has tables: an engine of ours writes such files, too. Of a table that cannot be read,
    the ledger gets the progress that its archive shows. Raises `StorageUnavailable`.
    """
    is_ours = context.ledger.tables() or context.ledger.get_property(MIRROR)
    if is_ours or not (found := _read_json(context.storage, REPLICATOR_FILE)):
        return context
    snapshots, unread = _snapshots(context.storage, context.writer)
    is_bare = not (snapshots or unread or zone.tables or context.storage.is_store)
    if is_bare or any(snapshot.record or snapshot.is_mirrored() for snapshot in snapshots.values()):
        return context
    if any(_is_mirrored(context.writer, folder) for folder in unread):
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
            commits = (commit.timestamp_ms / 1000 for commit in context.writer.history(folder, limit=1))
            synced_at = synced_at or next(commits, 0.0)
        progress, applied = progress_of(listing, with_archives.files, snapshot, metrics, synced_at)
        if folder in unread:
            context.ledger.record(name, progress, applied)
        else:
            record = RecordHead("", "", progress, name.folder)
            snapshots[folder] = replace(snapshot, record=record, record_version=snapshot.version)
            applied_by_fabric[folder] = applied
    status, error = (str(found.get(name) or "") for name in ("status", "errorMessage"))
    replicator = {"status": status, "error": error or None}
    tables = FabricTables(context.writer, replicator, entries, snapshots, applied_by_fabric)
    return replace(context, writer=cast("DeltaWriter", tables))


def _is_mirrored(writer: DeltaWriter, folder: str) -> bool:
    """Whether a table that cannot be read shows that an engine of ours wrote it."""
    with suppress(TransientError):
        return writer.is_mirrored(folder)
    return False


def refuse_fabrics(root: Place, storage: Storage, writer: DeltaWriter) -> None:
    """Refuse a mirrored database that Fabric mirrors: an engine would replace its files and move those it reads.

    Raises `StorageUnavailable`, and `UsageError` where no Delta table next to its files has progress of this engine.
    """
    if _read_json(storage, REPLICATOR_FILE) and not any(
        each.record or each.is_mirrored() for each in _snapshots(storage, writer)[0].values()
    ):
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
    """What is applied with these files, too."""
    applied = {
        file.path: AppliedFile(file.etag if file.identity else "", "", _UNKNOWN_VERSION, 0, file.modified_ns)
        for file in files
    }
    marks = marks_after(before.marks, applied, in_order=is_sequential)
    return Applied({**before.files, **applied}, {**before.marks, **marks})


def _snapshots(storage: Storage, writer: DeltaWriter) -> tuple[dict[str, TableSnapshot], dict[str, TransientError]]:
    """By Delta folder, the tables that can be read, and why others cannot."""
    unread: dict[str, TransientError] = {}

    def read(folder: str) -> TableSnapshot | None:
        try:
            return writer.snapshot(folder)
        except TransientError as error:
            unread[folder] = error
            return None

    folders = writer.tables()
    found = zip(folders, at_once(storage, read, folders), strict=True)
    return {folder: snapshot for folder, snapshot in found if snapshot}, unread
