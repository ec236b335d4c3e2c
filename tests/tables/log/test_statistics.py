from __future__ import annotations

import io
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirror_engine.landing_zone.schema import Column
from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.log.statistics import statistics_of

LONG = "Donaudampfschifffahrtsgesellschaft"  # two characters more than statistics hold
DAY_US = 86_400_000_000
LAST_US = 253_402_300_800_000_000 - 1  # of year 9999


def said_of(word, *groups, **options):
    """The statistics of a file with one column, one row group for each list."""
    content = io.BytesIO()
    schema = pa.schema([("c", arrow_type(word))])
    with pq.ParquetWriter(content, schema, **options) as writer:
        for group in groups:
            writer.write_table(pa.table({"c": pa.array(group, schema.field(0).type)}))
    return dict(json.loads(statistics_of(pq.read_metadata(content), [Column("c", word)])))


def bounds(word, *groups):
    said = said_of(word, *groups)
    return said["minValues"].get("c"), said["maxValues"].get("c")


@pytest.mark.parametrize(
    ("word", "values", "expected"),
    [
        ("byte", [3, -128, None], (-128, 3)),
        ("short", [3, -32768], (-32768, 3)),
        ("integer", [-1, 1], (-1, 1)),
        ("long", [-(2**63), 2**63 - 1], (-(2**63), 2**63 - 1)),
        ("date", [-1, 0], ("1969-12-31", "1970-01-01")),
        ("date", [-719_163, 2_932_897], (None, None)),
        ("timestamp", [-1, 1], ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.001Z")),
        ("timestamp", [5_000, 5_000], ("1970-01-01T00:00:00.005Z", "1970-01-01T00:00:00.005Z")),
        ("timestamp", [LAST_US - DAY_US, LAST_US], ("9999-12-30T23:59:59.999Z", None)),
        ("timestamp_ntz", [-62_135_596_800_000_000, 1], ("0001-01-01T00:00:00.000", "1970-01-01T00:00:00.001")),
        ("decimal(5,2)", [Decimal("-1.50"), Decimal("999.99")], (-1.5, 999.99)),
        ("decimal(38,0)", [Decimal(10**15), Decimal(10**15 - 1)], (10**15 - 1, None)),
        ("string", ["", "b"], ("", "b")),
        ("string", [LONG, LONG], (LONG[:32], LONG[:32] + "\ufffd")),
        ("string", [LONG[:32], LONG[:32]], (LONG[:32], LONG[:32])),
        ("string", ["x" * 32 + "\ufffd"], ("x" * 32, "x" * 32 + "\U0010ffff")),
        ("string", ["x" * 32 + "\U0010ffff" + "ab"], ("x" * 32, "x" * 32 + "\U0010ffff" + "\ufffd")),
        ("string", ["\U0010ffff" * 40], ("\U0010ffff" * 32, "\U0010ffff" * 40)),
        ("double", [1.0, 2.0], (None, None)),
        ("float", [float("nan"), -0.0], (None, None)),
        ("boolean", [True, False], (None, None)),
        ("binary", [b"a"], (None, None)),
        ("integer", [None, None], (None, None)),
    ],
)
def test_bounds_hold_every_value_as_delta_orders_and_spells_them(word, values, expected):
    assert bounds(word, values) == expected


def test_a_file_is_bounded_by_all_of_its_row_groups():
    assert bounds("integer", [5], [None], [1, 9], []) == (1, 9)
    assert said_of("integer", [5], [None], [1, 9], [])["nullCount"] == {"c": 1}


@pytest.mark.parametrize(
    ("cells", "asked", "options"),
    [
        (pa.array([5], pa.int32()), Column("c", "integer"), {"write_statistics": False}),
        (pa.array([5], pa.int32()), Column("absent", "integer"), {}),
        (pa.array([b"\xff"]), Column("c", "string"), {}),
    ],
    ids=["none in the file", "no such column", "no text"],
)
def test_nothing_is_stated_that_is_not_known(cells, asked, options):
    content = io.BytesIO()
    pq.write_table(pa.table({"c": cells}), content, **options)
    said = json.loads(statistics_of(pq.read_metadata(content), [asked]))
    assert (said["numRecords"], said["minValues"], said["maxValues"]) == (1, {}, {})
    assert said["nullCount"] == ({"c": 0} if asked.type == "string" else {})
