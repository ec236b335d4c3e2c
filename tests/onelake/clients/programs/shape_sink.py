"""sqllocks-shape as its users call it: tables of Parquet or CSV into a landing zone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from places import ABFSS, FOLDER, ITEM, LANDING_ZONE
from shape.builtins.sinks import AbfssSink, FabricMirrorSink

CITIES = {1: "Linz", 2: 'Wels, "an der Traun"', 3: "", 4: "Graz"}


def batch(*ids):
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "city": [CITIES[each] for each in ids]})


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_table_is_published_by_abfss(form):
    """The test that runs this program looks for its rows."""
    table, sink = f"Cities-{form}", FabricMirrorSink()
    (FOLDER / table).mkdir()  # adlfs makes none below a container
    for batches, more in (
        ([batch(1, 2), batch(3)], {}),
        ([batch(4)], {"row_marker": "upsert"}),
        ([batch(3)], {"row_marker": "delete"}),
    ):
        rows = sink.write(f"{ABFSS}/{LANDING_ZONE}", table, batches, format=form, key_columns=["id"], **more)
        assert rows == sum(each.num_rows for each in batches)


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_plain_files_are_published_by_a_rename(form):
    assert AbfssSink().write(f"{ABFSS}/{ITEM}/Files/exports-{form}", "orders", [batch(1, 2)], format=form) == 2
    written = FOLDER.parent / f"exports-{form}"
    assert [path.suffix for path in written.rglob("*") if path.is_file()] == [f".{form}"]
