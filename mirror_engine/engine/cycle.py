"""The engine: cycles (scan, plan, apply a batch per table, clean up) until all is applied, or until it is stopped."""

from __future__ import annotations

import json
import math
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from mirror_engine.engine import turns
from mirror_engine.engine.changes import Changes
from mirror_engine.engine.halts import Halts
from mirror_engine.engine.janitor import Janitor
from mirror_engine.engine.ledger import NEXT_POLL, SCAN_REQUESTS
from mirror_engine.engine.planner import (
    REFUSED_COMMIT,
    ApplyBatch,
    DropTable,
    RecordProgress,
    ZonePlanner,
)
from mirror_engine.engine.poller import Poller
from mirror_engine.engine.recovery import DeltaFolders, recover, rescan, say_again, unchanged_logs
from mirror_engine.engine.replayer import Phase, Replayer, TableTask
from mirror_engine.engine.rereads import Rereads
from mirror_engine.engine.scheduler import TableScheduler
from mirror_engine.errors import InternalError, NoAccess, StorageUnavailable, TableDamaged, TransientError
from mirror_engine.events import (
    BatchCommitted,
    CycleEnded,
    CycleStarted,
    DiagnosticRaised,
)
from mirror_engine.landing_zone.listing import UNLISTED, unlisted
from mirror_engine.landing_zone.states import CaughtUp, Unlisted, needs_attention
from mirror_engine.landing_zone.text import count, printable
from mirror_engine.threads import threads

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from mirror_engine.engine.changes import TableChange
    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.maintenance import MaintenanceScheduler
    from mirror_engine.engine.planner import Plan
    from mirror_engine.engine.watcher import ZoneWatcher
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import TableListing, ZoneListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.tables.passthrough import PassthroughReader
    from mirror_engine.tables.reading.request import OrderedReader

Failures: TypeAlias = "dict[TableName | None, TransientError]"  # None is the landing zone as a whole

MAX_SYNC_ATTEMPTS = 4  # with pauses of 1, 2 and 4 seconds between failed cycles


class RunResult(StrEnum):
    """How a run ended, worst first; the command line's exit codes."""

    FAILED = "failed"  # an internal error, or no access to a store: exit 1
    RETRY = "retry"  # storage or a conflict: exit 4
    NEEDS_ATTENTION = "needs_attention"  # a table is halted or blocked: exit 3
    CAUGHT_UP = "caught_up"  # exit 0

    @property
    def exit_code(self) -> int:
        """The exit code for this result."""
        return {"failed": 1, "retry": 4, "needs_attention": 3, "caught_up": 0}[self.value]


@dataclass
class Totals:
    """What was committed so far, to which tables."""

    commits: int = 0
    files: int = 0
    rows: int = 0
    tables: set[TableName] = field(default_factory=set)

    def add(self, commits: Sequence[BatchCommitted]) -> None:
        """Count further commits."""
        self.commits += len(commits)
        self.files += sum(len(commit.files) for commit in commits)
        self.rows += sum(commit.rows for commit in commits)
        self.tables |= {commit.table for commit in commits}


@dataclass
class CycleResult:
    """What one cycle saw and did."""

    zone: ZoneListing | None = None  # the listing; None where the zone could not be listed
    # Per table, before they were carried out; of a table in progress, the plan that is being carried out
    plans: dict[TableName, Plan] = field(default_factory=dict)
    commits: list[BatchCommitted] = field(default_factory=list)
    # The last transient failure of each table that waits for its next try; None is the landing zone as a whole
    failures: Failures = field(default_factory=dict)
    # Tables whose plan no longer holds: something was done since, or is in progress
    stale: set[TableName] = field(default_factory=set)

    @property
    def is_complete(self) -> bool:
        """Whether the zone was listed, and no folder is missing whose table is about to be dropped."""
        return self.zone is not None and self.plans.keys() <= {listing.name for listing in self.zone.tables}

    @property
    def run_result(self) -> RunResult:
        """The worst result of a table."""
        failures = self.failures.values()
        if any(isinstance(failure, InternalError) for failure in failures):
            return RunResult.FAILED
        if failures:
            return RunResult.FAILED if all(isinstance(failure, NoAccess) for failure in failures) else RunResult.RETRY
        if any(needs_attention(plan.state) for plan in self.plans.values()):
            return RunResult.NEEDS_ATTENTION
        return RunResult.CAUGHT_UP


class Engine:
    """Runs cycles over one landing zone; `publish` gets the plans of each before they are carried out.

    `settle` is called before a wait for the next cycle: nothing is published soon.
    `reader` and `passthrough`: see `Replayer`. `record` takes each change of a table, besides its rows.

    Attributes:
        context: what its parts share.
        last: what the last cycle saw and did.
        applied: what all cycles committed.
        changes: what became of tables besides the applied rows.
    """

    def __init__(  # noqa: PLR0913 - who else takes part
        self,
        context: EngineContext,
        reader: Callable[[], OrderedReader],
        passthrough: Callable[[], PassthroughReader] | None = None,
        publish: Callable[[Mapping[TableName, Plan]], None] = lambda _: None,
        record: Callable[[TableChange], None] = lambda _: None,
        *,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self.changes = Changes(context.clock, context.emit, record)
        self.context = context = replace(context, emit=self.changes)
        self.last = CycleResult()
        self.poller = Poller(context.storage, context.config, context.requests)
        parts = context.storage, context.ledger, context.config
        self._janitor = Janitor(*parts, lambda: context.now, context.check_lock, lambda: context.lag)
        self._publish, self._settle = publish, settle
        self._halts = Halts(context.ledger, context.emit)
        self._replayer = Replayer(context, self._janitor, self._halts, reader, passthrough)
        self._scheduler = TableScheduler(context.config.workers, self._replayer.run)
        self._turns = turns.Turns(context.clock, context.emit)
        self._worked_on: set[TableName] = set()  # since they were listed
        self._delta_folders: DeltaFolders | None = None
        self._rereads = Rereads(context)
        self._damaged: Mapping[str, TableDamaged] = {}  # found since the last scan
        self._started = context.clock.timer()
        self._cycles, self.applied = 0, Totals()

    @property
    def in_progress(self) -> Collection[TableName]:
        """Tables whose plans are being carried out."""
        return self._scheduler.in_progress.keys()

    @property
    def seconds(self) -> float:
        """How long it has worked."""
        return self.context.clock.timer() - self._started

    def sync(self, stop: threading.Event, *, final: Collection[RunResult] = (), is_listed: bool = False) -> None:
        """Run cycles until every file of the first listing is applied. Files that land later do not prolong it.

        After a cycle that fails and is not `final`, retry, with pauses. Where the poller has just listed all
        (`is_listed`), only tables that failed are listed again.
        """
        failed, first = 0, None  # how every folder was listed first
        while not stop.is_set():
            is_known = is_listed and None not in self.last.failures
            self.cycle(stop, only=self._turns.retried if is_known else None)
            listings = {listing.name: listing for listing in self.last.zone.tables} if self.last.zone else {}
            if self.last.stale and (first is None or self._has_done_any_of(first, listings)):
                first = listings if first is None else first
                continue
            failed += 1
            if not self.last.failures or self.last.run_result in final or failed == MAX_SYNC_ATTEMPTS:
                break
            stop.wait(self._retry_seconds(turns.FIRST_PAUSE_SECONDS * 2.0 ** (failed - 1)))
        self.finish()

    def _has_done_any_of(self, first: Mapping[TableName, TableListing], now: Mapping[TableName, TableListing]) -> bool:
        """Whether the last cycle worked on files of the first listing, so that the next one may continue."""
        for name in self.last.stale & self.last.plans.keys():
            before, after = first.get(name), now.get(name)
            if after and (before is None or before.identity != after.identity):
                continue  # it landed since, or was made anew
            files = {*before.files} if before else set()
            for step in self.last.plans[name].steps:
                match step:
                    case ApplyBatch() if not files.isdisjoint(step.files):
                        return True
                    case DropTable():
                        return True
                    case RecordProgress() if step.kind != "record_folder_state":
                        return True
        return False

    def run(self, stop: threading.Event, watcher: ZoneWatcher, maintenance: MaintenanceScheduler) -> None:
        """Run cycles until `stop` is set: at each poll interval, file-system event or due retry."""
        clock, idle_scans = self.context.clock, 0
        listed_at, is_whole = -math.inf, True  # when all folders were listed last; whether they are now
        while not stop.is_set():
            lead_seconds, touched = clock.lead_seconds, watcher.touched()
            is_whole |= clock.monotonic() - listed_at >= self.context.config.scan_pause(idle_scans)
            only = None if is_whole or touched is None else touched | self._worked_on
            self.cycle(stop, maintenance.in_progress, watcher.is_due, only)
            now = clock.monotonic()
            listed_at = now if only is None else listed_at
            is_whole = self.last.zone is None or None in self.last.failures  # some were not listed
            maintenance.start(self.idle_tables, is_busy=self.is_busy)
            is_idle = not self.is_busy and self.last.is_complete
            idle_scans = idle_scans + 1 if is_idle else 0
            pause = self.context.config.scan_pause(idle_scans) - (now - listed_at)
            pause = self.next_cycle_seconds(max(pause, 0.0))
            pause -= clock.lead_seconds - lead_seconds  # the cycle was planned by an earlier time
            with suppress(StorageUnavailable):  # it is only shown
                self.context.ledger.set_property(NEXT_POLL, str(clock() + pause))
                if self.last.zone and self.last.zone.requests:
                    self.context.ledger.set_property(SCAN_REQUESTS, json.dumps(self.last.zone.requests))
            if pause > 0:
                self._settle()
            watcher.wait(pause)
        self.finish()

    def finish(self) -> None:
        """Wait for the tables in progress, and plan the remaining work for a report; no further batch begins."""
        stopped = threads().event()
        stopped.set()
        while self.last.stale:
            self.cycle(stopped)
        if self.in_progress:  # the zone could not be listed
            self._collect(self.last, None)
            self.applied.add(self.last.commits)

    @property
    def idle_tables(self) -> list[TableName]:
        """Tables that have caught up."""
        return [
            table
            for table, plan in self.last.plans.items()
            if isinstance(plan.state, CaughtUp) and not plan.steps and table not in self.last.stale
        ]

    @property
    def is_busy(self) -> bool:
        """Whether any table was just worked on, or has something to do."""
        return bool(self.last.stale) or any(plan.steps for plan in self.last.plans.values())

    def cycle(
        self,
        stop: threading.Event,
        maintained: TableName | None = None,
        is_called: Callable[[], bool] | None = None,
        only: Collection[TableName] | None = None,
    ) -> CycleResult:
        """Scan the landing zone, plan every table, apply the plans batch by batch, clean up.

        Args:
            stop: once set, no further batch begins.
            maintained: a table under maintenance: its plan waits.
            is_called: whether to return although tables are in progress; the next cycles leave these alone until
                their plans are carried out. None: wait for all.
            only: see `Poller.scan`; idle tables whose folders are not listed are planned as before.
        """
        self._cycles += 1
        started = self.context.clock.timer()
        self.context.emit(CycleStarted(self._cycles))
        earlier = dict(self._scheduler.in_progress)
        self.last = result = CycleResult()
        try:
            self.context.check_lock()
            result.zone = zone = self.poller.scan(only)
            folders = self._scan_delta_folders(zone, earlier)
            planner = ZonePlanner(self.context, folders, zone, lambda name: self._turns[name].plan)
            plans, self._damaged = planner.plans(earlier, only), planner.damaged
            result.zone = zone = planner.zone
        except StorageUnavailable as error:
            return self._without_plans(result.zone, error)
        is_due = partial(self._is_due, is_called, earlier, started, self.context.clock.timer()) if is_called else None
        result.plans = {**plans, **{table: task.plan for table, task in earlier.items()}}
        self._keep(zone, plans)
        self._note_failures(result, zone, folders)
        with self._retried(result):
            self._publish(result.plans)
        held = {maintained, *(table for table in plans if self.context.delta_folder(table) in folders.unread)}
        self._submit(zone, plans, held, str(planner.root.now), stop)
        self._collect(result, is_due)
        roots = [task.root_identity for task in self._scheduler.in_progress.values()]
        with self._retried(result):
            planner.remember_root(result.plans.values(), roots)
        self._end(result, zone, earlier, started)
        return result

    def next_cycle_seconds(self, longest: float) -> float:
        """Seconds until the next cycle: 0 if a plan no longer holds, less than `longest` if a retry is due."""
        return 0.0 if self.last.stale else self._retry_seconds(longest)

    def _retry_seconds(self, longest: float) -> float:
        return self._turns.retry_seconds(longest, self.in_progress)

    def close(self) -> None:
        """End the workers, after their present batches."""
        self._scheduler.close()

    def _scan_delta_folders(self, zone: ZoneListing, busy: Collection[TableName]) -> DeltaFolders:
        """The folders of Delta tables; before the first plans, the ledger is reconciled with their logs.

        The logs of `busy` tables are not read, and of foreign ones those that stand in the way of a listed table.
        """
        if self.context.ledger.is_lost and not busy:
            self.context.ledger.is_lost, self._delta_folders = False, None
        if self._delta_folders is None:
            self._delta_folders = recover(self.context, unchanged_logs(self.context))
            for table, progress in self.context.ledger.tables().items():
                if progress.rejection and progress.rejection.diagnostic.code == REFUSED_COMMIT:  # it may do by now
                    self.context.ledger.record(table, replace(progress, rejection=None))
            for table in self._delta_folders.unsaid:
                with suppress(TransientError):  # the ledger knows it; the next start tries again
                    say_again(self.context, table)
            if not self._delta_folders.damaged:
                return self._delta_folders
        known = replace(self._delta_folders, damaged={**self._delta_folders.damaged, **self._damaged})
        in_the_way = known.foreign & {self.context.delta_folder(listing.name) for listing in zone.tables}
        unusable = {*known.damaged, *in_the_way}.difference(map(self.context.delta_folder, busy))
        due = {folder for folder in unusable if self._rereads.is_due(folder)}
        due |= known.unread.keys() - set(map(self.context.delta_folder, busy))
        self._delta_folders = self._read_again(known, due)
        return self._delta_folders

    def _read_again(self, known: DeltaFolders, folders: Collection[str]) -> DeltaFolders:
        for folder in sorted(known.damaged.keys() & folders):
            with suppress(TransientError):  # a drop's commit that came late damages the next table
                self.context.writer.finish_drop(folder, self.context.check_lock)
        return rescan(self.context, known, folders)

    def _is_damaged(self, error: TableDamaged, folder: str) -> bool:
        """Read a Delta folder again in which a batch found damage; returns whether it is damaged."""
        self._rereads.is_due(folder)  # which this is
        found = self._read_again(DeltaFolders(damaged={folder: error}), {folder})
        self._damaged = {**self._damaged, **found.damaged}
        return bool(found.damaged)

    def _without_plans(self, zone: ZoneListing | None, error: StorageUnavailable) -> CycleResult:
        """End a cycle whose listing or planning failed."""
        if zone is None:
            self._report(None, [unlisted("", "the landing zone cannot be listed")])
        self.last = CycleResult(failures={None: self._turns.retry(None, error)})
        self._turns.give_up(self.in_progress)
        self._leave_failures()
        return self.last

    def _keep(self, zone: ZoneListing, plans: Mapping[TableName, Plan]) -> None:
        """Keep the plans, and report their diagnostics; forget tables that are gone."""
        self._report(None, zone.diagnostics)
        self._halts.compare(plans)
        for name, plan in plans.items():
            self._turns[name].plan = plan
            self._report(name, plan.diagnostics)
        known = {*plans, *self.in_progress, *self.context.ledger.tables()}
        if not zone.unlisted:
            self._halts.keep(known)
            self._turns.keep(known)
            self.context.keep_looks(known)

    def _note_failures(self, result: CycleResult, zone: ZoneListing, folders: DeltaFolders) -> None:
        """Record the tables that wait for a retry, and which parts of the zone and Delta logs could not be read."""
        for name in result.plans:
            if unread := folders.unread.get(self.context.delta_folder(name)):  # its progress is not known for certain
                result.failures[name] = self._turns.retry(name, unread)
            elif failure := self._turns[name].waits_for:
                result.failures[name] = failure
        if zone.unlisted:  # the zone may not have caught up, whatever its tables say
            result.failures[None] = self._turns.retry(None, _not_listed(zone))

    @contextmanager
    def _retried(self, result: CycleResult) -> Iterator[None]:
        """Record a failure of the zone as a whole; the next cycle retries it."""
        try:
            yield
        except StorageUnavailable as error:
            result.failures.setdefault(None, self._turns.retry(None, error))

    def _submit(
        self,
        zone: ZoneListing,
        plans: Mapping[TableName, Plan],
        held: Collection[TableName | None],
        root: str,
        stop: threading.Event,
    ) -> None:
        """Queue a task for every table with steps to do, or files to move away; the steps of `held` tables wait."""
        # nothing is archived or deleted of a table that may be hidden
        hidden = {name for name, plan in plans.items() if isinstance(plan.state, Unlisted)}
        listings = {listing.name: listing for listing in zone.tables if listing.name not in hidden}
        self._worked_on = {*self._turns.retried, *self.in_progress}
        self._janitor.keep(listings.keys())
        for name, plan in plans.items():
            turn = self._turns[name]
            phases = turn.phases(is_held=name in held or not plan.steps)
            has_steps, listing = bool(plan.steps) and Phase.APPLYING in phases, listings.get(name)
            may_clean = Phase.CLEANING in phases and listing and self._replayer.can_clean(plan, listing)
            has_work = has_steps or bool(may_clean)
            turn.begin(phases if has_work else (), has_steps=has_steps)
            if has_work:
                self._scheduler.submit(TableTask(plan, listing, zone.folder, root, phases), stop)
                self._worked_on.add(name)

    def _collect(self, result: CycleResult, is_due: Callable[[], bool] | None) -> None:
        """Wait for the tasks, or until the next cycle is due."""
        for task, outcome in self._scheduler.results(is_due):
            name, turn = task.table, self._turns[task.table]
            if isinstance(outcome, TableDamaged) and self._is_damaged(outcome, self.context.delta_folder(name)):
                turn.succeeded(task.phase)
                result.stale.add(name)  # the next cycle plans it as halted
            elif isinstance(outcome, TransientError):
                result.failures[name] = self._turns.retry(name, outcome, task.phase)
            elif isinstance(outcome, BaseException):
                raise outcome
            elif task.phase is Phase.DONE and turn.end(task.phases, task.plan):
                result.stale.add(name)
            if isinstance(outcome, BatchCommitted):
                result.commits.append(outcome)
                turn.succeeded(Phase.APPLYING)

    def _end(self, result: CycleResult, zone: ZoneListing, earlier: Collection[TableName], started: float) -> None:
        """Record which tables the next cycle plans again and which retries are over."""
        result.stale |= {*earlier, *self.in_progress, *(commit.table for commit in result.commits)}
        self._turns.give_up({*result.plans, *self.in_progress})
        if None not in result.failures:
            self._turns[None].succeeded(Phase.APPLYING)
        self._leave_failures()
        self.applied.add(result.commits)
        requests = sum(zone.requests.values()) or None
        self.context.emit(CycleEnded(self._cycles, len(result.commits), self.context.clock.timer() - started, requests))

    def _is_due(
        self, is_called: Callable[[], bool], unplanned: Collection[TableName], started: float, scanned: float
    ) -> bool:
        """Whether the next cycle is due: an event arrived, the poll interval passed, or a retry is due.

        Or a table finished that this cycle could not plan: its files' event is over. Never before as much time was
        spent on batches as on the scan.
        """
        now = self.context.clock.timer()
        if now - scanned < scanned - started:
            return False
        left = started + self.context.config.scan_pause(0) - now
        is_planned = all(name in self.in_progress for name in unplanned)
        return left <= 0 or is_called() or not is_planned or self._retry_seconds(left) <= 0

    def _report(self, name: TableName | None, diagnostics: Sequence[Diagnostic]) -> None:
        """Emit the diagnostics that are new, and forget those that no longer hold."""
        turn = self._turns[name]
        for diagnostic in diagnostics:
            if diagnostic not in turn.reported:
                self.context.emit(DiagnosticRaised(name, diagnostic))
        turn.reported = frozenset(diagnostics)

    def _leave_failures(self) -> None:
        """Store pending retries, so that `status` in another process can show them, and which tables are halted."""
        pending = {**self._turns.failures(), **self.last.failures}
        failures = {name.folder if name else "": error.to_json() for name, error in pending.items()}
        with suppress(StorageUnavailable):  # they are only shown
            self.context.ledger.set_failures(failures)
            self._halts.store()


def _not_listed(zone: ZoneListing) -> StorageUnavailable:
    """Why folders of the zone could not be listed: the folders with the first reason, and the number of others."""
    found = [diagnostic for diagnostic in zone.diagnostics if diagnostic.code == UNLISTED]
    found = found or [unlisted(folder) for folder in sorted(zone.unlisted)]
    alike = [each for each in found if (each.message, each.help) == (found[0].message, found[0].help)]
    others = len(found) - len(alike)
    names = ", ".join(sorted(printable(each.path) for each in alike if each.path))
    more = f"; and {count(others, 'more folder')}, see status" if others else ""
    kind = zone.error_of(zone.unlisted)
    return kind(f"{names}{': ' if names else ''}{found[0].message}{more}", found[0].help)
