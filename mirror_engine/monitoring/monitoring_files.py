"""A running engine keeps Fabric's monitoring files: after each cycle, and by a heartbeat (LZ-9.1)."""

from __future__ import annotations

import math
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from mirror_engine.errors import RootLocked, StorageUnavailable
from mirror_engine.landing_zone.layout import MONITORING
from mirror_engine.landing_zone.states import CaughtUp, Halted, Unlisted
from mirror_engine.monitoring.fabric_errors import FabricTable
from mirror_engine.monitoring.fabric_files import write, write_replicator
from mirror_engine.threads import threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.planner import Plan
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.monitoring.fabric_files import Entries

HEARTBEAT_SECONDS = 30.0
BUSY_SECONDS = 1.0  # between two writes while there is work


def _is_zone_away(context: EngineContext) -> bool:
    """Whether the folder of zone and monitoring files is gone from a known ROOT: a new one would be in its way."""
    if context.storage.is_store or not context.ledger.tables():
        return False
    return context.storage.stat(MONITORING.partition("/")[0]) is None


class MonitoringFiles:
    """Writer of both files for a running engine (LZ-9.1)."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._written: list[FabricTable] | None = None
        self._written_at = -math.inf
        self._entries: Entries = {}
        self._waiting: Mapping[TableName, Plan] | None = None  # what was not written yet

    def write(self, plans: Mapping[TableName, Plan]) -> None:
        """Rewrite both files after a cycle if they changed, and with each heartbeat; once a second while there is work.

        Raises `StorageUnavailable`, and `RootLocked` where ROOT was lost to another engine, whose files they are now.
        """
        self._waiting = plans
        is_busy = any(plan.steps for plan in plans.values())  # so that another cycle follows
        if not is_busy or self._context.clock.monotonic() - self._written_at >= BUSY_SECONDS:
            self._write_waiting()

    def settle(self) -> None:
        """Write pending changes that no cycle will write soon. Errors are ignored."""
        with suppress(StorageUnavailable, RootLocked):
            self._write_waiting()

    close = settle

    def _write_waiting(self) -> None:
        plans, self._waiting = self._waiting, None
        if plans is not None:
            self._write(plans)

    def _write(self, plans: Mapping[TableName, Plan]) -> None:
        context, ledger = self._context, self._context.ledger
        listed = {table: plan.state for table, plan in plans.items() if not isinstance(plan.state, Unlisted)}
        tables = [FabricTable(table, state, ledger.progress(table)) for table, state in listed.items()]
        for table, progress in ledger.tables().items():
            if table not in listed and progress.configured_at:  # its folder may still be there
                rejected = progress.rejection and Halted(progress.rejection.diagnostic, 0)
                tables.append(FabricTable(table, rejected or CaughtUp(), progress))
        now = context.clock.monotonic()
        if tables == self._written and now - self._written_at < HEARTBEAT_SECONDS:
            return
        self._written = None
        context.check_lock()
        if _is_zone_away(context):
            return
        schema = context.config.delta_default_schema
        times = {"now": context.clock(), "known": context.now}
        self._entries = write(
            context.storage, tables, mirror=ledger.mirror, **times, default_schema=schema, before=self._entries
        )
        self._written, self._written_at = tables, now


@contextmanager
def heartbeat(context: EngineContext) -> Iterator[None]:
    """Write heartbeats in a thread during long cycles, so that the last is at most a minute old (LZ-9.1)."""
    stopped = threads().event()

    def run() -> None:
        while not stopped.wait(HEARTBEAT_SECONDS):
            with suppress(StorageUnavailable, RootLocked):  # the cycle reports the same failure
                context.check_lock()
                if _is_zone_away(context):
                    continue
                tables = context.ledger.tables()
                write_replicator(context.storage, now=context.clock(), table_count=len(tables))

    thread = threads().start(run, "heartbeat")
    try:
        yield
    finally:
        stopped.set()
        thread.join()
