"""Fabric's monitoring files, `tables.json` and `replicator.json`: read and written (LZ-9)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID, uuid5

from mirror_engine.landing_zone.layout import MONITORING
from mirror_engine.landing_zone.names import MAX_FABRIC_TABLES, TableName
from mirror_engine.landing_zone.states import Empty, Unconfigured
from mirror_engine.monitoring.fabric_errors import INTERNAL, TOO_MANY_TABLES, FabricTable, fabric_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.landing_zone.states import TableState
    from mirror_engine.storage.base import Storage

REPLICATOR_FILE = f"{MONITORING}/replicator.json"
TABLES_FILE = f"{MONITORING}/tables.json"
NEVER = "0001-01-01T00:00:00"  # .NET's DateTime.MinValue, which Fabric shows for no time

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


Entries: TypeAlias = Mapping[TableName, tuple[FabricTable, str]]  # of `tables.json`, each with what it was made from


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


def write_replicator(
    storage: Storage, *, now: float, table_count: int = 0, status: str = "Running", error: str = ""
) -> None:
    """Rewrite `replicator.json` alone, with an error's message if there is one. Raises `StorageUnavailable`."""
    _write_json(storage, REPLICATOR_FILE, replicator(now, table_count=table_count, status=status, error=error))


def read_tables(storage: Storage) -> list[dict[str, Any]]:
    """The entries of `tables.json`; none if it was never written or has another form. Raises `StorageUnavailable`."""
    entries = _read_json(storage, TABLES_FILE).get("tables")
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def read_replicator(storage: Storage) -> dict[str, Any]:
    """The content of `replicator.json`; empty if it was never written or has another form.

    Raises `StorageUnavailable`.
    """
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
