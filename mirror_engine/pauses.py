"""Growing pauses: what failed is left alone for a while, each time longer (ME072)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mirror_engine.landing_zone.names import TableName


@dataclass(frozen=True)
class _Pause:
    failures: int
    until: float


class Pauses:
    """Whose next try is put off, and until when; None stands for the zone.

    Args:
        first_seconds: the first pause; each further one is twice as long.
        longest_seconds: but no longer than this.
    """

    def __init__(self, first_seconds: float, longest_seconds: float) -> None:
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._pauses: dict[TableName | None, _Pause] = {}

    @property
    def waiting(self) -> set[TableName | None]:
        """Those whose next try is not due yet."""
        now = time.monotonic()
        return {table for table, pause in self._pauses.items() if pause.until > now}

    def is_over(self, table: TableName | None) -> bool:
        """Whether it was put off and its next try is due."""
        pause = self._pauses.get(table)
        return pause is not None and pause.until <= time.monotonic()

    def begin(self, table: TableName | None) -> float:
        """Put the next try off; returns for how many seconds."""
        before = self._pauses.get(table)
        failures = before.failures + 1 if before else 1
        seconds = min(self._first_seconds * 2.0 ** (failures - 1), self._longest_seconds)
        self._pauses[table] = _Pause(failures, time.monotonic() + seconds)
        return seconds

    def end(self, tables: Iterable[TableName | None]) -> None:
        """Forget the failures of those whose try went well, or that need none any more."""
        for table in tables:
            self._pauses.pop(table, None)

    def end_all_but(self, untried: Iterable[TableName | None], failed: Iterable[TableName | None]) -> None:
        """After a round: only those not tried in it, or failed in it, stay put off."""
        self.end(set(self._pauses).difference(untried, failed))

    def __bool__(self) -> bool:
        """Whether any is put off, or due again."""
        return bool(self._pauses)

    def next_seconds(self, longest: float, but: Collection[TableName | None] = ()) -> float:
        """How long until the next try, of others than these, that is due before `longest` seconds are over."""
        now = time.monotonic()
        due = (max(pause.until - now, 0.0) for table, pause in self._pauses.items() if table not in but)
        return min([longest, *due])
