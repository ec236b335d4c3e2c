"""Change batches made from plain rows."""

from __future__ import annotations

import math
import os
import struct
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from mirror_engine.landing_zone.change import MARKER_COLUMN, Change, RowMarker, replay
from mirror_engine.landing_zone.detection import marks_after
from mirror_engine.landing_zone.listing import Entry
from mirror_engine.landing_zone.progress import Applied, AppliedFile, Progress
from mirror_engine.landing_zone.schema import Column, TableSchema
from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.base import BatchRecord, ChangeBatch, FileRows, MatchCounts, RecordHead
from mirror_engine.tables.log.commit import commit_batch, create_table, evolution, evolve
from mirror_engine.tables.log.snapshot import count_rows, open_log, stated_rows
from mirror_engine.tables.passthrough import CopiedRows

AWKWARD_NAMES = [  # for a table's folder (LZ-1.10)
    " tab\tnl\n\x01back\\slash ünï-日本 k=v%20x{a}[b]*?,;()q'\"`$#:&~^|<>! %41@v1",
    "%@20260101000000000",
]

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
DAYS = [(1, 1, 1), (9999, 12, 31), (1582, 10, 10), (1969, 12, 31)]
TIMES = [(*DAYS[0], 0), (*DAYS[1], 23, 59, 59, 999_999), (*DAYS[2], 12), (1900, 1, 1, 0, 0, 0, 1), (2026, 3, 29, 2, 30)]
# of every type of column the values that engines compare or store otherwise
KEYS: dict[str, list[Any]] = {
    "byte": [-128, 0, 127],
    "short": [-(2**15), 0, 2**15 - 1],
    "integer": [-(2**31), 0, 2**31 - 1],
    "long": [-(2**63), 0, 5, 2**63 - 1],
    "string": ["", "a", "a ", "A", " ", "NULL", "é'x\"\U0001f600", "a\x00b", "long" * 1250],
    "binary": [b"", b"\0", b"\xff", b"NULL", b"c" * 5000],
    "date": [date(*day) for day in DAYS],
    "timestamp": [datetime(*time, tzinfo=UTC) for time in TIMES],
    "timestamp_ntz": [datetime(*time) for time in TIMES],  # noqa: DTZ001 - naive is the point
    "decimal(38,10)": [
        Decimal("1234567890123456789012345678.0123456789"),
        Decimal(0),
        Decimal(f"-{'9' * 28}.{'9' * 10}"),
    ],
    "decimal(18,0)": [Decimal(10**18 - 1), Decimal(0), Decimal(-1)],
    "decimal(5,2)": [Decimal("-999.99"), Decimal(0), Decimal("0.01")],
    "boolean": [True, False],
    "double": [math.nan, OTHER_NAN, -0.0, 0.0, 5e-324, -math.inf, 1.7976931348623157e308],
    "float": [math.nan, -0.0, 0.0, math.inf, 1.5, 2.0**-149, 3.4028234663852886e38],
}
# values of partition columns that a folder's name, SQL or a NULL in disguise may spoil; an empty text is none (LZ-3.7)
PARTITIONS = ["x y", "a%20b", "a/b", "k=v", "q'\"`", "ünï-日本", "t\tn\n", ":*?[]{}#", None, "\\", "..", "x" * 120]
PARTITIONS += ["null", "NULL", " lead", "trail ", " ", "\u00a0", "a=b/c%20", "%", "%%41", "1", "01", "1.0", "true"]


@dataclass(frozen=True)
class TableRows:
    """A `RowStore` over rows in memory, to be read."""

    table: pa.Table

    @property
    def schema(self):
        return self.table.schema

    def batches(self, columns=None):
        table = self.table if columns is None else self.table.select([c for c in columns if c in self.schema.names])
        yield from table.to_batches(max_chunksize=3)

    def close(self):
        """Nothing is held."""


def schema_of(*columns, partitions=()):
    """`name:type`, with `!` behind where NULL may not stand; the type is `integer` where none is said."""
    made = []
    for text in columns:
        name, _, word = text.rstrip("!").rpartition(":")
        made.append(Column(name or word, word if name else "integer", nullable=not text.endswith("!")))
    return TableSchema(tuple(made), tuple(partitions))


SIMPLE = schema_of("Id", "City:string")


def file_rows(path, schema, names, *rows):
    """A change file of the named columns; each row is its marker, then its values."""
    fields = [(name, arrow_type(next(c.type for c in schema.columns if c.name == name))) for name in names]
    columns = [pa.array([row[place + 1] for row in rows], kind) for place, (_, kind) in enumerate(fields)]
    markers = pa.array([row[0] for row in rows], pa.int8())
    table = pa.Table.from_arrays([*columns, markers], schema=pa.schema([*fields, (MARKER_COLUMN, pa.int8())]))
    return FileRows(Entry(path, 0, 1, "1"), "digest", TableRows(table), Counter(row[0] for row in rows), True, 0)


def changes_of(names, keys, file):
    """The changes of a file, as `file_rows` takes them."""
    rows = [dict(zip(names, values, strict=True)) for _, *values in file]
    keyed = [(tuple(row[key] for key in keys), row) for row in rows]
    return [Change(RowMarker(marker), *row) for (marker, *_), row in zip(file, keyed, strict=True)]


def replayed(rows, names, keys, file):
    """Rows after the changes of a file, and what they match: as `replay` says."""
    changes = changes_of(names, keys, file)
    rows, effects = replay(rows, changes, keys)
    pairs = [(change.marker, effect.matched) for change, effect in zip(changes, effects, strict=True)]
    duplicates = sum(marker == 0 and matched > 0 for marker, matched in pairs)
    return rows, MatchCounts(duplicates, sum(marker != 0 and matched > 1 for marker, matched in pairs))


def passthrough_rows(landed, rows, keys=("Id",)):
    """The same file as a verified copy without markers, to be added unchanged."""
    table = pa.Table.from_batches(rows.rows.batches()).drop_columns([MARKER_COLUMN])
    path = landed / rows.path
    pq.write_table(table, path, store_schema=False)
    return replace(copied(path, rows, keys), passthrough=path)


def copied(path, rows, keys):
    """The same file as rows of a copy that were verified."""
    verified = CopiedRows(path, rows.rows.schema, keys)
    for batch in rows.rows.batches():
        verified.add(batch)
    return replace(rows, rows=verified)


def table_with(folder, schema, keys, rows):
    """The log of a new table with these rows."""
    create_table(folder, schema, Scenario(None, schema, keys).record())
    add_rows(folder, schema, rows)
    return known_log(folder)


def add_rows(folder, schema, rows):
    """Append rows, as another program does."""
    if rows:
        held = file_rows("held", schema, schema.names, *[(0, *row) for row in rows])
        write_deltalake(str(folder), held.rows.table.select(schema.names), mode="append")


def aged(files, days=30):
    """Let files be older."""
    for file in files:
        then = file.stat().st_mtime - days * 86_400
        os.utime(file, (then, then))


def without_statistics(actions):
    """Actions as a program writes them that knows no statistics."""
    for action in actions:
        action.get("add", {}).pop("stats", None)
    return actions


def commit_without_rows(log, record):
    """Commit a batch of which no row changes the table."""
    commit_batch(log, record, evolution(log, log.schema))


def evolved(log, *wanted, **options):
    """The version of a table after what it lacks came in a commit of its own."""
    return evolve(log, evolution(log, *wanted, **options))


def known_log(folder):
    """The log of a table that is there."""
    log = open_log(folder)
    assert log is not None
    return log


def facts(log):
    """All that a log is asked for; first what it may know without deltalake."""
    return {
        "version": log.version,
        "schema": log.schema,
        "properties": dict(log.configuration),
        "files": sorted(map(str, log.data_files())),
        "rows": count_rows(log),
        "stated rows": stated_rows(log),
        "record": log.newest_record(),
        "features": str(log.table.protocol()),
        "transaction": log.table.transaction_version("mirror_engine:mirror:g1"),
    }


class Scenario:
    """One table on one writer, driven by plain rows."""

    def __init__(self, writer, schema, keys=(), table="dbo/T"):
        self.writer, self.schema, self.keys, self.table = writer, schema, tuple(keys), table
        self.batch, self.version = 0, -1
        self.generation = "g1"

    @property
    def folder(self):
        return self.writer.path(self.table)

    def log(self):
        """Its log, opened now."""
        return known_log(self.folder)

    def record(self, *files):
        applied = {file.path: AppliedFile(file.landed.etag, file.digest, -1, file.row_count, 1) for file in files}
        progress = Progress(self.generation, "1:1", self.batch, self.version, self.keys)
        marks = marks_after({}, applied, in_order=True)
        return BatchRecord("mirror", "anchor", progress, "T", Applied(applied, marks))

    def head(self):
        """What a snapshot has of its record."""
        record = self.record()
        return RecordHead(record.mirror, record.root_identity, record.progress, record.folder)

    def create(self):
        """Make the empty table of a writer over a folder."""
        create_table(self.folder, self.schema, self.record())

    def file(self, names, *rows):
        return file_rows(f"{self.batch + 1:020}.parquet", self.schema, names, *rows)

    def apply(self, *files, snapshot=None):
        self.batch += 1
        batch = ChangeBatch(files, self.schema, self.keys, snapshot)
        outcome = self.writer.apply(self.table, batch, self.record(*files))
        self.version = outcome.version
        return outcome

    def change(self, *rows):
        """Apply one file with all columns of the table."""
        return self.apply(self.file(self.schema.names, *rows))

    def change_after_snapshot(self, *rows):
        """The same on a log that is kept open, as the engine does it."""
        return self.apply(self.file(self.schema.names, *rows), snapshot=self.writer.snapshot(self.table))

    def found(self, version=None):
        rows = self.writer.rows(self.table, version=version)
        return sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)
