"""Parquet change files open with Parquet's own types, or are rejected in plain words.

A small file takes no more memory than it really expands to, whatever its headers and footer claim.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirror_engine.config import Config
from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.diagnostics import RejectedFile
from mirror_engine.landing_zone.schema import VOID, Column
from mirror_engine.tables import footer as thrift
from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.reading.parquet import _ARROW_SCHEMA, MAGIC, ParquetChangeFile, file_end
from mirror_engine.testing.cases import load

PATH = "Orders/00000000000000000001.parquet"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STRICT = Config(strict=True)


def written(table, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def plain(table, **options):
    """A file of pages and their places alone."""
    return written(table, **{"use_dictionary": False, "write_statistics": False, "store_schema": False, **options})


def opened(content, config=None):
    return ParquetChangeFile(io.BytesIO(content), PATH, config or Config())


def rows(file):
    return pa.Table.from_batches(list(file.batches()))


def rejected(content, config=None):
    with pytest.raises(RejectedFile) as caught:
        list(opened(content, config).batches())
    return caught.value


def codes(file):
    return [diagnostic.code for diagnostic in file.diagnostics]


INSTANT = pa.timestamp("us", "UTC")
TYPES = [
    # Arrow type, values written, Delta word, values read, diagnostics
    (pa.string(), ["ä"], "string", ["ä"], []),
    (pa.large_string(), ["ä"], "string", ["ä"], []),
    (pa.string_view(), ["ä"], "string", ["ä"], []),
    (pa.dictionary(pa.int32(), pa.string()), ["ä"], "string", ["ä"], []),
    (pa.json_(), ["{}"], "string", ["{}"], []),
    (pa.binary(), [b"\xff"], "binary", [b"\xff"], []),
    (pa.large_binary(), [b"\xff"], "binary", [b"\xff"], []),
    (pa.binary(2), [b"\xff\0"], "binary", [b"\xff\0"], ["ME050"]),
    (pa.uuid(), [b"u" * 16], "binary", [b"u" * 16], ["ME050"]),
    (pa.int8(), [-1], "byte", [-1], []),
    (pa.int16(), [-1], "short", [-1], []),
    (pa.int32(), [-1], "integer", [-1], []),
    (pa.int64(), [-1], "long", [-1], []),
    (pa.uint8(), [255], "short", [255], ["ME050"]),
    (pa.uint16(), [2**16 - 1], "integer", [2**16 - 1], ["ME050"]),
    (pa.uint32(), [2**32 - 1], "long", [2**32 - 1], ["ME050"]),
    (pa.uint64(), [2**64 - 1], "decimal(20,0)", [Decimal(2**64 - 1)], ["ME050"]),
    (pa.float32(), [0.5], "float", [0.5], []),
    (pa.float64(), [0.1], "double", [0.1], []),
    (pa.bool_(), [True], "boolean", [True], []),
    (pa.date32(), [date(1, 1, 1)], "date", [date(1, 1, 1)], []),
    (pa.date64(), [date(9999, 12, 31)], "date", [date(9999, 12, 31)], []),
    (pa.timestamp("s"), [-1], "timestamp", [EPOCH - timedelta(seconds=1)], []),
    (pa.timestamp("ms", "UTC"), [-1], "timestamp", [EPOCH - timedelta(milliseconds=1)], []),
    (pa.timestamp("us", "Asia/Tokyo"), [1], "timestamp", [EPOCH + timedelta(microseconds=1)], []),
    (pa.timestamp("ns"), [-1], "timestamp", [EPOCH - timedelta(microseconds=1)], ["ME050"]),
    (pa.timestamp("ns", "UTC"), [1999], "timestamp", [EPOCH + timedelta(microseconds=1)], ["ME050"]),
    (pa.decimal128(5, 2), [Decimal("-1.25")], "decimal(5,2)", [Decimal("-1.25")], []),
    (pa.decimal256(38, 2), [Decimal("-1.25")], "decimal(38,2)", [Decimal("-1.25")], []),
    (pa.decimal32(5, 2), [Decimal("-1.25")], "decimal(5,2)", [Decimal("-1.25")], []),
    (pa.null(), [None], VOID, [None], []),
]


@pytest.mark.parametrize("store_schema", [True, False])
@pytest.mark.parametrize("case", TYPES, ids=[str(case[0]) for case in TYPES])
def test_a_column_reads_as_what_parquet_says_it_is(case, *, store_schema):
    kind, values, word, expected, noted = case
    table = pa.table({"c": pa.array([*values, None], kind)})
    file = opened(written(table, store_schema=store_schema))
    assert file.columns == (Column("c", word),)
    assert codes(file) == noted
    read = rows(file)
    assert read.schema.types == [pa.null() if word == VOID else arrow_type(word)]
    assert read.column("c").to_pylist() == [*expected, None]


DUCKDB_TYPES = [
    ("1.5::decimal(9,2)", "decimal(9,2)", Decimal("1.50")),
    ("1.5::decimal(18,2)", "decimal(18,2)", Decimal("1.50")),
    ("-1.5::decimal(38,2)", "decimal(38,2)", Decimal("-1.50")),
    ("'x'::enum('x','y')", "string", "x"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("expression", "word", "value"), DUCKDB_TYPES, ids=[case[0] for case in DUCKDB_TYPES])
def test_duckdbs_types_are_read(tmp_path, expression, word, value):
    duckdb.sql(f"copy (select {expression} as c) to '{tmp_path}/duck.parquet' (format parquet)")
    file = opened((tmp_path / "duck.parquet").read_bytes())
    assert ([column.type for column in file.columns], codes(file)) == ([word], [])
    assert rows(file).column("c").to_pylist() == [value]


def test_int96_is_an_instant_cut_to_microseconds():
    far = pa.array([-1, 1999, None], pa.timestamp("ns"))
    file = opened(written(pa.table({"t": far}), use_deprecated_int96_timestamps=True))
    assert file.columns == (Column("t", "timestamp"),)
    assert codes(file) == ["ME050"]
    assert rows(file).column("t").cast(pa.int64()).to_pylist() == [-1, 1, None]
    assert not file.naive_columns | file.utc_columns


def test_int96_reaches_beyond_what_nanoseconds_can_count():
    moments = pa.array([datetime(9000, 1, 1, tzinfo=UTC), datetime(2, 1, 1, tzinfo=UTC)], INSTANT)
    file = opened(written(pa.table({"t": moments}), use_deprecated_int96_timestamps=True, store_schema=False))
    assert rows(file).column("t").to_pylist() == moments.to_pylist()


def test_the_arrow_schema_stored_in_a_file_is_ignored():
    content = written(pa.table({"c": pa.array([1], pa.duration("s"))}))
    assert content.count(_ARROW_SCHEMA) == 1
    assert opened(content).columns == (Column("c", "long"),)


# --- the row marker


WHOLE = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()]
TEXTS = [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]


@pytest.mark.parametrize("kind", [*WHOLE, *TEXTS], ids=str)
def test_markers_of_every_width_and_as_text_become_int8(kind):
    values = ["0", "1", "2", "4"] if kind in TEXTS else [0, 1, 2, 4]
    noted = ["ME035"] if kind in TEXTS else ["ME050"] if pa.types.is_unsigned_integer(kind) else []
    content = written(pa.table({"Id": [1, 2, 3, 4], MARKER_COLUMN: pa.array(values, kind)}))
    file = opened(content)
    assert (file.marker, codes(file), [column.name for column in file.columns]) == (MARKER_COLUMN, noted, ["Id"])
    assert rows(file).column(MARKER_COLUMN).equals(pa.chunked_array([pa.array([0, 1, 2, 4], pa.int8())]))
    if noted:
        assert rejected(content, STRICT).diagnostic.code == noted[0]


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([1.0]),
        pa.array([True]),
        pa.array([b"0"]),
        pa.array([Decimal(1)], pa.decimal128(20, 0)),
        pa.array([[1]]),
        pa.array([1], pa.time32("ms")),
        pa.array([date(2020, 1, 1)]),
    ],
    ids=lambda cells: str(cells.type),
)
def test_markers_of_other_types_are_rejected(cells):
    assert rejected(written(pa.table({"Id": [1], MARKER_COLUMN: cells}))).diagnostic.code == "ME036"


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (pa.array([0, 3, 7]), "3"),
        (pa.array([0, None, 7]), "NULL"),
        (pa.array([0, -1, 0]), "-1"),
        (pa.array([0, 2**40, 0]), "no short integer"),
        (pa.array([0, 2**64 - 1, 0], pa.uint64()), "no short integer"),
        (pa.array(["0", "3", "0"]), "3"),
        (pa.array(["0", "01", "0"]), "01"),
        (pa.array(["0", "Alice's secret", "0"]), "no short integer"),
    ],
    ids=str,
)
def test_any_other_marker_is_rejected_with_its_row(cells, shown):
    error = rejected(written(pa.table({"Id": [1, 2, 3], MARKER_COLUMN: cells})))
    assert error.message == f"{PATH}, row 2: row marker is {shown}, expected 0, 1, 2 or 4 [ME037]"
    assert error.help == "delete the file and land a corrected one under the same name"


@pytest.mark.parametrize(
    ("word", "number", "more"),
    [("I", 0, ""), ("c", 0, ""), ("UPDATE", 1, " (4 if the row may be new)"), ("D ", 2, ""), ("upsert", 4, "")],
)
def test_a_word_in_place_of_a_marker_is_answered_with_its_number(word, number, more):
    error = rejected(written(pa.table({"Id": [1, 2], MARKER_COLUMN: ["0", word]})))
    assert error.message == f"{PATH}, row 2: row marker is {word}, expected 0, 1, 2 or 4 [ME037]"
    fixed = f"write {number} for `{word}`{more}, in an int32 column"
    assert error.help == f"{fixed}: delete the file and land a corrected one under the same name"


def test_a_null_typed_marker_is_nothing_without_rows_and_rejected_with_them():
    empty = opened(written(pa.table({"Id": pa.array([], pa.int64()), MARKER_COLUMN: pa.array([], pa.null())})))
    assert (codes(empty), rows_or_none(empty)) == ([], [])
    error = rejected(written(pa.table({"Id": [1], MARKER_COLUMN: pa.nulls(1)})))
    assert (error.diagnostic.code, error.diagnostic.row) == ("ME037", 1)


def rows_or_none(file):
    return [batch for batch in file.batches() if batch.num_rows]


def test_row_numbers_count_over_batches_and_row_groups():
    markers = np.zeros(150_000, dtype=np.int32)
    markers[140_001] = 9
    content = written(pa.table({MARKER_COLUMN: markers}), row_group_size=70_000)
    assert rejected(content).diagnostic.row == 140_002


# --- bad files

SMALL = written(
    pa.table({"Id": [1, 2, 3], "City": ["Linz", None, "Wels"], MARKER_COLUMN: pa.array([0, 4, 2], pa.int8())})
)


@pytest.mark.slow
def test_a_file_cut_off_anywhere_is_rejected():
    for length in range(1, len(SMALL)):
        error = rejected(SMALL[:length])
        assert error.diagnostic.code == "ME024"
        assert re.fullmatch(r"[a-z0-9 ,:'A-Z-]+", error.diagnostic.message), error.diagnostic.message


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (b"", "file is empty"),
        (b"PAR1", "does not end"),
        (b"PAR1PAR1", "does not end"),
        (b"PAR1\0\0\0\0PAR1", "footer cannot be understood"),
        (b"PAR1\xff\xff\xff\xffPAR1", "longer than the file"),
        (b"a,b\r\n1,2\r\n", "does not start"),
        (b"\0" * 1000, "does not start"),
        (b"PARE" + SMALL[4:-4] + b"PARE", "encrypted"),
    ],
)
def test_what_is_no_parquet_file_is_rejected(content, finding):
    error = rejected(content)
    assert error.diagnostic.code == ("ME024" if content else "ME023")
    assert finding in error.message


@pytest.mark.parametrize("sizes", [(2, 2), (2, 2, 2), (50_000, 50_000), (2, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("options", [{}, {"write_page_index": True}, {"use_dictionary": False}], ids=str)
def test_several_files_in_one_are_rejected(sizes, options):
    """LZ-3.10: the last footer counts alone, and its places are those of the first file's rows."""
    parts = [written(pa.table({"id": pa.array(range(size), pa.int64())}), **options) for size in sizes]
    assert "it is several Parquet files in one" in rejected(b"".join(parts)).message


@pytest.mark.parametrize("options", [{}, {"write_page_index": True}, {"use_dictionary": False}], ids=str)
def test_magic_words_in_rows_are_no_further_file(options):
    table = pa.table({"id": [1], "word": ["PAR1PAR1"], "last": ["PAR1PAR1"]})
    assert rows(opened(written(table, **options))).to_pylist() == table.to_pylist()


def test_a_footer_beyond_the_bound_is_rejected():
    assert rejected(SMALL, Config(max_row_size=100)).diagnostic.code == "ME075"


def test_a_page_whose_checksum_differs_is_rejected():
    table = pa.table({"Id": pa.array([1, 2, 7_777_777_777], pa.int64())})
    content = plain(table, compression="NONE", write_page_checksum=True)
    value = (7_777_777_777).to_bytes(8, "little")
    assert content.count(value) == 1
    error = rejected(content.replace(value, (7_777_777_776).to_bytes(8, "little")))
    assert error.diagnostic.code == "ME024"


def test_a_column_that_only_other_readers_can_decode_is_named_with_its_encoding(tmp_path):
    content = load("ME087").file(PATH)
    file = tmp_path / "file.parquet"
    file.write_bytes(content)
    assert duckdb.read_parquet(str(file)).fetchall() == [("Linz", -2147483647), ("Wels", 2147483647)]
    error = rejected(content)
    assert "cannot read the encoding of column `Id`: Unexpected end of stream: InitBlock EOF" in error.message


def test_a_page_whose_checksum_differs_is_damaged_whatever_its_encoding():
    options = {"compression": "NONE", "column_encoding": "DELTA_BINARY_PACKED", "write_page_checksum": True}
    content = bytearray(plain(pa.table({"Id": [1, 2**40, 3]}), **options))
    content[pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(0).total_compressed_size - 1] ^= 1
    assert rejected(bytes(content)).diagnostic.code == "ME024"


def test_text_that_is_not_utf8_is_rejected_without_showing_it():
    table = pa.table({"c": pa.array([b"ok", None, b"\xff\xfe", b"\xff"]).view(pa.string())})
    error = rejected(written(table))
    assert (error.diagnostic.row, error.diagnostic.message) == (3, "value in column `c` is not text in UTF-8")


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([0, 3_000_000], pa.date32()),
        pa.array([0, -800_000], pa.date32()),
        pa.array([0, 2**62], pa.timestamp("ms")),
        pa.array([0, 253_402_300_800_000_000], pa.timestamp("us", "UTC")),
        pa.array([0, -62_135_596_800_000_001], pa.timestamp("us", "UTC")),
    ],
    ids=str,
)
def test_times_outside_the_years_1_to_9999_are_rejected_with_their_row_and_column(cells):
    error = rejected(written(pa.table({"at": cells})))
    assert (error.diagnostic.code, error.diagnostic.row, error.diagnostic.column) == ("ME060", 2, "at")
    assert "1 to 9999" in error.message


def test_the_first_and_the_last_moment_are_read():
    moments = [253_402_300_799_999_999, -62_135_596_800_000_000]
    file = opened(written(pa.table({"at": pa.array(moments, pa.timestamp("us", "UTC"))})))
    assert rows(file).column("at").cast(pa.int64()).to_pylist() == moments


def test_a_read_that_fails_is_no_fault_of_the_file():
    class Failing(io.BytesIO):
        left = 4

        def read(self, size=-1):
            self.left -= 1
            if self.left < 0:
                raise StorageUnavailable("cannot read it")
            return super().read(size)

    with pytest.raises(StorageUnavailable):
        list(ParquetChangeFile(Failing(SMALL), PATH, Config()).batches())


@pytest.mark.slow
def test_no_wrong_byte_ends_the_process():
    whole = written(pa.table({"Id": [1, None]}), store_schema=False)
    for at in range(len(whole)):  # some make C++ throw where pyarrow does not expect it
        content = bytearray(whole)
        content[at] ^= 0x27
        with suppress(RejectedFile):
            for batch in opened(bytes(content)).batches():
                batch.validate(full=True)


# --- bombs


def test_a_row_longer_than_allowed_is_rejected_with_its_number():
    table = pa.table({"c": ["short", "x" * 5000, "short"]})
    assert rejected(written(table), Config(max_row_size=4000)).diagnostic.row == 2


@pytest.mark.slow
def test_a_dictionary_bomb_is_read_in_small_batches_and_stopped():
    config = Config(max_row_size=1_000_000)
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 3_000, pa.int32()), pa.array(["x" * 500_000]))
    content = written(pa.table({"c": long}))
    assert len(content) < 100_000
    seen = []
    with pytest.raises(RejectedFile, match="ME075"):
        seen.extend(batch.nbytes for batch in opened(content, config).batches())
    assert max(seen) < 40_000_000
    assert sum(seen) < 100_000_000


def test_a_footer_that_promises_too_many_rows_is_rejected_unread():
    content = written(pa.table({"c": pa.array(np.zeros(3_000_000, dtype=np.int64))}))
    with pytest.raises(RejectedFile, match="ME075"):
        opened(content, Config(max_row_size=100_000))


def test_a_file_without_rows_or_row_groups_is_valid():
    sink = io.BytesIO()
    pq.ParquetWriter(sink, pa.schema([("Id", pa.int64())])).close()
    assert rows_or_none(opened(sink.getvalue())) == []


# --- claims

MEBIBYTE = 1 << 20
CLAIM = 2**31 - 1
UNCOMPRESSED_SIZE, COMPRESSED_SIZE = 2, 3  # fields of a page's header

READ = """
import os, sys
from peak_memory import peak_bytes
from mirror_engine.config import Config
from mirror_engine.tables.reading.open_file import limit_memory
from mirror_engine.tables.reading.parquet import ParquetChangeFile

def read(path, more):
    if more:
        limit_memory(more)
    before = peak_bytes()
    with open(path, "rb", buffering=0) as handle:
        try:
            for batch in ParquetChangeFile(handle, "Orders/1.parquet", Config()).batches():
                pass
        except Exception as error:
            said = f"{type(error).__name__} {error.diagnostic.code}"
        else:
            said = "read"
    print(said, peak_bytes() - before, sep=", ", flush=True)

for path, more in zip(sys.argv[1::2], sys.argv[2::2]):
    if not os.fork():
        read(path, int(more))
        os._exit(0)
    os.wait()
"""


def with_page_header(content, field, number):
    """The first page's header with another number in a field."""
    reader = thrift._Reader(content[len(MAGIC) :])
    page = {**reader.struct(), field: thrift.Value(thrift.INTEGER, number)}
    return MAGIC + thrift.written(page) + content[len(MAGIC) + reader.at :]


def zeros(mebibytes):
    return plain(pa.table({"Text": ["\0" * (mebibytes * MEBIBYTE)]}), compression="zstd")


LONG = "x" * 40_000
PREFIXED = {"column_encoding": {"Text": "DELTA_BYTE_ARRAY"}}
# a file, MiB by which its process may grow, what comes of it, and MiB by which it grows at most
FILES = {
    "2 GiB of compressed bytes, claimed by a page header": (
        lambda: with_page_header(plain(pa.table({"Id": [1, 2]})), COMPRESSED_SIZE, CLAIM),
        *(0, "RejectedFile ME024", 32),
    ),
    "2 GiB of uncompressed bytes, claimed by a page that expands to 140 MiB": (
        lambda: with_page_header(zeros(140), UNCOMPRESSED_SIZE, CLAIM),
        *(0, "RejectedFile ME024", 140 + 64),
    ),
    "192 MiB of zeros in few kilobytes, rejected once they came": (
        lambda: zeros(192),
        *(0, "RejectedFile ME075", 3 * 192 + 64),
    ),
    "the same under a limit, rejected before they come": (lambda: zeros(192), 128, "RejectedFile ME075", 64),
    "an honest file under a limit": (lambda: plain(pa.table({"Id": list(range(100_000))})), 128, "read", 128),
    "a dictionary of long values, 300 MiB": (
        lambda: plain(pa.table({"Text": [LONG] * 8_000}), use_dictionary=True),
        *(0, "read", 200),
    ),
    "values that share a long beginning": (
        lambda: plain(pa.table({"Text": [f"{LONG}{number}" for number in range(8_000)]}), **PREFIXED),
        *(0, "read", 200),
    ),
}


@pytest.fixture(scope="module")
def read_alone(tmp_path_factory):
    """What a process of its own makes of each file, and by how many bytes its memory grew."""
    arguments, folder = [], tmp_path_factory.mktemp("files")
    for number, (made, more, *_) in enumerate(FILES.values()):
        path, content = folder / f"{number}.parquet", made()
        assert len(content) < 10 * MEBIBYTE
        path.write_bytes(content)
        arguments += [str(path), str(more * MEBIBYTE)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", READ, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    return dict(zip(FILES, (line.split(", ") for line in done.stdout.splitlines()), strict=True))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak counts in other units")
@pytest.mark.parametrize("name", FILES)
def test_memory_of_a_parquet_file_is_bounded(read_alone, name):
    *_, expected, most = FILES[name]
    outcome, grown = read_alone[name]
    assert outcome == expected
    assert int(grown) < most * MEBIBYTE


@pytest.mark.parametrize("source", [io.BytesIO, pa.BufferReader], ids=["file", "memory"])
@pytest.mark.parametrize(
    ("field", "number"), [(COMPRESSED_SIZE, CLAIM), (COMPRESSED_SIZE, -1), (UNCOMPRESSED_SIZE, -CLAIM)]
)
def test_page_that_claims_an_impossible_size_is_rejected(source, field, number):
    content = with_page_header(plain(pa.table({"Id": [1, 2], "City": ["Linz", "Graz"]})), field, number)
    with pytest.raises(RejectedFile, match="the pages of row group 1 cannot be read"):
        list(ParquetChangeFile(source(content), PATH, Config()).batches())


def test_footer_whose_row_groups_expand_too_far_is_rejected_unread():
    content = plain(pa.table({"Text": ["x" * 100_000] * 20}), compression="zstd")
    with pytest.raises(RejectedFile, match="ME075"):
        next(opened(content, Config(max_row_size=20_000)).batches())


SCHEMA_FIRST = b"\x15\x04\x19"  # the version, then the schema: a list
MANY_STRUCTS = b"\xfc\xff\xff\xff\x7f"  # 268 million of them


@pytest.mark.parametrize("footer", [SCHEMA_FIRST + MANY_STRUCTS, b"\x19" * 10_000], ids=["many structs", "deep"])
def test_footer_that_claims_too_many_structs_is_rejected(footer):
    with pytest.raises(RejectedFile, match="its footer cannot be understood"):
        opened(MAGIC + file_end(footer))
