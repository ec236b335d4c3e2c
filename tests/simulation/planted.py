"""Bugs to be planted one at a time, most of which were once in the engine: the simulation must find each."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from mirror_engine.engine import recovery, replayer, scheduler
from mirror_engine.engine.janitor import Janitor
from mirror_engine.engine.known_time import KnownTime
from mirror_engine.engine.ledger import Ledger
from mirror_engine.landing_zone.progress import Applied, AppliedFile
from mirror_engine.storage.base import at_once
from mirror_engine.tables.log import segments
from mirror_engine.tables.merge import by_position
from simulation import tables


@contextmanager
def recorded_before_it_is_durable():
    """A commit that is found after a crash is recorded, and its files are moved, before it is brought to the disk."""

    def reconcile(context, table, state):
        real = recovery_reconcile
        not_durable = mock.Mock(wraps=context.writer, make_durable=lambda *_: None)
        real(replace(context, writer=not_durable), table, state)

    recovery_reconcile = recovery.reconcile
    with mock.patch.object(recovery, "reconcile", reconcile), mock.patch.object(replayer, "reconcile", reconcile):
        yield


@contextmanager
def recorded_before_its_commit():
    """The ledger says that a batch is applied before its commit is made."""
    real = replayer.Replayer._commit

    def commit(self, task, batch, known, started):
        context = self._context
        progress = replayer.progress_after(known, batch, context.clock())
        context.ledger.record(task.table, progress, self._applied_by(task.table, batch))
        return real(self, task, batch, known, started)

    with mock.patch.object(replayer.Replayer, "_commit", commit):
        yield


@contextmanager
def moved_before_its_commit():
    """The janitor takes an applied file's name for the file: one that was replaced since is moved unread."""
    with mock.patch.object(AppliedFile, "is_same", return_value=True):
        yield


@contextmanager
def lease_checked_too_early():
    """The janitor looks at the lease once, before it moves and deletes all."""

    def each(self, files, change):
        self.check_lock()
        return list(at_once(self.storage, change, files))

    with mock.patch.object(Janitor, "_each", each):
        yield


@contextmanager
def generation_forgotten_after_a_recreate():
    """A recreated folder goes on with the generation of the former one."""
    record, forget = Ledger.record, Ledger.forget

    def same(self, table, progress, *arguments, **options):
        known = self.progress(table)
        kept = replace(progress, generation=known.generation) if known and not progress.has_table else progress
        record(self, table, kept, *arguments, **options)

    def kept(self, table):
        known = self.progress(table)
        if known and known.has_table:
            record(self, table, replace(known, batch=0, delta_version=-1, identity="", segments=()))
        else:
            forget(self, table)

    with mock.patch.object(Ledger, "record", same), mock.patch.object(Ledger, "forget", kept):
        yield


@contextmanager
def vector_of_an_older_version():
    """A data file's new deletion vector lacks the rows that an earlier one marked."""
    real = by_position.TouchedFile.__init__

    def without_before(self, file, going, codes, before):  # noqa: ARG001 - the bug
        real(self, file, going, codes, None)

    with mock.patch.object(by_position.TouchedFile, "__init__", without_before):
        yield


@contextmanager
def retention_by_an_earlier_clock():
    """Archived files are deleted by the date alone, as it is."""
    real = KnownTime.and_lead

    def and_lead(self):
        real(self)
        return self._clock(), 0.0

    with mock.patch.object(KnownTime, "and_lead", and_lead):
        yield


@contextmanager
def backoff_that_overflows():
    """The pause after the 1,024th failure in a row is computed as a float that is too large."""
    with mock.patch.object(scheduler, "MAX_DOUBLINGS", 10**6):
        yield


@contextmanager
def watermark_of_an_untouched_partition_lost():
    """After a lost ledger, only partitions that the newest commits touched have a watermark."""
    real = segments.applied_since

    def lossy(snapshot, version, segment_of, records_of):
        found = real(snapshot, version, segment_of, records_of)
        if snapshot.record is None:
            return found
        after = max(version, snapshot.record.progress.covered)
        newer = segments.applied_by_commits(snapshot.record, snapshot.version, after, records_of)
        return Applied(found.files, newer.marks, found.segments)

    with mock.patch.object(segments, "applied_since", lossy):
        yield


@contextmanager
def record_that_log_cleanup_removed():
    """A table whose newest record another program's clean-up took is another program's."""
    real = recovery.owner_of

    def owner_of(context, folder, state):
        return None if state.record is None else real(context, folder, state)

    with mock.patch.object(recovery, "owner_of", owner_of):
        yield


@contextmanager
def digest_of_a_moved_file_forgotten():
    """Content that was applied before is known of files that are still in their folder alone (ME064)."""
    real = Ledger.same_content

    def same_content(self, table, partition, digest):
        found, folder = real(self, table, partition, digest), self._folders.get(table)
        return found if folder and found in folder.applied else ""

    with mock.patch.object(Ledger, "same_content", same_content):
        yield


@contextmanager
def batch_committed_again_after_a_lost_answer():
    """A table takes a transaction that it has already."""
    with mock.patch.object(tables, "refuse_repeated"):
        yield


BUGS = (
    recorded_before_it_is_durable,
    recorded_before_its_commit,
    moved_before_its_commit,
    lease_checked_too_early,
    generation_forgotten_after_a_recreate,
    vector_of_an_older_version,
    retention_by_an_earlier_clock,
    backoff_that_overflows,
    watermark_of_an_untouched_partition_lost,
    record_that_log_cleanup_removed,
    digest_of_a_moved_file_forgotten,
    batch_committed_again_after_a_lost_answer,
)
