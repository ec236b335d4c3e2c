"""Two readers of Delta tables that share no code with Spark, nor with each other.

`deltalake` reads the log and the files in Rust. DuckDB reads the files in C++, which the log names as `delta_protocol`
replays it. The engine writes with Spark; it reads the log with deltalake, and the files with pyarrow.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from delta_protocol import duck, marks, read_history
from deltalake import DeltaTable, QueryBuilder
from golden import table_differences

from mirror_engine.landing_zone.change import same_rows
from mirror_engine.landing_zone.schema import Column

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from delta_protocol import State
    from golden import ExpectedTable

    Row = dict[str, Any]


def read_otherwise(folder: Path, expected: ExpectedTable) -> list[str]:
    """What either reads otherwise than expected, or than the other in an earlier version; empty where nothing is."""
    history = read_history(folder)
    newest, table = history.states[-1], DeltaTable(str(folder))
    seen = {
        "DuckDB": ([_column(each) for each in newest.fields], by_duckdb(folder, newest)),
        "deltalake": ([_column(each) for each in json.loads(table.schema().to_json())["fields"]], by_deltalake(table)),
    }
    said = [f"{name}: {each}" for name, found in seen.items() for each in table_differences(expected, *found)]
    said += [
        f"version {state.version} differs between the two"
        for state in history.states[:-1]
        if not same_rows(by_duckdb(folder, state), by_deltalake(DeltaTable(str(folder), version=state.version)))
    ]
    return said


def _column(field: Mapping[str, Any]) -> Column:
    return Column(field["name"], field["type"], field["nullable"])


def by_deltalake(table: DeltaTable) -> list[Row]:
    """The rows of a version that deltalake has opened."""
    found = QueryBuilder().register("mirrored", table).execute("SELECT * FROM mirrored")
    return pa.table(found).to_pylist()


def by_duckdb(folder: Path, state: State) -> list[Row]:
    """The rows of the files that a version's state names."""
    rows = []
    for action in state.files.values():
        path = str(folder / unquote(action["path"]))
        source = "read_parquet($path, hive_partitioning = false)"
        answer = duck().execute(f"SELECT * FROM {source}", {"path": path})  # noqa: S608 - a fixed text
        names = [described[0] for described in answer.description or ()]
        gone = marks(folder, action["deletionVector"]) if "deletionVector" in action else set()
        for values in (row for number, row in enumerate(answer.fetchall()) if number not in gone):
            there = {**dict(zip(names, values, strict=True)), **action["partitionValues"]}
            rows.append({column["name"]: there.get(state.physical(column)) for column in state.fields})
    return rows
