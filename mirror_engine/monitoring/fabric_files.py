"""Fabric's monitoring files: its statuses and error messages, written and read (LZ-9, LZ-10)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from uuid import UUID, uuid5

from mirror_engine.errors import RootLocked, StorageUnavailable
from mirror_engine.landing_zone.layout import MONITORING, ZONE
from mirror_engine.landing_zone.names import MAX_FABRIC_TABLES, METADATA_FILE, TableName
from mirror_engine.landing_zone.states import CaughtUp, Empty, Halted, Unconfigured, Unlisted
from mirror_engine.threads import threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.planner import Plan
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.landing_zone.states import TableState
    from mirror_engine.storage.base import Storage

REPLICATOR_FILE = f"{MONITORING}/replicator.json"
TABLES_FILE = f"{MONITORING}/tables.json"
HEARTBEAT_SECONDS = 30.0
BUSY_SECONDS = 1.0  # between two writes while there is work
NEVER = "0001-01-01T00:00:00"  # .NET's DateTime.MinValue, which Fabric shows for no time
INVALID_INPUT = "InputValidationError"
SCHEMA_MERGE = "SchemaMergeFailure"
INTERNAL = "InternalError"
THROTTLED = "The replication is being throttled and expected to continue at {time}."  # E9
TOO_MANY_TABLES = "The tables count might exceed the limit, there could be some tables missing."  # E8

_MESSAGES = Path(__file__).with_name("fabric_messages.json")
_OTHER = "E10"  # shape of messages that were not observed
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
    definition, is_parquet = diagnostic.definition, diagnostic.path.lower().endswith(".parquet")
    shape = (definition.fabric_parquet if is_parquet else "") or definition.fabric or _OTHER
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


def _is_zone_away(context: EngineContext) -> bool:
    """Whether the folder of zone and monitoring files is gone from a known ROOT: a new one would be in its way."""
    if context.storage.is_store or not context.ledger.tables():
        return False
    return context.storage.stat(MONITORING.partition("/")[0]) is None


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
        self._waiting = plans
        is_busy = any(plan.steps for plan in plans.values())  # so that another cycle follows
        if not is_busy or self._context.clock.monotonic() - self._written_at >= BUSY_SECONDS:
            self._write_waiting()

    def settle(self) -> None:
        """Write what no cycle writes soon; an error stops nothing."""
        with suppress(StorageUnavailable, RootLocked):
            self._write_waiting()

    close = settle

    def _write_waiting(self) -> None:
        plans, self._waiting = self._waiting, None
        if plans is not None:
            self._write(plans)

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
        if _is_zone_away(context):
            return
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
                if _is_zone_away(context):
                    continue
                content = replicator(context.clock(), table_count=len(context.ledger.tables()))
                _write_json(context.storage, REPLICATOR_FILE, content)

    thread = threads().start(run, "heartbeat")
    try:
        yield
    finally:
        stopped.set()
        thread.join()
