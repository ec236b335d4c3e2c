"""A commit of a table as its history tells it, and how the commit's change files got into the table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror_engine.delta.base import BatchRecord

STAGED, APPENDED, MERGED = "staged", "appended", "merged"
_WAYS = {"STAGE": STAGED, "APPEND": APPENDED, "WRITE": APPENDED, "MERGE": MERGED}


@dataclass(frozen=True)
class HistoryEntry:
    """One commit of a Delta table.

    Attributes:
        version: Delta version.
        timestamp_ms: milliseconds since 1970.
        operation: in Delta's words.
        files: change files it holds; empty for commits that hold none.
        rows: rows of those files.
        engine: who made it.
        metrics: Delta's own operation metrics.
        plan: how the batch was merged, in words; `""` where there was no choice.
        way: how its files got there: `staged`, `appended`, `merged`; `""` where it holds none.
        reasons: why files were not staged, in words, by path.
    """

    version: int
    timestamp_ms: int
    operation: str
    files: tuple[str, ...] = ()
    rows: int = 0
    engine: str = ""
    metrics: Mapping[str, str] = field(default_factory=dict)
    plan: str = ""
    way: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)


def way_of(operation: str) -> str:
    """How change files get into a table by an operation of a `DeltaWriter` or of Delta; `""` by none."""
    return _WAYS.get(operation, "")


def gone(record: BatchRecord, operation: str) -> BatchRecord:
    """The record, which says of its own files how they get there."""
    way, own = way_of(operation), set(record.files)
    applied = record.progress.applied
    told = {path: replace(file, way=way) if path in own else file for path, file in applied.items()}
    return replace(record, progress=replace(record.progress, applied=told))


def way_of_record(record: BatchRecord, operation: str) -> str:
    """How the record's own files got there; of an older record, by Delta's word for the commit."""
    applied = record.progress.applied
    told = next((applied[path].way for path in record.files if path in applied), "")
    return told or (way_of(operation) if record.files else "")


def reasons_of(record: BatchRecord) -> dict[str, str]:
    """Why the record's own files were not staged, by path, as far as somebody asked."""
    applied = record.progress.applied
    return {path: applied[path].reason for path in record.files if path in applied and applied[path].reason}
