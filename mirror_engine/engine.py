"""The cycle: poll, plan, replay, clean; over all tables side by side, and the only place that reacts to errors."""

from __future__ import annotations

import logging
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from mirror_engine.announcements import Announcements
from mirror_engine.errors import (
    CommitConflict,
    EngineFault,
    MirrorError,
    StorageUnavailable,
    TableDamaged,
    TransientError,
)
from mirror_engine.events import BatchCommitted, CycleEnded, CycleStarted, OperationFailed
from mirror_engine.landing_zone.diagnostics import diagnose, printable
from mirror_engine.outlook import Outlook
from mirror_engine.pauses import Pauses
from mirror_engine.recovery import agree, look_again, recover
from mirror_engine.replayer import Replayer, Work
from mirror_engine.steps import LearnIdentity

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable

    from mirror_engine.change_batches import BatchReader
    from mirror_engine.doors import Doors
    from mirror_engine.janitor import Janitor
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.sightings import TableSighting, ZoneSighting
    from mirror_engine.poller import Poller
    from mirror_engine.recovery import DeltaFolders
    from mirror_engine.steps import Plan

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 300.0

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class CycleResult:
    """What one cycle saw and did.

    Attributes:
        zone: what the poller saw; None where the zone could not be listed.
        plans: what is left, after the cycle, per table.
        batches: commits made.
        files, rows: what they held.
        failures: transient failures by table; None stands for the zone.
    """

    zone: ZoneSighting | None
    plans: dict[TableName, Plan] = field(default_factory=dict)
    batches: int = 0
    files: int = 0
    rows: int = 0
    failures: dict[TableName | None, TransientError] = field(default_factory=dict)


class Engine:
    """Runs cycles over one landing zone."""

    def __init__(self, doors: Doors, poller: Poller, reader: BatchReader, janitor: Janitor) -> None:
        self._doors = doors
        self._poller = poller
        self._janitor = janitor
        self._replayer = Replayer(doors, reader)
        self._pool = ThreadPoolExecutor(doors.config.workers, thread_name_prefix="worker")
        self._found: DeltaFolders | None = None
        self._pauses = Pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        self._cleaning_pauses = Pauses(
            FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS
        )  # apart: what cannot be moved away can still be read
        self._announcements = Announcements(doors.tell)
        self._cycles = 0

    def cycle(self, stop: threading.Event, at_hand: TableName | None = None) -> CycleResult:
        """Poll, plan, replay, clean. Ends early, after the commits at hand, when `stop` is set.

        Args:
            stop: ends it.
            at_hand: a table that is being maintained; its steps wait.
        """
        self._cycles += 1
        started = time.monotonic()
        self._doors.tell(CycleStarted(self._cycles))
        zone = None
        try:
            zone = self._poller.look()
            outlook = Outlook(self._doors, self._known_tables(), zone)
            plans = outlook.plans()
        except StorageUnavailable as error:
            if zone is None:
                self._announcements.say(None, [diagnose("ME070", "")])
            return CycleResult(None, failures={None: self._failed(None, error, self._pauses)})
        result = self._work_off(zone, outlook, plans, stop, {at_hand} - {None})
        self._doors.tell(CycleEnded(self._cycles, result.batches, time.monotonic() - started))
        return result

    def _unseen(self, zone: ZoneSighting) -> dict[TableName | None, TransientError]:
        """Folders that could not be looked into: what may lie there keeps the zone from being level."""
        if not zone.unlisted:
            self._pauses.end([None])
            return {}
        names = ", ".join(sorted(map(printable, zone.unlisted)))
        error = StorageUnavailable(f"{names}: cannot be listed or read", "Check path and rights.")
        return {None: self._failed(None, error, self._pauses)}

    def _unread(self, plans: Iterable[TableName], found: DeltaFolders) -> dict[TableName | None, TransientError]:
        """Tables whose Delta logs have not been read yet: what the ledger says of them may be behind, or nothing."""
        faults = {table: found.unread.get(self._doors.delta_folder(table)) for table in plans}
        return {
            table: fault if table in self._pauses.waiting else self._failed(table, fault, self._pauses)
            for table, fault in faults.items()
            if fault
        }

    def next_try_seconds(self, longest: float) -> float:
        """How long to wait before the next cycle: less than `longest` where a paused table is due before."""
        return self._cleaning_pauses.next_seconds(self._pauses.next_seconds(longest))

    def drop(self, table: TableName, reason: Diagnostic) -> None:
        """Remove a Delta table, and all memory of it."""
        self._replayer.drop(table, reason)

    def close(self) -> None:
        """End the workers."""
        self._pool.shutdown(wait=True)

    def _known_tables(self) -> DeltaFolders:
        """What lies in `ROOT/Tables`; before the first cycle, the ledger is made to agree with the Delta logs."""
        self._found = look_again(self._doors, self._found) if self._found else recover(self._doors)
        return self._found

    def _but_damaged(
        self, failures: dict[TableName | None, TransientError], outlook: Outlook
    ) -> dict[TableName | None, TransientError]:
        """Failures to try again; tables whose logs turned out to be damaged are planned anew instead, as latched."""
        damaged = {self._doors.delta_folder(t): e for t, e in failures.items() if t and isinstance(e, TableDamaged)}
        found = outlook.found
        self._found = look_again(self._doors, replace(found, damaged={**found.damaged, **damaged}))
        outlook.found = self._found
        return {t: e for t, e in failures.items() if not t or self._doors.delta_folder(t) not in self._found.damaged}

    def _work_off(
        self,
        zone: ZoneSighting,
        outlook: Outlook,
        plans: dict[TableName, Plan],
        stop: threading.Event,
        at_hand: set[TableName | None],
    ) -> CycleResult:
        sighted = {sighting.name: sighting for sighting in zone.tables}
        unread = self._unread(plans, outlook.found)
        paused = self._pauses.waiting | at_hand | unread.keys()
        works = [
            Work(plan, sighted.get(table), zone.folder, str(outlook.moored.now))
            for table, plan in plans.items()
            if plan.steps and table not in paused
        ]
        self._announcements.say(None, zone.diagnostics)
        for table, plan in plans.items():
            self._announcements.say(table, plan.diagnostics)
        commits, failures = self._replayed(works, stop)
        failures = self._but_damaged(failures, outlook)
        failures |= unread | self._unseen(zone)
        self._pauses.end_all_but(paused, failures)
        tried = {table: plan for table, plan in plans.items() if table not in paused and table not in failures}
        failures |= self._cleaned(zone)
        left = plans
        try:
            left = {table: plan for table, plan in plans.items() if table not in tried or not plan.steps}
            left |= _planned_again(tried, outlook, zone)
            if not any(isinstance(step, LearnIdentity) for plan in left.values() for step in plan.steps):
                outlook.moored.remember()
        except StorageUnavailable as error:
            failures[None] = self._failed(None, error, self._pauses)
        return CycleResult(
            zone,
            left,
            len(commits),
            sum(len(commit.files) for commit in commits),
            sum(commit.rows for commit in commits),
            {**self._still_paused(plans), **failures},
        )

    def _replayed(
        self, works: Iterable[Work], stop: threading.Event
    ) -> tuple[list[BatchCommitted], dict[TableName | None, TransientError]]:
        """Each table's steps, one commit a turn, so that a long backlog does not keep the others waiting."""
        commits: list[BatchCommitted] = []
        failures: dict[TableName | None, TransientError] = {}
        turns = {self._pool.submit(self._turn, work, stop): work for work in works}
        while turns:
            for turn in wait(turns, return_when=FIRST_COMPLETED).done:
                work = turns.pop(turn)
                try:
                    commit = _foreseen(turn.result)
                except TransientError as error:
                    failures[work.table] = self._failed(work.table, error, self._pauses)
                    continue
                if commit:
                    commits.append(commit)
                    self._pauses.end([work.table])
                if not work.is_done and not stop.is_set():
                    turns[self._pool.submit(self._turn, work, stop)] = work
        return commits, failures

    def _turn(self, work: Work, stop: threading.Event) -> BatchCommitted | None:
        """One table's next commit, in a worker; none where `stop` was set while it queued."""
        if stop.is_set():
            return None
        try:
            return self._replayer.advance(work)
        except CommitConflict:
            agree(self._doors, work.table, self._doors.writer.state(self._doors.delta_folder(work.table)))
            raise

    def _cleaned(self, zone: ZoneSighting) -> dict[TableName | None, TransientError]:
        """Processed files moved away, table by table (LZ-8.1)."""
        failures: dict[TableName | None, TransientError] = {}
        paused = self._cleaning_pauses.waiting
        for sighting in zone.tables:
            if sighting.name in paused:
                continue
            try:
                _foreseen(partial(self._clean, zone, sighting))
            except TransientError as error:
                failures[sighting.name] = self._failed(sighting.name, error, self._cleaning_pauses)
        self._cleaning_pauses.end_all_but(paused, failures)
        return failures

    def _clean(self, zone: ZoneSighting, sighting: TableSighting) -> None:
        progress = self._doors.ledger.progress(sighting.name)
        if not progress or not progress.has_table or progress.identity != sighting.identity:
            return
        self._janitor.clean(zone.folder, sighting, progress)

    def _failed(self, table: TableName | None, error: TransientError, pauses: Pauses) -> TransientError:
        """Note a transient failure: the next try comes after a growing pause."""
        self._doors.tell(OperationFailed(table, str(error), pauses.begin(table)))
        return error

    def _still_paused(self, plans: dict[TableName, Plan]) -> dict[TableName | None, TransientError]:
        waiting = self._pauses.waiting | self._cleaning_pauses.waiting
        return {
            table: TransientError(f"{table.normalized} waits for its next try") for table in plans if table in waiting
        }


def _foreseen(call: Callable[[], _Answer]) -> _Answer:
    """What a table's turn comes to; what nobody foresaw becomes a fault of that table alone (protocol chapter 10)."""
    try:
        return call()
    except MirrorError:
        raise
    except Exception as error:
        logging.getLogger(__name__).exception("work on a table failed")
        raise EngineFault(f"unforeseen: {type(error).__name__}", "Please report it, with the log.") from error


def _planned_again(tried: dict[TableName, Plan], outlook: Outlook, zone: ZoneSighting) -> dict[TableName, Plan]:
    """What is left of tables whose steps were done; of all, where one that went made room for another (LZ-1.5)."""
    sighted = {sighting.name for sighting in zone.tables}
    worked = {table for table, plan in tried.items() if plan.steps}
    return outlook.plans(worked if worked <= sighted else tried)
