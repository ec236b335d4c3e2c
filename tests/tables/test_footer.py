"""Files added to a table keep nothing in their footers that nobody checked (LZ-4.19)."""

from __future__ import annotations

import re
from struct import pack

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_protocol import duck
from hypothesis import given, settings
from hypothesis import strategies as st
from seed import by_night
from test_passthrough import PassthroughZone, files_of_every_size, local_writer, rows  # noqa: F401 - a fixture for every test

from mirror_engine import RunResult
from mirror_engine.landing_zone.change import same_rows
from mirror_engine.tables.footer import (
    BINARY,
    COLUMN_ORDERS,
    COLUMNS,
    CONVERTED_TYPE,
    ENCODINGS,
    INTEGER,
    LIST,
    LONG,
    MAX,
    METADATA,
    MIN,
    PATH,
    PLAIN,
    ROW_GROUPS,
    SCHEMA,
    STATISTICS,
    STRUCT,
    TYPE,
    Value,
    plain_footer,
    read_struct,
    written,
)
from mirror_engine.tables.reading.parquet import file_end

UNKEYED = {"keyColumns": []}
# Fields that readers act on, and that nothing checks
FILE_PATH, PAGE_INDEXES, BLOOM_FILTER, PAGE_ENCODINGS, FIELD_ID, SIZE_OF_GROUP = 1, (4, 5, 6, 7), 14, 13, 9, 6
DISTINCT, EXACT = 4, 7
DATA_PAGE, DICTIONARY_PAGE = 0, 2
DICTIONARY, PLAIN_DICTIONARY, DATE = 8, 2, 6


def footer_of(path):
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    return content[-8 - length : -8]


def edited(path, change):
    """A file whose footer is changed in place."""
    old = footer_of(path)
    file = read_struct(old)
    change(file)
    new = written(file)
    path.write_bytes(path.read_bytes()[: -8 - len(old)] + file_end(new))


def chunks(file):
    return [chunk for group in file[ROW_GROUPS].data for chunk in group[COLUMNS].data]


def added(zone):
    """The data file that a landed file becomes, which is added unchanged."""
    assert zone.sync() is RunResult.CAUGHT_UP
    assert set(zone.ways().values()) == {"passthrough"}
    [file] = (zone.root / "Tables/dbo/T").glob("*.parquet")
    return file


@pytest.fixture
def unkeyed(tmp_path):
    return PassthroughZone(tmp_path, local_writer(tmp_path), UNKEYED)


def say_more(file):
    """Whatever a writer may say beyond what Arrow reads."""
    for group in file[ROW_GROUPS].data:
        group[4] = Value(LIST, [{1: Value(INTEGER, 0), 2: Value(1, True), 3: Value(1, True)}], STRUCT)
        group[SIZE_OF_GROUP] = Value(LONG, 1 << 40)
    for chunk in chunks(file):
        chunk[FILE_PATH] = Value(BINARY, b"elsewhere.parquet")
        chunk[METADATA].data[8] = Value(LIST, [{1: Value(BINARY, b"k"), 2: Value(BINARY, b"v")}], STRUCT)
        chunk[METADATA].data[STATISTICS].data.update({DISTINCT: Value(LONG, 1), EXACT: Value(1, True)})
    for element in file[SCHEMA].data[1:]:
        element[FIELD_ID] = Value(INTEGER, 7)
    file[5].data.append({1: Value(BINARY, b"org.apache.spark.version"), 2: Value(BINARY, b"4.0.0")})


def test_page_index_bloom_filter_and_arrow_schema_are_left_behind(unkeyed):
    path = unkeyed.land(rows(0, 50), store_schema=True, write_page_index=True, row_group_size=20)
    edited(path, say_more)
    landed = read_struct(footer_of(path))
    plain = added(unkeyed)
    file = read_struct(footer_of(plain))
    assert file.keys() == {1, 2, 3, 4, 5, 6, 7}
    assert [pair[1].data for pair in file[5].data] == [b"org.apache.spark.version"]
    assert {number for group in file[ROW_GROUPS].data for number in group} == {1, 2, 3}
    assert {number for chunk in chunks(file) for number in chunk} == {2, METADATA}
    assert {number for chunk in chunks(file) for number in chunk[METADATA].data} <= {1, 2, 3, 4, 5, 6, 7, 9, 11, 12}
    assert {n for chunk in chunks(file) for n in chunk[METADATA].data[STATISTICS].data} <= {3, MAX, MIN}
    assert {number for element in file[SCHEMA].data for number in element} <= {1, 2, 3, 4, 5, 6, 7, 8, 10}
    assert {*PAGE_INDEXES} <= {number for chunk in chunks(landed) for number in chunk}, "the landed file had them"
    assert same_rows(pq.read_table(plain).to_pylist(), rows(0, 50).to_pylist())


def test_bloom_filters_of_duckdb_are_left_behind(unkeyed):
    path = unkeyed.folder / f"{1:020}.parquet"
    duck().from_arrow(pa.table({"id": range(5000), "k": [float(n % 50) for n in range(5000)]})).write_parquet(str(path))
    assert any(BLOOM_FILTER in chunk[METADATA].data for chunk in chunks(read_struct(footer_of(path))))
    assert not any(BLOOM_FILTER in chunk[METADATA].data for chunk in chunks(read_struct(footer_of(added(unkeyed)))))


STORED = {
    "duration": (pa.duration("ns"), pa.int64()),
    "date64": (pa.date64(), pa.date32()),
    "zone": (pa.timestamp("us", "+05:30"), pa.timestamp("us", "UTC")),
}


@pytest.mark.parametrize("case", STORED)
def test_arrow_schema_of_another_type_is_not_read_from_the_table(unkeyed, case):
    kind, expected = STORED[case]
    days = pa.array([1, 2, 3], pa.int32()).cast(pa.date32())
    cells = days.cast(kind) if case == "date64" else pa.array([1, 2, 3]).cast(kind)
    unkeyed.land(pa.table({"id": [1, 2, 3], "x": cells}), store_schema=True)
    assert pq.read_schema(added(unkeyed)).field("x").type == expected


def claim_other_bounds(file):
    """Without an order Arrow shows no bounds; Spark goes by them."""
    del file[COLUMN_ORDERS]
    for chunk in chunks(file):
        chunk[METADATA].data[STATISTICS].data[MAX] = Value(BINARY, pack("<q", 5))


def claim_date(file):
    """Spark goes by the converted type where it is not that of the logical type."""
    file[SCHEMA].data[1][CONVERTED_TYPE] = Value(INTEGER, DATE)


def claim_long_chunks(file):
    """Every chunk is said to reach to the end of the last one, so that their sum is more than the file."""
    known = [chunk[METADATA].data for chunk in chunks(file)]
    end = max(each[9].data + each[7].data for each in known)
    for each in known:
        each[7] = Value(LONG, end - each[9].data)


def claim_byte(file):
    """Arrow cuts the numbers off; other readers fail."""
    file[SCHEMA].data[1][10] = Value(STRUCT, {10: Value(STRUCT, {1: Value(3, b"\x08"), 2: Value(1, True)})})
    for chunk in chunks(file):
        del chunk[METADATA].data[STATISTICS]


def swap_first_chunk_to_the_end(file):
    """The group's first column lies behind all others."""
    for group in file[ROW_GROUPS].data:
        group[COLUMNS].data.reverse()
    file[SCHEMA] = file[SCHEMA]._replace(data=[file[SCHEMA].data[0], *file[SCHEMA].data[:0:-1]])


INT32_TYPE = {10: Value(STRUCT, {1: Value(3, b"\x20"), 2: Value(1, True)})}  # INT(32, signed)


def swap_paths(file):
    """Spark would read one column as the other."""
    for group in file[ROW_GROUPS].data:
        first, second = (chunk[METADATA].data for chunk in group[COLUMNS].data[:2])
        first[PATH], second[PATH] = second[PATH], first[PATH]


def claim_unknown_types(file):
    """Arrow ends the process when it is asked for the bounds."""
    for group in file[ROW_GROUPS].data:
        group[COLUMNS].data[1][METADATA].data[TYPE] = Value(INTEGER, 77)


def cut_bounds(file):
    """Arrow ends the process when it is asked for them."""
    for chunk in chunks(file):
        if STATISTICS in chunk[METADATA].data:
            bounds = chunk[METADATA].data[STATISTICS].data
            for which in {MAX, MIN} & bounds.keys():
                bounds[which] = Value(BINARY, bounds[which].data[:-1])


def point_at_another_dictionary(file):
    """DuckDB would read the second column as the first one."""
    for group in file[ROW_GROUPS].data:
        first, second = (chunk[METADATA].data for chunk in group[COLUMNS].data[:2])
        first[11] = Value(LONG, second[9].data)


def claim_fewer_rows(file):
    """DataFusion counts the values of pages, others the footer's rows."""
    file[3] = Value(LONG, sum(group[3].data - 1 for group in file[ROW_GROUPS].data))
    for group in file[ROW_GROUPS].data:
        group[3] = Value(LONG, group[3].data - 1)
        for chunk in group[COLUMNS].data:
            chunk[METADATA].data[5] = Value(LONG, group[3].data)
            chunk[METADATA].data.pop(STATISTICS, None)


def claim_larger_chunks(file):
    for chunk in chunks(file):
        chunk[METADATA].data[7] = Value(LONG, chunk[METADATA].data[7].data + 50)


def claim_two_types(file):
    file[SCHEMA].data[1][10] = Value(STRUCT, {10: INT32_TYPE[10], 1: Value(STRUCT, {})})


def claim_place_of_65_bits(file):
    """Arrow cuts the number off, to the right one."""
    for chunk in chunks(file):
        chunk[METADATA].data[9] = Value(LONG, chunk[METADATA].data[9].data + (1 << 64))


def claim_version_of_33_bits(file):
    """Java's readers add bits beyond 32 to the lowest ones."""
    file[1] = Value(INTEGER, file[1].data + (1 << 32))


def name_no_text(file):
    file[6] = Value(BINARY, b"\xff\xfe")


WITHOUT = "its footer is not understood"
PAGES = "not every reader reads its pages"
PLACES = "readers may not find its row groups"
# what a footer claims, the first column's type, and why the rows are read; None where these cannot be read, either
LIES = [
    (claim_other_bounds, pa.int64(), "holds other values than its footer states"),
    (claim_date, pa.int32(), "the types of column v contradict each other"),
    (claim_byte, pa.int32(), "column v may hold numbers beyond byte"),
    (claim_long_chunks, pa.int64(), PLACES),
    (swap_first_chunk_to_the_end, pa.int64(), PLACES),
    (swap_paths, pa.int64(), WITHOUT),
    (claim_fewer_rows, pa.int64(), PAGES),
    (claim_larger_chunks, pa.int64(), PAGES),
    (point_at_another_dictionary, pa.int64(), PLACES),
    (name_no_text, pa.int64(), WITHOUT),
    (claim_place_of_65_bits, pa.int64(), WITHOUT),
    (claim_version_of_33_bits, pa.int64(), WITHOUT),
    *((lie, pa.int64(), None) for lie in (cut_bounds, claim_two_types, claim_unknown_types)),
]


@pytest.mark.parametrize(("lie", "kind", "reason"), LIES)
def test_false_claim_of_a_footer_sends_the_file_to_the_rows_path(unkeyed, lie, kind, reason):
    draw = np.random.default_rng(1)
    cells = pa.array(draw.integers(0, 1000, 1500)).cast(kind)
    table = pa.table({"v": cells, **{f"w{at}": draw.integers(0, 2**60, 1500) for at in range(4)}})
    path = unkeyed.land(table, use_dictionary=False, compression="none", row_group_size=500)
    if kind == pa.int32():  # pyarrow annotates no int32
        edited(path, lambda file: file[SCHEMA].data[1].update({10: Value(STRUCT, INT32_TYPE)}))
    edited(path, lie)
    if reason is None:  # Arrow sees it first, or its process would end
        with pytest.raises(ValueError, match=r"a chunk is not|not one logical type|not as long as its type"):
            plain_footer(footer_of(path), ())
        assert unkeyed.sync() is RunResult.NEEDS_ATTENTION
        return
    assert unkeyed.sync() is RunResult.CAUGHT_UP
    [way] = unkeyed.ways().values()
    assert reason in way
    if lie not in {claim_byte, claim_fewer_rows}:
        assert same_rows(unkeyed.outcome()["rows"], table.to_pylist())


def page_header(size, values):
    """The header of a page of plain values without NULLs."""
    numbers = lambda *each: {at: Value(INTEGER, number) for at, number in enumerate(each, 1)}  # noqa: E731
    return written({**numbers(DATA_PAGE, 0, size), 5: Value(STRUCT, numbers(values, PLAIN, 3, 3))})


@pytest.mark.parametrize(("size", "values"), [(-len(page_header(-20, 0)), 0), (0, -20)])
def test_page_of_a_negative_size_or_number_is_refused(unkeyed, size, values):
    """It comes after the last value, where Arrow reads no more: there it would be the next page, and the next …"""
    table, header = pa.table({"v": range(60)}), page_header(size, values)
    path = unkeyed.land(table, use_dictionary=False, compression="none", write_statistics=False)
    content, footer = path.read_bytes(), footer_of(path)
    path.write_bytes(content[: -8 - len(footer)] + header + file_end(footer))

    def claim(file):
        [group], [chunk] = file[ROW_GROUPS].data, chunks(file)
        file[3] = group[3] = chunk[METADATA].data[5] = Value(LONG, 60 + values)
        chunk[METADATA].data[7] = Value(LONG, chunk[METADATA].data[7].data + len(header))

    edited(path, claim)
    assert unkeyed.sync() is RunResult.CAUGHT_UP
    assert all(PAGES in way for way in unkeyed.ways().values())
    assert same_rows(unkeyed.outcome()["rows"], table.slice(0, 60 + values).to_pylist())


@pytest.mark.slow
def test_file_whose_pages_are_encoded_in_a_newer_way_takes_the_rows_path(unkeyed):
    """Spark cannot read it; the footer may say otherwise."""
    table = pa.table({"b": [number * 2.5 for number in range(60)]})
    path = unkeyed.land(table, use_dictionary=False, column_encoding={"b": "BYTE_STREAM_SPLIT"})
    edited(
        path, lambda file: [chunk[METADATA].data.update({2: Value(LIST, [0, 3], INTEGER)}) for chunk in chunks(file)]
    )
    unkeyed.sync()
    assert all("not every reader reads its pages" in way for way in unkeyed.ways().values())
    assert same_rows(unkeyed.outcome()["rows"], table.to_pylist())


@pytest.mark.parametrize(
    ("versions", "is_added"),
    [(["3.5.0"], True), (["4.2.0"], True), ([], True), (["3"], False), (["2.4.8"], False), (["3.5.0", "2.4.0"], False)],
)
def test_dates_of_another_calendar_take_the_rows_path(unkeyed, versions, is_added):
    """Spark compares the version as text, and takes the last."""
    pairs = [Value(STRUCT, {1: Value(BINARY, SPARK), 2: Value(BINARY, each.encode())}) for each in versions]
    path = unkeyed.land(pa.table({"a": range(60)}), store_schema=False)
    edited(path, lambda file: file.update({5: Value(LIST, [pair.data for pair in pairs], STRUCT)} if pairs else {}))
    unkeyed.sync()
    assert [way.startswith("passthrough") for way in unkeyed.ways().values()] == [is_added]


SPARK = b"org.apache.spark.version"


def test_one_sided_bound_is_left_behind(unkeyed):
    path = unkeyed.land(pa.table({"v": range(1000)}), use_dictionary=False)

    def lie(file):
        for chunk in chunks(file):
            stated = chunk[METADATA].data[STATISTICS].data
            stated.pop(MIN)
            stated[MAX] = Value(BINARY, pack("<q", 5))

    edited(path, lie)
    stated = (chunk[METADATA].data[STATISTICS].data for chunk in chunks(read_struct(footer_of(added(unkeyed)))))
    assert not any({MIN, MAX} & each.keys() for each in stated)


KINDS = {
    "boolean": pa.array([True, False]),
    "byte": pa.array([-1, 2], pa.int8()),
    "integer": pa.array([-1, 2], pa.int32()),
    "long": pa.array([-1, 2]),
    "float": pa.array([-1, 2], pa.float32()),
    "double": pa.array([-1.5, 2]),
    "decimal": pa.array([-1, 2]).cast(pa.decimal128(25, 2)),
    "string": pa.array(["a", "\U0010ffff"]),
    "binary": pa.array([b"a", b"\xff"]),
    "date": pa.array([-1, 2], pa.int32()).cast(pa.date32()),
    "timestamp": pa.array([-1, 2]).cast(pa.timestamp("us", "UTC")),
}


def test_bounds_of_every_type_are_shown_by_arrow_once_they_have_an_order(tmp_path):
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table(KINDS), path)
    edited(path, lambda file: file.pop(COLUMN_ORDERS))
    edited(path, lambda file: file.update(read_struct(plain_footer(written(file), ()))))
    group = pq.read_metadata(path).row_group(0)
    assert {group.column(at).statistics.has_min_max for at in range(group.num_columns)} == {True}


# ---- Thrift


@settings(max_examples=by_night(25, 100))
@given(st.data())
def test_thrift_comes_back_as_it_was_written(data):
    numbers = st.integers(-(2**63), 2**63 - 1)
    scalars = st.one_of(
        st.builds(lambda n: Value(LONG, n), numbers),
        st.builds(lambda b: Value(BINARY, b), st.binary(max_size=200)),
        st.builds(lambda b: Value(1 if b else 2, b), st.booleans()),
        st.builds(lambda b: Value(3, b), st.binary(min_size=1, max_size=1)),
        st.builds(lambda n: Value(LIST, n, LONG), st.lists(numbers, max_size=40)),
        st.builds(lambda n: Value(LIST, n, 1), st.lists(st.booleans(), max_size=40)),
    )
    numbered = lambda values: st.dictionaries(st.integers(1, 400), values, max_size=6)  # noqa: E731 - a strategy
    structs = st.recursive(
        numbered(scalars),
        lambda inner: numbered(
            st.one_of(
                scalars,
                st.builds(lambda s: Value(STRUCT, s), inner),
                st.builds(lambda s: Value(LIST, s, STRUCT), st.lists(inner, max_size=17)),
            )
        ),
        max_leaves=8,
    )
    struct = data.draw(structs)
    assert read_struct(written(struct)) == struct


@given(st.binary(max_size=60))
def test_bytes_that_are_no_footer_are_refused(content):
    with pytest.raises(ValueError, match=re.compile(".")):
        plain_footer(content, ())


@pytest.mark.parametrize("cut", [0, 1, 5, -1])
def test_cut_footer_is_refused(tmp_path, cut):
    pq.write_table(rows(0, 3), tmp_path / "file.parquet")
    with pytest.raises(ValueError, match=re.compile(".")):
        plain_footer(footer_of(tmp_path / "file.parquet")[:cut], ())


@pytest.mark.parametrize("depth", [10, 60, 100, 5000])
def test_deep_unknown_field_is_left_behind_or_the_file_is_judged_by_its_rows(unkeyed, depth):
    path = unkeyed.land(rows(0, 5))
    deep = Value(STRUCT, {})
    for _ in range(min(depth, 200)):
        deep = Value(STRUCT, {1: deep})
    edited(path, lambda file: file.update({99: deep}))
    if depth > 200:  # deeper than this module writes
        content = path.read_bytes()
        old = footer_of(path)
        new = old.replace(b"\x1c" * 200, b"\x1c" * depth).replace(b"\0" * 200, b"\0" * depth)
        path.write_bytes(content[: -8 - len(old)] + file_end(new))
    result = unkeyed.sync()
    if result is RunResult.CAUGHT_UP:
        assert set(unkeyed.ways().values()) == {"passthrough"}
        assert same_rows(unkeyed.outcome()["rows"], rows(0, 5).to_pylist())
    else:  # Arrow does not open it
        assert result is RunResult.NEEDS_ATTENTION
        assert depth > 60


def test_kinds_of_thrift_that_no_footer_has_are_read_over():
    double, uuid = bytes([0x17]) + b"8bytes!!", bytes([0x1D]) + b"16 bytes of uuid"
    a_map = bytes([0x1B, 2, 0x58]) + bytes([2, 1, 97, 4, 1, 98])
    no_map, a_set = bytes([0x1B, 0]), bytes([0x1A, 0x25, 2, 4])
    struct = read_struct(double + uuid + a_map + no_map + a_set + bytes([0x15, 4, 0]))
    assert [value.data for value in struct.values()] == [b"8bytes!!", b"16 bytes of uuid", None, None, [1, 2], 2]


# ---- Spark


def lie_in_the_page_index(path):
    """Every highest value of a page is lowered to the page's lowest, as writers did that cut text."""
    content, landed = bytearray(path.read_bytes()), read_struct(footer_of(path))
    for chunk in chunks(landed):
        place, length = chunk[6].data, chunk[7].data
        index = read_struct(bytes(content[place : place + length]))
        index[3] = index[2]
        lying = written(index)
        assert len(lying) == length
        content[place : place + length] = lying
    path.write_bytes(content)


def claim_dictionaries_alone(file):
    for chunk in chunks(file):
        assert 11 in chunk[METADATA].data, "it has a dictionary, and plain pages after it"
        said = ((DICTIONARY_PAGE, PLAIN, 1), (DATA_PAGE, DICTIONARY, 3))
        pages = [{at: Value(INTEGER, number) for at, number in enumerate(each, 1)} for each in said]
        chunk[METADATA].data[PAGE_ENCODINGS] = Value(LIST, pages, STRUCT)


def claim_an_old_dictionary_alone(file):
    for chunk in chunks(file):
        chunk[METADATA].data.pop(PAGE_ENCODINGS, None)
        chunk[METADATA].data[ENCODINGS] = Value(LIST, [PLAIN_DICTIONARY, 3], INTEGER)


def claim_large_groups(file):
    for group in file[ROW_GROUPS].data:
        group[SIZE_OF_GROUP] = Value(LONG, 1 << 40)


TEXTS = [f"key {n:05}" for n in range(5000)]
DOUBLES = [-0.0, *(float(n) for n in range(1, 5000))]
PAGED = {"use_dictionary": False, "write_page_index": True, "data_page_size": 2000, "write_batch_size": 100}
FOLDED = {"dictionary_pagesize_limit": 2000, "write_batch_size": 100, "data_page_size": 2000}
FOUND_IN_SPARK = {
    "page index": (TEXTS, PAGED, None, "v = 'key 04321'"),
    "encodings of pages": (TEXTS, FOLDED, claim_dictionaries_alone, "v = 'key 04321'"),
    "encodings": (TEXTS, FOLDED, claim_an_old_dictionary_alone, "v = 'key 04321'"),
    "size of a group": (TEXTS, {}, claim_large_groups, "v = 'key 04321'"),
    "-0.0 in a dictionary": (DOUBLES, {}, None, "v = 0.0D"),
    "-0.0 in an old dictionary": (DOUBLES, {"version": "1.0"}, claim_an_old_dictionary_alone, "v = 0.0D"),
    "-0.0 in a bloom filter": (DOUBLES, "duckdb", None, "v = 0.0D"),
}


@pytest.mark.spark
@pytest.mark.parametrize("case", FOUND_IN_SPARK)
def test_spark_finds_each_row_of_an_added_file(unkeyed, spark, case):
    values, options, lie, condition = FOUND_IN_SPARK[case]
    if options == "duckdb":
        path = unkeyed.folder / f"{1:020}.parquet"
        values = values[:50] * 100
        duck().from_arrow(pa.table({"v": values})).write_parquet(str(path))
    else:
        path = unkeyed.land(pa.table({"v": values}), **options)
    if case == "page index":
        lie_in_the_page_index(path)
    if lie:
        edited(path, lie)
    table = spark.read.format("delta").load(str(added(unkeyed).parent))
    assert len(table.collect()) == len(values)
    assert table.where(condition).count() == len([v for v in values if v in {"key 04321", 0.0}])
