"""sqllocks-shape as its users call it: tables of Parquet or CSV into a landing zone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from places import ABFSS, ITEM, LANDING_ZONE
from shape.builtins.sinks import AbfssSink, FabricMirrorSink

CITIES = {1: "Linz", 2: 'Wels, "an der Traun"', 3: "", 4: "Graz"}


def batch(ids: list[int]) -> pa.RecordBatch:
    cities = [CITIES[each] for each in ids]
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "city": pa.array(cities, pa.string())})


def publish(table: str, form: str, **more: Any) -> int:
    """An initial load and changes; rows written."""
    sink, zone = FabricMirrorSink(), f"{ABFSS}/{LANDING_ZONE}"
    said = {"format": form, "key_columns": ["id"], **more}
    return (
        sink.write(zone, table, [batch([1, 2]), batch([3])], **said)
        + sink.write(zone, table, [batch([4])], row_marker="upsert", **said)
        + sink.write(zone, table, [batch([3])], row_marker="delete", **said)
    )


def files(folder: str, form: str) -> int:
    """Plain files outside of the landing zone, published by a rename."""
    return AbfssSink().write(f"{ABFSS}/{ITEM}/Files/{folder}", "orders", [batch([1, 2])], format=form)
