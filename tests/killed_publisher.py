"""Lands changes in tables of five kinds, drops and recreates folders, and keeps a copy of all of it for the oracle.

The result is the same whenever the engine runs: keys stay within a partition, times only rise, no file is bad.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
from store_publisher import StorePublisher

from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.storage.store_url import StoreUrl
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

TYPES = {"id": pa.int64(), "n": pa.int64(), "note": pa.string()}
NOTES = ["a", "", None, "a\r\nb", 'q"\\,']
DAYS = ["day=1", "day=2%2F1"]
FIRST_NS = 1_767_225_600 * 10**9
DECLARED = [
    {"Name": name, "DataType": kind, "IsNullable": True}
    for name, kind in (("id", "Int64"), ("n", "Int64"), ("note", "String"))
]
KINDS = {
    "Orders": {"keys": ["id"]},
    "Sales.Items": {"keys": ["id"], "file_format": "CSV", "columns": DECLARED},
    "Events": {},
    "Days": {"keys": ["id", "day"], "partitioned": True},
    "Stamps": {"keys": ["id"], "strategy": "LastUpdateTimeFileDetection", "upsert_default": True},
}


class CopyingWriter(LandingZoneWriter):
    """Writes everything twice: to ROOT's zone, and to a copy that no engine touches, which it is itself."""

    def __init__(self, root, copy):
        super().__init__(copy)
        self._zone = StorePublisher(root) if isinstance(root, StoreUrl) else LandingZoneWriter(root)

    def put(self, path, content, *, modified_ns=None):
        self._zone.put(path, content, modified_ns=modified_ns)
        super().put(path, content, modified_ns=modified_ns)

    def remove(self, path):
        while self._zone.has(path) if isinstance(self._zone, StorePublisher) else (self._zone.path / path).exists():
            with suppress(OSError):  # the engine moves files there at the same time
                self._zone.remove(path)
        super().remove(path)


class KilledPublisher:
    """A publisher of all five tables.

    Where folders have no identity, it recreates no folder ordered by time, and lands files in all partitions at once:
    nobody could tell otherwise (LZ-7.3).
    """

    def __init__(self, root, copy, chance):
        self._random = chance
        self._has_folders = not isinstance(root, StoreUrl) or root.scheme == "abfss"
        self._writer = CopyingWriter(root, copy)
        self._folders = {name: self._writer.table(name, **kind) for name, kind in KINDS.items()}
        self._files = self._changes = 0

    def act(self):
        """Land changes in one table, or now and then drop one."""
        name = self._random.choice(list(KINDS))
        if self._random.random() < 0.08:
            self._recreate(name)
        else:
            self._land(name, [self._row(name) for _ in range(self._random.randrange(1, 12))])

    def act_without_rows(self):
        """The same with files that change no row."""
        name = self._random.choice(list(KINDS))
        if self._random.random() < 0.15:
            self._recreate(name)
        is_delete = "keys" in KINDS[name] and self._random.random() < 0.5
        self._land(name, [{MARKER_COLUMN: 2, "id": -1, "n": None, "note": None}] if is_delete else [])

    def _recreate(self, name):
        """Drop a folder, and mostly write its metadata again at once."""
        if self._has_folders:
            self._folders[name].drop()
            if self._random.random() < 0.7:
                self._configure(name)
        elif name != "Stamps":
            self._folders[name].drop()
            for partition in DAYS if name == "Days" else [""]:
                self._land(name, [self._row(name)], partition)

    def _land(self, name, rows, partition=None):
        self._configure(name)
        types = dict(TYPES)
        if "file_format" not in KINDS[name] and self._random.random() < 0.2:
            types["extra"] = pa.float64()
        if self._random.random() < 0.2:
            del types["note"]
        if name != "Stamps" or any(row[MARKER_COLUMN] != 4 for row in rows):
            types[MARKER_COLUMN] = pa.int32()
        self._files += 1
        self._changes += len(rows)
        if partition is None:
            partition = self._random.choice(DAYS) if name == "Days" else ""
        time = {"modified_ns": FIRST_NS + self._files * 10**6} if name == "Stamps" else {}
        self._folders[name].land_rows(rows, types=types, partition=partition, **time)

    def _configure(self, name):
        folder = self._folders[name]
        if not (self._writer.path / folder.path / "_metadata.json").exists():
            folder.write_metadata(**KINDS[name])

    def _row(self, name):
        marker = self._random.choice([0, 1, 2, 4]) if "keys" in KINDS[name] else 0
        if name == "Stamps":
            marker = self._random.choice([4, 4, 4, 2])
        row = {"id": self._random.randrange(20), "n": self._changes, "note": self._random.choice(NOTES)}
        return {**row, "extra": self._random.choice([0.5, None]), MARKER_COLUMN: marker}
