"""Carries out the steps of one table, one durable step at a time: the table first, the ledger second."""

from __future__ import annotations

import time
import uuid
from collections import deque
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from typing_extensions import assert_never

from mirror_engine.batch_progress import after_batch, as_committed, as_recorded
from mirror_engine.delta.base import BatchRecord, Outcome
from mirror_engine.delta.read_request import TableFacts, WaitingFiles
from mirror_engine.errors import PublisherError, ZoneChanged
from mirror_engine.events import (
    BatchCommitted,
    BatchStarted,
    DiagnosticRaised,
    TableDropped,
    TableLatched,
    TableReleased,
)
from mirror_engine.inspector import Inspector
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.progress import Latch, Progress
from mirror_engine.landing_zone.tally import tally
from mirror_engine.places import changed_by_others, disagreement, is_as_known
from mirror_engine.planner import with_identity
from mirror_engine.steps import (
    ApplyBatch,
    BeginGeneration,
    DropTable,
    InspectFiles,
    LearnIdentity,
    NoteGone,
    Plan,
    Remember,
    Step,
)
from mirror_engine.table_folders import is_as_sighted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.change_batches import BatchReader, CutBatch
    from mirror_engine.delta.base import DeltaState
    from mirror_engine.doors import Doors
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.sightings import FileSighting, TableSighting


@dataclass(eq=False)
class Work:
    """One table's plan under way.

    Attributes:
        plan: what is to be done.
        sighting: the folder; None where it is gone.
        zone: the landing zone, from ROOT.
        anchor: identities of ROOT's own folders.
        steps: what is left of the plan.
        waiting: change files not yet applied.
        is_cleaned: whether the janitor has been there.
    """

    plan: Plan
    sighting: TableSighting | None
    zone: str
    anchor: str
    is_cleaned: bool = False
    steps: deque[Step] = field(default_factory=deque)
    waiting: deque[FileSighting] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.steps.extend(self.plan.steps)

    @property
    def table(self) -> TableName:
        """The table's name."""
        return self.plan.table

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return not self.steps

    @cached_property
    def files(self) -> Sequence[FileSighting]:
        """What it is about: change files to be applied, or else all that lie there."""
        batches = [step for step in self.plan.steps if isinstance(step, ApplyBatch)]
        return batches[-1].files if batches else self.sighting.files if self.sighting else ()

    @cached_property
    def size(self) -> int:
        """Bytes of `files`."""
        return sum(file.size for file in self.files)


class Replayer:
    """Does the steps of one table at a time; different tables may be done side by side."""

    def __init__(self, doors: Doors, reader: BatchReader) -> None:
        self._doors = doors
        self._reader = reader
        self._inspector = Inspector(doors, reader.lying) if reader.lying else None

    def advance(self, work: Work) -> BatchCommitted | None:
        """Do the next piece of work: all steps up to and with one commit, which is returned.

        Raises:
            PublisherError: never; a refusal latches the table.
            TransientError: the piece was not done; nothing is lost, the next cycle plans anew.
        """
        while work.steps:
            step = work.steps[0]
            if isinstance(step, ApplyBatch):
                return self._apply(work, step)
            work.steps.popleft()
            if isinstance(step, InspectFiles):
                self._inspected(work)
                return None
            self._note(work, step)
        return None

    def _inspected(self, work: Work) -> Progress | None:
        """The progress once what is owed was looked at; nothing more is done with a table that holds damage."""
        if self._inspector:
            self._inspector.inspect(work.table)
        known = self._doors.ledger.progress(work.table)
        if known and known.damage:
            work.steps.clear()
        return known

    def _note(self, work: Work, step: DropTable | BeginGeneration | LearnIdentity | Remember | NoteGone) -> None:
        ledger = self._doors.ledger
        known = ledger.progress(work.table)
        match step:
            case DropTable():
                self.drop(work.table, step.diagnostic)
            case BeginGeneration():
                ledger.record(work.table, Progress(uuid.uuid4().hex, step.identity))
            case LearnIdentity():
                if known and work.sighting:
                    ledger.record(work.table, with_identity(known, work.sighting))
            case Remember():
                if known:
                    self._remember(work.table, known, step)
            case NoteGone():
                if known:
                    ledger.record(work.table, replace(known, gone_at=step.at))
            case _:
                assert_never(step)

    def drop(self, table: TableName, reason: Diagnostic) -> None:
        """Remove a Delta table, then all memory of it (LZ-7.2); one that another folder owns stays (LZ-1.5)."""
        folder = self._doors.delta_folder(table)
        others = {name: known for name, known in self._doors.ledger.tables().items() if name != table}
        if not any(known.has_table and self._doors.delta_folder(name) == folder for name, known in others.items()):
            self._doors.writer.drop(folder)
        self._doors.ledger.forget(table)
        self._doors.tell(TableDropped(table, reason.message))

    def _remember(self, table: TableName, known: Progress, step: Remember) -> None:
        armed_at = known.armed_at or (self._doors.clock() if step.armed else 0.0)
        noted = replace(known, armed_at=armed_at, waiting=step.waiting, latch=step.latch, gone_at=0.0)
        noted = replace(noted, diagnostics=tally(known.diagnostics, step.said))
        self._doors.ledger.record(table, noted)
        if step.latch and (not known.latch or known.latch.diagnostic != step.latch.diagnostic):
            self._doors.tell(TableLatched(table, step.latch.diagnostic))
        if known.latch and not step.latch:
            self._doors.tell(TableReleased(table))

    def _apply(self, work: Work, step: ApplyBatch) -> BatchCommitted | None:
        """Read and commit the next batch; latch where a file is refused (LZ-4.17)."""
        if not work.waiting:
            work.waiting.extend(step.files)
        started = time.monotonic()
        known = self._doors.ledger.progress(work.table)
        if known is None:
            raise ZoneChanged(f"{work.table.folder}: dropped meanwhile")
        first, last = work.waiting[0].path, work.waiting[-1].path
        self._doors.tell(BatchStarted(work.table, len(work.waiting), first, last))
        state = self._doors.writer.state(self._doors.delta_folder(work.table))
        if not is_as_known(known, state):
            raise disagreement(work.table)
        facts = self._facts(work.table, known, state)
        cut = self._reader.cut(WaitingFiles(work.zone, work.table, tuple(work.waiting), step.metadata, facts), known)
        try:
            if known.owed and not cut.batch.originals:  # what changes rows meets only files that were looked at
                known = self._inspected(work) or known
                if known.damage:
                    return None
            committed = self._commit(work, cut, known, state, started) if cut.files else None
        finally:
            cut.release()
        for _ in cut.files:
            work.waiting.popleft()
        if cut.refusal:
            self._latch(work.table, cut.refusal, work.waiting[0])
        if cut.refusal or not work.waiting:
            work.steps.popleft()
            work.steps.extend([InspectFiles()] if cut.batch.originals else [])
        return committed

    def _facts(self, table: TableName, known: Progress, state: DeltaState | None) -> TableFacts:
        """What the next file is read against."""
        if state is None:
            return TableFacts()
        is_empty = known.rows_processed == 0 or self._doors.writer.row_count(self._doors.delta_folder(table)) == 0
        times = known.naive_columns, known.utc_columns
        return TableFacts(state.schema, is_empty, *times, known.markers_seen, state.takes_files)

    def _commit(
        self, work: Work, cut: CutBatch, known: Progress, state: DeltaState | None, started: float
    ) -> BatchCommitted:
        folder = self._doors.delta_folder(work.table)
        record = BatchRecord(
            self._doors.ledger.mirror, work.anchor, as_committed(known, work.sighting), (), work.table.folder
        )
        self._check_unchanged(work, cut)
        if state is None and not cut.batch.originals:
            self._doors.writer.create(folder, cut.batch.schema, record)
        progress = after_batch(known, cut, self._doors.clock())
        progress = replace(progress, foreign_version=changed_by_others(self._doors, work.table, known))
        record = replace(
            record, progress=as_committed(progress, work.sighting), files=tuple(file.path for file in cut.files)
        )
        outcome = self._doors.writer.apply(folder, cut.batch, record)
        meanwhile = changed_by_others(self._doors, work.table, progress)  # between the look and the commit
        progress = replace(progress, foreign_version=meanwhile)
        said = (*cut.diagnostics, *_met(work.table, cut, outcome))
        self._doors.ledger.record(work.table, as_recorded(progress, cut, outcome, said))
        for diagnostic in said:
            self._doors.tell(DiagnosticRaised(work.table, diagnostic))
        rows = sum(file.row_count for file in cut.batch.files)
        seconds = time.monotonic() - started
        committed = BatchCommitted(work.table, outcome.version, record.files, rows, seconds)
        self._doors.tell(committed)
        return committed

    def _check_unchanged(self, work: Work, cut: CutBatch) -> None:
        """What is about to be committed is still what lies in the zone.

        Raises:
            ZoneChanged: the folder or a file was replaced since it was read.
        """
        folder = f"{work.zone}/{work.table.folder}"
        here = self._doors.storage.stat(folder)
        if not here or not work.sighting or here.identity != work.sighting.identity:
            raise ZoneChanged(f"{work.table.folder}: dropped or recreated while it was read")
        for file in cut.files:
            if not is_as_sighted(self._doors.storage, folder, file):
                raise ZoneChanged(f"{work.table.folder}/{file.path}: replaced while it was read")

    def _latch(self, table: TableName, refusal: PublisherError, file: FileSighting) -> None:
        known = self._doors.ledger.progress(table)
        if known:
            latch = Latch(refusal.diagnostic, file.path, file.identity, file.etag)
            said = tally(known.diagnostics, refusal.others)
            self._doors.ledger.record(table, replace(known, latch=latch, diagnostics=said))
        self._doors.tell(TableLatched(table, refusal.diagnostic))


def _met(table: TableName, cut: CutBatch, outcome: Outcome) -> list[Diagnostic]:
    """ME039 and ME043: one message per file, with the count."""
    said = []
    for file, met in zip(cut.batch.files, outcome.met, strict=False):
        place = f"{table.folder}/{file.path}"
        if met.inserts_of_present_keys:
            said.append(diagnose("ME039", place, count=met.inserts_of_present_keys))
        if met.changes_of_several_copies:
            said.append(diagnose("ME043", place, count=met.changes_of_several_copies))
    return said
