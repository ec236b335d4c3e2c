"""`/metrics` for Prometheus, and what `/readyz` says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, get_args

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from mirror_engine.display import span
from mirror_engine.landing_zone.states import TableState
from mirror_engine.landing_zone.text import printable
from mirror_engine.onelake.engine_pool import DatabaseStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from mirror_engine.onelake.page.statuses import CachedStatus, StatusCache

STATES = tuple(state.code for state in get_args(TableState))
MAX_HEARTBEAT_AGE_SECONDS = 120.0  # an engine writes one every 30 s while it works, and once a cycle
_FAMILIES = {  # by name: type, meaning, labels after workspace and item
    "up": (GaugeMetricFamily, "1 if an engine runs on the mirrored database.", ()),
    "last_heartbeat_timestamp_seconds": (GaugeMetricFamily, "Time of the engine's last heartbeat.", ()),
    "landing_zone_diagnostics": (GaugeMetricFamily, "Diagnostics about the landing zone itself, by code.", ("code",)),
    "pending_files": (GaugeMetricFamily, "Change files that are not in the table.", ("table",)),
    "lag_seconds": (GaugeMetricFamily, "Age of the oldest pending file.", ("table",)),
    "table_rows": (GaugeMetricFamily, "Rows in the Delta table.", ("table",)),
    "last_commit_timestamp_seconds": (GaugeMetricFamily, "Time of the last commit.", ("table",)),
    "files_applied": (CounterMetricFamily, "Change files of this generation that are in the table.", ("table",)),
    "rows_processed": (CounterMetricFamily, "Operations of this generation.", ("table",)),
    "bytes_processed": (CounterMetricFamily, "Bytes of this generation's operations.", ("table",)),
    "table_state": (GaugeMetricFamily, "1 for the table's state.", ("table", "state")),
    "table_fabric_status": (GaugeMetricFamily, "1 for the status that Fabric would show.", ("table", "status")),
    "diagnostics": (GaugeMetricFamily, "How often each diagnostic occurs, by code.", ("table", "code")),
}


class Metrics:
    """The metrics of one emulator."""

    def __init__(self, statuses: StatusCache) -> None:
        self._statuses = statuses
        name, meaning = "mirror_engine_emulator_requests", "Requests that the emulator answered."
        self._requests = prometheus_client.Counter(name, meaning, ("method", "status"), registry=None)

    def count_request(self, method: str, status: int) -> None:
        self._requests.labels(method, status).inc()

    def text(self) -> bytes:
        return prometheus_client.generate_latest(self)  # it collects as a registry does

    def collect(self) -> Iterable[Metric]:
        metrics = {
            name: family(f"mirror_engine_{name}", meaning, labels=("workspace", "item", *labels))
            for name, (family, meaning, labels) in _FAMILIES.items()
        }
        for cached in self._statuses.all():
            for name, labels, value in _samples(cached):
                if value is not None:
                    texts = (cached.item.workspace, cached.item.name, *labels)
                    metrics[name].add_metric([printable(text) for text in texts], value)
        return [*self._requests.collect(), *metrics.values()]


def _samples(cached: CachedStatus) -> Iterator[tuple[str, tuple[str, ...], float | None]]:
    status = cached.status
    yield "up", (), float(status is not None and status.engine_running)
    if status is None:
        return
    heartbeat = status.last_heartbeat_at
    yield "last_heartbeat_timestamp_seconds", (), heartbeat.timestamp() if heartbeat else None
    for code, often in sorted(Counter(diagnostic.code for diagnostic in status.diagnostics).items()):
        yield "landing_zone_diagnostics", (code,), often
    for table in status.tables:
        name = table.name.normalized
        numbers = {
            "pending_files": len(table.pending_files),
            "lag_seconds": table.lag_seconds,
            "table_rows": table.row_count,
            "last_commit_timestamp_seconds": table.last_commit_at,
            "files_applied": table.files_processed,
            "rows_processed": table.rows_processed,
            "bytes_processed": table.bytes_processed,
        }
        yield from ((number, (name,), value) for number, value in numbers.items())
        yield from (("table_state", (name, state), float(table.state.code == state)) for state in STATES)
        if table.fabric_status:
            yield "table_fabric_status", (name, table.fabric_status), 1.0
        codes: Counter[str] = Counter()
        for diagnostic, often in table.diagnostics:
            codes[diagnostic.code] += often
        yield from (("diagnostics", (name, code), often) for code, often in sorted(codes.items()))


def unready(statuses: Iterable[CachedStatus], now: float) -> list[str]:
    """A line for each mirrored database that should run and does not; `now` is in seconds since 1970."""
    reasons = [(cached.item, _reason(cached, now)) for cached in statuses if cached.item.should_run]
    return [printable(f"{item.workspace}/{item.name}: {reason}") for item, reason in reasons if reason]


def _reason(cached: CachedStatus, now: float) -> str:
    if cached.item.error:
        is_ended = cached.item.status is DatabaseStatus.STOPPED
        return f"its engine ended: {cached.item.error}" if is_ended else cached.item.error
    if cached.item.status is not DatabaseStatus.RUNNING:
        return str(cached.item.status.value)
    if cached.status is None:
        return cached.error
    if cached.status.last_heartbeat_at is None:
        return "Running, no heartbeat yet"
    age = now - cached.status.last_heartbeat_at.timestamp()
    return f"Running, last heartbeat {span(age)} ago" if age >= MAX_HEARTBEAT_AGE_SECONDS else ""
