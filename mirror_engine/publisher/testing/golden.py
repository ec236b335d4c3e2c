"""Golden fixtures: a landing zone in stages, the tables and diagnostics it must end in, and what tells them apart."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from mirror_engine.landing_zone.schema import Column
from mirror_engine.publisher.landing_zone_writer import Publisher

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping
    from pathlib import Path

    from mirror_engine.landing_zone.diagnostics import Diagnostic

NOT_DATA = frozenset({"remove.txt", "in_place.txt"})


@dataclass(frozen=True)
class Stage:
    """What a publisher did between two cycles: files and folders removed, then files landed.

    Attributes:
        folder: holds the landed files; one called `older_landing_zone` goes to `ROOT/LandingZone` (LZ-1.1).
        removed: paths from the zone's top.
        in_place: landed files that are written over the old content, not renamed into place.
        modified_ns: LastModified by path, where it matters.
    """

    folder: Path
    removed: tuple[str, ...]
    in_place: frozenset[str]
    modified_ns: Mapping[str, int]

    def land(self, root: Path) -> None:
        """Do it, under a ROOT."""
        older = self.folder.name == "older_landing_zone"
        publisher = Publisher(root, zone="LandingZone" if older else "Files/LandingZone")
        for path in self.removed:
            publisher.remove(path)
        for file in sorted(self.folder.rglob("*")):
            path = file.relative_to(self.folder).as_posix()
            if path in NOT_DATA or not file.is_file():
                continue
            if path in self.in_place:
                publisher.write_in_place(path, file.read_bytes())
            else:
                publisher.put(path, file.read_bytes(), modified_ns=self.modified_ns.get(path))


@dataclass(frozen=True)
class ExpectedTable:
    """What one Delta table must hold: columns in order, rows in any order, values as JSON writes them."""

    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class ExpectedDiagnostic:
    """One thing that must be said; without a row, any row of the file will do. Alternative codes stand apart by `|`."""

    code: str
    path: str
    row: int | None = None

    def matches(self, said: Diagnostic) -> bool:
        """Whether this is it."""
        return said.code in self.code.split("|") and said.path == self.path and self.row in (None, said.row)


@dataclass(frozen=True)
class Golden:
    """One fixture.

    Attributes:
        name: its folder's name, a sentence.
        config: options that differ from the defaults.
        stages: each is followed by a run of the engine.
        tables: what must be there in the end, by folder from `ROOT/Tables`; no other table may.
        in_the_end: every diagnostic that stands in the end.
        on_the_way: diagnostics that must be told at some time, whether or not they still stand.
        not_compared: codes that may stand in the end besides.
        verdict: `level` or `refused`.
        files: what the zone must hold in the end; None where that is not the point.
    """

    name: str
    config: Mapping[str, Any]
    stages: tuple[tuple[Stage, ...], ...]
    tables: Mapping[str, ExpectedTable]
    in_the_end: tuple[ExpectedDiagnostic, ...]
    on_the_way: tuple[ExpectedDiagnostic, ...]
    not_compared: frozenset[str]
    verdict: str
    files: tuple[str, ...] | None


def load(folder: Path) -> Golden:
    """Read a fixture's folder; its layout is described in `fixtures/README.md`."""
    times = _json(folder / "manifest.json", {})
    later = sorted((path for path in folder.glob("then-*") if path.is_dir()), key=lambda path: path.name)
    first = [folder / name for name in ("landing_zone", "older_landing_zone") if (folder / name).is_dir()]
    stages = [tuple(_stage(path, times) for path in first), *((_stage(path, times),) for path in later)]
    said = _json(folder / "expected/diagnostics.json", {})
    zone = folder / "expected/zone.txt"
    return Golden(
        folder.name,
        _json(folder / "config.json", {}),
        tuple(stages),
        dict(_table(path) for path in sorted((folder / "expected/tables").glob("*.json"))),
        tuple(ExpectedDiagnostic(**one) for one in said.get("in_the_end", ())),
        tuple(ExpectedDiagnostic(**one) for one in said.get("on_the_way", ())),
        frozenset(said.get("not_compared", ())),
        (folder / "expected/verdict").read_text("utf-8").strip(),
        tuple(zone.read_text("utf-8").splitlines()) if zone.exists() else None,
    )


def _stage(folder: Path, times: Mapping[str, Mapping[str, int]]) -> Stage:
    removed = _lines(folder / "remove.txt")
    return Stage(folder, tuple(removed), frozenset(_lines(folder / "in_place.txt")), times.get(folder.name, {}))


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []


def _json(path: Path, absent: Any) -> Any:  # noqa: ANN401 - JSON is any of its types
    return json.loads(path.read_text("utf-8")) if path.exists() else absent


def _table(path: Path) -> tuple[str, ExpectedTable]:
    value = _json(path, None)
    columns = tuple(Column(c["name"], c["type"], c["nullable"]) for c in value["columns"])
    return value["table"], ExpectedTable(columns, tuple(value["rows"]))


def table_differences(
    expected: ExpectedTable, columns: Iterable[Column], rows: Iterable[Mapping[str, Any]]
) -> list[str]:
    """What tells a table from the expected one, in words; empty where nothing does."""
    columns = tuple(columns)
    found = []
    if columns != expected.columns:
        found.append(f"columns: expected {_described(expected.columns)}, found {_described(columns)}")
    types = {column.name: column.type for column in expected.columns}
    wanted = Counter(_row(row, types) for row in expected.rows)
    there = Counter(_row(row, types) for row in rows)
    found += [f"missing {count} x {row}" for row, count in (wanted - there).items()]
    found += [f"too much {count} x {row}" for row, count in (there - wanted).items()]
    return found


def _described(columns: Iterable[Column]) -> str:
    return ", ".join(f"{c.name} {c.type}{'' if c.nullable else ' not null'}" for c in columns)


def _row(row: Mapping[str, Any], types: Mapping[str, str]) -> tuple[tuple[str, Hashable], ...]:
    return tuple((name, normalised(row.get(name), kind)) for name, kind in types.items())


def normalised(value: Any, kind: str) -> Hashable:  # noqa: ANN401 - a cell of any type
    """A cell of a Delta type, from JSON or from Arrow, in one comparable form.

    JSON writes decimals, dates and timestamps (ISO 8601, UTC without an offset) as text, binary as hexadecimal text,
    and `NaN`, `Infinity`, `-Infinity` as those words.
    """
    if value is None:
        return None
    if kind in ("float", "double"):
        return "NaN" if math.isnan(float(value)) else float(value) + 0.0
    if kind == "timestamp":
        return _instant(value)
    if kind.startswith("decimal"):
        return str(Decimal(value))
    parsers = {"timestamp_ntz": datetime.fromisoformat, "date": date.fromisoformat, "binary": bytes.fromhex}
    parsed = parsers[kind](value) if isinstance(value, str) and kind in parsers else value
    return (type(parsed).__name__, parsed)


def _instant(value: str | datetime) -> datetime:
    moment = datetime.fromisoformat(value.replace("Z", "+00:00")) if isinstance(value, str) else value
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)


def diagnostic_differences(golden: Golden, end: Iterable[Diagnostic], told: Iterable[Diagnostic]) -> list[str]:
    """What tells the diagnostics that stand in the end, and those told on the way, from the expected ones."""
    end, told = set(end), set(told) | set(end)
    found = [f"not said: {one}" for one in golden.in_the_end if not any(map(one.matches, end))]
    found += [f"never said: {one}" for one in golden.on_the_way if not any(map(one.matches, told))]
    allowed = (*golden.in_the_end, *golden.on_the_way)
    found += [
        f"said too much: {said.message}"
        for said in sorted(end, key=lambda said: said.message)
        if said.code not in golden.not_compared and not any(one.matches(said) for one in allowed)
    ]
    return found
