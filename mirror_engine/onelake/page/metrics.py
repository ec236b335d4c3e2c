"""Every mirrored table in numbers, as Prometheus reads them."""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING, get_args

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from mirror_engine.landing_zone.diagnostics import printable
from mirror_engine.landing_zone.states import TableState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from mirror_engine.monitoring.status import MirrorStatus, TableStatus
    from mirror_engine.onelake.page.status_cache import CachedStatus, StatusCache

STATES = tuple(state.code for state in get_args(TableState))
_ITEM = ("workspace", "item")
_TABLE = (*_ITEM, "table")
_Number = float | int | None


class Metrics:
    """The metrics of one server, in a registry of their own.

    Args:
        sights: what is counted, at the moment somebody asks.

    Attributes:
        requests: requests to the emulator by method and status.
    """

    def __init__(self, sights: StatusCache) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "mirror_engine_emulator_requests",
            "Requests that the emulator answered.",
            ("method", "status"),
            registry=self._registry,
        )
        self._sights = sights
        self._registry.register(self)

    def text(self) -> bytes:
        """All of them, in Prometheus's text format."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Nothing: a look for the names alone would be wasted."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        sights = self._sights.all()
        yield from _of_items(sights)
        tables = [
            ([*_labels(sight), printable(table.name.normalized)], table)
            for sight in sights
            if sight.status
            for table in sight.status.tables
        ]
        yield from _of_tables(tables)
        yield _states(tables)
        yield _fabric_statuses(tables)
        yield _diagnostics(tables)


def _of_items(sights: Iterable[CachedStatus]) -> Iterator[Metric]:
    is_up = GaugeMetricFamily("mirror_engine_up", "1 if an engine is running on the mirrored database.", labels=_ITEM)
    heartbeat = GaugeMetricFamily(
        "mirror_engine_last_heartbeat_timestamp_seconds", "Unix time of the engine's last heartbeat.", labels=_ITEM
    )
    found = GaugeMetricFamily(
        "mirror_engine_landing_zone_diagnostics",
        "Diagnostics about the landing zone, by code.",
        labels=(*_ITEM, "code"),
    )
    for sight in sights:
        is_up.add_metric(_labels(sight), float(sight.status is not None and sight.status.engine_running))
        if sight.status is None:
            continue
        if sight.status.last_heartbeat_at is not None:
            heartbeat.add_metric(_labels(sight), sight.status.last_heartbeat_at)
        for code, often in _zone_codes(sight.status).items():
            found.add_metric([*_labels(sight), code], often)
    yield from (is_up, heartbeat, found)


def _of_tables(tables: Iterable[tuple[list[str], TableStatus]]) -> Iterator[Metric]:
    gauges: dict[tuple[str, str], Callable[[TableStatus], _Number]] = {
        ("pending_files", "Change files that are not in the table."): lambda table: len(table.pending_files),
        ("lag_seconds", "Age of the oldest file that is not in the table."): lambda table: table.lag_seconds,
        ("table_rows", "Rows in the Delta table."): lambda table: table.row_count,
        ("last_commit_timestamp_seconds", "Unix time of the last commit."): lambda table: table.last_commit_at,
    }
    counters: dict[tuple[str, str], Callable[[TableStatus], _Number]] = {
        ("files_applied", "Change files of this generation that are in the table."): lambda table: (
            len(table.files) - len(table.pending_files)
        ),
        ("rows_processed", "Operations of this generation."): lambda table: table.rows_processed,
        ("bytes_processed", "Bytes of this generation's operations."): lambda table: table.bytes_processed,
    }
    for family, numbers in ((GaugeMetricFamily, gauges), (CounterMetricFamily, counters)):
        for (name, meaning), number_of in numbers.items():
            metric = family(f"mirror_engine_{name}", meaning, labels=_TABLE)
            for labels, table in tables:
                number = number_of(table)
                if number is not None:
                    metric.add_metric(labels, number)
            yield metric


def _states(tables: Iterable[tuple[list[str], TableStatus]]) -> Metric:
    metric = GaugeMetricFamily(
        "mirror_engine_table_state", "1 for the state the table is in.", labels=(*_TABLE, "state")
    )
    for labels, table in tables:
        for state in STATES:
            metric.add_metric([*labels, state], float(table.state.code == state))
    return metric


def _fabric_statuses(tables: Iterable[tuple[list[str], TableStatus]]) -> Metric:
    metric = GaugeMetricFamily(
        "mirror_engine_table_fabric_status", "1 for the status that Fabric would show.", labels=(*_TABLE, "status")
    )
    for labels, table in tables:
        if table.fabric_status:
            metric.add_metric([*labels, table.fabric_status], 1.0)
    return metric


def _diagnostics(tables: Iterable[tuple[list[str], TableStatus]]) -> Metric:
    metric = GaugeMetricFamily(
        "mirror_engine_diagnostics", "How often each diagnostic was raised, by code.", labels=(*_TABLE, "code")
    )
    for labels, table in tables:
        codes: Tally[str] = Tally()
        for found, often in table.diagnostics:
            codes[found.code] += often
        for code, often in sorted(codes.items()):
            metric.add_metric([*labels, code], often)
    return metric


def _zone_codes(status: MirrorStatus) -> dict[str, int]:
    return dict(sorted(Tally(found.code for found in status.diagnostics).items()))


def _labels(sight: CachedStatus) -> list[str]:
    return [printable(sight.item.workspace), printable(sight.item.name)]
