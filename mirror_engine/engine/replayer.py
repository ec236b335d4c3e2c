"""Carries out the steps of a plan, one durable step at a time: the Delta table first, the ledger second."""

from __future__ import annotations

import re
import uuid
from collections import deque
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from mirror_engine.engine import segments
from mirror_engine.engine.batch_reader import BatchReader
from mirror_engine.engine.planner import (
    REFUSED_COMMIT,
    ApplyBatch,
    DropTable,
    Plan,
    RecordProgress,
    attempt_of,
    keeps_archive,
)
from mirror_engine.engine.recovery import is_as_recorded, reconcile, say_again
from mirror_engine.errors import (
    CommitConflict,
    CommitFailed,
    ConcurrentModification,
    ScratchFailed,
    TableDamaged,
)
from mirror_engine.events import (
    ArchivedFilesDeleted,
    BatchCommitted,
    BatchStarted,
    CommitStarted,
    DiagnosticRaised,
    FilesArchived,
    FolderMoved,
    TableDropped,
)
from mirror_engine.landing_zone.detection import marks_after
from mirror_engine.landing_zone.diagnostics import Diagnostic, RejectedFile, diagnose, tally
from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.landing_zone.metadata import Strategy
from mirror_engine.landing_zone.progress import Applied, AppliedFile, Progress, Rejection
from mirror_engine.storage.base import changed_file
from mirror_engine.tables.base import BatchRecord, ReadContext
from mirror_engine.tables.reading.request import LandedFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.halts import Halts
    from mirror_engine.engine.janitor import Janitor
    from mirror_engine.events import DropReason
    from mirror_engine.landing_zone.listing import Entry, TableListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.tables.base import ChangeBatch, FileRows, TableSnapshot
    from mirror_engine.tables.passthrough import PassthroughReader
    from mirror_engine.tables.reading.request import OrderedReader

MAX_REFUSALS = 3  # of one commit in the same words: there will be no other answer
_VARYING = re.compile(r"[0-9a-f]*[0-9][0-9a-f]*")  # numbers and ids in a message


def _repeats(context: EngineContext, table: TableName, read: Sequence[FileRows]) -> list[Diagnostic]:
    """Return ME064 for files whose content was applied before, in the same partition."""
    in_batch: dict[tuple[str, str], str] = {}
    diagnostics = []
    for rows in (rows for rows in read if rows.row_count):
        content = (partition_of(rows.path), rows.digest)
        before = in_batch.get(content) or context.ledger.same_content(table, *content)
        if before:
            diagnostics.append(diagnose("ME064", f"{table.folder}/{rows.path}", file=before))
        in_batch.setdefault(content, before or rows.path)
    return diagnostics


def progress_after(known: Progress, batch: ChangeBatch, now: float) -> Progress:
    """Return the progress after a batch."""
    context = batch.files[-1].context
    # in the table's spelling; the type of a key column may not be known yet (LZ-5.13)
    keys = ((name, batch.schema.find(name)) for name in batch.metadata.key_columns)
    return replace(
        known,
        batch=known.batch + 1,
        columns=batch.schema.digest,
        key_columns=tuple(column.name if column else name for name, column in keys),
        declared_columns=known.declared_columns or batch.metadata.definition,
        naive_columns=context.naive_columns,
        utc_columns=context.utc_columns,
        markers_seen=context.markers_seen,
        files_processed=known.files_processed + len(batch.files),
        rows_processed=known.rows_processed + sum(file.row_count for file in batch.files),
        bytes_processed=known.bytes_processed + sum(file.byte_count for file in batch.files),
        last_commit_at=now,
    )


def drop_table(context: EngineContext, table: TableName, reason: DropReason, *, had_table: bool = False) -> bool:
    """Drop a Delta table, then its progress (LZ-7.2); one that another folder owns is kept (LZ-1.5).

    Returns whether it had one, as the ledger or the caller knows, so that the drop was reported.
    """
    context.ledger.check()  # a lost one knows no other owner
    folder, known = context.delta_folder(table), context.ledger.progress(table)
    if not any(other.has_table for name, other in context.owners(folder).items() if name != table):
        context.writer.drop(folder, context.check_lock)
    had_table |= known is not None and known.has_table
    if had_table:
        context.emit(TableDropped(table, reason))
    context.ledger.forget(table)
    return had_table


class Phase(Enum):
    """What a task does next."""

    APPLYING = "applying"
    CLEANING = "cleaning"
    DONE = "done"


@dataclass(eq=False)
class TableTask:
    """One table's plan in progress."""

    plan: Plan
    listing: TableListing | None  # its folder; None where that is missing
    zone: str  # the landing zone, from ROOT
    root_identity: str  # of ROOT when the plan was made
    phases: Collection[Phase] = (Phase.APPLYING, Phase.CLEANING)  # steps of the plan may wait, or the cleaning

    def __post_init__(self) -> None:
        self.steps = deque(self.plan.steps if Phase.APPLYING in self.phases else ())
        self.phase = next(iter(self.phases), Phase.DONE)
        self.pending: deque[Entry] = deque()  # change files not applied yet

    @property
    def table(self) -> TableName:
        """The table's name."""
        return self.plan.table

    def end_phase(self) -> None:
        """Go on to the next phase."""
        is_applied = self.phase is Phase.APPLYING and Phase.CLEANING in self.phases
        self.phase = Phase.CLEANING if is_applied else Phase.DONE


class Refusal(NamedTuple):
    """A batch whose commit was refused: first file, last file, error text, and how often with this text."""

    file: str
    words: str
    last: str
    times: int


class Replayer:
    """Carries out the steps of a table; those of different tables may be carried out in parallel.

    Args:
        halts: where halts are reported.
        reader, passthrough: see `BatchReader`.
    """

    def __init__(
        self,
        context: EngineContext,
        janitor: Janitor,
        halts: Halts,
        reader: Callable[[], OrderedReader],
        passthrough: Callable[[], PassthroughReader] | None = None,
    ) -> None:
        self._context = context
        self._janitor = janitor
        self._halts = halts
        self._batches = BatchReader(context.config, context.emit, reader, passthrough)
        self._refusals: dict[TableName, Refusal] = {}
        self._most: dict[TableName, int] = {}  # files of a batch where more do not fit on the disk

    def run(self, task: TableTask) -> BatchCommitted | None:
        """Commit a table's next batch, or when all is applied, clean its folder (LZ-8.1); raises `TransientError`."""
        self._context.check_lock()
        if task.phase is Phase.CLEANING:
            progress = self._context.ledger.progress(task.table)
            if task.listing and progress and self.can_clean(task.plan, task.listing):
                known = self._context.ledger.folder(task.table, [file.path for file in task.listing.files])
                keeps = keeps_archive(task.plan, progress)
                archived, deleted = self._janitor.clean(task.zone, task.listing, progress, known, keeps=keeps)
                if archived:
                    self._context.emit(FilesArchived(task.table, archived))
                if deleted:
                    self._context.emit(ArchivedFilesDeleted(task.table, deleted))
            task.end_phase()
            return None
        try:
            committed = self.carry_out(task)
        except CommitConflict:
            folder = self._context.delta_folder(task.table)
            reconcile(self._context, task.table, self._context.delta.snapshot(folder))
            raise
        if not task.steps:
            task.end_phase()
        return committed

    def can_clean(self, plan: Plan, listing: TableListing) -> bool:
        """Whether to clean a table folder: its files are of this generation, and cleaning is due."""
        progress = self._context.ledger.progress(listing.name)
        if not progress or not progress.has_table or progress.identity != listing.identity:
            return False
        return self._janitor.is_due(listing, progress, keeps=keeps_archive(plan, progress))

    def carry_out(self, task: TableTask) -> BatchCommitted | None:
        """Carry out the next steps, at most one commit, which is returned. A rejected file halts the table."""
        while task.steps:
            step = task.steps[0]
            if isinstance(step, ApplyBatch):
                return self._apply(task, step)
            task.steps.popleft()
            if isinstance(step, DropTable):
                if drop_table(self._context, task.table, step.reason):
                    self._halts.drop(task.table)
            else:
                self._record(task.table, step)
        return None

    def _record(self, table: TableName, step: RecordProgress) -> None:
        if step.kind == "start_generation":
            self._context.ledger.record(table, replace(step.progress, generation=uuid.uuid4().hex))
            return
        known = self._context.ledger.progress(table)
        if known is None:  # dropped in the meantime
            return
        progress = replace(step.progress, generation=known.generation)
        self._context.ledger.record(table, progress, step.applied, step.pending)
        if step.kind == "update_folder_identity" and progress.identity != known.identity:
            self._context.emit(FolderMoved(table))

    def _apply(self, task: TableTask, step: ApplyBatch) -> BatchCommitted | None:
        """Read and commit the next batch; a rejected file halts the table (LZ-4.17)."""
        if not task.pending:
            task.pending.extend(step.files)
        started = self._context.clock.timer()
        known = self._context.ledger.progress(task.table)
        if known is None:
            raise ConcurrentModification(f"{task.table.folder}: dropped in the meantime")
        self._context.emit(BatchStarted(task.table, len(task.pending), task.pending[0].path, task.pending[-1].path))
        known, snapshot = self._opened(task.table, known)
        try:
            batch = self._read(task, step, known, snapshot)
        except TableDamaged as error:  # of a data file without statistics, whose rows are counted
            self._count_refusal(task, error, task.pending[0].path)
            return None
        try:
            repeated = _repeats(self._context, task.table, batch.files)
            batch = replace(batch, diagnostics=(*batch.diagnostics, *repeated))
            committed = self._commit(task, batch, known, started) if batch.files else None
        except (CommitFailed, TableDamaged) as error:  # damage that the log does not show: a data file
            self._count_refusal(task, error, batch.files[-1].path)
            return None
        except ScratchFailed:
            self._most[task.table] = max(len(batch.files) // 2, 1)
            raise
        finally:
            batch.close()
        for _ in batch.files:
            task.pending.popleft()
        if batch.rejected:
            self._halt(task.table, batch.rejected, task.pending[0])
        if batch.rejected or not task.pending:
            task.steps.popleft()
            self._most.pop(task.table, None)
        return committed

    def _opened(self, table: TableName, known: Progress) -> tuple[Progress, TableSnapshot | None]:
        """Return a table's snapshot and progress; a record that log cleanup removed is committed again (LZ-4.18)."""
        context, folder = self._context, self._context.delta_folder(table)
        snapshot = context.delta.snapshot(folder)
        if not is_as_recorded(known, snapshot):
            raise CommitConflict(
                f"{table.folder}: the Delta table does not match the recorded state",
                "The next cycle reads its log again; remove a table of another program.",
            )
        if snapshot is None:
            context.writer.finish_drop(folder, context.check_lock)
        elif snapshot.record is None or (snapshot.version > known.delta_version and snapshot.may_lose_record()):
            say_again(context, table)
            return context.ledger.progress(table) or known, context.delta.snapshot(folder)
        return known, snapshot

    def _read(self, task: TableTask, step: ApplyBatch, known: Progress, snapshot: TableSnapshot | None) -> ChangeBatch:
        folder = LandedFolder(task.zone, task.table, step.metadata)
        try:
            return self._batches.read(folder, self._next_files(task), _read_context(known, snapshot), snapshot)
        except ScratchFailed:
            self._most[task.table] = 1  # files that are read side by side need room at once
            raise

    def _next_files(self, task: TableTask) -> Sequence[Entry]:
        """Return the pending files among which the next batch is; fewer after a failed commit."""
        refusal = self._refusals.get(task.table)
        if refusal and any(file.path == refusal.last for file in task.pending):
            return (task.pending[0],)  # alone, the refused one is found
        self._refusals.pop(task.table, None)
        return tuple(task.pending)[: self._most.get(task.table)]

    def _commit(self, task: TableTask, batch: ChangeBatch, known: Progress, started: float) -> BatchCommitted | None:
        has_rows = any(file.row_count for file in batch.files)
        if batch.snapshot is None and batch.schema.is_bare and not has_rows:  # no table yet (LZ-5.13)
            self._note(task, batch, known)
            return None
        context, ledger = self._context, self._context.ledger
        self._check_unchanged(task, batch)
        context.emit(CommitStarted(task.table, len(batch.files)))
        named = segments.up_to_date(context, task.table, known, task.listing)
        if named != known.segments:  # noted at once: a commit that fails again and again writes no further ones
            known = replace(known, segments=named)
            ledger.record(task.table, known)
        progress = progress_after(known, batch, context.clock())
        progress = replace(progress, external_change_version=self._external_change(task.table, known, batch.snapshot))
        applied = self._applied_by(task.table, batch)
        recorded = applied if known.batch else self._with_noted(task.table, applied)
        record = BatchRecord(ledger.mirror, task.root_identity, progress.in_commit, task.table.folder, recorded)
        folder = context.delta_folder(task.table)
        with context.fenced(folder, known):
            result = context.writer.apply(folder, batch, record, context.check_lock)
        batch.close()  # on a full disk the ledger needs the room
        meanwhile = progress.external_change_version
        if not batch.snapshot or result.version > batch.snapshot.version + 1:  # one came between
            meanwhile = context.latest_external_change(task.table, progress)
        diagnostics = [*batch.diagnostics]
        for file, matches in zip(batch.files, result.matches, strict=False):
            place = f"{task.table.folder}/{file.path}"
            if matches.duplicate_inserts:
                diagnostics.append(diagnose("ME039", place, count=matches.duplicate_inserts))
            if matches.multi_row_changes:
                diagnostics.append(diagnose("ME043", place, count=matches.multi_row_changes))
        progress = replace(
            progress,
            delta_version=result.version,
            external_change_version=meanwhile,
            diagnostics=tally(progress.diagnostics, diagnostics),
        )
        applied = applied.with_each(version=result.version, applied_by=result.applied_by)
        ledger.record(task.table, progress, applied)
        for diagnostic in diagnostics:
            self._context.emit(DiagnosticRaised(task.table, diagnostic))
        rows = sum(file.row_count for file in batch.files)
        seconds = context.clock.timer() - started
        committed = BatchCommitted(task.table, result.version, tuple(applied.files), rows, seconds)
        self._context.emit(committed)
        return committed

    def _external_change(self, table: TableName, known: Progress, snapshot: TableSnapshot | None) -> int | None:
        """Return the newest version of a snapshot in which another program changed rows or columns; None for none."""
        if snapshot is None or snapshot.log is None:
            return self._context.latest_external_change(table, known)
        found: int = snapshot.log.latest_external_change(known.delta_version, known.columns)
        return found if found >= 0 else known.external_change_version

    def _note(self, task: TableTask, batch: ChangeBatch, known: Progress) -> None:
        """Record files that hold no row and no type (LZ-5.13): the first commit names them, too."""
        self._check_unchanged(task, batch)
        progress = replace(progress_after(known, batch, 0.0), batch=known.batch)
        progress = replace(progress, diagnostics=tally(progress.diagnostics, batch.diagnostics))
        self._context.ledger.record(task.table, progress, self._applied_by(task.table, batch))
        for diagnostic in batch.diagnostics:
            self._context.emit(DiagnosticRaised(task.table, diagnostic))

    def _applied_by(self, table: TableName, batch: ChangeBatch) -> Applied:
        """Return what a batch applies; version and method are known once it is committed."""
        marks = self._context.ledger.marks(table, {file.landed.partition for file in batch.files})
        files = {
            read.path: AppliedFile(
                read.landed.etag,
                read.digest,
                version=-1,
                rows=read.row_count,
                modified_ns=read.landed.modified_ns,
                passthrough_skipped_because=read.passthrough_skipped_because,
            )
            for read in batch.files
        }
        in_order = batch.metadata.strategy is Strategy.SEQUENTIAL  # LZ-3.2, LZ-3.15
        return Applied(files, marks_after(marks, files, in_order=in_order))

    def _with_noted(self, table: TableName, applied: Applied) -> Applied:
        """Add to a first commit the files that came before there was a table (LZ-5.13)."""
        files, marks = self._context.ledger.applied(table), self._context.ledger.marks(table)
        return Applied({**files, **applied.files}, {**marks, **applied.marks})

    def _check_unchanged(self, task: TableTask, batch: ChangeBatch) -> None:
        """Check that ROOT is still held, and that neither the folder nor a file of a batch was replaced meanwhile."""
        self._context.check_lock()
        storage, folder = self._context.storage, f"{task.zone}/{task.table.folder}"
        here = storage.stat(folder)
        if not here or not task.listing or here.identity != task.listing.identity:
            raise ConcurrentModification(f"{task.table.folder}: dropped or recreated while it was read")
        files = list(islice(task.pending, len(batch.files)))  # as listed
        if changed := changed_file(storage, folder, files, len(task.listing.files)):
            raise ConcurrentModification(f"{task.table.folder}/{changed.path}: replaced while it was read")

    def _count_refusal(self, task: TableTask, error: CommitFailed | TableDamaged, last: str) -> None:
        """Halt a table whose commit is refused repeatedly in the same words (LZ-4.20); before that, raise the error."""
        file, words = task.pending[0], _VARYING.sub("", error.message)
        before = self._refusals.get(task.table, Refusal("", "", last, 0))
        count = before.times + 1 if (before.file, before.words) == (file.path, words) else 1
        self._refusals[task.table] = Refusal(file.path, words, before.last, count)
        if count < MAX_REFUSALS or task.listing is None:
            raise error
        place, reason = f"{task.table.folder}/{file.path}", error.message
        if isinstance(error, CommitFailed):  # of damage, the place stays: it says which data file
            reason = reason.partition(": ")[2] or reason
        refused = diagnose(REFUSED_COMMIT, place, count=count, reason=reason, help=error.help.rstrip("."))
        self._halt(task.table, RejectedFile(refused), file, attempt_of(task.listing, file.etag))
        del self._refusals[task.table]
        task.steps.popleft()

    def _halt(self, table: TableName, rejected: RejectedFile, file: Entry, etag: str = "") -> None:
        known = self._context.ledger.progress(table)
        if known:
            rejection = Rejection(rejected.diagnostic, file.path, file.identity, etag or file.etag)
            diagnostics = tally(known.diagnostics, rejected.others)
            self._context.ledger.record(table, replace(known, rejection=rejection, diagnostics=diagnostics))
        self._halts.begin(table, rejected.diagnostic)


def _read_context(known: Progress, snapshot: TableSnapshot | None) -> ReadContext:
    """Return the context in which the next file is read."""
    if snapshot is None:
        return ReadContext(markers_seen=known.markers_seen)
    is_empty = known.rows_processed == 0 or snapshot.count_rows() == 0
    times = known.naive_columns, known.utc_columns
    table = snapshot.takes_files, snapshot.feeds_changes
    return ReadContext(snapshot.schema, is_empty, *times, known.markers_seen, *table)
