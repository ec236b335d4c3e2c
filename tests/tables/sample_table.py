"""A small Delta table with one of everything that a mirrored table may have, made without a JVM."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.parquet as pq
from delta_history import read_history
from delta_scenario import Scenario, known_log, schema_of

from mirror_engine.landing_zone.schema import Column
from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.log.commit import create_table, evolve
from mirror_engine.tables.log.record import carried, to_metadata
from mirror_engine.tables.log.statistics import statistics_of
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

SCHEMA = schema_of("Id:long!", "City:string", "At:timestamp", "day:string", partitions=["day"])
WIDER = schema_of("Id:long!", "City:string", "At:timestamp", "day:string", "Qty (kg):double", partitions=["day"])
LONG = "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch"
_MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc)
_DAY = "k=1 %"


def make_sample(folder):
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

    def __init__(self, folder):
        self.folder = folder
        self.scenario = Scenario(MemoryDeltaWriter(), SCHEMA, ["Id"])

    @property
    def metadata(self):
        return to_metadata(self.scenario.record())

    @property
    def state(self):
        return read_history(self.folder).states[-1]

    def batch(self, actions):
        self.scenario.batch += 1
        transaction = {"appId": self.scenario.record().application, "version": self.scenario.batch}
        self.commit("MERGE", self.metadata, [{"txn": transaction}, *actions])

    def commit(self, operation, metadata, actions):
        information = {"timestamp": 1, "operation": operation, "userMetadata": metadata}
        lines = [json.dumps(action) for action in [{"commitInfo": information}, *actions]]
        target = self.folder / "_delta_log" / f"{self.state.version + 1:020}.json"
        target.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def file(self, rows):
        """Write a data file; returns the action that adds it."""
        columns = self.state.data_columns
        ids = {name: column["metadata"].get("delta.columnMapping.id") for name, column in columns.items()}
        fields = [
            pa.field(name, arrow_type(column["type"]), metadata=ids[name] and {"PARQUET:field_id": str(ids[name])})
            for name, column in columns.items()
        ]
        values = [pa.array(cells, field.type) for cells, field in zip(zip(*rows, strict=True), fields, strict=True)]
        name = f"part-{self.state.version}.parquet"
        target = self.folder / f"day={_DAY}" / name
        target.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_arrays(values, schema=pa.schema(fields)), target)
        wanted = [Column(name, column["type"]) for name, column in columns.items()]
        (partition,) = self.state.partition_columns
        return {
            "path": f"day=k=1%20%25/{name}",
            "partitionValues": {partition: _DAY},
            "size": target.stat().st_size,
            "modificationTime": 1,
            "dataChange": True,
            "stats": statistics_of(pq.read_metadata(target), wanted),
        }

    def removed(self, added, *, data_change=True):
        kept = {name: added[name] for name in ("path", "partitionValues", "size", "stats")}
        return {**kept, "deletionTimestamp": 2, "dataChange": data_change, "extendedFileMetadata": True}
