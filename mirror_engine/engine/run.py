"""Runs of the engine: cycles until all is applied (`sync`) or until it is stopped (`run`), and the report."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from mirror_engine.engine.cycle import CycleResult
from mirror_engine.engine.ledger import NEXT_POLL, SCAN_REQUESTS
from mirror_engine.errors import InternalError, StorageUnavailable
from mirror_engine.landing_zone.detection import IGNORED, never_arrives
from mirror_engine.landing_zone.states import CaughtUp, needs_attention

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.cycle import Engine, Failures
    from mirror_engine.engine.maintenance import MaintenanceScheduler
    from mirror_engine.engine.watcher import ZoneWatcher
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.states import TableState

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
        commits: Delta commits made.
        files_applied: change files applied.
        rows_applied: rows applied.
        duration_seconds: from start to end.
        states: of every table after the last cycle.
        failures: by table, why it was to be tried again after the last cycle; None is the landing zone as a whole.
        ignored: the same way, why data that landed is never read.
    """

    result: RunResult
    commits: int
    files_applied: int
    rows_applied: int
    duration_seconds: float
    states: Mapping[TableName, TableState] = field(default_factory=dict)
    failures: Failures = field(default_factory=dict)
    ignored: Mapping[TableName | None, Sequence[Diagnostic]] = field(default_factory=dict)


class EngineRun:
    """An engine that holds its ROOT, and what it has done so far."""

    def __init__(self, context: EngineContext, engine: Engine) -> None:
        self.context = context
        self.engine = engine
        self.last = CycleResult(None)
        self._started = time.monotonic()
        self._commits = self._files = self._rows = 0

    def cycle(
        self, stop: threading.Event, maintained: TableName | None = None, is_called: Callable[[], bool] | None = None
    ) -> None:
        """Run one cycle of the engine."""
        self.last = self.engine.cycle(stop, maintained, is_called)
        self._commits += len(self.last.commits)
        self._files += sum(len(commit.files) for commit in self.last.commits)
        self._rows += sum(commit.rows for commit in self.last.commits)

    def sync(self, stop: threading.Event) -> SyncReport:
        """Run cycles until one finds nothing to do; after a failing one, retry a few times, with pauses."""
        failed = 0
        while not stop.is_set():
            self.cycle(stop)
            if self.last.outdated:
                continue
            failed += 1
            if not self.last.failures or failed == MAX_SYNC_ATTEMPTS:
                break
            stop.wait(self.engine.next_cycle_seconds(2.0 ** (failed - 1)))
        self.finish(stop)
        return self.report()

    def run(self, stop: threading.Event, watcher: ZoneWatcher, maintenance: MaintenanceScheduler) -> SyncReport:
        """Run cycles until `stop` is set: at each poll interval, file-system event or due retry."""
        clock, idle_scans = self.context.clock, 0
        while not stop.is_set():
            lead_seconds = clock.lead_seconds
            self.cycle(stop, maintenance.in_progress, watcher.is_due)
            maintenance.start(self.idle_tables, is_busy=self.is_busy)
            idle_scans = idle_scans + 1 if self._is_idle else 0
            pause = self.engine.next_cycle_seconds(self.context.config.scan_pause(idle_scans))
            pause -= clock.lead_seconds - lead_seconds  # the cycle was planned by an earlier time
            with suppress(StorageUnavailable):  # it is only shown
                self.context.ledger.set_property(NEXT_POLL, str(clock() + pause))
                if self.last.zone and self.last.zone.requests:
                    self.context.ledger.set_property(SCAN_REQUESTS, json.dumps(self.last.zone.requests))
            watcher.wait(pause)
        self.finish(stop)
        return self.report()

    def finish(self, stop: threading.Event) -> None:
        """Once `stop` is set, wait for the tables in progress, and plan what is left, for the report."""
        while stop.is_set() and self.last.outdated:
            self.cycle(stop)

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

    @property
    def _is_idle(self) -> bool:
        """Whether nothing is to be done, and no folder is missing whose table is about to be dropped."""
        zone, plans = self.last.zone, self.last.plans
        return not self.is_busy and zone is not None and plans.keys() <= {listing.name for listing in zone.tables}

    def report(self) -> SyncReport:
        """What has been done so far."""
        seconds = time.monotonic() - self._started
        states = {table: plan.state for table, plan in self.last.plans.items()}
        numbers = (self._commits, self._files, self._rows, seconds)
        found: dict[TableName | None, Sequence[Diagnostic]] = {
            table: plan.diagnostics for table, plan in self.last.plans.items()
        }
        found[None] = self.last.zone.diagnostics if self.last.zone else ()
        lost = {
            table: tuple(each for each in diagnostics if each.code in IGNORED and never_arrives(each))
            for table, diagnostics in found.items()
        }
        ignored = {table: diagnostics for table, diagnostics in lost.items() if diagnostics}
        return SyncReport(result_of(self.last), *numbers, states, self.last.failures, ignored)


def result_of(result: CycleResult) -> RunResult:
    """The worst result of a cycle."""
    if any(isinstance(failure, InternalError) for failure in result.failures.values()):
        return RunResult.FAILED
    if result.failures:
        return RunResult.RETRY
    if any(needs_attention(plan.state) for plan in result.plans.values()):
        return RunResult.NEEDS_ATTENTION
    return RunResult.CAUGHT_UP
