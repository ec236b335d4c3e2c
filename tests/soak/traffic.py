"""Twenty tables' worth of changes at a steady pace, and what each table must hold at the end."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter

TABLES = 20
ROWS_OF_A_FILE = 10
KEYS = 1000
TYPES = {"id": pa.int64(), "n": pa.int64(), "note": pa.string()}
TEXT_COLUMNS = [
    {"Name": "id", "DataType": "Int64", "IsNullable": True},
    {"Name": "n", "DataType": "Int64", "IsNullable": True},
    {"Name": "note", "DataType": "String", "IsNullable": True},
]


class Lane:
    """One table: half of them Parquet with keys, a quarter delimited text, a quarter keyless."""

    def __init__(self, publisher: LandingZoneWriter, number: int, chance: random.Random) -> None:
        self.name = f"Table{number:02d}"
        self.is_keyed = number % 4 != 3
        self._chance = chance
        keys = ["id"] if self.is_keyed else []
        if number % 4 == 2:
            self._folder = publisher.table(self.name, keys=keys, types=TYPES, file_format="CSV", columns=TEXT_COLUMNS)
        else:
            self._folder = publisher.table(self.name, keys=keys, types=TYPES)
        self._by_key: dict[int, int] = {}
        self._rows: Counter[tuple[int, int]] = Counter()
        self._landed = 0

    def land(self) -> str:
        """Land one file; returns its name."""
        changes: list[tuple[int, dict[str, Any]]] = []
        for _ in range(ROWS_OF_A_FILE):
            self._landed += 1
            row = {"id": self._chance.randrange(KEYS), "n": self._landed, "note": "x" * self._chance.randrange(40)}
            marker = self._chance.choice([1, 4, 4, 2]) if self.is_keyed else 0
            changes.append((marker, row))
            self._note(marker, row["id"], row["n"])
        return self._folder.apply_changes(*changes).rpartition("/")[2]

    def _note(self, marker: int, key: int, value: int) -> None:
        if not self.is_keyed:
            self._rows[key, value] += 1
        elif marker == 2:
            self._by_key.pop(key, None)
        else:
            self._by_key[key] = value

    @property
    def expected(self) -> Counter[tuple[int, int]]:
        """The rows that the table must hold once all is applied: `id` and `n`."""
        return Counter(self._by_key.items()) if self.is_keyed else self._rows


class Traffic:
    """All lanes, in turn, so many files a second; remembers when each file landed."""

    def __init__(self, publisher: LandingZoneWriter, seed: int, files_a_second: float) -> None:
        chance = random.Random(seed)
        self.lanes = [Lane(publisher, number, chance) for number in range(TABLES)]
        self.landed: dict[tuple[str, str], float] = {}
        self._pause = 1.0 / files_a_second

    def flow(self, seconds: float) -> None:
        """Land files until the time is over; a file that is late is landed at once, so that the pace holds."""
        begun = time.monotonic()
        count = 0
        while (due := begun + count * self._pause) < begun + seconds:
            time.sleep(max(due - time.monotonic(), 0.0))
            lane = self.lanes[count % len(self.lanes)]
            self.landed[lane.name, lane.land()] = time.time()
            count += 1
