"""Which pending file Fabric would reject: those of each table, read as Fabric would, from the next one on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.landing_zone.states import Behind, Halted, Loading
from mirror_engine.publisher.trace.replay import ReplayStart, open_trace, replay_table
from mirror_engine.tables.merge.keys_only import KeyWriter, keys_only

if TYPE_CHECKING:
    from mirror_engine.engine.planner import MirrorSnapshot
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.monitoring.status import MirrorStatus, TableStatus
    from mirror_engine.publisher.trace.replay import TraceContext
    from mirror_engine.tables.base import TableSnapshot


class _ContinuingWriter(KeyWriter):
    """A `KeyWriter` that goes on from a table, whose rows it does not have.

    Args:
        table: the table as it is; None where it is not there yet.
    """

    def __init__(self, table: TableSnapshot | None) -> None:
        super().__init__()
        self._table = table

    def snapshot(self, table: str) -> TableSnapshot | None:
        found = super().snapshot(table)
        return replace(found, count_rows=self._table.count_rows) if found and self._table else found


def with_rejections(seen: MirrorSnapshot, status: MirrorStatus) -> MirrorStatus:
    """Return the status with the first file of each table that Fabric would reject; reads the pending files.

    Raises:
        TransientError: a file could not be read for now.
    """
    return replace(status, tables=tuple(_checked(seen, table) for table in status.tables))


def _checked(seen: MirrorSnapshot, table: TableStatus) -> TableStatus:
    found = first_rejected(seen, table.name) if isinstance(table.state, Behind | Loading) else None
    if found is None:
        return table
    paths = [file.path for file in table.pending_files]
    path = found.path.removeprefix(f"{table.name.folder}/")
    at = paths.index(path) if path in paths else 0  # metadata is read before all of them
    files = (
        replace(file, state="rejected", reason=found.message)
        if file.path == path
        else replace(file, reason=f"Fabric would halt at {found.path}")
        if place >= at and file.state != "applied"
        else file
        for place, file in enumerate(table.files)
    )
    next_files = {**table.next_files, **({partition_of(path): path.rpartition("/")[2]} if path in paths else {})}
    return replace(table, would_reject=found, blocked_by=found.path, files=tuple(files), next_files=next_files)


def first_rejected(seen: MirrorSnapshot, table: TableName) -> Diagnostic | None:
    """Why the first rejected file of a table's pending ones is rejected; None where all are good."""
    trace = open_trace(seen, table.folder)
    known = seen.context.writer.snapshot(trace.status.delta_folder) if trace.progress else None
    sizes = [file.size for file in trace.listing.files]
    state = replay_table(trace, _start(trace, known), _ContinuingWriter(known), keys_only(sizes)).state
    return state.diagnostic if isinstance(state, Halted) else None


def _start(trace: TraceContext, known: TableSnapshot | None) -> ReplayStart | None:
    """The start of a replay behind all applied files, whose rows are not needed."""
    if trace.progress is None or known is None:
        return None
    rows = max(1, trace.progress.rows_processed)
    progress = replace(trace.progress, batch=1, delta_version=1, rows_processed=rows)
    return ReplayStart(progress, 0, (), None, known.schema, None)
