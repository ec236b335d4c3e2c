"""The engine: cycles (scan, plan, apply a batch per table, clean up) until all is applied, or until it is stopped."""

from __future__ import annotations

import json
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from mirror_engine.engine.janitor import Janitor
from mirror_engine.engine.ledger import NEXT_POLL, SCAN_REQUESTS
from mirror_engine.engine.planner import REFUSED_COMMIT, ZonePlanner
from mirror_engine.engine.poller import Poller
from mirror_engine.engine.recovery import DeltaFolders, recover, rescan
from mirror_engine.engine.replayer import Replayer, TableTask
from mirror_engine.engine.scheduler import Backoff, TableScheduler
from mirror_engine.errors import InternalError, StorageUnavailable, TableDamaged, TransientError
from mirror_engine.events import BatchCommitted, CycleEnded, CycleStarted, DiagnosticRaised, RetryScheduled
from mirror_engine.landing_zone.detection import IGNORED, never_arrives
from mirror_engine.landing_zone.diagnostics import diagnose, printable
from mirror_engine.landing_zone.states import CaughtUp, needs_attention

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Mapping, Sequence

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.maintenance import MaintenanceScheduler
    from mirror_engine.engine.planner import Plan
    from mirror_engine.engine.watcher import ZoneWatcher
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import ZoneListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.states import TableState
    from mirror_engine.tables.passthrough import PassthroughReader
    from mirror_engine.tables.reading.request import OrderedReader

Failures: TypeAlias = "dict[TableName | None, TransientError]"  # None is the landing zone as a whole

FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 300.0
MAX_SYNC_ATTEMPTS = 4  # with pauses of 1, 2 and 4 seconds between failed cycles


class RunResult(str, Enum):
    """How a run ended, worst first; the command line's exit codes."""

    FAILED = "failed"  # an internal error: exit 1
    RETRY = "retry"  # storage or a conflict: exit 4
    NEEDS_ATTENTION = "needs_attention"  # a table is halted or blocked: exit 3
    CAUGHT_UP = "caught_up"  # exit 0


@dataclass(frozen=True)
class SyncReport:
    """What `sync` or `run` did.

    Attributes:
        result: the worst state of the last cycle.
        duration_seconds: from start to end.
        states: of every table after the last cycle.
        failures: by table, why it was to be tried again after the last cycle; None is the landing zone as a whole.
        ignored: the same way, why data that landed is never read.
    """

    result: RunResult
    commits: int
    files_applied: int
    rows_applied: int
    tables_applied: int
    duration_seconds: float
    states: Mapping[TableName, TableState] = field(default_factory=dict)
    failures: Failures = field(default_factory=dict)
    ignored: Mapping[TableName | None, Sequence[Diagnostic]] = field(default_factory=dict)


@dataclass
class CycleResult:
    """What one cycle saw and did."""

    zone: ZoneListing | None = None  # the listing; None where the zone could not be listed
    # Per table, before they were carried out; of a table in progress, the plan that is being carried out
    plans: dict[TableName, Plan] = field(default_factory=dict)
    commits: list[BatchCommitted] = field(default_factory=list)
    # The last transient failure of each table that waits for its next try; None is the landing zone as a whole
    failures: Failures = field(default_factory=dict)
    # Tables that the next cycle may plan otherwise: something was done since, or is in progress
    outdated: set[TableName] = field(default_factory=set)

    @property
    def is_complete(self) -> bool:
        """Whether the zone was listed, and no folder is missing whose table is about to be dropped."""
        return self.zone is not None and self.plans.keys() <= {listing.name for listing in self.zone.tables}

    @property
    def run_result(self) -> RunResult:
        """The worst result of a table."""
        if any(isinstance(failure, InternalError) for failure in self.failures.values()):
            return RunResult.FAILED
        if self.failures:
            return RunResult.RETRY
        if any(needs_attention(plan.state) for plan in self.plans.values()):
            return RunResult.NEEDS_ATTENTION
        return RunResult.CAUGHT_UP


class Engine:
    """Runs cycles over one landing zone; `publish` gets the plans of each before they are carried out.

    `reader` and `passthrough`: see `Replayer`.

    Attributes:
        context: what its parts share.
        last: what the last cycle saw and did.
    """

    def __init__(
        self,
        context: EngineContext,
        reader: Callable[[], OrderedReader],
        passthrough: Callable[[], PassthroughReader] | None = None,
        publish: Callable[[Mapping[TableName, Plan]], None] = lambda _: None,
    ) -> None:
        self.context = context
        self.last = CycleResult()
        self.poller = Poller(context.storage, context.config, context.requests)
        self._janitor = Janitor(context.storage, context.ledger, context.config, context.clock, context.check_lock)
        self._publish = publish
        self._replayer = Replayer(context, self._janitor, reader, passthrough)
        self._scheduler = TableScheduler(context.config.workers, self._replayer.run)
        self._reported: dict[TableName | None, frozenset[Diagnostic]] = {}  # None is the landing zone as a whole
        self._backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, context.clock)
        # of cleaning: such a table can still be read
        self._cleaning_backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, context.clock)
        self._failures: Failures = {}  # the last of each table, until its next try or longer
        self._delta_folders: DeltaFolders | None = None
        self._damaged: Mapping[str, TableDamaged] = {}  # found since the last scan
        self._carried_out: Mapping[TableName, Plan] = {}  # in the last cycle: none is repeated without a pause
        self._started = time.monotonic()
        self._cycles = self._commits = self._files = self._rows = 0
        self._tables: set[TableName] = set()

    @property
    def in_progress(self) -> Collection[TableName]:
        """Tables whose plans are being carried out."""
        return self._scheduler.in_progress.keys()

    def sync(self, stop: threading.Event, *, final: Collection[RunResult] = ()) -> SyncReport:
        """Run cycles until one finds nothing to do; after one that fails and is not `final`, retry, with pauses."""
        failed = 0
        while not stop.is_set():
            self.cycle(stop)
            if self.last.outdated:
                continue
            failed += 1
            if not self.last.failures or self.last.run_result in final or failed == MAX_SYNC_ATTEMPTS:
                break
            stop.wait(self.next_cycle_seconds(2.0 ** (failed - 1)))
        return self.finish(stop)

    def run(self, stop: threading.Event, watcher: ZoneWatcher, maintenance: MaintenanceScheduler) -> SyncReport:
        """Run cycles until `stop` is set: at each poll interval, file-system event or due retry."""
        clock, idle_scans = self.context.clock, 0
        while not stop.is_set():
            lead_seconds = clock.lead_seconds
            self.cycle(stop, maintenance.in_progress, watcher.is_due)
            maintenance.start(self.idle_tables, is_busy=self.is_busy)
            is_idle = not self.is_busy and self.last.is_complete
            idle_scans = idle_scans + 1 if is_idle else 0
            pause = self.next_cycle_seconds(self.context.config.scan_pause(idle_scans))
            pause -= clock.lead_seconds - lead_seconds  # the cycle was planned by an earlier time
            with suppress(StorageUnavailable):  # it is only shown
                self.context.ledger.set_property(NEXT_POLL, str(clock() + pause))
                if self.last.zone and self.last.zone.requests:
                    self.context.ledger.set_property(SCAN_REQUESTS, json.dumps(self.last.zone.requests))
            watcher.wait(pause)
        return self.finish(stop)

    def finish(self, stop: threading.Event) -> SyncReport:
        """Once `stop` is set, wait for the tables in progress, and plan what is left, for the report."""
        while stop.is_set() and self.last.outdated:
            self.cycle(stop)
        return self.report()

    def report(self) -> SyncReport:
        """What has been done so far."""
        seconds = time.monotonic() - self._started
        found: dict[TableName | None, Sequence[Diagnostic]] = {
            None: self.last.zone.diagnostics if self.last.zone else (),
            **{table: plan.diagnostics for table, plan in self.last.plans.items()},
        }
        ignored = {
            table: lost
            for table, diagnostics in found.items()
            if (lost := tuple(each for each in diagnostics if each.code in IGNORED and never_arrives(each)))
        }
        states = {table: plan.state for table, plan in self.last.plans.items()}
        numbers = self._commits, self._files, self._rows, len(self._tables), seconds
        return SyncReport(self.last.run_result, *numbers, states, self.last.failures, ignored)

    @property
    def idle_tables(self) -> list[TableName]:
        """Tables that have caught up."""
        return [
            table
            for table, plan in self.last.plans.items()
            if isinstance(plan.state, CaughtUp) and not plan.steps and table not in self.last.outdated
        ]

    @property
    def is_busy(self) -> bool:
        """Whether any table was just worked on, or has something to do."""
        return bool(self.last.outdated) or any(plan.steps for plan in self.last.plans.values())

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
        self.context.emit(CycleStarted(self._cycles))
        earlier = self._scheduler.in_progress
        self.last = result = CycleResult()
        try:
            self.context.check_lock()
            result.zone = zone = self.poller.scan()
            folders = self._scan_delta_folders(earlier)
            planner = ZonePlanner(self.context, folders, zone)
            plans, self._damaged = planner.plans(except_for=earlier), planner.damaged
        except StorageUnavailable as error:
            if result.zone is None:
                self._notify(None, [diagnose("ME070", "")])
            self.last = CycleResult(failures={None: self._retry(None, error)})
            self._leave_failures()
            return self.last
        is_due = partial(self._is_due, is_called, earlier, started, time.monotonic()) if is_called else None
        result.plans = {**plans, **{table: task.plan for table, task in earlier.items()}}
        self._notify(None, zone.diagnostics)
        for table, plan in plans.items():
            self._notify(table, plan.diagnostics)
        self._note_failures_before(result, zone, folders)
        try:
            self._publish(result.plans)
        except StorageUnavailable as error:  # the next cycle publishes again
            self.context.emit(RetryScheduled(None, str(error), 0.0))
            result.failures[None] = error
        waiting = {*self._backoff.waiting, *(t for t in plans if self.context.delta_folder(t) in folders.unread)}
        self._submit(zone, plans, waiting | {maintained}, str(planner.root.now), stop)
        finished, failed = self._collect(result, is_due)
        in_progress = self._scheduler.in_progress
        self._backoff.keep({*waiting, *in_progress, *failed})
        try:
            planner.remember_root(result.plans.values(), {task.root_identity for task in in_progress.values()})
        except StorageUnavailable as error:
            result.failures[None] = self._retry(None, error)
        repeated = {table for table in finished if self._carried_out.get(table) == result.plans[table]}
        self._carried_out = {table: result.plans[table] for table in finished}
        result.outdated |= {*earlier, *in_progress, *(finished - repeated)}
        result.outdated |= {commit.table for commit in result.commits}
        paused = self._backoff.tables | self._cleaning_backoff.tables
        self._failures = {table: error for table, error in self._failures.items() if table in paused}
        self._leave_failures()
        self._commits += len(result.commits)
        self._files += sum(len(commit.files) for commit in result.commits)
        self._rows += sum(commit.rows for commit in result.commits)
        self._tables |= {commit.table for commit in result.commits}
        seconds, requests = time.monotonic() - started, sum(zone.requests.values()) or None
        self.context.emit(CycleEnded(self._cycles, len(result.commits), seconds, requests))
        return result

    def next_cycle_seconds(self, longest: float) -> float:
        """Seconds until the next cycle: 0 where it would plan otherwise, less than `longest` where a retry is due."""
        return 0.0 if self.last.outdated else self._next_retry_seconds(longest)

    def close(self) -> None:
        """End the workers, after their present batches."""
        self._scheduler.close()

    def _scan_delta_folders(self, busy: Collection[TableName]) -> DeltaFolders:
        """The folders of Delta tables; before the first plans, the ledger is reconciled with their logs.

        The logs of `busy` tables are not read.
        """
        if self._delta_folders is None:
            self._delta_folders = recover(self.context, skip_unchanged=True)
            for table, progress in self.context.ledger.tables().items():
                if progress.rejection and progress.rejection.diagnostic.code == REFUSED_COMMIT:  # it may do by now
                    self.context.ledger.record(table, replace(progress, rejection=None))
            if not self._delta_folders.damaged:
                return self._delta_folders
        known = replace(self._delta_folders, damaged={**self._delta_folders.damaged, **self._damaged})
        self._delta_folders = self._read_again(known, busy)
        return self._delta_folders

    def _read_again(self, known: DeltaFolders, busy: Collection[TableName]) -> DeltaFolders:
        for folder in known.damaged.keys() - set(map(self.context.delta_folder, busy)):
            with suppress(TransientError):  # a drop's commit that came late damages the next table
                self.context.writer.finish_drop(folder, self.context.check_lock)
        return rescan(self.context, known, busy)

    def _is_damaged(self, error: TableDamaged, folder: str) -> bool:
        """Whether a Delta folder in which a batch found damage is damaged when it is read again."""
        found = self._read_again(DeltaFolders(damaged={folder: error}), ())
        self._damaged = {**self._damaged, **found.damaged}
        return bool(found.damaged)

    def _note_failures_before(self, result: CycleResult, zone: ZoneListing, folders: DeltaFolders) -> None:
        """Note the tables that wait for their next try, and what of the zone and of Delta logs could not be read."""
        waiting = self._backoff.waiting
        for table in result.plans:
            unread = folders.unread.get(self.context.delta_folder(table))
            if unread:  # its progress is not known for certain
                result.failures[table] = unread if table in waiting else self._retry(table, unread)
            elif table in waiting | self._cleaning_backoff.waiting:
                result.failures[table] = self._failures[table]
        names = ", ".join(sorted(map(printable, zone.unlisted)))
        if not names:
            self._backoff.succeeded(None)
        else:  # the zone may not have caught up, whatever its tables say
            error = StorageUnavailable(f"{names}: cannot be listed or read", "Check path and rights.")
            result.failures[None] = self._retry(None, error)

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
        self._janitor.keep(listings.keys())
        uncleanable = self._cleaning_backoff.waiting
        for table, plan in plans.items():
            steps = deque(() if table in paused else plan.steps)
            place = listings.get(table), zone.folder, root
            task = TableTask(plan, *place, steps, bool(steps), is_cleaned=table in uncleanable)
            if steps or self._replayer.can_clean(task):
                self._scheduler.submit(task, stop)

    def _collect(self, result: CycleResult, is_due: Callable[[], bool] | None) -> tuple[set[TableName], set[TableName]]:
        """Wait for the tasks, or until the next cycle is due; returns tables that are done, and those that failed."""
        finished: set[TableName] = set()
        failed: set[TableName] = set()
        not_cleaned: set[TableName] = set()
        untried = self._cleaning_backoff.waiting
        for task, outcome in self._scheduler.results(is_due):
            folder = self.context.delta_folder(task.table)
            if isinstance(outcome, TableDamaged) and self._is_damaged(outcome, folder):
                result.outdated.add(task.table)  # the next cycle plans it as halted
            elif isinstance(outcome, TransientError):
                (not_cleaned if task.is_cleaning else failed).add(task.table)
                backoff = self._cleaning_backoff if task.is_cleaning else self._backoff
                result.failures[task.table] = self._retry(task.table, outcome, backoff)
            elif isinstance(outcome, BaseException):
                raise outcome
            elif task.is_finished and task.has_steps:
                finished.add(task.table)
            if isinstance(outcome, BatchCommitted):
                result.commits.append(outcome)
                self._backoff.succeeded(task.table)
        self._cleaning_backoff.keep({*untried, *self._scheduler.in_progress, *not_cleaned})
        return finished, failed

    def _is_due(
        self, is_called: Callable[[], bool], unplanned: Collection[TableName], started: float, scanned: float
    ) -> bool:
        """Whether the next cycle is due: it is called for, its time has come, a backoff is over.

        Or a table is done that this cycle could not plan, since files may wait whose event is over. Never before as
        much time was spent on batches as on the scan.
        """
        now = time.monotonic()
        left = started + self.context.config.scan_pause(0) - now
        is_wanted = is_called() or not set(unplanned) <= {*self.in_progress} or self._next_retry_seconds(left) <= 0
        return is_wanted and now - scanned >= scanned - started

    def _next_retry_seconds(self, longest: float) -> float:
        busy = self._scheduler.in_progress
        return self._cleaning_backoff.next_seconds(self._backoff.next_seconds(longest, busy), busy)

    def _notify(self, table: TableName | None, diagnostics: Sequence[Diagnostic]) -> None:
        """Emit the diagnostics that are new, and forget those that no longer hold."""
        before = self._reported.get(table, frozenset())
        self._reported[table] = frozenset(diagnostics)
        for diagnostic in diagnostics:
            if diagnostic not in before:
                self.context.emit(DiagnosticRaised(table, diagnostic))

    def _leave_failures(self) -> None:
        """Leave what is tried again, by table folder, in the ledger, for `status` of another process."""
        failures = {**self._failures, **self.last.failures}
        left = {table.folder if table else "": error.to_json() for table, error in failures.items()}
        with suppress(StorageUnavailable):  # they are only shown
            self.context.ledger.set_failures(left)

    def _retry(self, table: TableName | None, error: TransientError, backoff: Backoff | None = None) -> TransientError:
        error.__cause__ = error.__context__ = error.__traceback__ = None  # their frames hold the rows of a batch
        self._failures[table] = error
        backoff = backoff or self._backoff
        if table is not None or None not in backoff.waiting:  # each cycle lists the zone, also before its retry is due
            self.context.emit(RetryScheduled(table, str(error), backoff.failed(table)))
        return error
