"""Fabric's own monitoring files, `replicator.json` and `tables.json`, (LZ-9.1 to 9.3, 9.6)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, UUID, uuid5

from mirror_engine.landing_zone.layout import MONITORING, ZONE
from mirror_engine.landing_zone.names import METADATA_FILE, TABLES_OF_THE_SERVICE
from mirror_engine.landing_zone.states import Empty, Halted, TableState, Unconfigured
from mirror_engine.monitoring.words import NEVER, dotnet, span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.storage.base import Storage

WORDED = frozenset({"ME009", "ME010", "ME023", "ME024", "ME044", "ME060", "ME068"})  # refusals whose words were seen
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
    """The error code and message of a refusal, shapes E1 to E7 and E10.

    Args:
        diagnostic: the error; its path is from the landing zone's top.
        table: the table that refused.
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
            found = dict(diagnostic.details)
            return f"{_metadata_fault()}{found['fault']}, line {found['line']}, column {found['char']}"
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
    """E5; the diagnostic's text is the cause."""
    schema = table.schema or default_schema
    name = f"{schema}\\{table.table}" if schema else table.table
    return (
        f"ErrorCode: {SCHEMA_MERGE}, Message: Failed to write table '{name}' due to schema mismatch. "
        f"{diagnostic.message} ArtifactId: {artifact}"
    )


def _conversion(diagnostic: Diagnostic) -> str:
    """What .NET says of a cell that is not of its column's type."""
    found = dict(diagnostic.details)
    wanted = found.get("type", "")
    if wanted in {"date", "timestamp"}:
        return "String was not recognized as a valid DateTime."
    if found.get("fault") == "out of range" and wanted in _INTEGER_NAMES:
        return f"System.OverflowException: Value was either too large or too small for an {_INTEGER_NAMES[wanted]}."
    return "System.FormatException: Input string was not in a correct format."


def _kind(diagnostic: Diagnostic) -> str:
    return "metadata" if diagnostic.path.endswith(METADATA_FILE) or diagnostic.code == "ME009" else "data"


def _metadata_fault() -> str:
    return f"Exception reading the metadata file: {METADATA_FILE}, Exception: "


REPLICATOR_FILE = f"{MONITORING}/replicator.json"
TABLES_FILE = f"{MONITORING}/tables.json"
_MAX_BYTES = 64 << 20


@dataclass(frozen=True)
class FabricTable:
    """What `tables.json` says of one table.

    Attributes:
        name: the table folder's name.
        state: one of the closed set.
        progress: the ledger's; None where the table is not known yet.
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
        tables: every table folder; unarmed ones are left out (LZ-9.6).
        mirror: this ROOT's mirror id.
        now: seconds since 1970.
        default_schema: the Delta schema of bare tables, `""` for none.

    Raises:
        StorageUnavailable: a file could not be written.
    """
    listed = [table for table in tables if not isinstance(table.state, Unconfigured)]
    entries = [_entry(table, artifact_id(mirror), now, default_schema) for table in listed]
    storage.write(TABLES_FILE, _encoded({"tables": entries}))
    storage.write(REPLICATOR_FILE, _encoded(replicator(now, table_count=len(listed))))


def write_stopped(storage: Storage, *, now: float) -> None:
    """Let both files say that nothing is mirrored any more; all else stays as it was last written.

    Raises:
        StorageUnavailable: a file could not be read or written.
    """
    tables = [{**entry, "status": "Stopped"} for entry in read_tables(storage)]
    storage.write(TABLES_FILE, _encoded({"tables": tables}))
    storage.write(REPLICATOR_FILE, _encoded({**replicator(now, table_count=len(tables)), "status": "Stopped"}))


def read_tables(storage: Storage) -> list[dict[str, Any]]:
    """The entries of `tables.json`; none where it was never written, or is none of ours.

    Raises:
        StorageUnavailable: the file could not be read.
    """
    try:
        with storage.open(TABLES_FILE) as file:
            entries = json.loads(file.read(_MAX_BYTES))["tables"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return []
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def beat(storage: Storage, *, now: float, table_count: int = 0) -> None:
    """Rewrite `replicator.json` alone: the heartbeat, at least once a minute (LZ-9.1).

    Raises:
        StorageUnavailable: the file could not be written.
    """
    storage.write(REPLICATOR_FILE, _encoded(replicator(now, table_count=table_count)))


def last_beat(storage: Storage) -> float | None:
    """Seconds since 1970 of the last heartbeat; None where none was ever written, or it cannot be read as one.

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
    """What `replicator.json` says; more tables than the service takes show as its error E8 (LZ-7.10)."""
    crowded = table_count > TABLES_OF_THE_SERVICE
    return {
        "status": "Running",
        "errorCode": INTERNAL if crowded else "",
        "errorMessage": TOO_MANY_TABLES if crowded else "",
        "lastHeartbeatTime": f"{dotnet(now)}+00:00",
    }


def status_word(state: TableState, progress: Progress | None) -> str:
    """Fabric's word for a table (LZ-9.6): a blocked or latched one keeps the word it had."""
    if isinstance(state, Empty) and state.expired:
        return "Failed"
    if progress is None:
        return "Initialized"
    return "Replicating" if progress.has_table else "Snapshotting"


def _entry(table: FabricTable, artifact: str, now: float, default_schema: str) -> dict[str, Any]:
    name, progress = table.name, table.progress
    code, message = _error(table, artifact, now, default_schema)
    committed = progress is not None and progress.has_table
    return {
        # by folder, for two folders may share one normalized name: `a.schema/b` and `a.b`
        "id": str(uuid5(UUID(artifact), name.folder)),
        "status": status_word(table.state, progress),
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
            "lastSyncTimeUtc": f"{dotnet(progress.synced_at)}Z" if progress and committed else NEVER,
        },
    }


def _error(table: FabricTable, artifact: str, now: float, default_schema: str) -> tuple[str, str]:
    match table.state:
        case Halted(diagnostic):
            return fabric_message(diagnostic, table.name, artifact, default_schema=default_schema)
        case Empty(expired=True):
            since = table.progress.armed_at if table.progress else now
            return INTERNAL, stuck(span(now - since))
        case _:
            return "", ""


def _encoded(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, indent=2).encode()
