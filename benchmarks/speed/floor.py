"""The floor and the limit: what DuckDB and pyarrow need for the same without any table format, and bare copying.

DuckDB's word on what a table must hold after changes is what every engine is held against.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq

from mirror_engine.landing_zone.change import MARKER_COLUMN
from speed.rows import DELETE, NUMBER, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from speed.rows import Keys

_COLUMNS = ", ".join(SCHEMA.names)


def after(base: Sequence[str | Path], changes: Sequence[str | Path], keys: Keys = NUMBER) -> str:
    """The rows of files after changes in file and row order, as SQL: per key the last row, if it is no delete."""
    if not changes:
        return f"SELECT {_COLUMNS} FROM read_parquet({_listed(base)})"
    by = ", ".join(keys)
    changed = f"""
        SELECT * FROM read_parquet({_listed(changes)}, filename = true, file_row_number = true)
        QUALIFY row_number() OVER (PARTITION BY {by} ORDER BY filename DESC, file_row_number DESC) = 1
    """
    kept = f"SELECT {_COLUMNS} FROM read_parquet({_listed(base)}) ANTI JOIN changed USING ({by}) UNION ALL"
    last = f"SELECT {_COLUMNS} FROM changed WHERE {MARKER_COLUMN} <> {DELETE}"
    return f"WITH changed AS MATERIALIZED ({changed}) {kept if base else ''} {last}"


def _listed(files: Sequence[str | Path]) -> str:
    return "[" + ", ".join(f"'{file}'" for file in files) + "]"


class Floor:
    """Commands of the peer `floor`."""

    def apply(self, base: list[str], changes: list[str], target: str) -> dict[str, Any]:
        """DuckDB writes the rows after the changes to one Parquet file."""
        started = time.perf_counter()
        duckdb.sql(f"COPY ({after(base, changes)}) TO '{target}' (FORMAT parquet)")
        return {"seconds": time.perf_counter() - started}

    def read(self, files: list[str]) -> dict[str, Any]:
        """Pyarrow reads all columns of all files, one file after the other."""
        started = time.perf_counter()
        tables = [pq.read_table(file) for file in files]
        seconds = time.perf_counter() - started
        return {
            "seconds": seconds,
            "rows": sum(table.num_rows for table in tables),
            "arrow_bytes": sum(table.nbytes for table in tables),
        }

    def copy(self, files: list[str], target: str) -> dict[str, Any]:
        """Copy the files."""
        started = time.perf_counter()
        for file in files:
            shutil.copyfile(file, Path(target) / Path(file).name)
        return {"seconds": time.perf_counter() - started}
