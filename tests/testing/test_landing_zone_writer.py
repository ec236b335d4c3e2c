"""What a correct publisher writes: names, numbers, metadata, rows."""

from __future__ import annotations

import json
import os
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle_text import read_text

from mirror_engine.landing_zone.csv_dialect import TextDialect
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter, encoded_rows


def names(publisher):
    files = (path for path in publisher.path.rglob("*") if path.is_file())
    return sorted(path.relative_to(publisher.path).as_posix() for path in files)


def test_files_are_numbered_one_by_one_and_no_temporary_name_is_left(publisher):
    orders = publisher.table("Sales.Orders", partitioned=True)
    for number in (1, 2):
        path = f"Sales.schema/Orders/day=1/{number:020d}.parquet"
        assert orders.initial_load({"id": 1}, partition="day=1") == path
    orders.skip_numbers(2, "day=1")
    assert orders.insert({"id": 2}, partition="day=1").endswith("5.parquet")
    assert orders.insert({"id": 2}, partition="day=2").endswith("1.parquet")
    files = [f"day={day}/{number:020d}.parquet" for day, number in ((1, 1), (1, 2), (1, 5), (2, 1))]
    assert names(publisher) == [f"Sales.schema/Orders/{name}" for name in ("_metadata.json", *files)]
    orders.drop()
    assert names(publisher) == []
    assert orders.initial_load({"id": 1}, partition="day=1").endswith("1.parquet")


def test_a_file_has_the_columns_the_name_and_the_time_asked_for(publisher):
    orders = publisher.table("Orders", keys=["id"], types={"id": pa.int32(), "note": pa.string()})
    changes = (0, {"id": 1, "note": "a"}), (2, {"id": 1})
    path = orders.apply_changes(*changes, name="a.parquet", modified_ns=1_700_000_000_000_000_001)
    assert path == "Orders/a.parquet"
    assert (publisher.path / path).stat().st_mtime_ns == 1_700_000_000_000_000_001
    table = pq.read_table(publisher.path / path)
    assert table.column_names == ["id", "note", "__rowMarker__"]
    assert table.to_pylist()[1] == {"id": 1, "note": None, "__rowMarker__": 2}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda writer: writer.table("Orders", key=["id"]), "'key': did you mean keys?"),
        (lambda writer: writer.table("Orders", upsert=True), "'upsert': did you mean upsert_default?"),
        (lambda writer: writer.folder("Orders").write_metadata(owner="x"), "'owner': known are keys, types, strategy"),
        (lambda writer: writer.folder("Orders").insert({"id": 1}, names="a.csv"), "'names': did you mean name?"),
    ],
)
def test_an_unknown_option_is_refused(publisher, call, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        call(publisher)
    assert names(publisher) == []


def test_metadata_holds_the_options_and_rows_are_written_so(publisher):
    columns = [{"Name": "id", "DataType": "Int32"}]
    options = {"ColumnSeparator": "tab", "RowSeparator": "\\n"}
    table = publisher.table(
        "T", keys=["id"], file_format="CSV", columns=columns, text_options=options, extra={"owner": "x"}
    )
    assert json.loads((publisher.path / "T/_metadata.json").read_text("utf-8")) == {
        "keyColumns": ["id"],
        "FileFormat": "CSV",
        "SchemaDefinition": {"Columns": columns},
        "FileFormatTypeProperties": options,
        "owner": "x",
    }
    path = table.insert({"id": 1})
    assert (publisher.path / path).read_bytes() == b"id\t__rowMarker__\n1\t0\n"  # separators as Fabric reads them


def test_put_makes_a_new_file_and_write_in_place_does_not(publisher):
    publisher.put("Orders/a", b"long content")
    with (publisher.path / "Orders/a").open("rb") as kept:  # so that its inode number is not used again
        first = os.fstat(kept.fileno()).st_ino
        publisher.write_in_place("Orders/a", b"b")
        assert (publisher.path / "Orders/a").stat().st_ino == first
        assert (publisher.path / "Orders/a").read_bytes() == b"b"
        publisher.put("Orders/a", b"c")
        assert (publisher.path / "Orders/a").stat().st_ino != first


@given(st.lists(st.tuples(st.text(max_size=9) | st.none(), st.integers(0, 9) | st.none()), max_size=4))
def test_text_written_is_the_text_read(rows):
    declared = [
        {"Name": name, "DataType": kind, "IsNullable": True} for name, kind in (("a,", "String"), ("n", "Int32"))
    ]
    written = [{"a,": text, "n": number} for text, number in rows]
    _, read = read_text(encoded_rows(["a,", "n"], written, TextDialect()), declared)
    assert read == written


def test_reopened_writer_goes_on_after_the_newest_change_file(tmp_path):
    """LZ-3.5: the engine ignores temporary files, and files of another extension wait for nothing."""
    table = LandingZoneWriter(tmp_path).table("Orders", keys=["id"])
    for name in (f"{1:020d}.PARQUET", f"{9:020d}.parquet.tmp", f"{50:020d}.csv"):
        table.put(name, b"")
    assert LandingZoneWriter(tmp_path).table("Orders", keys=["id"]).next_name() == f"{2:020d}.parquet"
    for folder, number in (("_FilesReadyToDelete", 7), ("_ProcessedFiles/year=2026", 9)):
        table.put(f"{folder}/{number:020d}.parquet", b"")
    again = LandingZoneWriter(tmp_path).table("Orders", keys=["id"])
    assert (again.next_name(), again.next_name("year=2026")) == (f"{8:020d}.parquet", f"{10:020d}.parquet")
    table.put(f"year=2026/{10:020d}.parquet", b"")
    again = LandingZoneWriter(tmp_path).table("Orders", keys=["id"])
    again.skip_numbers(2, "year=2026")
    assert again.insert({"id": 2}, partition="year=2026") == f"Orders/year=2026/{13:020d}.parquet"
    assert again.insert({"id": 3}, partition="year=2025") == f"Orders/year=2025/{1:020d}.parquet"
    again.drop()
    assert again.next_name("year=2026") == f"{1:020d}.parquet"
