"""The cycle: poll, plan, replay, clean; over all tables side by side, and the only place that reacts to errors."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from mirror_engine.announcements import Announcements
from mirror_engine.cycle_result import CycleResult
from mirror_engine.errors import (
    CommitConflict,
    StorageUnavailable,
    TableDamaged,
    TransientError,
    foreseen,
)
from mirror_engine.events import CycleEnded, CycleStarted, OperationFailed
from mirror_engine.landing_zone.diagnostics import diagnose, printable
from mirror_engine.outlook import Outlook, Settled
from mirror_engine.pauses import Pauses
from mirror_engine.recovery import agree, look_again, recover
from mirror_engine.replayer import Replayer, Work
from mirror_engine.turns import Turns

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from concurrent.futures import Future

    from mirror_engine.change_batches import BatchReader
    from mirror_engine.cycle_result import Failures
    from mirror_engine.doors import Doors
    from mirror_engine.events import BatchCommitted
    from mirror_engine.janitor import Janitor
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.sightings import ZoneSighting
    from mirror_engine.poller import Poller
    from mirror_engine.recovery import DeltaFolders
    from mirror_engine.steps import Plan

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 300.0


@dataclass(frozen=True)
class _Done:
    """What the turns that ended within a cycle came to."""

    commits: list[BatchCommitted] = field(default_factory=list)
    failures: Failures = field(default_factory=dict)
    unclean: Failures = field(default_factory=dict)


class Engine:
    """Runs cycles over one landing zone."""

    def __init__(self, doors: Doors, poller: Poller, reader: BatchReader, janitor: Janitor) -> None:
        self._doors = doors
        self._poller = poller
        self._janitor = janitor
        self._replayer = Replayer(doors, reader)
        self._turns = Turns(doors.config.workers, self._turn)
        self._found: DeltaFolders | None = None
        self._pauses = Pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        # apart: what cannot be moved away can still be read
        self._cleaning_pauses = Pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        self._announcements = Announcements(doors.tell)
        self._settled: dict[TableName, Settled] = {}
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
            outlook = Outlook(self._doors, self._known_tables(), zone, self._settled)
            plans = outlook.plans(but=self.under_way)
        except StorageUnavailable as error:
            if zone is None:
                self._announcements.say(None, [diagnose("ME070", "")])
            self._is_cut_short = False
            return CycleResult(None, failures={None: self._failed(None, error, self._pauses)})
        is_due = partial(self._is_due, is_called, started, time.monotonic()) if is_called else None
        result = self._work_off(zone, outlook, plans, at_hand, stop=stop, is_due=is_due)
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

    def _unseen(self, zone: ZoneSighting) -> Failures:
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
        self._found = look_again(self._doors, self._found, self.under_way) if self._found else recover(self._doors)
        return self._found

    def _but_damaged(self, failures: Failures, outlook: Outlook) -> Failures:
        """Failures to try again; tables whose logs turned out to be damaged are planned anew instead, as latched."""
        damaged = {self._doors.delta_folder(t): e for t, e in failures.items() if t and isinstance(e, TableDamaged)}
        found = replace(outlook.found, damaged={**outlook.found.damaged, **damaged})
        self._found = outlook.found = look_again(self._doors, found, self.under_way)
        return {t: e for t, e in failures.items() if not t or self._doors.delta_folder(t) not in outlook.found.damaged}

    def _work_off(  # noqa: PLR0913 - what was seen, and how long to go on
        self,
        zone: ZoneSighting,
        outlook: Outlook,
        plans: dict[TableName, Plan],
        at_hand: TableName | None,
        *,
        stop: threading.Event,
        is_due: Callable[[], bool] | None,
    ) -> CycleResult:
        unread = self._unread(plans, outlook.found)
        put_off = self._pauses.waiting | unread.keys()
        paused = put_off | ({at_hand} - {None})
        self._announcements.say(None, zone.diagnostics)
        for table, plan in plans.items():
            self._announcements.say(table, plan.diagnostics)
        self._turns.line_up(self._works(zone, outlook, plans, paused))
        earlier = {work.table: work.plan for work in self._turns.at_hand}
        plans |= earlier
        done = self._replayed(stop, is_due)
        unfinished = self._turns.unfinished
        self._turns.send_home()
        self._is_cut_short = bool(unfinished or earlier)  # what the look saw of those was not lined up
        failures = self._but_damaged(done.failures, outlook) | unread | self._unseen(zone)
        self._pauses.end_all_but(put_off | unfinished, failures)
        untried = paused | unfinished | failures.keys()
        tried = {table: plan for table, plan in plans.items() if table not in untried}
        left = plans
        try:
            worked = {table for table, plan in tried.items() if plan.steps or table in earlier}
            left = {t: plan for t, plan in plans.items() if t not in worked} | outlook.plans_after(worked, tried)
            outlook.moored.remember(left.values(), (work.anchor for work in self._turns.at_hand))
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
        self, zone: ZoneSighting, outlook: Outlook, plans: dict[TableName, Plan], paused: Collection[TableName | None]
    ) -> Iterator[Work]:
        """Tables with steps to do, or with files to be moved away."""
        sighted = {sighting.name: sighting for sighting in zone.tables}
        self._janitor.keep(zone.folder, sighted.keys())
        for table, plan in plans.items():
            work = Work(plan, sighted.get(table), zone.folder, str(outlook.moored.now))
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

    def _goes_on(self, work: Work, turn: Future[BatchCommitted | None], done: _Done) -> bool:
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

    def _turn(self, work: Work) -> BatchCommitted | None:
        """One table's next commit, or when all is applied, its cleaning (LZ-8.1); in a worker."""
        progress = self._doors.ledger.progress(work.table)
        if work.is_done and work.sighting and progress:
            self._janitor.clean(work.zone, work.sighting, progress)
            work.is_cleaned = True
            return None
        try:
            return self._replayer.advance(work)
        except CommitConflict:
            agree(self._doors, work.table, self._doors.writer.state(self._doors.delta_folder(work.table)))
            raise

    def _is_unclean(self, work: Work) -> bool:
        """Whether files of its folder may have to be moved away or deleted."""
        progress = self._doors.ledger.progress(work.table)
        if work.is_cleaned or not work.sighting or work.table in self._cleaning_pauses.waiting:
            return False
        if not progress or not progress.has_table or progress.identity != work.sighting.identity:
            return False
        return self._janitor.is_due(work.zone, work.sighting, progress)

    def _failed(self, table: TableName | None, error: TransientError, pauses: Pauses) -> TransientError:
        """Note a transient failure: the next try comes after a growing pause."""
        self._doors.tell(OperationFailed(table, str(error), pauses.begin(table)))
        return error

    def _still_paused(self, plans: Mapping[TableName, Plan]) -> Failures:
        waiting = self._pauses.waiting | self._cleaning_pauses.waiting
        return {
            table: TransientError(f"{table.normalized} waits for its next try") for table in plans if table in waiting
        }
