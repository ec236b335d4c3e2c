"""A small Delta table with one of everything that a mirrored table may have, made without a JVM."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from delta_history import State, read_history
from delta_scenario import Scenario, known_log, schema_of

from mirror_engine.tables.log.commit import create_table, evolve
from mirror_engine.tables.log.record import carried, to_metadata
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = schema_of("Id:long!", "City:string", "At:timestamp", "day:string", partitions=["day"])
WIDER = schema_of("Id:long!", "City:string", "At:timestamp", "day:string", "Qty (kg):double", partitions=["day"])
LONG = "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch"
_MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc)
_DAY = "k=1 %"
_BINS = [0, 1024]


def make_sample(folder: Path) -> None:
    """Five versions: creation, rows, a mapped column, a batch that replaces the rows, and the same rows elsewhere."""
    writing = _Writing(folder)
    create_table(folder, SCHEMA, writing.scenario.record())
    first = writing.file([(1, "Linz", _MOMENT), (2, LONG, None)])
    writing.batch([{"add": first}])
    log = known_log(folder)
    evolve(log, WIDER)
    second = writing.file([(1, "Wels", _MOMENT, 1.5), (3, None, None, float("nan"))])
    writing.batch([{"remove": writing.removed(first)}, {"add": second}])
    third = {**writing.file([(1, "Wels", _MOMENT, 1.5), (3, None, None, float("nan"))]), "dataChange": False}
    again = carried(writing.metadata, 3)
    writing.commit("OPTIMIZE", again, [{"remove": writing.removed(second, data_change=False)}, {"add": third}])


class _Writing:
    """Writes what Spark would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scenario = Scenario(MemoryDeltaWriter(), SCHEMA, ["Id"])

    @property
    def metadata(self) -> str:
        return to_metadata(self.scenario.record())

    @property
    def state(self) -> State:
        return read_history(self.folder).states[-1]

    def batch(self, actions: list[dict[str, Any]]) -> None:
        self.scenario.batch += 1
        transaction = {"appId": self.scenario.record().application, "version": self.scenario.batch}
        self.commit("MERGE", self.metadata, [{"txn": transaction}, *actions])

    def commit(self, operation: str, metadata: str, actions: list[dict[str, Any]]) -> None:
        information = {"timestamp": 1, "operation": operation, "userMetadata": metadata}
        lines = [json.dumps(action) for action in [{"commitInfo": information}, *actions]]
        target = self.folder / "_delta_log" / f"{self.state.version + 1:020}.json"
        target.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def file(self, rows: list[tuple[Any, ...]]) -> dict[str, Any]:
        """Write a data file; returns the action that adds it."""
        kinds = {
            "long": pa.int64(),
            "string": pa.string(),
            "timestamp": pa.timestamp("us", "UTC"),
            "double": pa.float64(),
        }
        columns = self.state.data_columns
        fields = [pa.field(name, kinds[column["type"]], metadata=_field_id(column)) for name, column in columns.items()]
        values = [pa.array(cells, field.type) for cells, field in zip(zip(*rows, strict=True), fields, strict=True)]
        name = f"part-{self.state.version}.parquet"
        target = self.folder / f"day={_DAY}" / name
        target.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_arrays(values, schema=pa.schema(fields)), target)
        (partition,) = self.state.partition_columns
        return {
            "path": f"day=k=1%20%25/{name}",
            "partitionValues": {partition: _DAY},
            "size": target.stat().st_size,
            "modificationTime": 1,
            "dataChange": True,
            "stats": json.dumps(_statistics(list(columns), rows)),
        }

    def removed(self, added: dict[str, Any], *, data_change: bool = True) -> dict[str, Any]:
        kept = {name: added[name] for name in ("path", "partitionValues", "size", "stats")}
        return {**kept, "deletionTimestamp": 2, "dataChange": data_change, "extendedFileMetadata": True}


def _field_id(column: dict[str, Any]) -> dict[str, str] | None:
    number = column["metadata"].get("delta.columnMapping.id")
    return None if number is None else {"PARQUET:field_id": str(number)}


def _statistics(names: list[str], rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    cells = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    known = {name: [cell for cell in column if cell is not None] for name, column in cells.items()}
    return {
        "numRecords": len(rows),
        "minValues": {name: _extreme(min(column), "") for name, column in known.items()},
        "maxValues": {name: _extreme(_highest(column), "\U0010ffff") for name, column in known.items()},
        "nullCount": {name: column.count(None) for name, column in cells.items()},
    }


def _highest(column: list[Any]) -> Any:
    """NaN lies above all numbers."""
    return max(column, key=lambda cell: (cell != cell, cell))  # noqa: PLR0124 - the one test NaN fails


def _extreme(value: Any, lifted: str) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - as above
        return "NaN"
    return value[:32] + lifted if isinstance(value, str) and len(value) > 32 else value
