"""Fabric's error codes and messages for a table, shapes E1 to E10 (LZ-10)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.names import METADATA_FILE, TableName
from mirror_engine.landing_zone.states import Empty, Halted

if TYPE_CHECKING:
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.landing_zone.states import TableState

INVALID_INPUT = "InputValidationError"
SCHEMA_MERGE = "SchemaMergeFailure"
INTERNAL = "InternalError"
THROTTLED = "The replication is being throttled and expected to continue at {time}."  # E9
TOO_MANY_TABLES = "The tables count might exceed the limit, there could be some tables missing."  # E8

_MESSAGES = Path(__file__).with_name("fabric_messages.json")
_OTHER = "E10"  # shape of messages that were not observed
_INTEGER_NAMES = {"byte": "SByte", "short": "Int16", "integer": "Int32", "long": "Int64"}
_DAY_SECONDS = 86_400


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
