"""A mirror at one moment, as its tools see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.monitoring.status import mirror_status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.planner import Plan
    from mirror_engine.landing_zone.listing import ZoneListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.monitoring.status import MirrorStatus
    from mirror_engine.storage.lease import Holder
    from mirror_engine.storage.store_url import Place


@dataclass(frozen=True)
class MirrorSnapshot:
    """Read-only view of a mirror: landing zone, progress and plans."""

    root: Place
    context: EngineContext  # storage, tables, and a copy of the ledger that is reconciled with the Delta logs
    zone: ZoneListing
    plans: Mapping[TableName, Plan]
    holder: Holder | None = None  # who has the lease of a ROOT in a store, or had it last
    engine_running: bool = False  # on ROOT, of any process

    def status(self, also: str | int = "") -> MirrorStatus:
        """How every table is; `also` as of `mirror_status`."""
        facts = self.root, self.context, self.zone, self.plans
        return mirror_status(*facts, engine_running=self.engine_running, holder=self.holder, also=also)
