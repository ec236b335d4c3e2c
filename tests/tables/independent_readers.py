"""Readers of Delta tables that share no code with Spark, nor with each other; Polars and Sail where they are installed.

`deltalake` reads the log and the files in Rust. DuckDB reads the files in C++, which the log names as `delta_protocol`
replays it. The engine writes with Spark; it reads the log with deltalake, and the files with pyarrow.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from delta_protocol import duck, marks, read_history
from deltalake import DeltaTable, QueryBuilder
from golden import table_differences

from mirror_engine.landing_zone.change import comparable, same_rows
from mirror_engine.landing_zone.schema import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from delta_protocol import State

    from mirror_engine.testing.cases import ExpectedTable

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


@contextmanager
def reading_with_sail() -> Iterator[Callable[[Path], list[Row]]]:
    """A reader by Sail, in a process of its own: its client and Spark's are the same modules."""
    program = Path(__file__).with_name("read_with_sail.py")
    with subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:

        def read(folder: Path) -> list[Row]:
            process.stdin.write(f"{folder}\n".encode())
            process.stdin.flush()
            return pa.ipc.open_stream(process.stdout).read_all().to_pylist()

        yield read
        process.stdin.close()


def fed(table: pa.Table) -> dict[int, Counter[tuple[str, frozenset[object]]]]:
    """A change data feed as a reader found it: by version each kind and row, counted."""
    found: dict[int, Counter[tuple[str, frozenset[object]]]] = {}
    for row in table.to_pylist():
        version, kind, _ = (row.pop(f"_{name}") for name in ("commit_version", "change_type", "commit_timestamp"))
        found.setdefault(version, Counter())[kind, content(row)] += 1
    return found


def content(row: Row) -> frozenset[object]:
    """What a row holds, to be compared; NULL is as good as no column."""
    return frozenset((name, comparable(value)) for name, value in row.items() if value is not None)
