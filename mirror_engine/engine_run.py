"""An engine at work on one ROOT, and the report of what it did."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from mirror_engine.engine.cycle import CycleResult
from mirror_engine.errors import InternalError, StorageUnavailable
from mirror_engine.events import RetryScheduled
from mirror_engine.landing_zone.states import Behind, CaughtUp, Loading, needs_a_person
from mirror_engine.monitoring.status import Traces

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.cycle import Engine
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.states import TableState


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
    """

    result: RunResult
    commits: int
    files_applied: int
    rows_applied: int
    duration_seconds: float
    states: Mapping[TableName, TableState] = field(default_factory=dict)


class EngineRun:
    """An engine at work, and what it has done so far."""

    def __init__(self, context: EngineContext, engine: Engine) -> None:
        self.context = context
        self.engine = engine
        self.last = CycleResult(None)
        self._traces = Traces(context)
        self._started = time.monotonic()
        self._batches = self._files = self._rows = 0

    def cycle(
        self, stop: threading.Event, at_hand: TableName | None = None, is_called: Callable[[], bool] | None = None
    ) -> None:
        """One cycle of the engine, with its traces for Fabric's own tools."""
        self.last = self.engine.cycle(stop, at_hand, is_called)
        self._batches += self.last.batches
        self._files += self.last.files
        self._rows += self.last.rows
        if self.last.zone:
            self._leave_traces()

    def finish(self, stop: threading.Event) -> None:
        """Once `stop` is set: wait for the turns that are still under way, and count what they come to."""
        if self.engine.under_way:
            self.cycle(stop)

    def _leave_traces(self) -> None:
        try:
            self._traces.leave(self.last.plans)
        except StorageUnavailable as error:
            self.context.tell(RetryScheduled(None, str(error), 0.0))
            self.last = replace(self.last, failures={**self.last.failures, None: error})

    @property
    def level(self) -> list[TableName]:
        """The tables that have nothing waiting."""
        return [table for table, plan in self.last.plans.items() if isinstance(plan.state, CaughtUp) and not plan.steps]

    @property
    def is_busy(self) -> bool:
        """Whether any table was just worked on, or has something to do."""
        waits = any(plan.steps for plan in self.last.plans.values())
        return waits or bool(self.last.batches or self.engine.under_way)

    @property
    def is_unfinished(self) -> bool:
        """Whether another cycle at once may do more."""
        return bool(self.last.failures) or any(isinstance(p.state, Behind | Loading) for p in self.last.plans.values())

    def report(self) -> SyncReport:
        """What has been done so far."""
        seconds = time.monotonic() - self._started
        states = {table: plan.state for table, plan in self.last.plans.items()}
        return SyncReport(result_of(self.last), self._batches, self._files, self._rows, seconds, states)


def result_of(result: CycleResult) -> RunResult:
    """The worst state that a cycle found."""
    if any(isinstance(failure, InternalError) for failure in result.failures.values()):
        return RunResult.FAILED
    if result.failures:
        return RunResult.RETRY
    return (
        RunResult.NEEDS_ATTENTION
        if any(needs_a_person(plan.state) for plan in result.plans.values())
        else RunResult.CAUGHT_UP
    )
