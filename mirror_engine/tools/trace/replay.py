"""Dry runs: replay a landing zone, or one table of a mirror, into a writer of its own without modifying the zone."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from mirror_engine.clock import Clock
from mirror_engine.engine.context import EngineContext
from mirror_engine.engine.cycle import Engine, RunResult
from mirror_engine.engine.ledger import Ledger
from mirror_engine.engine.poller import Poller
from mirror_engine.engine.root_identity import has_content
from mirror_engine.errors import ConcurrentModification, StorageUnavailable, TableDamaged, UnknownTable, UsageError
from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.landing_zone.detection import marks_after, number_of
from mirror_engine.landing_zone.diagnostics import RejectedFile, printable
from mirror_engine.landing_zone.listing import Entry, partition_of
from mirror_engine.landing_zone.metadata import Metadata, Strategy
from mirror_engine.landing_zone.names import METADATA_FILE, find_table
from mirror_engine.landing_zone.progress import Applied, AppliedFile, Mark
from mirror_engine.landing_zone.schema import Column, TableSchema
from mirror_engine.landing_zone.states import Behind, Halted, Loading
from mirror_engine.monitoring.status import mirror_status
from mirror_engine.storage.zone_view import RestoredView, Source, ZoneView
from mirror_engine.tables.arrow_types import arrow_schema, delta_type
from mirror_engine.tables.base import BatchRecord, ChangeBatch, FileRows, ReadContext
from mirror_engine.tables.dry_run.keys_only import KeyWriter, keys_only
from mirror_engine.tables.reading.reader import ChangeFileReader
from mirror_engine.tables.reading.request import LandedFolder, ReadRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mirror_engine.config import Config
    from mirror_engine.engine.planner import Plan
    from mirror_engine.events import Event
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import TableListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.monitoring.status import FileStatus, MirrorStatus, TableStatus
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.base import Chosen, DeltaWriter, HistoryEntry, TableSnapshot
    from mirror_engine.tables.reading.spill import ReadMode
    from mirror_engine.tools.snapshot import MirrorSnapshot

START_PATH = ""  # placeholder path for rows of deleted files
_VERSION = 1  # of the writer's table once it has these rows


class DryRun(AbstractContextManager["DryRun"]):
    """An engine over a landing zone that it only reads, with a ledger in memory: no progress by default.

    `mode`, which says how thoroughly files are read and where their rows go, must suit the writer. Options about
    cleanup have no effect. What a `poller` has just listed is not listed again.
    """

    def __init__(  # noqa: PLR0913 - every part may be replaced
        self,
        storage: Storage,
        config: Config,
        writer: DeltaWriter,
        mode: ReadMode,
        *,
        listener: Callable[[Event], None] = lambda _: None,
        ledger: Ledger | None = None,
        poller: Poller | None = None,
    ) -> None:
        kept = type(config).delete_processed_after_seconds  # without effect beside it
        config = replace(config, cleanup="off", delete_processed_after_seconds=kept)
        storage = ZoneView(storage)
        self._ledger = ledger or Ledger.fresh()
        self._is_over = False

        def emit(event: Event) -> None:
            if self._is_over:  # Ctrl+C: the batch ends with the file that was being read
                raise CancelledError
            listener(event)

        self.context = EngineContext(storage, writer, self._ledger, config, Clock(), emit)
        self.engine = Engine(self.context, lambda: ChangeFileReader(storage, config, mode))
        self._is_listed = poller is not None
        self.engine.poller = poller or self.engine.poller

    def __exit__(self, *exception: object) -> None:
        self._is_over = True
        self.engine.close()
        self._ledger.close()

    def run(self) -> MirrorStatus:
        """Replay all that can be replayed, and return the status of every table; raises `TransientError`."""
        self.engine.sync(threading.Event(), final=[RunResult.FAILED], is_listed=self._is_listed)
        last = self.engine.last
        for failure in last.failures.values():
            raise failure
        zone = last.zone or self.engine.poller.scan()
        return mirror_status(Path(), self.context, zone, last.plans, engine_running=True)


@dataclass(frozen=True)
class ReplayStart:
    """The start of a replay of a table whose first files cannot be replayed, because some of them were deleted."""

    progress: Progress  # at that point
    applied: Applied  # the known files of all before the replay
    deleted_files: int  # how many
    not_replayed: tuple[str, ...]  # existing files that were applied before or along with a deleted one
    delta_version: int | None  # after the last of these files; None if it is not known
    schema: TableSchema  # at that version; the present one if that is not known
    rows: pa.Table | None  # at that version, or those asked for; None if they are not known


@dataclass(frozen=True)
class TraceContext:
    """One table, as it is and as it can be replayed."""

    context: EngineContext  # the mirror's own, to be read only
    name: TableName
    plan: Plan
    status: TableStatus
    progress: Progress | None  # of the folder's present generation; None before anything was applied
    applied: Applied  # all that was applied in it
    commits: tuple[HistoryEntry, ...]  # oldest first, as far back as the log reaches; none before anything was applied
    zone: str  # from ROOT
    storage: Storage  # ROOT with this table alone, archived files at their old paths, in the order they were applied
    listing: TableListing  # in that storage
    overwritten: frozenset[str]  # files whose content is not the applied one, as far as that is known (LZ-3.13)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The key columns of the metadata; empty in a keyless table; raises `UsageError` without metadata."""
        metadata = self.listing.usable
        if metadata is None and self.context.config.missing_metadata == "wait":
            raise UsageError(
                f"{self.name.normalized}: has no usable {METADATA_FILE}", "see what is wrong: mirror-engine status"
            )
        return metadata.key_columns if metadata else ()

    @cached_property
    def files(self) -> Mapping[str, FileStatus]:
        """The status of each change file, by path from the table folder."""
        return {file.path: file for file in self.status.files}

    def files_of_commit(self, path: str) -> tuple[str, ...]:
        """The files of the commit that a file went into, itself among them; empty if that is not known."""
        version = self.files[path].delta_version if path in self.files else None
        return next((commit.files for commit in self.commits if commit.version == version), ())


def open_trace(snapshot: MirrorSnapshot, table: str) -> TraceContext:
    """The table of that name, in any case; raises `UnknownTable` or `StorageUnavailable`."""
    context, zone = snapshot.context, snapshot.zone
    listings = {context.delta_folder(listing.name): listing for listing in zone.tables}
    try:
        delta_folder = find_table(table, list(listings), context.config.delta_default_schema)
    except UnknownTable:
        if zone.unlisted:  # it may be there
            raise _not_listed(*sorted(zone.unlisted)) from None
        raise
    present = listings[delta_folder]
    name, folder = present.name, f"{zone.folder}/{present.name.folder}"
    plan = snapshot.plans[name]
    (status,) = mirror_status(Path(), context, zone, {name: plan}, engine_running=False, also=None).tables
    progress = None if any(plan.records("start_generation")) else context.ledger.progress(name)
    applied = Applied(context.ledger.applied(name), context.ledger.marks(name)) if progress else Applied()
    commits = tuple(reversed(context.delta.history(delta_folder))) if progress and progress.has_table else ()
    names = {*(other.name.folder for other in zone.tables if other.name != name), *zone.unlisted}
    others = {f"{zone.folder}/{other}": None for other in names}
    is_overwritten = bool(_overwritten(present, applied, context.storage, folder))
    restored = RestoredView(context.storage, archived_first=is_overwritten)
    storage: Storage = ZoneView(restored, others)
    listing = listing_of(storage, context.config, name)
    if progress:
        storage = ZoneView(storage, _as_applied(folder, listing, applied, commits, present))
        listing = listing_of(storage, context.config, name)
    overwritten = _overwritten(listing, applied, storage, folder)
    place = zone.folder, storage, listing
    return TraceContext(context, name, plan, status, progress, applied, commits, *place, overwritten)


def listing_of(storage: Storage, config: Config, name: TableName) -> TableListing:
    """List one table folder; raises `StorageUnavailable`."""
    tables = Poller(storage, config).scan().tables
    found = next((listing for listing in tables if listing.name == name), None)
    if found is None:
        raise _not_listed(name.folder)
    return found


def _not_listed(*folders: str) -> StorageUnavailable:
    names = ", ".join(map(printable, folders))
    return StorageUnavailable(f"{names}: cannot be listed or read", "Check path and rights, and run it again.")


def _overwritten(listing: TableListing, known: Applied, storage: Storage, folder: str) -> frozenset[str]:
    """Files of other content than the applied ones of their names.

    An etag without its time, behind the last colon, says that they are the same; an archive in a store may hold copies.
    """
    applied = {path: file for path, file in known.files.items() if file.etag}
    others = (
        file.path
        for file in listing.files
        if file.path in applied and applied[file.path].etag.rpartition(":")[0] != file.etag.rpartition(":")[0]
    )
    return frozenset(path for path in others if not has_content(storage, f"{folder}/{path}", applied[path]))


def _as_applied(
    folder: str, listing: TableListing, applied: Applied, commits: Iterable[HistoryEntry], present: TableListing
) -> dict[str, Source | None]:
    """What a table folder must show so that it has the files that were applied, in their order.

    Archived files of earlier generations, which a stop and start leaves there, are hidden (LZ-7.7). Files that time
    orders get times in the order they were applied: some came late (LZ-3.6).
    """
    paths = [file.path for file in listing.files]
    known = {*applied.files, *(file.path for file in present.files)}
    mapping: dict[str, Source | None] = {f"{folder}/{path}": None for path in paths if path not in known}
    if listing.usable is not None and listing.usable.strategy is Strategy.LAST_UPDATE_TIME:
        order = dict.fromkeys([*(path for commit in commits for path in commit.files), *applied.files])
        ordered = [f"{folder}/{path}" for path in order if path in applied.files and path in paths]
        mapping |= {path: Source(path, rank) for rank, path in enumerate(ordered, start=1)}
    return mapping


def replay_table(
    trace: TraceContext, start: ReplayStart | None, writer: DeltaWriter, mode: ReadMode, storage: Storage | None = None
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


def _write_start(trace: TraceContext, start: ReplayStart, mirror: str, writer: DeltaWriter, mode: ReadMode) -> None:
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


def replay_start(trace: TraceContext, where: Chosen | None = None) -> ReplayStart | None:
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
        delta_version=_VERSION,
        rejection=None,
        diagnostics={},
        segments=(),
    )
    files = {path: AppliedFile(present.get(path, ""), "", _VERSION, 0, 0) for path in before}
    marks = {place: Mark(number) for place, number in watermarks.items()}
    marks |= marks_after(marks, files, in_order=True)
    return ReplayStart(
        start,
        Applied(files, marks),
        deleted_files=unknown + sum(path not in present for path in before),
        not_replayed=tuple(path for path in before if path in present),
        delta_version=None if rows is None else version,
        schema=schema,
        rows=rows,
    )


def first_numbers(paths: Iterable[str]) -> Mapping[str, int]:
    """The lowest number of the files that have one, by partition."""
    lowest: dict[str, int] = {}
    for path in paths:
        if number := number_of(path):
            lowest[partition_of(path)] = min(number, lowest.get(partition_of(path), number))
    return lowest


def _unknown_numbers(trace: TraceContext) -> dict[str, int]:
    """By partition how many numbers below the first known one were applied: their files are deleted and forgotten."""
    config, metadata = trace.context.config, trace.listing.usable
    if metadata is None or metadata.strategy is not Strategy.SEQUENTIAL or config.first_file == "lowest":
        return {}
    first = first_numbers({*trace.applied.files, *(file.path for file in trace.listing.files)})
    watermarks = {place: mark.watermark for place, mark in trace.applied.marks.items() if mark.watermark}
    lowest = {partition: min(number, first.get(partition, number)) for partition, number in watermarks.items()}
    return {partition: number - 1 for partition, number in lowest.items() if number > 1}


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
    return replace(status, tables=tuple(_checked(seen, table) for table in status.tables))


def _checked(seen: MirrorSnapshot, table: TableStatus) -> TableStatus:
    found = _first_rejected(seen, table.name) if isinstance(table.state, Behind | Loading) else None
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


def _first_rejected(seen: MirrorSnapshot, table: TableName) -> Diagnostic | None:
    """Why the first rejected file of a table's pending ones is rejected; None where all are good."""
    trace = open_trace(seen, table.folder)
    progress, start = trace.progress, None
    known = seen.context.delta.snapshot(trace.status.delta_folder) if progress else None
    if progress and known:  # behind all applied files, whose rows are not needed
        rows = max(1, progress.rows_processed)
        progress = replace(progress, batch=1, delta_version=_VERSION, rows_processed=rows)
        start = ReplayStart(progress, trace.applied, 0, (), None, known.schema, None)
    sizes = [file.size for file in trace.listing.files]
    state = replay_table(trace, start, _ContinuingWriter(known), keys_only(sizes)).state
    return state.diagnostic if isinstance(state, Halted) else None
