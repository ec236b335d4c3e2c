"""Halts: which tables were last reported as halted, and why, so that each begin and each end is reported once.

A halt may begin in one run and end before the next one looks. What was reported is in the ledger: whichever run finds
that it differs reports it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeAlias

from mirror_engine.engine.planner import REFUSED_COMMIT, ApplyBatch
from mirror_engine.events import TableHalted, TableResumed
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.states import Deleted, Halted, Unlisted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror_engine.engine.ledger import Ledger
    from mirror_engine.engine.planner import Plan
    from mirror_engine.events import Listener
    from mirror_engine.landing_zone.diagnostics import Diagnostic

Reason: TypeAlias = "tuple[str, str]"  # code and path: the words of one halt may change


class Halts:
    """The only place that reports halts and their ends. May be called from any thread."""

    def __init__(self, ledger: Ledger, emit: Listener) -> None:
        self._ledger, self._emit = ledger, emit
        self._lock = threading.Lock()
        self._known: dict[TableName, Reason] = {
            TableName.from_folder(folder): reason for folder, reason in ledger.halts().items()
        }

    def begin(self, table: TableName, diagnostic: Diagnostic) -> None:
        """Report that a table is halted, unless that was reported."""
        with self._lock:
            before = self._known.get(table)
            self._known[table] = diagnostic.code, diagnostic.path
        if before != (diagnostic.code, diagnostic.path):
            self._emit(TableHalted(table, diagnostic))

    def drop(self, table: TableName) -> None:
        """Forget the halt of a table whose drop was reported."""
        with self._lock:
            self._known.pop(table, None)

    def compare(self, plans: Mapping[TableName, Plan]) -> None:
        """Report halts that plans find, and those that are over.

        Of a table whose folder may be hidden, or waits for its drop, nothing has changed.
        """
        for name, plan in plans.items():
            match plan.state:
                case Halted(diagnostic):
                    self.begin(name, diagnostic)
                case Unlisted() | Deleted():
                    pass
                case _ if not self._is_tried_again(plan):
                    self._end(TableResumed(name))

    def keep(self, names: Collection[TableName]) -> None:
        """Report that the folders of all other tables are gone, and their halts with them."""
        for name in [*self._known]:
            if name not in names:
                self._end(TableResumed(name, "deleted"))

    def store(self) -> None:
        """Store what was reported, for the next run. Raises `StorageUnavailable`; the next call stores it, too."""
        with self._lock:
            known = {table.folder: reason for table, reason in sorted(self._known.items())}
        self._ledger.set_halts(known)

    def _end(self, over: TableResumed) -> None:
        with self._lock:
            was_halted = self._known.pop(over.table, None)
        if was_halted:
            self._emit(over)

    def _is_tried_again(self, plan: Plan) -> bool:
        """Whether a plan applies the file whose commit was refused: its halt is over once that is in the table."""
        code, path = self._known.get(plan.table, ("", ""))
        return code == REFUSED_COMMIT and any(
            f"{plan.table.folder}/{file.path}" == path
            for step in plan.steps
            if isinstance(step, ApplyBatch)
            for file in step.files
        )
