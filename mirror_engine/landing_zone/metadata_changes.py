"""What may not change in `_metadata.json` once files have been applied (LZ-2.10, LZ-6.11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.landing_zone.column_types import folded, type_mismatch
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.names import METADATA_FILE, TableName

if TYPE_CHECKING:
    from mirror_engine.landing_zone.metadata import Metadata
    from mirror_engine.landing_zone.progress import Progress


def forbidden_change(table: TableName, progress: Progress | None, metadata: Metadata) -> Diagnostic | None:
    """The first change that latches the table, or None.

    Args:
        table: its name, for the message.
        progress: what was in force at the last commit.
        metadata: what is in force now.
    """
    if progress is None or not progress.has_table:
        return None
    path = f"{table.folder}/{METADATA_FILE}"
    return _changed_keys(path, progress, metadata) or _changed_columns(path, progress, metadata)


def _changed_keys(path: str, progress: Progress, metadata: Metadata) -> Diagnostic | None:
    """ME017; order and repeats do not count, and keys may be added to a keyless table (LZ-2.9)."""
    before = {folded(name) for name in progress.key_columns or ()}
    after = {folded(name) for name in metadata.key_columns}
    if not before or before == after:
        return None
    return diagnose(
        "ME017", path, before=_listed(progress.key_columns or ()), after=_listed(metadata.key_columns) or "none"
    )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _changed_columns(path: str, progress: Progress, metadata: Metadata) -> Diagnostic | None:
    """ME063, or ME044 for a type or a nullability."""
    before, after = progress.declared_columns, metadata.definition
    if not before or not after:
        return None
    for old, new in zip(before, after, strict=False):
        if old.name != new.name:
            return diagnose("ME063", path, column=old.name)
        if old != new:
            return diagnose("ME044", path, column=new.name, reason=type_mismatch(new, old))
    longer = max(before, after, key=len)
    shorter = min(len(before), len(after))
    return diagnose("ME063", path, column=longer[shorter].name) if len(longer) > shorter else None
