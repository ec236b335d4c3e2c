"""Carries out the steps of one table, one durable step at a time: the table first, the ledger second."""

from __future__ import annotations

import time
import uuid
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from typing_extensions import assert_never

from mirror_engine.engine.ownership import changed_by_others, disagreement, is_as_known
from mirror_engine.engine.plan import (
    ApplyBatch,
    DropTable,
    MarkFolderMissing,
    Plan,
    RecordFolderState,
    StartGeneration,
    Step,
    UpdateFolderIdentity,
)
from mirror_engine.engine.planner import with_identity
from mirror_engine.engine.poller import is_unchanged
from mirror_engine.errors import ConcurrentModification
from mirror_engine.events import (
    BatchCommitted,
    BatchStarted,
    DiagnosticRaised,
    TableDropped,
    TableHalted,
    TableResumed,
)
from mirror_engine.landing_zone.diagnostics import Diagnostic, RejectedFile, diagnose, tally
from mirror_engine.landing_zone.progress import AppliedFile, Progress, Rejection
from mirror_engine.tables.base import STAGED, BatchRecord, Outcome, way_of
from mirror_engine.tables.reading.request import PendingFiles, TableContext

if TYPE_CHECKING:
    from mirror_engine.engine.batch_reader import BatchReader, PreparedBatch
    from mirror_engine.engine.context import EngineContext
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import LandedFile, TableListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.tables.base import Outcome, TableSnapshot


def after_batch(known: Progress, cut: PreparedBatch, now: float) -> Progress:
    """The progress once this batch is in."""
    applied = dict(known.applied)
    watermarks = dict(known.watermarks)
    for sighted, file in zip(cut.files, cut.batch.files, strict=True):
        way = STAGED if file.passthrough else ""
        applied[file.path] = AppliedFile(file.etag, file.digest, -1, file.row_count, file.modified_ns, way, file.reason)
        if (sequence := cut.sequence_of(sighted)) is not None:
            watermarks[sighted.partition] = max(sequence, watermarks.get(sighted.partition, 0))
    return replace(
        known,
        batch=known.batch + 1,
        watermarks=watermarks,
        applied=applied,
        key_columns=cut.batch.key_columns,
        declared_columns=known.declared_columns or cut.declared_columns,
        naive_columns=cut.facts.naive_columns,
        utc_columns=cut.facts.utc_columns,
        markers_seen=cut.facts.markers_seen,
        rows_processed=known.rows_processed + sum(file.row_count for file in cut.batch.files),
        bytes_processed=known.bytes_processed + sum(file.byte_count for file in cut.batch.files),
        last_commit_at=now,
        pending_etags={path: etag for path, etag in known.pending_etags.items() if path not in applied},
    )


def as_committed(progress: Progress, listing: TableListing | None) -> Progress:
    """The progress as a commit carries it: only applied files that still lie in the folder."""
    lying = {file.path for file in listing.files} if listing else set()
    applied = {path: file for path, file in progress.applied.items() if path in lying}
    return replace(progress, applied=applied, pending_etags={}, rejection=None, diagnostics={})


def as_recorded(progress: Progress, cut: PreparedBatch, outcome: Outcome, said: tuple[Diagnostic, ...]) -> Progress:
    """The progress the ledger keeps: with the Delta version, and what there is to say about the files."""
    paths = {file.path for file in cut.batch.files}
    applied = {
        path: replace(file, version=outcome.version, applied_by=way_of(outcome.operation)) if path in paths else file
        for path, file in progress.applied.items()
    }
    diagnostics = tally(progress.diagnostics, said)
    return replace(progress, applied=applied, delta_version=outcome.version, diagnostics=diagnostics)


@dataclass(eq=False)
class TableTask:
    """One table's plan under way.

    Attributes:
        plan: what is to be done.
        listing: the folder; None where it is gone.
        zone: the landing zone, from ROOT.
        anchor: identities of ROOT's own folders.
        steps: what is left of the plan.
        waiting: change files not yet applied.
        is_cleaned: whether the folder was cleaned, or is not to be.
        is_cleaning: whether the last batch was the cleaning.
        has_steps: whether steps of the plan are carried out, not only the cleaning.
    """

    plan: Plan
    listing: TableListing | None
    zone: str
    anchor: str
    is_cleaned: bool = False
    is_cleaning: bool = False
    has_steps: bool = False
    steps: deque[Step] = field(default_factory=deque)
    waiting: deque[LandedFile] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.steps.extend(self.plan.steps)

    @property
    def table(self) -> TableName:
        """The table's name."""
        return self.plan.table

    @property
    def is_finished(self) -> bool:
        """Whether all steps are done and the folder is cleaned."""
        return not self.steps and self.is_cleaned


class Replayer:
    """Does the steps of one table at a time; different tables may be done side by side."""

    def __init__(self, context: EngineContext, reader: BatchReader) -> None:
        self._doors = context
        self._reader = reader

    def advance(self, work: TableTask) -> BatchCommitted | None:
        """Do the next piece of work: all steps up to and with one commit, which is returned.

        Raises:
            RejectedFile: never; a refusal latches the table.
            TransientError: the piece was not done; nothing is lost, the next cycle plans anew.
        """
        while work.steps:
            step = work.steps[0]
            if isinstance(step, ApplyBatch):
                return self._apply(work, step)
            work.steps.popleft()
            self._note(work, step)
        return None

    def _note(
        self,
        work: TableTask,
        step: DropTable | StartGeneration | UpdateFolderIdentity | RecordFolderState | MarkFolderMissing,
    ) -> None:
        ledger = self._doors.ledger
        known = ledger.progress(work.table)
        match step:
            case DropTable():
                self.drop(work.table, step.diagnostic)
            case StartGeneration():
                ledger.record(work.table, Progress(uuid.uuid4().hex, step.identity))
            case UpdateFolderIdentity():
                if known and work.listing:
                    ledger.record(work.table, with_identity(known, work.listing))
            case RecordFolderState():
                if known:
                    self._remember(work.table, known, step)
            case MarkFolderMissing():
                if known:
                    ledger.record(work.table, replace(known, missing_since=step.at))
            case _:
                assert_never(step)

    def drop(self, table: TableName, reason: Diagnostic) -> None:
        """Remove a Delta table, then all memory of it (LZ-7.2); one that another folder owns stays (LZ-1.5)."""
        folder = self._doors.delta_folder(table)
        others = {name: known for name, known in self._doors.ledger.tables().items() if name != table}
        if not any(known.has_table and self._doors.delta_folder(name) == folder for name, known in others.items()):
            self._doors.writer.drop(folder)
        self._doors.ledger.forget(table)
        self._doors.tell(TableDropped(table, reason.full_message))

    def _remember(self, table: TableName, known: Progress, step: RecordFolderState) -> None:
        configured_at = known.configured_at or (self._doors.clock() if step.armed else 0.0)
        noted = replace(
            known, configured_at=configured_at, pending_etags=step.waiting, rejection=step.latch, missing_since=0.0
        )
        noted = replace(noted, diagnostics=tally(known.diagnostics, step.said))
        self._doors.ledger.record(table, noted)
        if step.latch and (not known.rejection or known.rejection.diagnostic != step.latch.diagnostic):
            self._doors.tell(TableHalted(table, step.latch.diagnostic))
        if known.rejection and not step.latch:
            self._doors.tell(TableResumed(table))

    def _apply(self, work: TableTask, step: ApplyBatch) -> BatchCommitted | None:
        """Read and commit the next batch; latch where a file is refused (LZ-4.17)."""
        if not work.waiting:
            work.waiting.extend(step.files)
        started = time.monotonic()
        known = self._doors.ledger.progress(work.table)
        if known is None:
            raise ConcurrentModification(f"{work.table.folder}: dropped meanwhile")
        first, last = work.waiting[0].path, work.waiting[-1].path
        self._doors.tell(BatchStarted(work.table, len(work.waiting), first, last))
        state = self._doors.writer.state(self._doors.delta_folder(work.table))
        if not is_as_known(known, state):
            raise disagreement(work.table)
        facts = _context(known, state)
        cut = self._reader.cut(PendingFiles(work.zone, work.table, tuple(work.waiting), step.metadata, facts), known)
        try:
            committed = self._commit(work, cut, known, state, started) if cut.files else None
        finally:
            cut.release()
        for _ in cut.files:
            work.waiting.popleft()
        if cut.refusal:
            self._latch(work.table, cut.refusal, work.waiting[0])
        if cut.refusal or not work.waiting:
            work.steps.popleft()
        return committed

    def _commit(
        self, work: TableTask, cut: PreparedBatch, known: Progress, state: TableSnapshot | None, started: float
    ) -> BatchCommitted:
        folder = self._doors.delta_folder(work.table)
        record = BatchRecord(
            self._doors.ledger.mirror, work.anchor, as_committed(known, work.listing), (), work.table.folder
        )
        self._check_unchanged(work, cut)
        if state is None and not cut.batch.passthrough:
            self._doors.writer.create(folder, cut.batch.schema, record)
        progress = after_batch(known, cut, self._doors.clock())
        progress = replace(progress, external_change_version=changed_by_others(self._doors, work.table, known))
        record = replace(
            record, progress=as_committed(progress, work.listing), files=tuple(file.path for file in cut.files)
        )
        outcome = self._doors.writer.apply(folder, cut.batch, record, state)
        meanwhile = changed_by_others(self._doors, work.table, progress)  # between the look and the commit
        progress = replace(progress, external_change_version=meanwhile)
        said = (*cut.diagnostics, *_met(work.table, cut, outcome))
        self._doors.ledger.record(work.table, as_recorded(progress, cut, outcome, said))
        for diagnostic in said:
            self._doors.tell(DiagnosticRaised(work.table, diagnostic))
        rows = sum(file.row_count for file in cut.batch.files)
        seconds = time.monotonic() - started
        committed = BatchCommitted(work.table, outcome.version, record.files, rows, seconds)
        self._doors.tell(committed)
        return committed

    def _check_unchanged(self, work: TableTask, cut: PreparedBatch) -> None:
        """What is about to be committed is still what lies in the zone.

        Raises:
            ConcurrentModification: the folder or a file was replaced since it was read.
        """
        folder = f"{work.zone}/{work.table.folder}"
        here = self._doors.storage.stat(folder)
        if not here or not work.listing or here.identity != work.listing.identity:
            raise ConcurrentModification(f"{work.table.folder}: dropped or recreated while it was read")
        for file in cut.files:
            if not is_unchanged(self._doors.storage, folder, file):
                raise ConcurrentModification(f"{work.table.folder}/{file.path}: replaced while it was read")

    def _latch(self, table: TableName, refusal: RejectedFile, file: LandedFile) -> None:
        known = self._doors.ledger.progress(table)
        if known:
            latch = Rejection(refusal.diagnostic, file.path, file.identity, file.etag)
            said = tally(known.diagnostics, refusal.others)
            self._doors.ledger.record(table, replace(known, rejection=latch, diagnostics=said))
        self._doors.tell(TableHalted(table, refusal.diagnostic))


def _met(table: TableName, cut: PreparedBatch, outcome: Outcome) -> list[Diagnostic]:
    """ME039 and ME043: one message per file, with the count."""
    said = []
    for file, met in zip(cut.batch.files, outcome.met, strict=False):
        place = f"{table.folder}/{file.path}"
        if met.inserts_of_present_keys:
            said.append(diagnose("ME039", place, count=met.inserts_of_present_keys))
        if met.changes_of_several_copies:
            said.append(diagnose("ME043", place, count=met.changes_of_several_copies))
    return said


def _context(known: Progress, snapshot: TableSnapshot | None) -> TableContext:
    """What the next file is read against."""
    if snapshot is None:
        return TableContext()
    is_empty = known.rows_processed == 0 or snapshot.count_rows() == 0
    times = known.naive_columns, known.utc_columns
    return TableContext(snapshot.schema, is_empty, *times, known.markers_seen, snapshot.takes_files)
