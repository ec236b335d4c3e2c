"""Lands changes in tables of five kinds, drops and recreates folders, and keeps a copy of all of it for the oracle.

Whatever it does ends the same whenever the engine looks: keys stay within a partition, times only rise, no file is bad.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter

if TYPE_CHECKING:
    import random
    from pathlib import Path

TYPES = {"id": pa.int64(), "n": pa.int64(), "note": pa.string()}
NOTES = ["a", "", None, "a\r\nb", 'q"\\,']
BY_TIME = "LastUpdateTimeFileDetection"
FIRST_NS = 1_767_225_600 * 10**9
DECLARED = [
    {"Name": name, "DataType": kind, "IsNullable": True}
    for name, kind in (("id", "Int64"), ("n", "Int64"), ("note", "String"))
]
KINDS: dict[str, dict[str, Any]] = {
    "Orders": {"keys": ["id"]},
    "Sales.Items": {"keys": ["id"], "file_format": "CSV", "columns": DECLARED},
    "Events": {},
    "Days": {"keys": ["id", "day"], "partitioned": True},
    "Stamps": {"keys": ["id"], "strategy": BY_TIME, "upsert_default": True},
}


class Twofold(LandingZoneWriter):
    """Does everything twice: in ROOT's zone, and in a copy that no engine touches."""

    def __init__(self, root: Path, copy: Path) -> None:
        super().__init__(root)
        self.copy = LandingZoneWriter(copy)

    def put(self, path: str, content: bytes, *, modified_ns: int | None = None) -> None:
        super().put(path, content, modified_ns=modified_ns)
        self.copy.put(path, content, modified_ns=modified_ns)

    def remove(self, path: str) -> None:
        while (self.path / path).exists():
            with suppress(OSError):  # the engine moves files there at the same time
                super().remove(path)
        self.copy.remove(path)


class Lane:
    """One table folder."""

    def __init__(self, publisher: Twofold, name: str, chance: random.Random, counts: Counter[str]) -> None:
        self._publisher = publisher
        self._name = name
        self._chance = chance
        self._counts = counts
        self._is_text = "file_format" in KINDS[name]
        self._folder = publisher.table(name, **KINDS[name])

    def land(self) -> None:
        """Land a file of changes."""
        self._land([self._row() for _ in range(self._chance.randrange(1, 12))])

    def land_nothing(self) -> None:
        """Land a file that changes no row: its commit needs no JVM."""
        is_delete = "keys" in KINDS[self._name] and self._chance.random() < 0.5
        self._land([{MARKER_COLUMN: 2, "id": -1, "n": None, "note": None}] if is_delete else [])

    def recreate(self) -> None:
        """Drop the folder, and mostly describe it anew at once."""
        self._folder.drop()
        self._counts["folders dropped"] += 1
        if self._chance.random() < 0.7:
            self._describe()

    def _land(self, rows: list[dict[str, Any]]) -> None:
        self._describe()
        types = dict(TYPES)
        if not self._is_text and self._chance.random() < 0.2:
            types["extra"] = pa.float64()
        if self._chance.random() < 0.2:
            del types["note"]
        if self._name != "Stamps" or any(row[MARKER_COLUMN] != 4 for row in rows):
            types[MARKER_COLUMN] = pa.int32()
        self._counts["files"] += 1
        self._counts["changes"] += len(rows)
        partition = self._chance.choice(["day=1", "day=2%2F1"]) if self._name == "Days" else ""
        time = {"modified_ns": FIRST_NS + self._counts["files"] * 10**6} if self._name == "Stamps" else {}
        self._folder.land_rows(rows, types=types, partition=partition, **time)

    def _describe(self) -> None:
        path = f"{self._folder.path}/_metadata.json"
        if not (self._publisher.copy.path / path).exists():
            self._folder.write_metadata(**KINDS[self._name])

    def _row(self) -> dict[str, Any]:
        marker = self._chance.choice([0, 1, 2, 4]) if "keys" in KINDS[self._name] else 0
        if self._name == "Stamps":
            marker = self._chance.choice([4, 4, 4, 2])
        row = {"id": self._chance.randrange(20), "n": self._counts["changes"], "note": self._chance.choice(NOTES)}
        return {**row, "extra": self._chance.choice([0.5, None]), MARKER_COLUMN: marker}


class KilledPublisher:
    """All five tables."""

    def __init__(self, root: Path, copy: Path, chance: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self._chance = chance
        self._publisher = Twofold(root, copy)
        self._lanes = [Lane(self._publisher, name, chance, self.counts) for name in KINDS]

    def act(self) -> None:
        """Land changes in one table, or now and then drop one."""
        lane = self._chance.choice(self._lanes)
        if self._chance.random() < 0.08:
            lane.recreate()
        else:
            lane.land()

    def act_quietly(self) -> None:
        """The same with files that change no row."""
        lane = self._chance.choice(self._lanes)
        if self._chance.random() < 0.15:
            lane.recreate()
        lane.land_nothing()
