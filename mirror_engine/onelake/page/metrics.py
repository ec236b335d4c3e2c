"""Prometheus metrics of every mirrored table."""

from __future__ import annotations

from collections import Counter as Counts
from typing import TYPE_CHECKING, get_args

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from mirror_engine.landing_zone.diagnostics import printable
from mirror_engine.landing_zone.states import TableState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from mirror_engine.monitoring.status import TableStatus
    from mirror_engine.onelake.page.status_cache import CachedStatus, StatusCache

    _Value = Callable[[TableStatus], float | int | None]

STATES = tuple(state.code for state in get_args(TableState))
_ITEM = ("workspace", "item")
_TABLE = (*_ITEM, "table")
_GAUGES: dict[tuple[str, str], _Value] = {
    ("pending_files", "Change files that are not in the table."): lambda table: len(table.pending_files),
    ("lag_seconds", "Age of the oldest pending file."): lambda table: table.lag_seconds,
    ("table_rows", "Rows in the Delta table."): lambda table: table.row_count,
    ("last_commit_timestamp_seconds", "Time of the last commit."): lambda table: table.last_commit_at,
}
_COUNTERS: dict[tuple[str, str], _Value] = {
    ("files_applied", "Change files of this generation that are in the table."): lambda table: (
        len(table.files) - len(table.pending_files)
    ),
    ("rows_processed", "Operations of this generation."): lambda table: table.rows_processed,
    ("bytes_processed", "Bytes of this generation's operations."): lambda table: table.bytes_processed,
}


class Metrics:
    """The metrics of one emulator, in a registry of their own.

    Attributes:
        requests: the emulator's answers by method and status.
    """

    def __init__(self, statuses: StatusCache) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "mirror_engine_emulator_requests",
            "Requests that the emulator answered.",
            ("method", "status"),
            registry=self._registry,
        )
        self._statuses = statuses
        self._registry.register(self)

    def text(self) -> bytes:
        """All metrics, in Prometheus's text format."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names alone are not worth a scan."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Collect for the registry."""
        statuses = self._statuses.all()
        yield from _of_items(statuses)
        tables = [
            ([*_labels(cached), printable(table.name.normalized)], table)
            for cached in statuses
            if cached.status
            for table in cached.status.tables
        ]
        for family, values in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
            for (name, meaning), value_of in values.items():
                metric = family(f"mirror_engine_{name}", meaning, labels=_TABLE)
                for labels, table in tables:
                    value = value_of(table)
                    if value is not None:
                        metric.add_metric(labels, value)
                yield metric
        yield from _of_states_and_diagnostics(tables)


def _of_items(statuses: Iterable[CachedStatus]) -> Iterator[Metric]:
    is_up = GaugeMetricFamily("mirror_engine_up", "1 where an engine runs on the mirrored database.", labels=_ITEM)
    heartbeat = GaugeMetricFamily(
        "mirror_engine_last_heartbeat_timestamp_seconds", "Time of the engine's last heartbeat.", labels=_ITEM
    )
    diagnostics = GaugeMetricFamily(
        "mirror_engine_landing_zone_diagnostics",
        "Diagnostics about the landing zone itself, by code.",
        labels=(*_ITEM, "code"),
    )
    for cached in statuses:
        labels, status = _labels(cached), cached.status
        is_up.add_metric(labels, float(status is not None and status.engine_running))
        if status is None:
            continue
        if status.last_heartbeat_at is not None:
            heartbeat.add_metric(labels, status.last_heartbeat_at)
        for code, count in sorted(Counts(diagnostic.code for diagnostic in status.diagnostics).items()):
            diagnostics.add_metric([*labels, code], count)
    yield from (is_up, heartbeat, diagnostics)


def _of_states_and_diagnostics(tables: Iterable[tuple[list[str], TableStatus]]) -> Iterator[Metric]:
    states = GaugeMetricFamily("mirror_engine_table_state", "1 for the table's state.", labels=(*_TABLE, "state"))
    diagnostics = GaugeMetricFamily(
        "mirror_engine_diagnostics", "How often each diagnostic occurs, by code.", labels=(*_TABLE, "code")
    )
    fabric_statuses = GaugeMetricFamily(
        "mirror_engine_table_fabric_status", "1 for the status that Fabric would show.", labels=(*_TABLE, "status")
    )
    for labels, table in tables:
        if table.fabric_status:
            fabric_statuses.add_metric([*labels, table.fabric_status], 1.0)
        for state in STATES:
            states.add_metric([*labels, state], float(table.state.code == state))
        codes: Counts[str] = Counts()
        for diagnostic, count in table.diagnostics:
            codes[diagnostic.code] += count
        for code, count in sorted(codes.items()):
            diagnostics.add_metric([*labels, code], count)
    yield from (states, fabric_statuses, diagnostics)


def _labels(cached: CachedStatus) -> list[str]:
    return [printable(cached.item.workspace), printable(cached.item.name)]
