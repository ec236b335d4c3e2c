"""Turns: when each table may be worked on next, and why not now."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from mirror_engine.engine.replayer import Phase
from mirror_engine.engine.scheduler import Backoff
from mirror_engine.events import RetryScheduled

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror_engine.clock import Clock
    from mirror_engine.engine.planner import Plan
    from mirror_engine.errors import TransientError
    from mirror_engine.events import Listener
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName

FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 300.0


class TableTurn:
    """State of a table, or of the landing zone as a whole, between cycles.

    Applying and cleaning are retried apart: a table that cannot be cleaned can be read.

    Attributes:
        plan: the last one; None where it has none.
        reported: diagnostics that were emitted and still hold.
    """

    def __init__(self, clock: Clock) -> None:
        self.plan: Plan | None = None
        self.reported: frozenset[Diagnostic] = frozenset()
        phases = (Phase.APPLYING, Phase.CLEANING)
        self._retries = {phase: Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, clock) for phase in phases}
        self._carried_out: Plan | None = None  # the plan that the last cycle carried out

    @property
    def seconds_left(self) -> float:
        """Seconds until a phase is to be retried, 0 where that is due; infinite where none failed."""
        return min(retry.seconds_left for retry in self._retries.values())

    @property
    def failure(self) -> TransientError | None:
        """Why a phase is to be retried; None where none failed."""
        return next((retry.failure for retry in self._retries.values() if retry.failure), None)

    @property
    def waits_for(self) -> TransientError | None:
        """The failure that delays a phase; None if no phase is delayed."""
        return next((retry.failure for retry in self._retries.values() if retry.is_waiting), None)

    def phases(self, *, is_held: bool) -> Collection[Phase]:
        """The phases that may run now; no planned step of a held table."""
        waiting = {phase for phase, retry in self._retries.items() if retry.is_waiting}
        return [each for each in self._retries if each not in waiting and not (is_held and each is Phase.APPLYING)]

    def begin(self, phases: Collection[Phase], *, has_steps: bool) -> None:
        """Record which phases run now, and whether a step does; clears due retries of the others."""
        self.give_up(phases)
        if not has_steps:
            self._carried_out = None

    def give_up(self, but: Collection[Phase] = ()) -> None:
        """Forget retries that are due, except those of some phases."""
        for phase, retry in self._retries.items():
            if phase not in but and not retry.is_waiting:
                retry.succeeded()

    def end(self, phases: Collection[Phase], plan: Plan) -> bool:
        """Note which phases of a plan were carried out; returns whether the next cycle is due at once.

        It is not where the last cycle carried out the same plan: that would go on without a pause.
        """
        self.succeeded(*phases)
        is_new = Phase.APPLYING in phases and plan != self._carried_out
        self._carried_out = plan if is_new else self._carried_out
        return is_new

    def succeeded(self, *phases: Phase) -> None:
        """Forget failures of phases."""
        for phase in phases:
            self._retries[phase].succeeded()

    def failed(self, error: TransientError, phase: Phase) -> float | None:
        """Schedule a retry, and return the seconds until then; None where one is scheduled already."""
        self._carried_out = None
        retry = self._retries[phase]
        return None if retry.is_waiting else retry.failed(error)


class Turns:
    """The turns of all tables; the key None is the landing zone as a whole."""

    def __init__(self, clock: Clock, emit: Listener) -> None:
        self._emit = emit
        self._turns: defaultdict[TableName | None, TableTurn] = defaultdict(lambda: TableTurn(clock))
        self._retried: set[TableName | None] = set()  # with a failure since the last look

    def __getitem__(self, name: TableName | None) -> TableTurn:
        return self._turns[name]

    @property
    def retried(self) -> set[TableName]:
        """Tables with a retry scheduled now or since the last call."""
        return {name for name in self._retried if name}

    def keep(self, names: Collection[TableName]) -> None:
        """Forget all other tables."""
        for gone in self._turns.keys() - {None, *names}:
            del self._turns[gone]

    def retry(self, name: TableName | None, error: TransientError, phase: Phase = Phase.APPLYING) -> TransientError:
        """Schedule a retry, and return the error. A failure before the retry is due does not extend the pause."""
        error.__cause__ = error.__context__ = error.__traceback__ = None  # their frames hold the rows of a batch
        self._retried.add(name)
        if (seconds := self._turns[name].failed(error, phase)) is not None:
            self._emit(RetryScheduled(name, str(error), seconds))
        return error

    def give_up(self, but: Collection[TableName]) -> None:
        """Clear due retries of tables that were not planned; they would otherwise stay due forever."""
        for name in self.retried.difference(but):
            if name in self._turns:
                self._turns[name].give_up()

    def retry_seconds(self, longest: float, but: Collection[TableName] = ()) -> float:
        """Seconds until the next retry of a table, at most `longest`; those in `but` do not count."""
        left = {name: self._turns[name].seconds_left for name in self._retried if name in self._turns}
        self._retried = {name for name, seconds in left.items() if seconds < math.inf}
        return min([longest, *(left[name] for name in self._retried if name not in but)])

    def failures(self) -> Mapping[TableName | None, TransientError]:
        """Why tables are to be retried."""
        found = {name: self._turns[name].failure for name in self._retried if name in self._turns}
        return {name: failure for name, failure in found.items() if failure}
