"""Whether everything that should be mirrored is being mirrored, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.endpoint.databases import DatabaseStatus
from mirror_engine.landing_zone.diagnostics import printable
from mirror_engine.monitoring.times import span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror_engine.monitoring.sights import Sight

OLDEST_HEARTBEAT_SECONDS = 120.0  # an engine beats every 30 s while it works, and once a cycle


def unready(sights: Iterable[Sight], now: float) -> list[str]:
    """A line for each mirrored database that should run and does not; what nobody wants mirrored is well as it is.

    Args:
        sights: all there are.
        now: seconds since 1970.
    """
    whys = [(sight.item, _why(sight, now)) for sight in sights if sight.item.should_run]
    return [printable(f"{item.workspace}/{item.name}: {why}") for item, why in whys if why]


def _why(sight: Sight, now: float) -> str:
    if sight.item.error:
        return f"its engine ended: {sight.item.error}"
    if sight.item.state is not DatabaseStatus.RUNNING:
        return str(sight.item.state.value)
    if sight.status is None:
        return sight.trouble
    if sight.status.heartbeat is None:
        return "Running, no heartbeat yet"
    age = now - sight.status.heartbeat
    return f"Running, last heartbeat {span(age)} ago" if age >= OLDEST_HEARTBEAT_SECONDS else ""
