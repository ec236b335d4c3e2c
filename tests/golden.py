"""Runs of golden fixtures (fixtures/README.md), and comparisons of what is there with what they expect."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

from store_publisher import StorePublisher

from mirror_engine.config import Config
from mirror_engine.events import DiagnosticRaised, TableDropped, TableHalted
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.mirror import Mirror
from mirror_engine.storage.store_url import StoreUrl
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

_PARSERS = {"timestamp_ntz": datetime.fromisoformat, "date": date.fromisoformat, "binary": bytes.fromhex}


def land(stage, root):
    """A stage of a fixture, in a folder or a store."""
    stage.land(root, StorePublisher if isinstance(root, StoreUrl) else LandingZoneWriter)


class RaisedDiagnostics(set):
    """A listener that keeps every diagnostic it hears."""

    def __call__(self, event):
        match event:
            case DiagnosticRaised(_, diagnostic) | TableHalted(_, diagnostic):
                self.add(diagnostic)
            case TableDropped(table, _):
                self.add(diagnose("ME065", table.folder, effect=""))


def standing(status):
    """All diagnostics of a status."""
    return [*status.found, *(diagnostic for table in status.tables for diagnostic, _ in table.diagnostics)]


def run_stages(stages, root, options, writer, raised=None):
    """Land each stage and run the engine after it; yields each report and status. Diagnostics are added to `raised`."""
    raised = RaisedDiagnostics() if raised is None else raised
    for stage in stages:
        land(stage, root)
        mirror = Mirror(root, Config(**options), writer=writer, listeners=[raised])
        report, status = mirror.sync(), mirror._status()
        raised.update(standing(status))
        yield report, status


def table_differences(expected, columns, rows):
    """How a table differs from the expected one; empty where it does not."""
    columns = tuple(columns)
    differences = []
    if columns != expected.columns:
        differences.append(f"columns: expected {_described(expected.columns)}, found {_described(columns)}")
    types = {column.name: column.type for column in expected.columns}
    expected_rows = Counter(_row(row, types) for row in expected.rows)
    actual_rows = Counter(_row(row, types) for row in rows)
    differences += [f"missing {count} x {row}" for row, count in (expected_rows - actual_rows).items()]
    differences += [f"unexpected {count} x {row}" for row, count in (actual_rows - expected_rows).items()]
    return differences


def _described(columns):
    return ", ".join(f"{c.name} {c.type}{'' if c.nullable else ' not null'}" for c in columns)


def _row(row, types):
    return tuple((name, normalised(row.get(name), kind)) for name, kind in types.items())


def normalised(value, kind):
    """A cell of a Delta type, from JSON or from Arrow, in one comparable form.

    JSON writes decimals, dates and timestamps (ISO 8601, UTC without an offset) as text, binary as hexadecimal text,
    and `NaN`, `Infinity`, `-Infinity` as those words.
    """
    if value is None:
        return None
    if kind in ("float", "double"):
        return "NaN" if math.isnan(float(value)) else float(value) + 0.0
    if kind == "timestamp":
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    if kind.startswith("decimal"):
        return str(Decimal(value))
    parsed = _PARSERS[kind](value) if isinstance(value, str) and kind in _PARSERS else value
    return (type(parsed).__name__, parsed)


def diagnostic_differences(case, end, raised):
    """How the diagnostics in the end, and those raised on the way, differ from the expected ones."""
    end, raised = set(end), set(raised) | set(end)
    missing = [f"not in the end: {entry}" for entry in case.diagnostics if not any(map(entry.matches, end))]
    missing += [f"never raised: {entry}" for entry in case.earlier if not any(map(entry.matches, raised))]
    allowed = (*case.diagnostics, *case.earlier)
    return missing + [
        f"unexpected: {diagnostic.full_message}"
        for diagnostic in sorted(end, key=lambda diagnostic: diagnostic.full_message)
        if diagnostic.code not in case.undecided and not any(entry.matches(diagnostic) for entry in allowed)
    ]
