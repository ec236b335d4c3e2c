"""An engine at work on one ROOT, and the report of what it did."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from mirror_engine.cycle_result import CycleResult
from mirror_engine.errors import EngineFault, StorageUnavailable
from mirror_engine.events import OperationFailed
from mirror_engine.landing_zone.states import Behind, Level, Loading, needs_a_person
from mirror_engine.monitoring.overview import Traces

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from mirror_engine.doors import Doors
    from mirror_engine.engine import Engine
    from mirror_engine.landing_zone.names import TableName


class Verdict(str, Enum):
    """How a run ended, gravest first; the command line's exit codes."""

    FAILED = "failed"  # a defect of the engine: exit 1
    RETRY = "try again"  # storage or a conflict: exit 4
    REFUSED = "refused"  # a table is latched or blocked: exit 3
    LEVEL = "level"  # exit 0


@dataclass(frozen=True)
class Report:
    """What `once` or `run` did.

    Attributes:
        verdict: the gravest thing found in the last cycle.
        batches: commits made.
        files: change files applied.
        rows: rows applied.
        seconds: from start to end.
    """

    verdict: Verdict
    batches: int
    files: int
    rows: int
    seconds: float


class Running:
    """An engine at work, and what it has done so far."""

    def __init__(self, doors: Doors, engine: Engine) -> None:
        self.doors = doors
        self.engine = engine
        self.last = CycleResult(None)
        self._traces = Traces(doors)
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
            self.doors.tell(OperationFailed(None, str(error), 0.0))
            self.last = replace(self.last, failures={**self.last.failures, None: error})

    @property
    def level(self) -> list[TableName]:
        """The tables that have nothing waiting."""
        return [table for table, plan in self.last.plans.items() if isinstance(plan.state, Level) and not plan.steps]

    @property
    def is_busy(self) -> bool:
        """Whether any table was just worked on, or has something to do."""
        waits = any(plan.steps for plan in self.last.plans.values())
        return waits or bool(self.last.batches or self.engine.under_way)

    @property
    def is_unfinished(self) -> bool:
        """Whether another cycle at once may do more."""
        return bool(self.last.failures) or any(isinstance(p.state, Behind | Loading) for p in self.last.plans.values())

    def report(self) -> Report:
        """What has been done so far."""
        seconds = time.monotonic() - self._started
        return Report(verdict_of(self.last), self._batches, self._files, self._rows, seconds)


def verdict_of(result: CycleResult) -> Verdict:
    """The gravest thing a cycle found."""
    if any(isinstance(failure, EngineFault) for failure in result.failures.values()):
        return Verdict.FAILED
    if result.failures:
        return Verdict.RETRY
    return Verdict.REFUSED if any(needs_a_person(plan.state) for plan in result.plans.values()) else Verdict.LEVEL
