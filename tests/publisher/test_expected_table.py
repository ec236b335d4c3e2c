"""Expected tables in CSV, Parquet and JSON, read as the types of the table."""

from __future__ import annotations

import json
import re
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirror_engine.errors import UsageError
from mirror_engine.monitoring.words import plain
from mirror_engine.publisher.diff import read_expected

SCHEMA = pa.schema(
    [
        ("Id", pa.int64()),
        ("Tiny", pa.int8()),
        ("Name", pa.string()),
        ("Price", pa.decimal128(10, 2)),
        ("Weight", pa.float32()),
        ("Ratio", pa.float64()),
        ("Sold", pa.bool_()),
        ("On", pa.date32()),
        ("At", pa.timestamp("us", "UTC")),
        ("Local", pa.timestamp("us")),
        ("Photo", pa.binary()),
    ]
)
ROW: dict[str, Any] = {
    "Id": 7,
    "Tiny": -8,
    "Name": 'Bo"lt, \\"long\\"\nnew',
    "Price": Decimal("12.50"),
    "Weight": 0.10000000149011612,
    "Ratio": 0.1,
    "Sold": True,
    "On": date(2026, 11, 2),
    "At": datetime(2026, 11, 2, 8, 15, 29, 500000, tzinfo=timezone.utc),
    "Local": datetime(2026, 11, 2, 8, 15, 29),  # noqa: DTZ001 - naive is the point
    "Photo": b"\x00\xff",
}
NULLS = dict.fromkeys(ROW)
TABLE = pa.Table.from_pylist([ROW, NULLS], SCHEMA)
CSV = """\ufeffID,Tiny,Name,Price,Weight,Ratio,Sold,On,At,Local,Photo
7,-8,"Bo""lt, \\""long\\""
new",12.5,0.1,0.1,TRUE,2026-11-02,2026-11-02T09:15:29.5+01:00,2026-11-02 08:15:29,AP8=
,,,,,,,,,,
"""


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_csv_is_read_as_the_types_of_the_table(tmp_path) -> None:
    assert read_expected(written(tmp_path, "expected.csv", CSV), SCHEMA).equals(TABLE)


def test_a_quoted_empty_field_is_empty_text_and_an_empty_one_null(tmp_path) -> None:
    path = written(tmp_path, "expected.csv", 'Id,Name\r\n1,""\r\n"",\r\n')
    assert read_expected(path, SCHEMA).to_pylist() == [{"Id": 1, "Name": ""}, {"Id": None, "Name": None}]


def test_the_json_of_show_is_an_expected_table(tmp_path) -> None:
    rows = [{name: plain(value) for name, value in row.items()} for row in TABLE.to_pylist()]
    for name, content in {
        "show.json": json.dumps({"table": "Items", "rows": rows}),
        "rows.JSON": json.dumps(rows, indent=1),
        "rows.jsonl": "\n".join(map(json.dumps, rows)),
        "rows.ndjson": "\ufeff" + "\n\n".join(map(json.dumps, rows)) + "\n",
    }.items():
        assert read_expected(written(tmp_path, name, content), SCHEMA).equals(TABLE)


def test_empty_binary_is_no_null(tmp_path) -> None:
    rows = [{"Id": 1, "Photo": b"A"}, {"Id": 2, "Photo": b""}, {"Id": 3, "Photo": None}]
    shown = json.dumps([{name: plain(value) for name, value in row.items()} for row in rows])
    assert read_expected(written(tmp_path, "show.json", shown), SCHEMA).to_pylist() == rows
    assert read_expected(written(tmp_path, "a.csv", 'Id,Photo\n1,QQ==\n2,""\n3,\n'), SCHEMA).to_pylist() == rows


def test_json_lines_may_hold_any_character(tmp_path) -> None:
    names = [f"a{character}b" for character in "\u2028\u2029\x85"] + ["x"]
    for ends in ("\n", "\r\n"):
        content = "".join(json.dumps({"Name": name}, ensure_ascii=False) + ends for name in names)
        assert read_expected(written(tmp_path, "a.jsonl", content), SCHEMA)["Name"].to_pylist() == names


def test_an_empty_line_of_a_one_column_csv_is_a_null(tmp_path) -> None:
    for content, rows in (("Name\n\na\n", [None, "a"]), ('Name\n""\na\n\n', ["", "a", None])):
        for text in (content, content.replace("\n", "\r\n")):
            assert read_expected(written(tmp_path, "a.csv", text), SCHEMA)["Name"].to_pylist() == rows
    assert read_expected(written(tmp_path, "a.csv", "Id,Name\n\n1,a\n"), SCHEMA).num_rows == 1


def test_a_header_needs_no_line_end(tmp_path) -> None:
    for content in ("Id,Name", "\ufeffId,Name"):
        read = read_expected(written(tmp_path, "a.csv", content), SCHEMA)
        assert (read.schema.names, read.num_rows) == (["Id", "Name"], 0)
    assert read_expected(written(tmp_path, "a.csv", "Id"), SCHEMA).num_rows == 0


def test_json_numbers_are_exact(tmp_path) -> None:
    path = written(
        tmp_path, "a.json", '[{"Id": 9223372036854775807, "Price": 12345678.91, "Ratio": 1e-7, "Sold": false}]'
    )
    assert read_expected(path, SCHEMA).to_pylist() == [
        {"Id": 2**63 - 1, "Price": Decimal("12345678.91"), "Ratio": 1e-7, "Sold": False}
    ]


def test_nan_and_infinities_have_names(tmp_path) -> None:
    path = written(tmp_path, "a.json", '[{"Ratio": NaN}, {"Ratio": "Infinity"}, {"Ratio": -Infinity}]')
    assert str(read_expected(path, SCHEMA)["Ratio"].to_pylist()) == "[nan, inf, -inf]"


def test_a_member_that_a_json_row_lacks_is_null(tmp_path) -> None:
    path = written(tmp_path, "a.json", '[{"Id": 1}, {"Name": "a"}]')
    assert read_expected(path, SCHEMA).to_pylist() == [{"Id": 1, "Name": None}, {"Id": None, "Name": "a"}]


def test_no_rows_at_all_have_the_columns_of_the_table(tmp_path) -> None:
    assert read_expected(written(tmp_path, "a.json", "[]"), SCHEMA).schema.names == SCHEMA.names
    assert read_expected(written(tmp_path, "a.csv", "Id,Name\n"), SCHEMA).num_rows == 0


def test_parquet_is_cast_where_values_keep_their_meaning(tmp_path) -> None:
    table = pa.table(
        {
            "id": pa.array([7], pa.int32()),
            "Name": pa.array(["a"]).dictionary_encode(),
            "Price": pa.array([1.5], pa.float64()),
            "At": pa.array([0], pa.timestamp("ns")),
            "Photo": pa.nulls(1),
            "Else": pa.array([[1]]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    read = read_expected(tmp_path / "a.parquet", SCHEMA)
    assert read.schema.names == ["Id", "Name", "Price", "At", "Photo", "Else"]
    assert [read.schema.field(name).type for name in read.schema.names[:5]] == [
        SCHEMA.field(name).type for name in read.schema.names[:5]
    ]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint64()])
def test_parquet_integers_become_decimals(tmp_path, kind) -> None:
    pq.write_table(pa.table({"Price": pa.array([1, None], kind)}), tmp_path / "a.parquet")
    assert read_expected(tmp_path / "a.parquet", SCHEMA)["Price"].to_pylist() == [Decimal("1.00"), None]
    fine = pa.schema([("Price", pa.decimal128(38, 37))])
    assert read_expected(tmp_path / "a.parquet", fine)["Price"].to_pylist() == [1, None]
    narrow = pa.schema([("Price", pa.decimal128(38, 38))])
    with pytest.raises(UsageError, match="column Price is"):
        read_expected(tmp_path / "a.parquet", narrow)


def test_a_column_the_table_lacks_is_kept_as_text(tmp_path) -> None:
    path = written(tmp_path, "a.csv", "Id,Size\n1,XL\n")
    assert read_expected(path, SCHEMA).to_pylist() == [{"Id": 1, "Size": "XL"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", "", r"a\.xlsx: unknown format of an expected table"),
        ("a.csv", "", "not CSV in UTF-8 with a header"),
        ("a.csv", b"Id,Name\n1,\xff\n", "not CSV in UTF-8"),
        ("a.csv", b"I\xff,Name\n1,x\n", "not CSV in UTF-8"),
        ("a.csv", b"Id,Name\n1,x,\xff\n", "not CSV in UTF-8"),
        ("a.csv", "Id,Name\n1,secret,2\n", "line 2: 3 fields for 2"),
        ("a.csv", "Id;Ratio\n7;0,5\n", "line 2: 2 fields for 1"),
        ("a.csv", "Id,ID\n1,2\n", "column Id is there twice"),
        ("a.json", "[", "not JSON"),
        ("a.json", b"\xff", "not JSON"),
        ("a.json", "[" * 100_000, "not JSON"),
        ("a.json", '[{"Id": 1e9999999999999999999}]', "not JSON"),
        ("a.json", "[1]", "rows are not objects"),
        ("a.json", '[{"Name": 7}]', "row 1: column Name is not string"),
        ("a.json", '[{"Id": {"secret": 1}}]', "row 1: column Id is not long"),
        ("a.json", '[{"Id": 1.5}]', "row 1: column Id is not long"),
        ("a.json", '[{"Name": "\\ud800"}]', "half of a surrogate pair"),
        ("a.json", '[{"\\ud800": 1}]', "half of a surrogate pair"),
        ("a.parquet", "secret", "not a Parquet file"),
    ],
)
def test_a_file_that_cannot_be_read_is_reported_without_a_value(tmp_path, name, content, message) -> None:
    with pytest.raises(UsageError, match=message) as error:
        read_expected(written(tmp_path, name, content), SCHEMA)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("column", "value", "kind", "help_text"),
    [
        ("Id", "secret", "long", "a point"),
        ("Tiny", "300", "byte", "a point"),
        ("Id", "0x10", "long", "a point"),
        ("Ratio", "1e400", "double", "a point"),
        ("Sold", "1", "boolean", "true or false"),
        ("Ratio", "1,2", "double", "a point"),
        ("Price", "secret", r"decimal\(10,2\)", "a point"),
        ("Price", "1.234", r"decimal\(10,2\)", "a point"),
        ("At", "1,2", "timestamp", "ISO 8601: 2026-03-28T08:15:29Z"),
        ("Local", "1,2", "timestamp_ntz", "ISO 8601: 2026-03-28T08:15:29Z"),
        ("On", "1,2", "date", "2026-03-28."),
        ("Sold", "1,2", "boolean", "true or false"),
        ("Photo", "1,2", "binary", "Base64"),
    ],
)
def test_a_value_of_another_type_is_reported_by_row_with_the_right_form(
    tmp_path, column, value, kind, help_text
) -> None:
    with pytest.raises(UsageError, match=rf"row 2: column {column} is not {kind}\n") as error:
        read_expected(written(tmp_path, "a.csv", f'{column},Name\n,x\n"{value}",x\n'), SCHEMA)
    assert help_text in error.value.help
    assert value not in str(error.value).removeprefix(str(tmp_path)).replace("row 2", "")


def test_an_absent_file_is_reported(tmp_path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_expected(tmp_path / "none.csv", SCHEMA)


@pytest.mark.parametrize(
    "column", [pa.array(["7"]), pa.array([0], pa.timestamp("us", "UTC")), pa.array([2**40]).cast(pa.float64())]
)
def test_parquet_of_another_type_is_rejected(tmp_path, column) -> None:
    name = "Tiny" if pa.types.is_floating(column.type) else "Id"
    pq.write_table(pa.table({name: column}), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match=re.escape(f"column {name} is {column.type}")):
        read_expected(tmp_path / "a.parquet", SCHEMA)
