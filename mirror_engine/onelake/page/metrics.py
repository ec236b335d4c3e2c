"""Prometheus metrics of every mirrored table."""

from __future__ import annotations

from collections import Counter as Counts
from typing import TYPE_CHECKING, get_args

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from mirror_engine.landing_zone.diagnostics import printable
from mirror_engine.landing_zone.states import TableState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from mirror_engine.monitoring.status import TableStatus
    from mirror_engine.onelake.page.pages import CachedStatus, StatusCache

STATES = tuple(state.code for state in get_args(TableState))
_FAMILIES = {  # by name: type, meaning, labels after workspace and item
    "up": (GaugeMetricFamily, "1 where an engine runs on the mirrored database.", ()),
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
    """The metrics of one emulator, in a registry of their own."""

    def __init__(self, statuses: StatusCache) -> None:
        self._statuses = statuses
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "mirror_engine_emulator_requests",
            "Requests that the emulator answered.",
            ("method", "status"),
            registry=self._registry,
        )
        self._registry.register(self)

    def count_request(self, method: str, status: int) -> None:
        """Count an answer of the emulator."""
        self._requests.labels(method, status).inc()

    def text(self) -> bytes:
        """All metrics, in Prometheus's text format."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names alone are not worth a scan."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Collect for the registry."""
        metrics = {
            name: family(f"mirror_engine_{name}", meaning, labels=("workspace", "item", *labels))
            for name, (family, meaning, labels) in _FAMILIES.items()
        }
        for cached in self._statuses.all():
            for name, labels, value in _samples(cached):
                if value is not None:
                    texts = (cached.item.workspace, cached.item.name, *labels)
                    metrics[name].add_metric([printable(text) for text in texts], value)
        return metrics.values()


def _samples(cached: CachedStatus) -> Iterator[tuple[str, tuple[str, ...], float | None]]:
    """Names, labels after workspace and item, and values; None for what is not known."""
    status = cached.status
    yield "up", (), float(status is not None and status.engine_running)
    if status is None:
        return
    yield "last_heartbeat_timestamp_seconds", (), status.last_heartbeat_at
    for code, count in sorted(Counts(diagnostic.code for diagnostic in status.diagnostics).items()):
        yield "landing_zone_diagnostics", (code,), count
    for table in status.tables:
        yield from _table_samples(table.name.normalized, table)


def _table_samples(name: str, table: TableStatus) -> Iterator[tuple[str, tuple[str, ...], float | None]]:
    yield "pending_files", (name,), len(table.pending_files)
    yield "lag_seconds", (name,), table.lag_seconds
    yield "table_rows", (name,), table.row_count
    yield "last_commit_timestamp_seconds", (name,), table.last_commit_at
    yield "files_applied", (name,), len(table.files) - len(table.pending_files)
    yield "rows_processed", (name,), table.rows_processed
    yield "bytes_processed", (name,), table.bytes_processed
    for state in STATES:
        yield "table_state", (name, state), float(table.state.code == state)
    if table.fabric_status:
        yield "table_fabric_status", (name, table.fabric_status), 1.0
    codes: Counts[str] = Counts()
    for diagnostic, count in table.diagnostics:
        codes[diagnostic.code] += count
    for code, count in sorted(codes.items()):
        yield "diagnostics", (name, code), count
