"""Golden fixtures: a landing zone in stages, and the tables and diagnostics that it must end in."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store_publisher import StorePublisher

from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.landing_zone.schema import Column
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
from mirror_engine.storage.store_url import StoreUrl

if TYPE_CHECKING:
    from collections.abc import Mapping


_PARSERS = {"timestamp_ntz": datetime.fromisoformat, "date": date.fromisoformat, "binary": bytes.fromhex}


@dataclass(frozen=True)
class Stage:
    """What a publisher did between two cycles: files and folders removed, then files landed."""

    folder: Path  # holds the landed files; those of `older_landing_zone` go to `ROOT/LandingZone` (LZ-1.1)
    modified_ns: Mapping[str, int]  # LastModified by path, where it matters

    def land(self, root):
        """In a folder or a store."""
        zone = OLDER_ZONE if self.folder.name == "older_landing_zone" else ZONE
        publisher = StorePublisher(root) if isinstance(root, StoreUrl) else LandingZoneWriter(root, zone=zone)
        for path in _lines(self.folder / "remove.txt"):
            publisher.remove(path)
        in_place = _lines(self.folder / "in_place.txt")  # written over the old content, not renamed into place
        for file in sorted(filter(Path.is_file, self.folder.rglob("*"))):
            path = file.relative_to(self.folder).as_posix()
            if path in in_place:
                publisher.write_in_place(path, file.read_bytes())
            elif path not in {"remove.txt", "in_place.txt"}:
                publisher.put(path, file.read_bytes(), modified_ns=self.modified_ns.get(path))


@dataclass(frozen=True)
class ExpectedTable:
    """What one Delta table must hold: columns in order, rows in any order, values as JSON writes them."""

    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class ExpectedDiagnostic:
    """One diagnostic; without a row, of any row of the file. Alternative codes are separated by `|`."""

    code: str
    path: str
    row: int | None = None

    def matches(self, diagnostic):
        is_code = diagnostic.code in self.code.split("|")
        return is_code and diagnostic.path == self.path and self.row in (None, diagnostic.row)


@dataclass(frozen=True)
class Golden:
    """One fixture."""

    config: Mapping[str, Any]  # options that differ from the defaults
    stages: tuple[tuple[Stage, ...], ...]  # each is followed by a run of the engine
    tables: Mapping[str, ExpectedTable]  # all tables in the end, by folder from `ROOT/Tables`
    in_the_end: tuple[ExpectedDiagnostic, ...]  # all diagnostics in the end
    on_the_way: tuple[ExpectedDiagnostic, ...]  # raised at some time, whether or not they are still true
    not_compared: frozenset[str]  # codes that may be there in the end besides
    result: str  # `caught_up` or `needs_attention`
    files: list[str] | None  # what the zone must hold in the end; None where that is not the point


def load(folder):
    """Read a fixture's folder; its layout is described in `fixtures/README.md`."""
    times = _json(folder / "manifest.json")
    stage = lambda path: Stage(path, times.get(path.name, {}))  # noqa: E731 - a folder's times have its name
    first = [folder / name for name in ("landing_zone", "older_landing_zone") if (folder / name).is_dir()]
    later = sorted(filter(Path.is_dir, folder.glob("then-*")))
    tables = [json.loads(path.read_text("utf-8")) for path in (folder / "expected/tables").glob("*.json")]
    expected = _json(folder / "expected/diagnostics.json")
    zone = folder / "expected/zone.txt"
    return Golden(
        config=_json(folder / "config.json"),
        stages=(tuple(map(stage, first)), *((stage(path),) for path in later)),
        tables={
            it["table"]: ExpectedTable(
                tuple(Column(c["name"], c["type"], c["nullable"]) for c in it["columns"]), tuple(it["rows"])
            )
            for it in tables
        },
        in_the_end=tuple(ExpectedDiagnostic(**entry) for entry in expected.get("in_the_end", ())),
        on_the_way=tuple(ExpectedDiagnostic(**entry) for entry in expected.get("on_the_way", ())),
        not_compared=frozenset(expected.get("not_compared", ())),
        result=(folder / "expected/result").read_text("utf-8").strip(),
        files=_lines(zone) if zone.exists() else None,
    )


def _lines(path):
    return path.read_text("utf-8").splitlines() if path.exists() else []


def _json(path):
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


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
        moment = datetime.fromisoformat(value.replace("Z", "+00:00")) if isinstance(value, str) else value
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    if kind.startswith("decimal"):
        return str(Decimal(value))
    parsed = _PARSERS[kind](value) if isinstance(value, str) and kind in _PARSERS else value
    return (type(parsed).__name__, parsed)


def diagnostic_differences(golden, end, raised):
    """How the diagnostics in the end, and those raised on the way, differ from the expected ones."""
    end, raised = set(end), set(raised) | set(end)
    missing = [f"not in the end: {entry}" for entry in golden.in_the_end if not any(map(entry.matches, end))]
    missing += [f"never raised: {entry}" for entry in golden.on_the_way if not any(map(entry.matches, raised))]
    allowed = (*golden.in_the_end, *golden.on_the_way)
    return missing + [
        f"unexpected: {diagnostic.full_message}"
        for diagnostic in sorted(end, key=lambda diagnostic: diagnostic.full_message)
        if diagnostic.code not in golden.not_compared and not any(entry.matches(diagnostic) for entry in allowed)
    ]
