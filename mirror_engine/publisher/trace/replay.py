"""Replays one table from its beginning into a writer of one's own."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from mirror_engine.engine.ledger import Ledger
from mirror_engine.engine.plan import StartGeneration
from mirror_engine.engine.poller import Poller
from mirror_engine.errors import ConcurrentModification, TableDamaged, UsageError
from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.landing_zone.detection import number_of
from mirror_engine.landing_zone.diagnostics import RejectedFile
from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.landing_zone.metadata import Metadata, Strategy
from mirror_engine.landing_zone.names import METADATA_FILE, find_table
from mirror_engine.landing_zone.progress import AppliedFile
from mirror_engine.landing_zone.schema import Column, TableSchema
from mirror_engine.landing_zone.states import Behind, Loading
from mirror_engine.monitoring.status import mirror_status
from mirror_engine.publisher.dry_run import DryRun
from mirror_engine.storage.zone_view import RestoredView, Source, ZoneView
from mirror_engine.tables.arrow_types import arrow_schema, delta_type
from mirror_engine.tables.base import BatchRecord, ChangeBatch, FileRows
from mirror_engine.tables.reading.reader import ChangeFileReader
from mirror_engine.tables.reading.request import ReadRequest, TableContext

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.plan import Plan
    from mirror_engine.engine.planner import MirrorSnapshot
    from mirror_engine.landing_zone.listing import LandedFile, TableListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.monitoring.status import FileStatus, TableStatus
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.base import Chosen, DeltaWriter, HistoryEntry
    from mirror_engine.tables.reading.spill import ReadMode

AT_THE_BEGINNING = ""  # the path under which rows are handed to a writer that no file holds any more
_VERSION = 1  # of the writer's table once it has them


def replay_table(
    scene: TraceContext,
    beginning: ReplayStart | None,
    writer: DeltaWriter,
    mode: ReadMode,
    storage: Storage | None = None,
) -> TableStatus:
    """Replay all that can be replayed, and say how the table then stands.

    Args:
        scene: the table.
        beginning: where to begin; None: at the first file.
        writer: door 2, empty, in memory.
        mode: what is kept of the rows; it must suit the writer.
        storage: another arrangement of the scene's.

    Raises:
        TransientError: something could not be read for a while.
    """
    ledger = Ledger.fresh()
    if beginning:
        ledger.record(scene.name, _begun(scene, beginning, ledger.mirror, writer, mode))
    with DryRun(storage or scene.storage, scene.context.config, writer, mode, ledger=ledger) as dry_run:
        (status,) = dry_run.run().tables
    return status


def standing(scene: TraceContext, replayed: FileStatus) -> FileStatus:
    """How a file stands that a replay could not apply: as the engine says where it has met what stops the replay."""
    real = scene.files.get(replayed.path)
    is_met = not isinstance(scene.plan.state, Behind | Loading)
    return real if real and is_met and real.state != "applied" and replayed.state != "rejected" else replayed


def read_unapplied(scene: TraceContext, path: str, writer: DeltaWriter, mode: ReadMode) -> FileRows | None:
    """A file that cannot be applied yet, read by itself; None where it is gone, or breaks the protocol.

    Args:
        scene: the table.
        path: of the file, from the table folder.
        writer: holds the table as far as it was replayed.
        mode: what is kept of its rows.

    Raises:
        StorageUnavailable: it could not be read for a while.
    """
    file = next((file for file in scene.listing.files if file.path == path), None)
    if file is None:
        return None
    table = writer.state(scene.status.delta_folder)
    facts = TableContext(table.schema if table else None, is_empty=table is None)
    request = ReadRequest(scene.zone, scene.name, file, scene.metadata or Metadata(), facts)
    try:
        return ChangeFileReader(scene.storage, scene.context.config, mode).read(request).rows
    except (RejectedFile, ConcurrentModification):
        return None


def _begun(scene: TraceContext, beginning: ReplayStart, mirror: str, writer: DeltaWriter, mode: ReadMode) -> Progress:
    """Put a writer in the state that the earlier files left; returns the progress that goes with it."""
    rows = beginning.as_inserts()
    keys = tuple(name for name in beginning.progress.key_columns or () if beginning.schema.find(name))
    progress = replace(
        beginning.progress,
        identity=scene.listing.identity,
        batch=1,
        delta_version=_VERSION,
        watermarks=beginning.watermarks,
        applied=_applied(scene, beginning),
        latch=None,
        waiting={},
        diagnostics={},
    )
    store = mode.store(rows.schema, keys)
    for batch in rows.to_batches():
        store.add(batch)
    store.finish()
    markers = {RowMarker.INSERT.value: rows.num_rows}
    file = FileRows(AT_THE_BEGINNING, "", "", 0, store, markers, has_marker=True, byte_count=0)
    record = BatchRecord(mirror, "", progress, (), scene.name.folder)
    writer.apply(scene.status.delta_folder, ChangeBatch((file,), beginning.schema, keys), record)
    return progress


def _applied(scene: TraceContext, beginning: ReplayStart) -> dict[str, AppliedFile]:
    etags = {file.path: file.etag for file in scene.listing.files}
    return {path: AppliedFile(etags.get(path, ""), "", _VERSION, 0, 0) for path in beginning.paths}


@dataclass(frozen=True)
class ReplayStart:
    """A table whose first files cannot be replayed, for some of them are gone.

    Attributes:
        progress: how far the real table is now.
        gone: how many files lie nowhere.
        earlier: files that lie there and are not replayed, for they came before or along with one that is gone.
        version: the Delta version behind the last of them; None where it is not known.
        schema: the table's there; as it is now where `version` is None.
        rows: the table's there, or those chosen of them; None where they cannot be told.
        watermarks: by partition the last number before the replay (LZ-3.4).
        paths: of all files before the replay that are known by name.
    """

    progress: Progress
    gone: int
    earlier: tuple[str, ...]
    version: int | None
    schema: TableSchema
    rows: pa.Table | None
    watermarks: Mapping[str, int]
    paths: tuple[str, ...]

    def as_inserts(self) -> pa.Table:
        """The rows as a file would bring them, with markers; none where they cannot be told."""
        schema = arrow_schema(self.schema.columns)
        found = schema.empty_table() if self.rows is None else self.rows
        markers = pa.repeat(pa.scalar(RowMarker.INSERT.value, pa.int8()), found.num_rows)
        return found.append_column(pa.field(MARKER_COLUMN, pa.int8()), markers)


def beginning_of(scene: TraceContext, where: Chosen | None = None) -> ReplayStart | None:
    """Where the replay begins, with all rows or those chosen; None: at the first file of all."""
    progress = scene.progress
    state = scene.context.writer.state(scene.status.delta_folder) if progress and progress.has_table else None
    if progress is None or state is None:
        return None
    lying = {file.path for file in scene.listing.files}
    unnamed = _unnamed(scene, progress)
    by_version = _by_version(progress)
    lossy = [version for version, paths in by_version.items() if not lying.issuperset(paths)]
    if not lossy and not unnamed:
        return None
    last = max(lossy, default=-1)
    before = [path for version, paths in by_version.items() if version <= last for path in paths]
    known = last if last >= 0 else min((version for version in by_version if version >= 0), default=0) - 1
    rows = _rows(scene, known, where)
    return ReplayStart(
        progress,
        gone=len([path for path in before if path not in lying]) + sum(unnamed.values()),
        earlier=tuple(path for path in before if path in lying),
        version=None if rows is None else known,
        schema=state.schema if rows is None else _schema(rows, state.schema),
        rows=rows,
        watermarks=_watermarks(before, unnamed),
        paths=tuple(before),
    )


def _by_version(progress: Progress) -> dict[int, list[str]]:
    """Applied files by the Delta version they went into; -1 where it is not known any more."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for path, file in progress.applied.items():
        found[file.version].append(path)
    return dict(sorted(found.items()))


def _unnamed(scene: TraceContext, progress: Progress) -> dict[str, int]:
    """By partition how many numbers below the first that is known were applied: nothing else tells of these files."""
    config, metadata = scene.context.config, scene.metadata
    if metadata is None or metadata.strategy is not Strategy.SEQUENTIAL or config.first_file == "lowest":
        return {}
    lowest = dict(progress.watermarks)
    known = {*progress.applied, *(file.path for file in scene.listing.files)}
    for path in known:
        partition, number = partition_of(path), number_of(path)
        if number and partition in lowest:
            lowest[partition] = min(lowest[partition], number)
    return {partition: number - 1 for partition, number in lowest.items() if number > 1}


def _watermarks(before: Iterable[str], unnamed: Mapping[str, int]) -> dict[str, int]:
    found = dict(unnamed)
    for path in before:
        partition, number = partition_of(path), number_of(path)
        if number:
            found[partition] = max(number, found.get(partition, 0))
    return found


def _rows(scene: TraceContext, version: int, where: Chosen | None) -> pa.Table | None:
    """The real table's rows at a version, by time travel; None where it cannot tell them any more."""
    try:
        if version < 0:
            return None
        return scene.context.writer.rows(scene.status.delta_folder, version=version, where=where)
    except (UsageError, TableDamaged):
        return None


def _schema(rows: pa.Table, now: TableSchema) -> TableSchema:
    columns = (Column(field.name, delta_type(field.type) or "string", field.nullable) for field in rows.schema)
    return TableSchema(tuple(columns), now.partition_columns)


@dataclass(frozen=True)
class TraceContext:
    """One table.

    Attributes:
        context: the real ones, to be read only.
        plan: what the engine would do now.
        status: how the table is.
        progress: how far the folder's present life is; None before anything was applied.
        commits: of the Delta table, oldest first, as far back as its log reaches; none before anything was applied.
        zone: the landing zone, from ROOT.
        storage: ROOT with this table alone, its files unmoved, in the order in which they were applied.
        listing: the table folder in that storage.
    """

    context: EngineContext
    plan: Plan
    status: TableStatus
    progress: Progress | None
    commits: tuple[HistoryEntry, ...]
    zone: str
    storage: Storage
    listing: TableListing

    @property
    def name(self) -> TableName:
        """The table."""
        return self.plan.table

    @property
    def folder(self) -> str:
        """The table folder, from ROOT."""
        return f"{self.zone}/{self.name.folder}"

    @property
    def metadata(self) -> Metadata | None:
        """What `_metadata.json` says now; None where it cannot be used."""
        return self.listing.usable

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The key as `_metadata.json` declares it; empty in a keyless table.

        Raises:
            UsageError: the folder is no table yet.
        """
        if self.metadata is None and self.context.config.missing_metadata == "wait":
            raise UsageError(
                f"{self.name.normalized}: is no table yet, for it has no usable {METADATA_FILE}",
                "See what is wrong with it: mirror-engine status.",
            )
        return self.metadata.key_columns if self.metadata else ()

    @cached_property
    def files(self) -> Mapping[str, FileStatus]:
        """How each change file really is, by path from the table folder."""
        return {file.path: file for file in self.status.files}

    @cached_property
    def versions(self) -> Mapping[int, HistoryEntry]:
        """Commits by Delta version."""
        return {commit.version: commit for commit in self.commits}

    @cached_property
    def overwritten(self) -> frozenset[str]:
        """Files whose content is another than the one that was applied, as far as that is remembered (LZ-3.13)."""
        return _replaced(self.listing, self.progress)

    def batch_of(self, path: str) -> tuple[str, ...]:
        """The files that went into one commit with this one, itself among them; empty where that is not known."""
        file = self.files.get(path)
        commit = self.versions.get(file.delta_version) if file and file.delta_version is not None else None
        return commit.files if commit else ()


def scene_of(look: MirrorSnapshot, table: str) -> TraceContext:
    """The table a person means.

    Raises:
        UnknownTable: the zone has none of that name.
        StorageUnavailable: it could not be read.
    """
    context, zone = look.context, look.zone
    folders = {context.delta_folder(listing.name): listing.name for listing in zone.tables}
    folder = find_table(table, list(folders), context.config.delta_default_schema)
    name = folders[folder]
    plan = look.plans[name]
    (status,) = mirror_status(Path(), context, zone, {name: plan}, engine_running=False).tables
    is_new = any(isinstance(step, StartGeneration) for step in plan.steps)
    progress = None if is_new else context.ledger.progress(name)
    commits = tuple(reversed(context.writer.history(folder))) if progress and progress.has_table else ()
    lying = next(listing for listing in zone.tables if listing.name == name)
    restored = RestoredView(context.storage, archived_first=bool(_replaced(lying, progress)))
    others = {f"{zone.folder}/{other.name.folder}": None for other in zone.tables if other.name != name}
    storage: Storage = ZoneView(restored, others)
    listing = _seen(context, storage, name)
    if progress:
        place = f"{zone.folder}/{name.folder}"
        slots = _of_other_lives(place, listing, progress, lying) | _as_applied(place, listing, progress, commits)
        storage = ZoneView(storage, slots)
        listing = _seen(context, storage, name)
    return TraceContext(
        context=context,
        plan=plan,
        status=status,
        progress=progress,
        commits=commits,
        zone=zone.folder,
        storage=storage,
        listing=listing,
    )


def _seen(context: EngineContext, storage: Storage, name: TableName) -> TableListing:
    found = Poller(storage, context.config).look()
    return next(listing for listing in found.tables if listing.name == name)


def _replaced(listing: TableListing, progress: Progress | None) -> frozenset[str]:
    applied = progress.applied if progress else {}
    return frozenset(
        file.path
        for file in listing.files
        if file.path in applied and applied[file.path].etag and not _is_same(file, applied[file.path].etag)
    )


def _of_other_lives(
    folder: str, listing: TableListing, progress: Progress, lying: TableListing
) -> dict[str, Source | None]:
    """Files moved away that the present table never held: a stop and start leaves them there (LZ-7.7)."""
    known = {*progress.applied, *(file.path for file in lying.files)}
    return {f"{folder}/{file.path}": None for file in listing.files if file.path not in known}


def _as_applied(
    folder: str, listing: TableListing, progress: Progress, commits: Iterable[HistoryEntry]
) -> dict[str, Source | None]:
    """Applied files that time orders, at times in the order in which they were applied: some came late (LZ-3.6)."""
    metadata = listing.usable
    if metadata is None or metadata.strategy is not Strategy.LAST_UPDATE_TIME:
        return {}
    lying = {file.path for file in listing.files}
    order = [path for commit in commits for path in commit.files]
    known = [path for path in dict.fromkeys((*order, *progress.applied)) if path in lying and path in progress.applied]
    return {f"{folder}/{path}": Source(f"{folder}/{path}", rank) for rank, path in enumerate(known, start=1)}


def _is_same(file: LandedFile, etag: str) -> bool:
    """Whether it is the file of that etag; its time is not looked at, for that may be another here."""
    return etag.rpartition(":")[0] == file.etag.rpartition(":")[0]
