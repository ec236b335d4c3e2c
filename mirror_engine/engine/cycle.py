"""The cycle: poll, plan, replay, clean; over all tables side by side, and the only place that reacts to errors."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from mirror_engine.engine.context import DiagnosticNotifier
from mirror_engine.engine.planner import CachedPlan, ZonePlanner
from mirror_engine.engine.recovery import agree, look_again, recover
from mirror_engine.engine.replayer import Replayer, TableTask
from mirror_engine.engine.scheduler import Backoff, TableScheduler
from mirror_engine.errors import CommitConflict, StorageUnavailable, TableDamaged, TransientError, foreseen
from mirror_engine.events import CycleEnded, CycleStarted, RetryScheduled
from mirror_engine.landing_zone.diagnostics import diagnose, printable

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from concurrent.futures import Future

    from mirror_engine.engine.batch_reader import BatchReader
    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.janitor import Janitor
    from mirror_engine.engine.plan import Plan
    from mirror_engine.engine.poller import Poller
    from mirror_engine.engine.recovery import DeltaFolders
    from mirror_engine.events import BatchCommitted
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import ZoneListing
    from mirror_engine.landing_zone.names import TableName

Failures: TypeAlias = "dict[TableName | None, TransientError]"  # None stands for the zone


@dataclass(frozen=True)
class CycleResult:
    """What one cycle saw and did.

    Attributes:
        zone: what the poller saw; None where the zone could not be listed.
        plans: what is left, after the cycle, per table; of one whose turn is still under way, what it began with.
        batches, files, rows: commits made, and what they held.
        failures: transient failures by table; None stands for the zone.
    """

    zone: ZoneListing | None
    plans: dict[TableName, Plan] = field(default_factory=dict)
    batches: int = 0
    files: int = 0
    rows: int = 0
    failures: Failures = field(default_factory=dict)


FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 300.0


@dataclass(frozen=True)
class _Done:
    """What the turns that ended within a cycle came to."""

    commits: list[BatchCommitted] = field(default_factory=list)
    failures: Failures = field(default_factory=dict)
    unclean: Failures = field(default_factory=dict)


class Engine:
    """Runs cycles over one landing zone."""

    def __init__(self, context: EngineContext, poller: Poller, reader: BatchReader, janitor: Janitor) -> None:
        self._doors = context
        self._poller = poller
        self._janitor = janitor
        self._replayer = Replayer(context, reader)
        self._turns = TableScheduler(context.config.workers, self._turn)
        self._found: DeltaFolders | None = None
        self._pauses = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        # apart: what cannot be moved away can still be read
        self._cleaning_pauses = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        self._announcements = DiagnosticNotifier(context.tell)
        self._settled: dict[TableName, CachedPlan] = {}
        self._cycles = 0
        self._is_cut_short = False

    def cycle(
        self, stop: threading.Event, at_hand: TableName | None = None, is_called: Callable[[], bool] | None = None
    ) -> CycleResult:
        """Poll, plan, replay, clean. Ends early, after the turns at hand, when `stop` is set.

        Args:
            stop: ends it.
            at_hand: a table that is being maintained; its steps wait.
            is_called: whether to look at the zone again although tables are still being worked on: their turns go on
                beside the next cycles, which leave these tables alone. None: all work is waited for.
        """
        self._cycles += 1
        started = time.monotonic()
        self._doors.tell(CycleStarted(self._cycles))
        zone = None
        try:
            zone = self._poller.look()
            zone_planner = ZonePlanner(self._doors, self._known_tables(), zone, self._settled)
            plans = zone_planner.plans(but=self.under_way)
        except StorageUnavailable as error:
            if zone is None:
                self._announcements.say(None, [diagnose("ME070", "")])
            self._is_cut_short = False
            return CycleResult(None, failures={None: self._failed(None, error, self._pauses)})
        is_due = partial(self._is_due, is_called, started, time.monotonic()) if is_called else None
        result = self._work_off(zone, zone_planner, plans, at_hand, stop=stop, is_due=is_due)
        self._doors.tell(CycleEnded(self._cycles, result.batches, time.monotonic() - started))
        return result

    @property
    def under_way(self) -> set[TableName]:
        """Tables whose turns go on beside the next cycle."""
        return {work.table for work in self._turns.at_hand}

    def next_try_seconds(self, longest: float) -> float:
        """How long to wait before the next cycle: less than `longest` where a try is due before.

        Not at all where work is under way, or was when the last cycle began.
        """
        return 0.0 if self._is_cut_short else self._next_seconds(longest)

    def drop(self, table: TableName, reason: Diagnostic) -> None:
        """Remove a Delta table, and all memory of it."""
        self._replayer.drop(table, reason)

    def close(self) -> None:
        """End the workers, after the turns at hand."""
        self._turns.close()

    def _next_seconds(self, longest: float) -> float:
        busy = self._turns.unfinished if self._pauses or self._cleaning_pauses else set()
        return self._cleaning_pauses.next_seconds(self._pauses.next_seconds(longest, busy), busy)

    def _is_due(self, is_called: Callable[[], bool], started: float, looked: float) -> bool:
        """Whether the next look is due: by a call, by the clock, or for a table whose pause is over.

        Never before as much time went into work as into the look: whatever calls, tables have their turns.
        """
        now = time.monotonic()
        left = started + self._doors.config.poll_interval_seconds - now
        return now - looked >= looked - started and (is_called() or self._next_seconds(left) <= 0)

    def _unseen(self, zone: ZoneListing) -> Failures:
        """Folders that could not be looked into: what may lie there keeps the zone from being level."""
        if not zone.unlisted:
            self._pauses.end([None])
            return {}
        names = ", ".join(sorted(map(printable, zone.unlisted)))
        error = StorageUnavailable(f"{names}: cannot be listed or read", "Check path and rights.")
        return {None: self._failed(None, error, self._pauses)}

    def _unread(self, plans: Iterable[TableName], found: DeltaFolders) -> Failures:
        """Tables whose Delta logs have not been read yet: what the ledger says of them may be behind, or nothing."""
        faults = {table: found.unread.get(self._doors.delta_folder(table)) for table in plans}
        return {
            table: fault if table in self._pauses.waiting else self._failed(table, fault, self._pauses)
            for table, fault in faults.items()
            if fault
        }

    def _known_tables(self) -> DeltaFolders:
        """What lies in `ROOT/Tables`; before the first cycle, the ledger is made to agree with the Delta logs."""
        self._found = (
            look_again(self._doors, self._found, self.under_way)
            if self._found
            else recover(self._doors, skip_unchanged=True)
        )
        return self._found

    def _but_damaged(self, failures: Failures, zone_planner: ZonePlanner) -> Failures:
        """Failures to try again; tables whose logs turned out to be damaged are planned anew instead, as latched."""
        damaged = {self._doors.delta_folder(t): e for t, e in failures.items() if t and isinstance(e, TableDamaged)}
        found = replace(zone_planner.found, damaged={**zone_planner.found.damaged, **damaged})
        self._found = zone_planner.found = look_again(self._doors, found, self.under_way)
        return {
            t: e for t, e in failures.items() if not t or self._doors.delta_folder(t) not in zone_planner.found.damaged
        }

    def _work_off(  # noqa: PLR0913 - what was seen, and how long to go on
        self,
        zone: ZoneListing,
        zone_planner: ZonePlanner,
        plans: dict[TableName, Plan],
        at_hand: TableName | None,
        *,
        stop: threading.Event,
        is_due: Callable[[], bool] | None,
    ) -> CycleResult:
        unread = self._unread(plans, zone_planner.found)
        put_off = self._pauses.waiting | unread.keys()
        paused = put_off | ({at_hand} - {None})
        self._announcements.say(None, zone.diagnostics)
        for table, plan in plans.items():
            self._announcements.say(table, plan.diagnostics)
        self._turns.line_up(self._works(zone, zone_planner, plans, paused))
        earlier = {work.table: work.plan for work in self._turns.at_hand}
        plans |= earlier
        done = self._replayed(stop, is_due)
        unfinished = self._turns.unfinished
        self._turns.send_home()
        self._is_cut_short = bool(unfinished or earlier)  # what the look saw of those was not lined up
        failures = self._but_damaged(done.failures, zone_planner) | unread | self._unseen(zone)
        self._pauses.end_all_but(put_off | unfinished, failures)
        untried = paused | unfinished | failures.keys()
        tried = {table: plan for table, plan in plans.items() if table not in untried}
        left = plans
        try:
            worked = {table for table, plan in tried.items() if plan.steps or table in earlier}
            left = {t: plan for t, plan in plans.items() if t not in worked} | zone_planner.plans_after(worked, tried)
            zone_planner.identity_check.remember(left.values(), (work.anchor for work in self._turns.at_hand))
        except StorageUnavailable as error:
            failures[None] = self._failed(None, error, self._pauses)
        return CycleResult(
            zone,
            left,
            len(done.commits),
            sum(len(commit.files) for commit in done.commits),
            sum(commit.rows for commit in done.commits),
            {**self._still_paused(plans), **failures, **done.unclean},
        )

    def _works(
        self,
        zone: ZoneListing,
        zone_planner: ZonePlanner,
        plans: dict[TableName, Plan],
        paused: Collection[TableName | None],
    ) -> Iterator[TableTask]:
        """Tables with steps to do, or with files to be moved away."""
        sighted = {listing.name: listing for listing in zone.tables}
        self._janitor.keep(zone.folder, sighted.keys())
        for table, plan in plans.items():
            work = TableTask(plan, sighted.get(table), zone.folder, str(zone_planner.identity_check.now))
            if table in paused:
                work.steps.clear()
            if work.steps or self._is_unclean(work):
                yield work

    def _replayed(self, stop: threading.Event, is_due: Callable[[], bool] | None) -> _Done:
        """Turn after turn, one commit each, until all is done or the next cycle is due."""
        done, untidy = _Done(), self._cleaning_pauses.waiting
        for work, turn in self._turns.taken(stop, is_due):
            if self._goes_on(work, turn, done):
                self._turns.line_up([work])
        self._cleaning_pauses.end_all_but(untidy | self._turns.unfinished, done.unclean)
        return done

    def _goes_on(self, work: TableTask, turn: Future[BatchCommitted | None], done: _Done) -> bool:
        """Note what a turn came to; whether another is to follow."""
        try:
            commit = foreseen(turn.result)
        except TransientError as error:
            pauses, failures = (self._cleaning_pauses, done.unclean) if work.is_done else (self._pauses, done.failures)
            failures[work.table] = self._failed(work.table, error, pauses)
            return False
        if commit:
            done.commits.append(commit)
            self._pauses.end([work.table])
        return not work.is_done or self._is_unclean(work)

    def _turn(self, work: TableTask) -> BatchCommitted | None:
        """One table's next commit, or when all is applied, its cleaning (LZ-8.1); in a worker."""
        progress = self._doors.ledger.progress(work.table)
        if work.is_done and work.listing and progress:
            self._janitor.clean(work.zone, work.listing, progress)
            work.is_cleaned = True
            return None
        try:
            return self._replayer.advance(work)
        except CommitConflict:
            agree(self._doors, work.table, self._doors.writer.state(self._doors.delta_folder(work.table)))
            raise

    def _is_unclean(self, work: TableTask) -> bool:
        """Whether files of its folder may have to be moved away or deleted."""
        progress = self._doors.ledger.progress(work.table)
        if work.is_cleaned or not work.listing or work.table in self._cleaning_pauses.waiting:
            return False
        if not progress or not progress.has_table or progress.identity != work.listing.identity:
            return False
        return self._janitor.is_due(work.zone, work.listing, progress)

    def _failed(self, table: TableName | None, error: TransientError, pauses: Backoff) -> TransientError:
        """Note a transient failure: the next try comes after a growing pause."""
        self._doors.tell(RetryScheduled(table, str(error), pauses.begin(table)))
        return error

    def _still_paused(self, plans: Mapping[TableName, Plan]) -> Failures:
        waiting = self._pauses.waiting | self._cleaning_pauses.waiting
        return {
            table: TransientError(f"{table.normalized} waits for its next try") for table in plans if table in waiting
        }
