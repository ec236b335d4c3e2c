"""Fabric's monitoring files, `replicator.json` and `tables.json`, its statuses and its error messages (LZ-9, LZ-10)."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, UUID, uuid5

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.layout import MONITORING, ZONE
from mirror_engine.landing_zone.names import MAX_FABRIC_TABLES, METADATA_FILE
from mirror_engine.landing_zone.states import Empty, Halted, TableState, Unconfigured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.plan import Plan
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.storage.base import Storage

WORDED = frozenset({"ME009", "ME010", "ME023", "ME024", "ME044", "ME060", "ME068"})  # Fabric's message was observed
INVALID_INPUT = "InputValidationError"
SCHEMA_MERGE = "SchemaMergeFailure"
INTERNAL = "InternalError"
TOO_MANY_TABLES = "The tables count might exceed the limit, there could be some tables missing."  # E8

_INTEGER_NAMES = {"byte": "SByte", "short": "Int16", "integer": "Int32", "long": "Int64"}
_EMPTY_TEXT = (
    "Exception reading the data file. Exception: No data rows available. IReader state: ColumnCount: 0 CurrentIndex: -1"
)
_UNREADABLE_ROWS = (
    "Exception reading the data file. Exception: ReadDataRowsAsync: Failed to read data rows. Exception: "
)


def fabric_message(
    diagnostic: Diagnostic, table: TableName, artifact: str, *, default_schema: str = "dbo"
) -> tuple[str, str]:
    """Fabric's error code and message for a rejection, shapes E1 to E7 and E10.

    Args:
        diagnostic: the error; its path is from the landing zone's top.
        table: the halted table.
        artifact: the mirrored database's GUID.
        default_schema: the Delta schema of tables outside a schema folder, `""` for none.
    """
    match diagnostic.code:
        case "ME044":
            return SCHEMA_MERGE, _schema_mismatch(diagnostic, table, artifact, default_schema)
        case "ME068":
            return INTERNAL, stuck(dict(diagnostic.details).get("time", ""))
        case "ME023" | "ME024" if diagnostic.path.lower().endswith(".parquet"):
            return INVALID_INPUT, _unopened(diagnostic, artifact)
        case _:
            return INVALID_INPUT, _framed(_kind(diagnostic), _detail(diagnostic, table), artifact)


def stuck(time: str) -> str:
    """E7."""
    return f"This table has been stuck in Snapshotting for {time}"


def _detail(diagnostic: Diagnostic, table: TableName) -> str:
    match diagnostic.code:
        case "ME009":  # E3
            return f"{_metadata_fault()}PathNotFound {ZONE}/{table.folder}/{METADATA_FILE}"
        case "ME010":  # E4
            details = dict(diagnostic.details)
            return f"{_metadata_fault()}{details['fault']}, line {details['line']}, column {details['char']}"
        case "ME023":  # E2
            return f"{_EMPTY_TEXT} ({diagnostic.full_message})"
        case "ME060":  # E6
            return f"{_UNREADABLE_ROWS}{_conversion(diagnostic)} ({diagnostic.full_message})"
        case _:  # E10
            return diagnostic.full_message


def _framed(kind: str, detail: str, artifact: str) -> str:
    return (
        f"We encountered an error while parsing {kind} file being used, please fix the file and try again. "
        f"The error is: {detail}, ErrorCode: {INTERNAL}, ErrorCode: {INVALID_INPUT} ArtifactId: {artifact}"
    )


def _unopened(diagnostic: Diagnostic, artifact: str) -> str:
    """E1."""
    fault = "Parquet file size is 0 bytes" if diagnostic.code == "ME023" else diagnostic.message
    return (
        f"We encountered an error while opening the Parquet file '{ZONE}/{diagnostic.path}', please fix the file and "
        f"try again. The error is: 'Invalid: {fault}', ErrorCode: {INTERNAL}, ErrorCode: {INVALID_INPUT} "
        f"ArtifactId: {artifact}"
    )


def _schema_mismatch(diagnostic: Diagnostic, table: TableName, artifact: str, default_schema: str) -> str:
    """E5; the diagnostic's message is the cause."""
    schema = table.schema or default_schema
    name = f"{schema}\\{table.table}" if schema else table.table
    return (
        f"ErrorCode: {SCHEMA_MERGE}, Message: Failed to write table '{name}' due to schema mismatch. "
        f"{diagnostic.message} ArtifactId: {artifact}"
    )


def _conversion(diagnostic: Diagnostic) -> str:
    """.NET's message for a cell that is not of its column's type."""
    details = dict(diagnostic.details)
    kind = details.get("type", "")
    if kind in {"date", "timestamp"}:
        return "String was not recognized as a valid DateTime."
    if details.get("fault") == "out of range" and kind in _INTEGER_NAMES:
        return f"System.OverflowException: Value was either too large or too small for an {_INTEGER_NAMES[kind]}."
    return "System.FormatException: Input string was not in a correct format."


def _kind(diagnostic: Diagnostic) -> str:
    return "metadata" if diagnostic.path.endswith(METADATA_FILE) or diagnostic.code == "ME009" else "data"


def _metadata_fault() -> str:
    return f"Exception reading the metadata file: {METADATA_FILE}, Exception: "


REPLICATOR_FILE = f"{MONITORING}/replicator.json"
TABLES_FILE = f"{MONITORING}/tables.json"
_MAX_BYTES = 64 << 20
_DAY_SECONDS = 86_400
NEVER = "0001-01-01T00:00:00"  # .NET's DateTime.MinValue, which Fabric shows for no time
HEARTBEAT_SECONDS = 30.0
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class FabricTable:
    """The facts behind a table's entry in `tables.json`.

    Attributes:
        name: the table folder's name.
        state: one of the closed set.
        progress: the ledger's; None if the table is not known yet.
    """

    name: TableName
    state: TableState
    progress: Progress | None


def artifact_id(mirror: str) -> str:
    """The mirrored database's GUID, from the mirror's random id."""
    try:
        return str(UUID(mirror))
    except ValueError:
        return str(uuid5(NAMESPACE_URL, mirror))


def write(
    storage: Storage, tables: Sequence[FabricTable], *, mirror: str, now: float, default_schema: str = "dbo"
) -> None:
    """Rewrite both files, each atomically (LZ-9.1); call it after each cycle.

    Args:
        storage: of ROOT.
        tables: every table folder; unconfigured ones are left out (LZ-9.6).
        mirror: this ROOT's mirror id.
        now: seconds since 1970.
        default_schema: the Delta schema of tables outside a schema folder, `""` for none.

    Raises:
        StorageUnavailable: a file could not be written.
    """
    listed = [table for table in tables if not isinstance(table.state, Unconfigured)]
    entries = [_entry(table, mirror, now, default_schema) for table in listed]
    storage.write(TABLES_FILE, _encoded({"tables": entries}))
    storage.write(REPLICATOR_FILE, _encoded(replicator(now, table_count=len(listed))))


def write_stopped(storage: Storage, *, now: float) -> None:
    """Set the status in both files to `Stopped`; everything else stays as last written.

    Raises:
        StorageUnavailable: a file could not be read or written.
    """
    tables = [{**entry, "status": "Stopped"} for entry in read_tables(storage)]
    storage.write(TABLES_FILE, _encoded({"tables": tables}))
    storage.write(REPLICATOR_FILE, _encoded({**replicator(now, table_count=len(tables)), "status": "Stopped"}))


def read_tables(storage: Storage) -> list[dict[str, Any]]:
    """The entries of `tables.json`; none if it was never written or has another form.

    Raises:
        StorageUnavailable: the file could not be read.
    """
    try:
        with storage.open(TABLES_FILE) as file:
            entries = json.loads(file.read(_MAX_BYTES))["tables"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return []
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def write_heartbeat(storage: Storage, *, now: float, table_count: int = 0) -> None:
    """Rewrite `replicator.json` alone, at least once a minute (LZ-9.1).

    Raises:
        StorageUnavailable: the file could not be written.
    """
    storage.write(REPLICATOR_FILE, _encoded(replicator(now, table_count=table_count)))


def last_heartbeat(storage: Storage) -> float | None:
    """Seconds since 1970 of the last heartbeat; None if none was ever written or it cannot be parsed.

    Raises:
        StorageUnavailable: the file could not be read.
    """
    try:
        with storage.open(REPLICATOR_FILE) as file:
            written = json.loads(file.read(65_536))["lastHeartbeatTime"]
        return datetime.fromisoformat(f"{written[:26]}+00:00").timestamp()  # Python 3.10 reads no seventh digit
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def replicator(now: float, *, table_count: int) -> dict[str, str]:
    """The content of `replicator.json`; error E8 with more tables than Fabric mirrors (LZ-7.10)."""
    is_crowded = table_count > MAX_FABRIC_TABLES
    return {
        "status": "Running",
        "errorCode": INTERNAL if is_crowded else "",
        "errorMessage": TOO_MANY_TABLES if is_crowded else "",
        "lastHeartbeatTime": f"{dotnet(now)}+00:00",
    }


def fabric_status(state: TableState, progress: Progress | None) -> str | None:
    """Fabric's table status (LZ-9.6): a blocked or halted table keeps its former one; None for a folder not listed."""
    if isinstance(state, Unconfigured):
        return None
    if isinstance(state, Empty) and state.expired:
        return "Failed"
    if progress is None:
        return "Initialized"
    return "Replicating" if progress.has_table else "Snapshotting"


def _entry(table: FabricTable, mirror: str, now: float, default_schema: str) -> dict[str, Any]:
    name, progress = table.name, table.progress
    code, message = fabric_error(table, mirror, now, default_schema)
    committed = progress is not None and progress.has_table
    return {
        # by folder: two folders may share one normalized name, `a.schema/b` and `a.b`
        "id": str(uuid5(UUID(artifact_id(mirror)), name.folder)),
        "status": fabric_status(table.state, progress),
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
            "lastSyncTimeUtc": f"{dotnet(progress.last_commit_at)}Z" if progress and committed else NEVER,
        },
    }


def fabric_error(table: FabricTable, mirror: str, now: float, default_schema: str) -> tuple[str, str]:
    """Fabric's error code and message for a table; both empty if there is none."""
    match table.state:
        case Halted(diagnostic):
            return fabric_message(diagnostic, table.name, artifact_id(mirror), default_schema=default_schema)
        case Empty(expired=True):
            since = table.progress.configured_at if table.progress else now
            return INTERNAL, stuck(f"{int((now - since) // _DAY_SECONDS)} days")
        case _:
            return "", ""


def _encoded(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, indent=2).encode()


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

        Raises:
            StorageUnavailable: they could not be written.
        """
        ledger = self._context.ledger
        tables = [FabricTable(table, plan.state, ledger.progress(table)) for table, plan in plans.items()]
        if tables == self._written and time.monotonic() - self._written_at < HEARTBEAT_SECONDS:
            return
        self._written = None
        default_schema = self._context.config.delta_default_schema
        write(
            self._context.storage,
            tables,
            mirror=ledger.mirror,
            now=self._context.clock(),
            default_schema=default_schema,
        )
        self._written, self._written_at = tables, time.monotonic()


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
            with suppress(StorageUnavailable):  # the cycle reports the same failure
                write_heartbeat(context.storage, now=context.clock(), table_count=len(context.ledger.tables()))
