"""Dry runs of one table: from its first file, or from the rows that are left of deleted ones."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from mirror_engine.engine.ledger import Ledger
from mirror_engine.errors import ConcurrentModification, TableDamaged, UsageError
from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.landing_zone.detection import marks_after
from mirror_engine.landing_zone.diagnostics import RejectedFile
from mirror_engine.landing_zone.listing import Entry
from mirror_engine.landing_zone.metadata import Metadata, Strategy
from mirror_engine.landing_zone.progress import Applied, AppliedFile, Mark
from mirror_engine.landing_zone.schema import Column, TableSchema
from mirror_engine.landing_zone.states import Behind, Loading
from mirror_engine.tables.arrow_types import arrow_schema, delta_type
from mirror_engine.tables.base import BatchRecord, ChangeBatch, FileRows, ReadContext
from mirror_engine.tables.reading.reader import ChangeFileReader
from mirror_engine.tables.reading.request import LandedFolder, ReadRequest
from mirror_engine.tools.dry_run import DryRun, first_numbers
from mirror_engine.tools.trace.results import ReplayStart

if TYPE_CHECKING:
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.monitoring.status import TableStatus
    from mirror_engine.monitoring.status_results import FileStatus
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.base import Chosen, DeltaWriter
    from mirror_engine.tables.reading.spill import ReadMode
    from mirror_engine.tools.trace.context import TraceContext

START_PATH = ""  # placeholder path for rows of deleted files
VERSION = 1  # of the writer's table once it has these rows


@dataclass(frozen=True)
class DryRunStart:
    """The start of a replay of a table whose first files cannot be replayed, because some of them were deleted."""

    progress: Progress  # at that point
    applied: Applied  # the known files of all before the replay
    schema: TableSchema  # after the last of these files; the present one if that is not known
    rows: pa.Table | None  # then, or those asked for; None if they are not known
    shown: ReplayStart


def dry_run_table(
    trace: TraceContext, start: DryRunStart | None, writer: DeltaWriter, mode: ReadMode, storage: Storage | None = None
) -> TableStatus:
    """Replay all that can be replayed into an empty writer, and return the status of the table then.

    `mode` must suit the writer; `storage` is another arrangement of the files. Raises `TransientError`.
    """
    ledger = Ledger.fresh()
    if start:
        ledger.record(trace.name, start.progress, start.applied)
        _write_start(trace, start, ledger.mirror, writer, mode)
    with DryRun(storage or trace.storage, trace.context.config, writer, mode, ledger=ledger) as dry_run:
        (status,) = dry_run.run().tables
    return status


def _write_start(trace: TraceContext, start: DryRunStart, mirror: str, writer: DeltaWriter, mode: ReadMode) -> None:
    """Write the rows of earlier files as one file of inserts."""
    keys = tuple(name for name in start.progress.key_columns or () if start.schema.find(name))
    rows = arrow_schema(start.schema.columns).empty_table() if start.rows is None else start.rows
    markers = pa.repeat(pa.scalar(RowMarker.INSERT.value, pa.int8()), rows.num_rows)
    rows = rows.append_column(pa.field(MARKER_COLUMN, pa.int8()), markers)
    store = mode.store(rows.schema, keys)
    for batch in rows.to_batches():
        store.add(batch)
    store.finish()
    counts = {RowMarker.INSERT.value: rows.num_rows}
    file = FileRows(Entry(START_PATH, 0, 0, ""), "", store, counts, has_marker=True, byte_count=0)
    record = BatchRecord(mirror, "", start.progress, trace.name.folder, Applied())
    writer.apply(trace.status.delta_folder, ChangeBatch((file,), start.schema, keys), record)


def file_state(trace: TraceContext, replayed: FileStatus) -> FileStatus:
    """Status of a file the replay could not apply; the engine's own status wins if it stopped at the same problem."""
    actual = trace.files.get(replayed.path)
    has_stopped = not isinstance(trace.plan.state, Behind | Loading)
    is_explained = actual and has_stopped and actual.state != "applied" and replayed.state != "rejected"
    return actual if actual and is_explained else replayed


def read_pending(trace: TraceContext, path: str, writer: DeltaWriter, mode: ReadMode) -> FileRows | None:
    """Read a file that cannot be applied yet by itself; None if it was deleted, or breaks the protocol.

    The writer holds the table as far as it was replayed. Raises `StorageUnavailable`.
    """
    file = next((file for file in trace.listing.files if file.path == path), None)
    if file is None:
        return None
    table = writer.snapshot(trace.status.delta_folder)
    context = ReadContext(table.schema if table else None, is_empty=table is None)
    folder = LandedFolder(trace.zone, trace.name, trace.listing.usable or Metadata())
    try:
        return ChangeFileReader(trace.storage, trace.context.config, mode).read(ReadRequest(folder, file, context))
    except (RejectedFile, ConcurrentModification):
        return None


def dry_run_start(trace: TraceContext, where: Chosen | None = None) -> DryRunStart | None:
    """Where the replay starts, with all rows or those chosen; None: at the very first file."""
    progress, delta, delta_folder = trace.progress, trace.context.delta, trace.status.delta_folder
    snapshot = delta.snapshot(delta_folder) if progress and progress.has_table else None
    if progress is None or snapshot is None:
        return None
    present = {file.path: file.etag for file in trace.listing.files}
    watermarks = _unknown_numbers(trace)
    unknown = sum(watermarks.values())
    by_version: defaultdict[int, list[str]] = defaultdict(list)  # -1 where the version is not known any more
    for path, applied in trace.applied.files.items():
        by_version[applied.version].append(path)
    deleted = [version for version, paths in by_version.items() if not present.keys() >= {*paths}]
    if not deleted and not unknown:
        return None
    last = max(deleted, default=-1)
    before = [path for version, paths in sorted(by_version.items()) if version <= last for path in paths]
    version = last if last >= 0 else min((known for known in by_version if known >= 0), default=0) - 1
    schema, rows = snapshot.schema, None
    if version >= 0:
        with suppress(UsageError, TableDamaged):  # the version is not available any more
            rows = delta.rows(delta_folder, version=version, where=where)
    if rows is not None:
        columns = [Column(field.name, delta_type(field.type) or "string", field.nullable) for field in rows.schema]
        schema = TableSchema(tuple(columns), schema.partition_columns)
    start = replace(
        progress,
        identity=trace.listing.identity,
        batch=1,
        delta_version=VERSION,
        rejection=None,
        diagnostics={},
        segments=(),
    )
    files = {path: AppliedFile(present.get(path, ""), "", VERSION, 0, 0) for path in before}
    marks = {place: Mark(number) for place, number in watermarks.items()}
    marks |= marks_after(marks, files, in_order=True)
    return DryRunStart(
        start,
        Applied(files, marks),
        schema,
        rows,
        ReplayStart(
            deleted_files=unknown + sum(path not in present for path in before),
            not_replayed=tuple(path for path in before if path in present),
            delta_version=None if rows is None else version,
            has_rows=rows is not None,
        ),
    )


def _unknown_numbers(trace: TraceContext) -> dict[str, int]:
    """By partition how many numbers below the first known one were applied: their files are deleted and forgotten."""
    config, metadata = trace.context.config, trace.listing.usable
    if metadata is None or metadata.strategy is not Strategy.SEQUENTIAL or config.first_file == "lowest":
        return {}
    first = first_numbers({*trace.applied.files, *(file.path for file in trace.listing.files)})
    watermarks = {place: mark.watermark for place, mark in trace.applied.marks.items() if mark.watermark}
    lowest = {partition: min(number, first.get(partition, number)) for partition, number in watermarks.items()}
    return {partition: number - 1 for partition, number in lowest.items() if number > 1}
