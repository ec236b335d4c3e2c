"""Fabric's monitoring files, `replicator.json` and `tables.json`, its statuses and its error messages (LZ-9, LZ-10)."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5

from mirror_engine.errors import RootLocked, StorageUnavailable
from mirror_engine.landing_zone.layout import MONITORING, ZONE
from mirror_engine.landing_zone.names import MAX_FABRIC_TABLES, METADATA_FILE
from mirror_engine.landing_zone.states import Empty, Halted, Unconfigured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.plan import Plan
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.landing_zone.states import TableState
    from mirror_engine.storage.base import Storage

REPLICATOR_FILE = f"{MONITORING}/replicator.json"
TABLES_FILE = f"{MONITORING}/tables.json"
HEARTBEAT_SECONDS = 30.0
NEVER = "0001-01-01T00:00:00"  # .NET's DateTime.MinValue, which Fabric shows for no time
WORDED = frozenset({"ME009", "ME010", "ME023", "ME024", "ME044", "ME060"})  # Fabric's message was observed
INVALID_INPUT = "InputValidationError"
SCHEMA_MERGE = "SchemaMergeFailure"
INTERNAL = "InternalError"
THROTTLED = "The replication is being throttled and expected to continue at {time}."  # E9
TOO_MANY_TABLES = "The tables count might exceed the limit, there could be some tables missing."  # E8

_INTEGER_NAMES = {"byte": "SByte", "short": "Int16", "integer": "Int32", "long": "Int64"}
_MAX_BYTES = 64 << 20
_DAY_SECONDS = 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class FabricTable(NamedTuple):
    """The facts behind a table's entry in `tables.json`; no progress if the ledger does not know it yet."""

    name: TableName
    state: TableState
    progress: Progress | None


def fabric_message(
    diagnostic: Diagnostic, table: TableName, artifact: str, *, default_schema: str = "dbo"
) -> tuple[str, str]:
    """Fabric's error code and message for a rejection, shapes E1 to E6 and E10.

    `artifact` is the mirrored database's GUID; `default_schema` that of tables outside a schema folder, or `""`.
    """
    details, found = dict(diagnostic.details), diagnostic.full_message
    reading_metadata = f"Exception reading the metadata file: {METADATA_FILE}, Exception: "
    reading_data = "Exception reading the data file. Exception: "
    ending = f"ErrorCode: {INTERNAL}, ErrorCode: {INVALID_INPUT} ArtifactId: {artifact}"
    kind = "metadata" if diagnostic.path.endswith(METADATA_FILE) else "data"
    match diagnostic.code:
        case "ME044":  # E5
            schema = table.schema or default_schema
            name = f"{schema}\\{table.table}" if schema else table.table
            return SCHEMA_MERGE, (
                f"ErrorCode: {SCHEMA_MERGE}, Message: Failed to write table '{name}' due to schema mismatch. "
                f"{diagnostic.message} ArtifactId: {artifact}"
            )
        case "ME023" | "ME024" if diagnostic.path.lower().endswith(".parquet"):  # E1
            fault = "Parquet file size is 0 bytes" if diagnostic.code == "ME023" else diagnostic.message
            return INVALID_INPUT, (
                f"We encountered an error while opening the Parquet file '{ZONE}/{diagnostic.path}', please fix the "
                f"file and try again. The error is: 'Invalid: {fault}', {ending}"
            )
        case "ME009":  # E3
            kind, detail = "metadata", f"{reading_metadata}PathNotFound {ZONE}/{table.folder}/{METADATA_FILE}"
        case "ME010":  # E4
            detail = f"{reading_metadata}{details['fault']}, line {details['line']}, column {details['char']}"
        case "ME023":  # E2
            state = "IReader state: ColumnCount: 0 CurrentIndex: -1"
            detail = f"{reading_data}No data rows available. {state} ({found})"
        case "ME060":  # E6
            conversion = _conversion(details.get("type", ""), details.get("fault", ""))
            detail = f"{reading_data}ReadDataRowsAsync: Failed to read data rows. Exception: {conversion} ({found})"
        case _:  # E10
            detail = found
    return INVALID_INPUT, (
        f"We encountered an error while parsing {kind} file being used, please fix the file and try again. "
        f"The error is: {detail}, {ending}"
    )


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
            return fabric_message(diagnostic, table.name, artifact_id(mirror), default_schema=default_schema)
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
    return "Replicating" if progress.has_table or progress.applied else "Snapshotting"


def artifact_id(mirror: str) -> str:
    """The mirrored database's GUID, from the mirror's random id."""
    try:
        return str(UUID(mirror))
    except ValueError:
        return str(uuid5(NAMESPACE_URL, mirror))


def write(
    storage: Storage, tables: Sequence[FabricTable], *, mirror: str, now: float, default_schema: str = "dbo"
) -> None:
    """Rewrite both files, each atomically (LZ-9.1); of all table folders, unconfigured ones are left out (LZ-9.6).

    `mirror` is this ROOT's mirror id, `now` in seconds since 1970. Raises `StorageUnavailable`.
    """
    entries = [
        _entry(table, mirror, now, default_schema) for table in tables if not isinstance(table.state, Unconfigured)
    ]
    _write_json(storage, TABLES_FILE, {"tables": entries})
    _write_json(storage, REPLICATOR_FILE, replicator(now, table_count=len(entries)))


def write_stopped(storage: Storage, *, now: float) -> None:
    """Set the status in both files to `Stopped`; all else stays as last written. Raises `StorageUnavailable`."""
    tables = [{**entry, "status": "Stopped"} for entry in read_tables(storage)]
    _write_json(storage, TABLES_FILE, {"tables": tables})
    _write_json(storage, REPLICATOR_FILE, {**replicator(now, table_count=len(tables)), "status": "Stopped"})


def write_replicator(storage: Storage, *, now: float, status: str = "Running", error: str = "") -> None:
    """Rewrite `replicator.json` alone, with an error's message if there is one. Raises `StorageUnavailable`."""
    code = INTERNAL if error else ""
    shown = {"status": status, "errorCode": code, "errorMessage": error}
    _write_json(storage, REPLICATOR_FILE, {**replicator(now, table_count=0), **shown})


def read_tables(storage: Storage) -> list[dict[str, Any]]:
    """The entries of `tables.json`; none if it was never written or has another form. Raises `StorageUnavailable`."""
    entries = _read_json(storage, TABLES_FILE).get("tables")
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def read_replicator(storage: Storage) -> dict[str, Any]:
    """The content of `replicator.json`; empty as that of `tables.json`. Raises `StorageUnavailable`."""
    return _read_json(storage, REPLICATOR_FILE)


def last_heartbeat(storage: Storage) -> float | None:
    """Seconds since 1970 of the last heartbeat; None if there is none, or none that can be parsed.

    Raises `StorageUnavailable`.
    """
    return seconds_of(str(read_replicator(storage).get("lastHeartbeatTime") or "")) or None


def seconds_of(text: str) -> float:
    """Seconds since 1970 of a time as Fabric writes it, in UTC; 0 for none."""
    whole, _, fraction = text.partition("+")[0].rstrip("Z").partition(".")
    try:
        return max(0.0, datetime.fromisoformat(f"{whole}.{fraction[:6]:0<6}+00:00").timestamp())
    except ValueError:
        return 0.0


def replicator(now: float, *, table_count: int) -> dict[str, str]:
    """The content of `replicator.json`; error E8 from the 1,000th table on (LZ-7.10)."""
    is_crowded = table_count >= MAX_FABRIC_TABLES
    return {
        "status": "Running",
        "errorCode": INTERNAL if is_crowded else "",
        "errorMessage": TOO_MANY_TABLES if is_crowded else "",
        "lastHeartbeatTime": f"{dotnet(now)}+00:00",
    }


def _read_json(storage: Storage, path: str) -> dict[str, Any]:
    try:
        with storage.open(path) as file:
            content = json.loads(file.read(_MAX_BYTES))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _entry(table: FabricTable, mirror: str, now: float, default_schema: str) -> dict[str, Any]:
    name, state, progress = table
    code, message = fabric_error(table, mirror, now, default_schema)
    return {
        # by folder: two folders may share one normalized name, `a.schema/b` and `a.b`
        "id": str(uuid5(UUID(artifact_id(mirror)), name.folder)),
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
    storage.write(path, json.dumps(content, ensure_ascii=False, indent=2).encode())


def dotnet(seconds: float) -> str:
    """`2026-11-02T08:15:29.5000000`, without a zone: ticks of 100 ns, always seven digits (LZ-9.1)."""
    whole, fraction = divmod(round(seconds * 10_000_000), 10_000_000)
    return f"{(_EPOCH + timedelta(seconds=whole)).isoformat(timespec='seconds')[:-6]}.{fraction:07d}"


class MonitoringFiles:
    """Writer of both files for a running engine (LZ-9.1)."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._written: list[FabricTable] | None = None
        self._written_at = 0.0

    def write(self, plans: Mapping[TableName, Plan]) -> None:
        """Rewrite both files after a cycle if they changed, and with each heartbeat.

        Raises `StorageUnavailable`, and `RootLocked` where ROOT was lost to another engine, whose files they are now.
        """
        context, ledger = self._context, self._context.ledger
        tables = [FabricTable(table, plan.state, ledger.progress(table)) for table, plan in plans.items()]
        now = context.clock.monotonic()
        if tables == self._written and now - self._written_at < HEARTBEAT_SECONDS:
            return
        self._written = None
        context.check_lock()
        schema = context.config.delta_default_schema
        write(context.storage, tables, mirror=ledger.mirror, now=context.clock(), default_schema=schema)
        self._written, self._written_at = tables, now


class Heartbeat:
    """Thread that writes heartbeats during long cycles, so that the last is at most a minute old (LZ-9.1)."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        context = self._context
        while not self._stopped.wait(HEARTBEAT_SECONDS):
            with suppress(StorageUnavailable, RootLocked):  # the cycle reports the same failure
                context.check_lock()
                content = replicator(context.clock(), table_count=len(context.ledger.tables()))
                _write_json(context.storage, REPLICATOR_FILE, content)
