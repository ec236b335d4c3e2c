"""Whether two engines came to the same rows: a fingerprint that does not depend on their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from speed.rows import SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

# the instant as a number: one engine's timestamps have a zone, another's none
_VALUES = ", ".join(f"epoch_us({name})" if name == "ChangedAt" else name for name in SCHEMA.names)


class Unequal(Exception):
    """An engine came to other rows than it should: its time does not count."""


class Fingerprint(NamedTuple):
    """How many rows, and the sum of a hash of each: equal for equal multisets of rows."""

    rows: int
    hashes: int


def of_query(query: str) -> Fingerprint:
    """The fingerprint of the rows that a query of DuckDB gives."""
    return _fingerprint(duckdb.connect(), query)


def of_table(folder: Path) -> Fingerprint:
    """The fingerprint of a Delta table, read by delta-rs whoever wrote it."""
    read = (
        QueryBuilder()
        .register("found", DeltaTable(str(folder)))
        .execute(f"SELECT {', '.join(SCHEMA.names)} FROM found")
    )
    database = duckdb.connect()
    database.register("found", pa.RecordBatchReader.from_stream(read))
    return _fingerprint(database, "FROM found")


def check(name: str, folder: Path, expected: Fingerprint) -> None:
    """Hold a table against what it must hold.

    Raises:
        Unequal: it holds something else.
    """
    found = of_table(folder)
    if found != expected:
        raise Unequal(f"{name} holds {found.rows} rows, expected {expected.rows}; or as many, and others")


def _fingerprint(database: duckdb.DuckDBPyConnection, query: str) -> Fingerprint:
    hashed = database.sql(f"SELECT count(*), coalesce(sum(hash({_VALUES})), 0) FROM ({query})").fetchall()
    return Fingerprint(*map(int, hashed[0]))
