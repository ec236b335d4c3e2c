"""Keeps tables tidy beside the work: one that has nothing waiting is compacted and vacuumed, one at a time (LZ-8.6)."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from mirror_engine.errors import MirrorError
from mirror_engine.events import OperationFailed, TableMaintained
from mirror_engine.pauses import Pauses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Self

    from mirror_engine.doors import Doors
    from mirror_engine.landing_zone.names import TableName

FIRST_PAUSE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 3600.0
_MAINTENANCE = {"OPTIMIZE", "VACUUM END"}  # in Delta's words


class Upkeep:
    """Maintains tables in a thread of its own, each after `maintain_after` commits.

    A context manager; leaving it waits for the table at hand.

    Args:
        doors: both, the ledger and the options.
        done: called after each table: changes may have waited for it.
    """

    def __init__(self, doors: Doors, done: Callable[[], None]) -> None:
        self._doors = doors
        self._done = done
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="upkeep")
        self._pauses = Pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        self._due_from: dict[tuple[str, str], int] = {}  # the Delta version, by folder and generation
        self._at_hand: TableName | None = None
        self._work: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(wait=True)

    @property
    def at_hand(self) -> TableName | None:
        """The table that is being maintained now: nothing else may be done with it."""
        return None if self._work is None or self._work.done() else self._at_hand

    def begin(self, level: Iterable[TableName]) -> None:
        """Take up the first of these tables that is due; they must have nothing waiting. Does not wait for it."""
        if not self._doors.config.maintain_after or self.at_hand:
            return
        due = next((table for table in level if table not in self._pauses.waiting and self._is_due(table)), None)
        if due is not None:
            self._at_hand = due
            self._work = self._pool.submit(self._maintain, due)
            self._work.add_done_callback(lambda _: self._done())  # by then nothing is at hand any more

    def _is_due(self, table: TableName) -> bool:
        try:
            return self._has_aged(table)
        except MirrorError as error:  # an old commit may be damaged where the table itself can be read
            self._failed(table, str(error))
            return False

    def _has_aged(self, table: TableName) -> bool:
        known = self._doors.ledger.progress(table)
        if known is None or not known.has_table:
            return False
        life = (self._doors.delta_folder(table), known.generation)
        if known.delta_version < self._due_from.get(life, self._doors.config.maintain_after):
            return False
        if life not in self._due_from:  # it may have been maintained before this process began
            self._due_from[life] = self._last_maintained(life[0]) + self._doors.config.maintain_after
        return known.delta_version >= self._due_from[life]

    def _last_maintained(self, folder: str) -> int:
        commits = self._doors.writer.history(folder, limit=self._doors.config.maintain_after)
        return next((commit.version for commit in commits if commit.operation in _MAINTENANCE), 0)

    def _maintain(self, table: TableName) -> None:
        started = time.monotonic()
        folder = self._doors.delta_folder(table)
        try:
            done = self._doors.writer.maintain(folder, self._doors.config.retention_days * 24.0)
            state = self._doors.writer.state(folder)
        except MirrorError as error:
            self._failed(table, str(error))
        except Exception as error:
            logging.getLogger(__name__).exception("maintenance of a table failed")
            self._failed(table, f"maintenance failed, unforeseen: {type(error).__name__}")
        else:
            self._pauses.end([table])
            if state is not None and state.record is not None:
                life = (folder, state.record.progress.generation)
                self._due_from[life] = state.version + self._doors.config.maintain_after
            self._doors.tell(TableMaintained(table, dict(done), time.monotonic() - started))

    def _failed(self, table: TableName, message: str) -> None:
        self._doors.tell(OperationFailed(table, message, self._pauses.begin(table)))
