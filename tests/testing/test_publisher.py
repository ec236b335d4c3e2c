from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle_text import read_text

from mirror_engine.landing_zone.csv_dialect import TextDialect
from mirror_engine.publisher.landing_zone_writer import Publisher, encoded_rows

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(tmp_path)


def names(publisher: Publisher) -> list[str]:
    files = (path for path in publisher.zone.rglob("*") if path.is_file())
    return sorted(path.relative_to(publisher.zone).as_posix() for path in files)


def test_files_are_numbered_one_by_one_and_no_temporary_name_is_left(publisher: Publisher) -> None:
    orders = publisher.table("Sales.Orders", keys=["id"])
    orders.load({"id": 1})
    assert orders.insert({"id": 2}) == "Sales.schema/Orders/00000000000000000002.parquet"
    orders.skip(2)
    orders.delete({"id": 1})
    numbers = (1, 2, 5)
    files = [f"Sales.schema/Orders/{number:020d}.parquet" for number in numbers]
    assert names(publisher) == [*files, "Sales.schema/Orders/_metadata.json"]


def test_a_partition_has_its_own_numbers(publisher: Publisher) -> None:
    visits = publisher.table("Visits", partitioned=True)
    visits.load({"id": 1}, partition="day=1")
    assert visits.load({"id": 2}, partition="day=2") == "Visits/day=2/00000000000000000001.parquet"


def test_changes_carry_their_marker_in_the_last_column(publisher: Publisher) -> None:
    orders = publisher.table("Orders", keys=["id"], types={"id": pa.int32(), "note": pa.string()})
    path = orders.change((0, {"id": 1, "note": "a"}), (2, {"id": 1}))
    table = pq.read_table(publisher.zone / path)
    assert table.column_names == ["id", "note", "__rowMarker__"]
    assert table.to_pylist()[1] == {"id": 1, "note": None, "__rowMarker__": 2}


def test_metadata_says_what_the_options_say(publisher: Publisher) -> None:
    columns = [{"Name": "id", "DataType": "Int32"}]
    options = {"ColumnSeparator": ";"}
    publisher.table("T", keys=["id"], file_format="CSV", columns=columns, text_options=options, extra={"owner": "x"})
    assert json.loads((publisher.zone / "T/_metadata.json").read_text("utf-8")) == {
        "keyColumns": ["id"],
        "FileFormat": "CSV",
        "SchemaDefinition": {"Columns": columns},
        "FileFormatTypeProperties": options,
        "owner": "x",
    }


def test_a_time_and_a_name_may_be_given(publisher: Publisher) -> None:
    orders = publisher.table("Orders", strategy="LastUpdateTimeFileDetection")
    path = orders.load({"id": 1}, name="a.parquet", modified_ns=1_700_000_000_000_000_001)
    assert path == "Orders/a.parquet"
    assert (publisher.zone / path).stat().st_mtime_ns == 1_700_000_000_000_000_001


def test_landing_makes_a_new_file_and_writing_in_place_does_not(publisher: Publisher) -> None:
    publisher.put("Orders/a", b"long content")
    with (publisher.zone / "Orders/a").open("rb") as kept:  # an open file keeps its number from being used again
        first = os.fstat(kept.fileno()).st_ino
        publisher.write_in_place("Orders/a", b"b")
        assert (publisher.zone / "Orders/a").stat().st_ino == first
        assert (publisher.zone / "Orders/a").read_bytes() == b"b"
        publisher.put("Orders/a", b"c")
        assert (publisher.zone / "Orders/a").stat().st_ino != first


def test_a_dropped_folder_numbers_anew(publisher: Publisher) -> None:
    orders = publisher.table("Orders")
    orders.load({"id": 1})
    orders.drop()
    assert names(publisher) == []
    assert orders.load({"id": 1}).endswith("1.parquet")


@given(st.lists(st.tuples(st.text(max_size=9) | st.none(), st.integers(0, 9) | st.none()), max_size=4))
def test_text_written_is_the_text_read(rows: list[tuple[str | None, int | None]]) -> None:
    declared = [
        {"Name": name, "DataType": kind, "IsNullable": True} for name, kind in (("a,", "String"), ("n", "Int32"))
    ]
    written = [{"a,": text, "n": number} for text, number in rows]
    _, read = read_text(encoded_rows(["a,", "n"], written, TextDialect()), declared)
    assert read == written
