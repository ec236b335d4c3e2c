"""A mirror at one moment, as its tools see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.planner import Plan
    from mirror_engine.landing_zone.listing import ZoneListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.storage.lease import Holder


@dataclass(frozen=True)
class MirrorSnapshot:
    """Read-only view of a mirror: landing zone, progress and plans."""

    context: EngineContext  # storage, tables, and a copy of the ledger that is reconciled with the Delta logs
    zone: ZoneListing
    plans: Mapping[TableName, Plan]
    holder: Holder | None = None  # who has the lease of a ROOT in a store, or had it last
    engine_running: bool = False  # on ROOT, of any process
