"""What one cycle came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from mirror_engine.errors import TransientError
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.sightings import ZoneSighting
    from mirror_engine.steps import Plan

Failures: TypeAlias = "dict[TableName | None, TransientError]"  # None stands for the zone


@dataclass(frozen=True)
class CycleResult:
    """What one cycle saw and did.

    Attributes:
        zone: what the poller saw; None where the zone could not be listed.
        plans: what is left, after the cycle, per table; of one whose turn is still under way, what it began with.
        batches, files, rows: commits made, and what they held.
        failures: transient failures by table; None stands for the zone.
    """

    zone: ZoneSighting | None
    plans: dict[TableName, Plan] = field(default_factory=dict)
    batches: int = 0
    files: int = 0
    rows: int = 0
    failures: Failures = field(default_factory=dict)
