"""The first pending file of each table that Fabric would reject."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.landing_zone.states import Behind, Halted, Loading
from mirror_engine.tables.dry_run.keys_only import KeyWriter, keys_only
from mirror_engine.tools.trace.context import open_trace
from mirror_engine.tools.trace.dry_run import VERSION, DryRunStart, dry_run_table
from mirror_engine.tools.trace.results import ReplayStart

if TYPE_CHECKING:
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.monitoring.status import MirrorStatus, TableStatus
    from mirror_engine.tables.base import TableSnapshot
    from mirror_engine.tools.snapshot import MirrorSnapshot


class _ContinuingWriter(KeyWriter):
    """A `KeyWriter` that goes on from a table, None where it is not there yet, whose rows it does not have."""

    def __init__(self, table: TableSnapshot | None) -> None:
        super().__init__()
        self._table = table

    def snapshot(self, table: str) -> TableSnapshot | None:
        found = super().snapshot(table)
        return replace(found, count_rows=self._table.count_rows) if found and self._table else found


def with_rejections(seen: MirrorSnapshot, status: MirrorStatus) -> MirrorStatus:
    """Return the status with the first file of each table that Fabric would reject; may raise `TransientError`."""
    return structs.replace(status, tables=tuple(_checked(seen, table) for table in status.tables))


def _checked(seen: MirrorSnapshot, table: TableStatus) -> TableStatus:
    found = _first_rejected(seen, table.name) if isinstance(table.state, Behind | Loading) else None
    if found is None:
        return table
    paths = [file.path for file in table.pending_files]
    path = found.path.removeprefix(f"{table.name.folder}/")
    at = paths.index(path) if path in paths else 0  # metadata is read before all of them
    files = (
        structs.replace(file, state="rejected", reason=found.message)
        if file.path == path
        else structs.replace(file, reason=f"Fabric would halt at {found.path}")
        if place >= at and file.state != "applied"
        else file
        for place, file in enumerate(table.files)
    )
    next_files = {**table.next_files, **({partition_of(path): path.rpartition("/")[2]} if path in paths else {})}
    return replace(table, would_reject=found, blocked_by=found.path, files=tuple(files), next_files=next_files)


def _first_rejected(seen: MirrorSnapshot, table: TableName) -> Diagnostic | None:
    """Why the first rejected file of a table's pending ones is rejected; None where all are good."""
    trace = open_trace(seen, table.folder)
    progress, start = trace.progress, None
    known = seen.context.delta.snapshot(trace.status.delta_folder) if progress else None
    if progress and known:  # behind all applied files, whose rows are not needed
        rows = max(1, progress.rows_processed)
        progress = replace(progress, batch=1, delta_version=VERSION, rows_processed=rows)
        start = DryRunStart(progress, trace.applied, known.schema, None, ReplayStart(0, (), None, has_rows=False))
    sizes = [file.size for file in trace.listing.files]
    state = dry_run_table(trace, start, _ContinuingWriter(known), keys_only(sizes)).state
    return state.diagnostic if isinstance(state, Halted) else None
