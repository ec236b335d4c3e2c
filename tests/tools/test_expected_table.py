"""Expected tables in CSV, Parquet and JSON, read as the types of the table."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirror_engine.display import plain
from mirror_engine.errors import UsageError
from mirror_engine.tools.diff import read_expected

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
ROW = {
    "Id": 7,
    "Tiny": -8,
    "Name": 'Bo"lt, \\"long\\"\nnew',
    "Price": Decimal("12.50"),
    "Weight": 0.10000000149011612,
    "Ratio": 0.1,
    "Sold": True,
    "On": date(2026, 11, 2),
    "At": datetime(2026, 11, 2, 8, 15, 29, 500000, tzinfo=UTC),
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


def test_csv_is_read_as_the_types_of_the_table(tmp_path):
    assert read_expected(written(tmp_path, "expected.csv", CSV), SCHEMA).equals(TABLE)


def test_the_json_of_show_is_an_expected_table(tmp_path):
    rows = [{name: plain(value) for name, value in row.items()} for row in TABLE.to_pylist()]
    for name, content in {
        "show.json": json.dumps({"table": "Items", "rows": rows}),
        "rows.JSON": json.dumps(rows, indent=1),
        "rows.jsonl": "\n".join(map(json.dumps, rows)),
        "rows.ndjson": "\ufeff" + "\n\n".join(map(json.dumps, rows)) + "\n",
    }.items():
        assert read_expected(written(tmp_path, name, content), SCHEMA).equals(TABLE)


ODD = [{"Name": f"a{character}b"} for character in "\u2028\u2029\x85"]
PHOTOS = [{"Id": 1, "Photo": b"A"}, {"Id": 2, "Photo": b""}, {"Id": 3, "Photo": None}]


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("a.csv", 'Id,Name\r\n1,""\r\n"",\r\n', [{"Id": 1, "Name": ""}, {"Id": None, "Name": None}]),
        ("a.csv", 'Id,Photo\n1,QQ==\n2,""\n3,\n', PHOTOS),
        ("a.json", json.dumps([{name: plain(value) for name, value in row.items()} for row in PHOTOS]), PHOTOS),
        ("a.csv", 'Name\n\n""\na\n', [{"Name": ""}, {"Name": "a"}]),
        ("a.csv", "Id,Name\n\n1,a\n", [{"Id": 1, "Name": "a"}]),
        ("a.csv", "Id,Name\r1,a\r", [{"Id": 1, "Name": "a"}]),
        ("a.csv", "Id,Size\n1,XL\n", [{"Id": 1, "Size": "XL"}]),
        ("a.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ODD), ODD),
        ("a.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in ODD), ODD),
        ("a.json", '[{"Id": 1}, {"Name": "a"}]', [{"Id": 1, "Name": None}, {"Id": None, "Name": "a"}]),
        (
            "a.json",
            '[{"Id": 9223372036854775807, "Price": 12345678.91, "Ratio": 1e-7, "Sold": false}]',
            [{"Id": 2**63 - 1, "Price": Decimal("12345678.91"), "Ratio": 1e-7, "Sold": False}],
        ),
    ],
)
def test_text_is_read_to_the_letter(tmp_path, name, content, rows):
    assert read_expected(written(tmp_path, name, content), SCHEMA).to_pylist() == rows


def test_nan_and_infinities_have_names(tmp_path):
    path = written(tmp_path, "a.json", '[{"Ratio": NaN}, {"Ratio": "Infinity"}, {"Ratio": -Infinity}]')
    assert str(read_expected(path, SCHEMA)["Ratio"].to_pylist()) == "[nan, inf, -inf]"


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.json", "[]", SCHEMA.names),
        ("a.csv", "Id,Name\n", ["Id", "Name"]),
        ("a.csv", "Id,Name", ["Id", "Name"]),
        ("a.csv", "\ufeffId,Name", ["Id", "Name"]),
        ("a.csv", "Id", ["Id"]),
    ],
)
def test_a_table_without_rows_has_columns(tmp_path, name, content, columns):
    read = read_expected(written(tmp_path, name, content), SCHEMA)
    assert (read.schema.names, read.num_rows) == (columns, 0)


def test_parquet_is_cast_where_values_keep_their_meaning(tmp_path):
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
    assert all(read.schema.field(name) == SCHEMA.field(name) for name in read.schema.names[:5])
    with pytest.raises(UsageError, match="no such file"):
        read_expected(tmp_path / "b.parquet", SCHEMA)


def test_parquet_columns_that_the_table_lacks_are_not_read(tmp_path):
    path = tmp_path / "keys.parquet"
    pq.write_table(pa.table({"NAME": ["a"], "Price": [b"no price"], "Other": [1]}), path)
    names = pa.schema([SCHEMA.field("Name")])
    assert read_expected(path, names, known_only=True).to_pylist() == [{"Name": "a"}]
    assert read_expected(path, names).column_names == ["Name", "Price", "Other"]
    assert read_expected(path, pa.schema([("Id", pa.int64())]), known_only=True).num_columns == 0
    assert read_expected(written(tmp_path, "keys.csv", "x,name\n1,a\n"), names, known_only=True).to_pylist() == [
        {"Name": "a"}
    ]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint64()])
def test_parquet_integers_become_decimals(tmp_path, kind):
    pq.write_table(pa.table({"Price": pa.array([1, None], kind)}), tmp_path / "a.parquet")
    assert read_expected(tmp_path / "a.parquet", SCHEMA)["Price"].to_pylist() == [Decimal("1.00"), None]
    fine = pa.schema([("Price", pa.decimal128(38, 37))])
    assert read_expected(tmp_path / "a.parquet", fine)["Price"].to_pylist() == [1, None]
    narrow = pa.schema([("Price", pa.decimal128(38, 38))])
    with pytest.raises(UsageError, match="column Price is"):
        read_expected(tmp_path / "a.parquet", narrow)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", "", r"a\.xlsx: unknown format of an expected table"),
        ("a.csv", "", "there is no header"),
        ("a.csv", b"Id,Name\n1,\xff\n", "row 1: bytes that are not utf-8, the default `Encoding`"),
        ("a.csv", b"I\xff,Name\n1,x\n", "header: bytes that are not"),
        ("a.csv", "Id,Name\n1,secret,2\n", "row 1: 3 fields, the header has 2"),
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
def test_a_file_that_cannot_be_read_is_reported_without_a_value(tmp_path, name, content, message):
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
def test_a_value_of_another_type_is_reported_by_row_with_the_right_form(tmp_path, column, value, kind, help_text):
    with pytest.raises(UsageError, match=rf"row 2: column {column} is not {kind}\n") as error:
        read_expected(written(tmp_path, "a.csv", f'{column},Name\n,x\n"{value}",x\n'), SCHEMA)
    assert help_text in error.value.help
    assert value not in str(error.value).removeprefix(str(tmp_path)).replace("row 2", "")


@pytest.mark.parametrize(
    "column", [pa.array(["7"]), pa.array([0], pa.timestamp("us", "UTC")), pa.array([2**40]).cast(pa.float64())]
)
def test_parquet_of_another_type_is_rejected(tmp_path, column):
    name = "Tiny" if pa.types.is_floating(column.type) else "Id"
    pq.write_table(pa.table({name: column}), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match=re.escape(f"column {name} is {column.type}")):
        read_expected(tmp_path / "a.parquet", SCHEMA)
