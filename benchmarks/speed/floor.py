"""The rows that each engine must end with, by DuckDB; and the time DuckDB and pyarrow need without a table format."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from mirror_engine.landing_zone.change import MARKER_COLUMN
from speed.rows import DELETE, KEY, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_COLUMNS = ", ".join(SCHEMA.names)
# instants as numbers: some engines' timestamps have a zone, others' have none
_VALUES = ", ".join(f"epoch_us({name})" if name == "ChangedAt" else name for name in SCHEMA.names)


class Unequal(Exception):
    """An engine's table has other rows than expected: its time does not count."""


class Fingerprint(NamedTuple):
    """The number of rows and the sum of their hashes: equal for equal multisets of rows."""

    rows: int
    hashes: int


def of_query(query: str) -> Fingerprint:
    """Fingerprint the rows of a DuckDB query."""
    return _fingerprint(duckdb.connect(), query)


def of_table(folder: Path) -> Fingerprint:
    """Fingerprint a Delta table; delta-rs reads it, whoever wrote it."""
    read = QueryBuilder().register("found", DeltaTable(str(folder))).execute(f"SELECT {_COLUMNS} FROM found")
    database = duckdb.connect()
    database.register("found", pa.RecordBatchReader.from_stream(read))
    return _fingerprint(database, "FROM found")


def check(name: str, folder: Path, expected: Fingerprint) -> None:
    """Compare a table with the expected rows; raises Unequal."""
    found = of_table(folder)
    if found != expected:
        raise Unequal(f"{name} holds {found.rows} rows, expected {expected.rows}; or as many, and others")


def _fingerprint(database: duckdb.DuckDBPyConnection, query: str) -> Fingerprint:
    hashed = database.sql(f"SELECT count(*), coalesce(sum(hash({_VALUES})), 0) FROM ({query})").fetchall()
    return Fingerprint(*map(int, hashed[0]))


def after(base: Sequence[Path], changes: Sequence[Path]) -> str:
    """SQL for the rows of `base` after changes in file and row order: the last row of each key, unless it deletes."""
    if not changes:
        return f"SELECT {_COLUMNS} FROM read_parquet({_listed(base)})"
    changed = f"""
        SELECT * FROM read_parquet({_listed(changes)}, filename = true, file_row_number = true)
        QUALIFY row_number() OVER (PARTITION BY {KEY} ORDER BY filename DESC, file_row_number DESC) = 1
    """
    kept = f"SELECT {_COLUMNS} FROM read_parquet({_listed(base)}) ANTI JOIN changed USING ({KEY}) UNION ALL"
    last = f"SELECT {_COLUMNS} FROM changed WHERE {MARKER_COLUMN} <> {DELETE}"
    return f"WITH changed AS MATERIALIZED ({changed}) {kept if base else ''} {last}"


def _listed(files: Sequence[Path]) -> str:
    return "[" + ", ".join(f"'{file}'" for file in files) + "]"


class Floor:
    """The engine `floor`: no table format. Each method returns its seconds."""

    def apply(self, base: Sequence[Path], changes: Sequence[Path], target: Path) -> float:
        """Write the rows after the changes to one Parquet file, with DuckDB."""
        started = time.perf_counter()
        duckdb.sql(f"COPY ({after(base, changes)}) TO '{target}' (FORMAT parquet)")
        return time.perf_counter() - started

    def read(self, files: Sequence[Path]) -> tuple[float, int]:
        """Read all columns of all files, one after the other, with pyarrow; returns the seconds and Arrow's bytes."""
        started = time.perf_counter()
        tables = [pq.read_table(file) for file in files]
        return time.perf_counter() - started, sum(table.nbytes for table in tables)
