"""The replication cycle: scan, plan, apply a batch per table, clean up; the only place that schedules retries."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from mirror_engine.engine.context import DiagnosticNotifier
from mirror_engine.engine.planner import ZonePlanner
from mirror_engine.engine.recovery import reconcile, recover, rescan
from mirror_engine.engine.replayer import Replayer, TableTask
from mirror_engine.engine.scheduler import Backoff, TableScheduler
from mirror_engine.errors import CommitConflict, StorageUnavailable, TableDamaged, TransientError
from mirror_engine.events import BatchCommitted, CycleEnded, CycleStarted, RetryScheduled
from mirror_engine.landing_zone.diagnostics import diagnose, printable

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Mapping

    from mirror_engine.engine.batch_reader import BatchReader
    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.janitor import Janitor
    from mirror_engine.engine.plan import Plan
    from mirror_engine.engine.poller import Poller
    from mirror_engine.engine.recovery import DeltaFolders
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import ZoneListing
    from mirror_engine.landing_zone.names import TableName

Failures: TypeAlias = "dict[TableName | None, TransientError]"  # None is the landing zone as a whole

FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 300.0


@dataclass(frozen=True)
class CycleResult:
    """What one cycle saw and did.

    Attributes:
        zone: the listing; None where the zone could not be listed.
        plans: per table, before they were carried out; of a table in progress, the plan that is being carried out.
        commits: batches committed.
        failures: transient failures by table; None is the landing zone as a whole.
        outdated: tables that the next cycle may plan otherwise: something was done since, or is in progress.
    """

    zone: ZoneListing | None
    plans: dict[TableName, Plan] = field(default_factory=dict)
    commits: tuple[BatchCommitted, ...] = ()
    failures: Failures = field(default_factory=dict)
    outdated: frozenset[TableName] = frozenset()


@dataclass(frozen=True)
class _Outcomes:
    """What became of the tasks that ran in a cycle; `finished` are tables whose steps were carried out."""

    commits: list[BatchCommitted] = field(default_factory=list)
    finished: set[TableName] = field(default_factory=set)
    failures: Failures = field(default_factory=dict)
    not_cleaned: Failures = field(default_factory=dict)


class Engine:
    """Runs cycles over one landing zone.

    Args:
        context: storage, tables, ledger and options.
        poller: lists the landing zone.
        reader: reads change files.
        janitor: moves applied files away.
        publish: called with the plans of each cycle before they are carried out; may raise StorageUnavailable.
    """

    def __init__(
        self,
        context: EngineContext,
        poller: Poller,
        reader: BatchReader,
        janitor: Janitor,
        publish: Callable[[Mapping[TableName, Plan]], None] = lambda _: None,
    ) -> None:
        self._context = context
        self._poller = poller
        self._janitor = janitor
        self._publish = publish
        self._replayer = Replayer(context, reader)
        self._scheduler = TableScheduler(context.config.workers, self._run_batch)
        self._notifier = DiagnosticNotifier(context.emit)
        self._backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        self._cleaning_backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)  # such a table can still be read
        self._delta_folders: DeltaFolders | None = None
        self._carried_out: Mapping[TableName, Plan] = {}  # in the last cycle: none is repeated without a pause
        self._cycles = 0
        self._is_outdated = False

    @property
    def in_progress(self) -> Collection[TableName]:
        """Tables whose plans are being carried out."""
        return self._scheduler.in_progress.keys()

    def cycle(
        self, stop: threading.Event, maintained: TableName | None = None, is_called: Callable[[], bool] | None = None
    ) -> CycleResult:
        """Scan the landing zone, plan every table, apply the plans batch by batch, clean up.

        Args:
            stop: once set, no further batch begins.
            maintained: a table under maintenance: its plan waits.
            is_called: whether to return although tables are in progress; the next cycles leave these alone until
                their plans are carried out. None: wait for all.
        """
        self._cycles += 1
        started = time.monotonic()
        self._context.emit(CycleStarted(self._cycles))
        earlier = self._scheduler.in_progress
        zone = None
        try:
            zone = self._poller.scan()
            folders = self._scan_delta_folders(earlier)
            planner = ZonePlanner(self._context, folders, zone)
            plans = planner.plans(except_for=earlier)
        except StorageUnavailable as error:
            if zone is None:
                self._notifier.update(None, [diagnose("ME070", "")])
            self._is_outdated = False
            return CycleResult(None, failures={None: self._retry(None, error, self._backoff)})
        is_due = partial(self._is_due, is_called, started, time.monotonic()) if is_called else None
        unread = self._unread(plans, folders)
        self._notify(zone, plans)
        shown = {**plans, **{table: task.plan for table, task in earlier.items()}}
        failures = self._published(shown) | self._unlisted(zone)
        waiting = self._backoff.waiting | unread.keys()
        self._submit(zone, plans, waiting | {maintained}, str(planner.root.now), stop)
        outcomes = self._collect(is_due)
        in_progress = self._scheduler.in_progress
        failed = self._without_damaged(outcomes.failures)
        self._backoff.keep({*waiting, *in_progress, *failed})
        failures |= self._remember_root(planner, shown)
        outdated = {commit.table for commit in outcomes.commits} | {
            t for t in outcomes.failures if t and t not in failed
        }
        repeated = {table for table in outcomes.finished if self._carried_out.get(table) == shown[table]}
        self._carried_out = {table: shown[table] for table in outcomes.finished}
        outdated |= {*earlier, *in_progress, *(outcomes.finished - repeated)}
        self._is_outdated = bool(outdated)
        self._context.emit(CycleEnded(self._cycles, len(outcomes.commits), time.monotonic() - started))
        failures = {**self._still_waiting(shown), **unread, **failures, **failed, **outcomes.not_cleaned}
        return CycleResult(zone, shown, tuple(outcomes.commits), failures, frozenset(outdated))

    def next_cycle_seconds(self, longest: float) -> float:
        """Seconds until the next cycle: 0 where it would plan otherwise, less than `longest` where a retry is due."""
        return 0.0 if self._is_outdated else self._next_retry_seconds(longest)

    def drop(self, table: TableName, reason: Diagnostic) -> None:
        """Remove a Delta table and its progress."""
        self._replayer.drop(table, reason)

    def close(self) -> None:
        """End the workers, after their present batches."""
        self._scheduler.close()

    def _scan_delta_folders(self, busy: Collection[TableName]) -> DeltaFolders:
        """The folders of Delta tables; before the first cycle, the ledger is reconciled with their logs."""
        known = self._delta_folders
        self._delta_folders = (
            rescan(self._context, known, busy) if known else recover(self._context, skip_unchanged=True)
        )
        return self._delta_folders

    def _notify(self, zone: ZoneListing, plans: Mapping[TableName, Plan]) -> None:
        self._notifier.update(None, zone.diagnostics)
        for table, plan in plans.items():
            self._notifier.update(table, plan.diagnostics)

    def _submit(
        self,
        zone: ZoneListing,
        plans: Mapping[TableName, Plan],
        paused: Collection[TableName | None],
        root: str,
        stop: threading.Event,
    ) -> None:
        """Queue a task for every table with steps to do, or files to move away."""
        listings = {listing.name: listing for listing in zone.tables}
        self._janitor.keep(zone.folder, listings.keys())
        uncleanable = self._cleaning_backoff.waiting
        for table, plan in plans.items():
            task = TableTask(plan, listings.get(table), zone.folder, root, is_cleaned=table in uncleanable)
            if table in paused:
                task.steps.clear()
            task.has_steps = bool(task.steps)
            if task.has_steps or self._can_be_cleaned(task):
                self._scheduler.submit(task, stop)

    def _run_batch(self, task: TableTask) -> BatchCommitted | None:
        """Commit a table's next batch, or when all is applied, clean its folder (LZ-8.1); in a worker thread."""
        task.is_cleaning = not task.steps
        if task.is_cleaning:
            progress = self._context.ledger.progress(task.table)
            if self._can_be_cleaned(task) and task.listing and progress:
                self._janitor.clean(task.zone, task.listing, progress)
            task.is_cleaned = True
            return None
        try:
            return self._replayer.advance(task)
        except CommitConflict:
            folder = self._context.delta_folder(task.table)
            reconcile(self._context, task.table, self._context.writer.snapshot(folder))
            raise

    def _can_be_cleaned(self, task: TableTask) -> bool:
        progress = self._context.ledger.progress(task.table)
        if task.is_cleaned or not task.listing or not progress or not progress.has_table:
            return False
        return progress.identity == task.listing.identity and self._janitor.is_due(task.zone, task.listing, progress)

    def _collect(self, is_due: Callable[[], bool] | None) -> _Outcomes:
        """Wait for the tasks, or until the next cycle is due."""
        outcomes = _Outcomes()
        untried = self._cleaning_backoff.waiting
        for task, outcome in self._scheduler.results(is_due):
            if isinstance(outcome, TransientError):
                backoff = self._cleaning_backoff if task.is_cleaning else self._backoff
                failures = outcomes.not_cleaned if task.is_cleaning else outcomes.failures
                failures[task.table] = self._retry(task.table, outcome, backoff)
            elif isinstance(outcome, BaseException):
                raise outcome
            elif task.is_finished and task.has_steps:
                outcomes.finished.add(task.table)
            if isinstance(outcome, BatchCommitted):
                outcomes.commits.append(outcome)
                self._backoff.succeeded(task.table)
        self._cleaning_backoff.keep({*untried, *self._scheduler.in_progress, *outcomes.not_cleaned})
        return outcomes

    def _is_due(self, is_called: Callable[[], bool], started: float, scanned: float) -> bool:
        """Whether the next cycle is due: it is called for, its time has come, or a table's backoff is over.

        Never before as much time was spent on batches as on the scan.
        """
        now = time.monotonic()
        left = started + self._context.config.poll_interval_seconds - now
        return now - scanned >= scanned - started and (is_called() or self._next_retry_seconds(left) <= 0)

    def _next_retry_seconds(self, longest: float) -> float:
        busy = self._scheduler.in_progress
        return self._cleaning_backoff.next_seconds(self._backoff.next_seconds(longest, busy), busy)

    def _retry(self, table: TableName | None, error: TransientError, backoff: Backoff) -> TransientError:
        self._context.emit(RetryScheduled(table, str(error), backoff.failed(table)))
        return error

    def _published(self, plans: Mapping[TableName, Plan]) -> Failures:
        try:
            self._publish(plans)
        except StorageUnavailable as error:
            self._context.emit(RetryScheduled(None, str(error), 0.0))
            return {None: error}
        return {}

    def _unlisted(self, zone: ZoneListing) -> Failures:
        """Folders that could not be listed: the zone may not have caught up, whatever its tables say."""
        if not zone.unlisted:
            self._backoff.succeeded(None)
            return {}
        names = ", ".join(sorted(map(printable, zone.unlisted)))
        error = StorageUnavailable(f"{names}: cannot be listed or read", "Check path and rights.")
        return {None: self._retry(None, error, self._backoff)}

    def _unread(self, plans: Collection[TableName], folders: DeltaFolders) -> Failures:
        """Tables whose Delta logs could not be read yet: their progress is not known for certain."""
        waiting = self._backoff.waiting
        errors = {table: folders.unread.get(self._context.delta_folder(table)) for table in plans}
        return {
            table: error if table in waiting else self._retry(table, error, self._backoff)
            for table, error in errors.items()
            if error
        }

    def _without_damaged(self, failures: Failures) -> Failures:
        """Failures to retry; a table whose log is damaged is planned as halted by the next cycle instead."""
        folders = {table: self._context.delta_folder(table) for table in failures if table}
        damaged = {folders[t]: error for t, error in failures.items() if t and isinstance(error, TableDamaged)}
        if damaged and self._delta_folders:
            known = replace(self._delta_folders, damaged={**self._delta_folders.damaged, **damaged})
            self._delta_folders = rescan(self._context, known, self._scheduler.in_progress)
            damaged = {folder: error for folder, error in damaged.items() if folder in self._delta_folders.damaged}
        return {table: error for table, error in failures.items() if not table or folders[table] not in damaged}

    def _remember_root(self, planner: ZonePlanner, plans: Mapping[TableName, Plan]) -> Failures:
        try:
            planner.root.remember(plans.values(), {task.root_identity for task in self._scheduler.in_progress.values()})
        except StorageUnavailable as error:
            return {None: self._retry(None, error, self._backoff)}
        return {}

    def _still_waiting(self, plans: Collection[TableName]) -> Failures:
        waiting = self._backoff.waiting | self._cleaning_backoff.waiting
        return {
            table: TransientError(f"{table.normalized} waits for its next try") for table in plans if table in waiting
        }
