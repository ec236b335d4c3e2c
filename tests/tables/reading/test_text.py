from __future__ import annotations

import gzip
import io
import json
from contextlib import suppress
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirror_engine.config import Config
from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.csv_values import CellFault
from mirror_engine.landing_zone.diagnostics import RejectedFile
from mirror_engine.landing_zone.metadata import parse
from mirror_engine.tables.reading.snappy import is_snappy
from mirror_engine.tables.reading.text import TextChangeFile, _cell_by_cell, column_array

NULLABLE = "City String,Weight Double,Ratio Single,Big Int64,Small Int16,On IDate,At DateTime,Is Boolean,Time ITime"
COLUMNS = [{"Name": "Id", "DataType": "Int32"}] + [
    {"Name": name, "DataType": kind, "IsNullable": True}
    for name, kind in (pair.split() for pair in [*NULLABLE.split(","), "Raw ByteArray"])
]
NAMES = [column["Name"].encode() for column in COLUMNS]
PLAIN = b"Id,City,__rowMarker__\r\n1,Linz,0\r\n2,,4\r\n"
UTF_16_OR_32 = ["utf-16", "utf-32", "utf-16BE"]
ROWS = [{"Id": 1, "City": "Linz", "__rowMarker__": 0}, {"Id": 2, "City": None, "__rowMarker__": 4}]


def metadata(**options):
    properties = {"FileFormat": "CSV", "SchemaDefinition": {"Columns": COLUMNS}, **options}
    usable, diagnostics = parse(json.dumps(properties).encode(), "Orders/_metadata.json")
    assert usable is not None, diagnostics
    return usable


def opened(content, config=None, **options):
    return TextChangeFile(io.BytesIO(content), "Orders/1.csv", metadata(**options), config or Config())


def rows(content, **options):
    return [row for batch in opened(content, **options).batches() for row in batch.to_pylist()]


def caught(content, config=None, **options):
    with pytest.raises(RejectedFile) as rejected:
        list(opened(content, config, **options).batches())
    return rejected.value


def rejection(content, config=None, **options):
    return caught(content, config, **options).message.removeprefix("Orders/1.csv")


def codes(content):
    file = opened(content)
    for _ in range(2):
        assert list(file.batches()) is not None
    return [diagnostic.code for diagnostic in file.diagnostics]


def test_rows_come_typed_and_more_than_once():
    content = (
        b"Id,City,Weight,Ratio,Big,Small,On,At,Is,Time,Raw,__rowMarker__\r\n"
        b'1,"",1e3,0.5,-1,7,2024-02-29,2024-02-29T08:00:00.1234567Z,TRUE,08:00:00,AAE=,4\r\n'
        b'2,,"","",,"",,"","","","",0\r\n'
    )
    file = opened(content)
    types = ["int32", "string", "double", "float", "int64", "int16", "date32[day]", "timestamp[us, tz=UTC]"]
    types += ["bool", "string", "binary", "int8"]
    for _ in range(2):
        (batch,) = file.batches()
        assert [str(field.type) for field in batch.schema] == types
        first, second = batch.to_pylist()
        assert list(first.values()) == [
            1, "", 1000.0, 0.5, -1, 7, date(2024, 2, 29), datetime(2024, 2, 29, 8, 0, 0, 123456, UTC), True,
            "08:00:00", b"\x00\x01", 4,
        ]  # fmt: skip
        assert [name for name, value in second.items() if value is not None] == ["Id", "__rowMarker__"]
    assert [column.name for column in file.columns] == [column["Name"] for column in COLUMNS]
    assert not file.columns[0].nullable
    assert file.marker == "__rowMarker__"
    assert not file.diagnostics


def snappy(content):
    return bytes(pa.compress(content, codec="snappy", asbytes=True))


def framed(content):
    block = snappy(content[:60_000])
    return b"\xff\x06\x00\x00sNaPpY\x00" + (len(block) + 4).to_bytes(3, "little") + b"\x00" * 4 + block


def hadoop(content):
    block = snappy(content[:60_000])
    return len(content).to_bytes(4, "big") + len(block).to_bytes(4, "big") + block


def of_java(content):
    block = snappy(content)
    return b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2 + len(block).to_bytes(4, "big") + block


def zstd(content):
    return bytes(pa.compress(content, codec="zstd", asbytes=True))


compressed = pytest.mark.parametrize("compress", [bytes, gzip.compress, zstd])


@compressed
def test_compression_is_known_by_its_first_bytes(compress):
    handle = io.BytesIO(compress(PLAIN))
    file = TextChangeFile(handle, "Orders/1.csv", metadata(), Config())
    for _ in range(3):
        assert pa.Table.from_batches(file.batches()).to_pylist() == ROWS
    assert not handle.closed
    many = PLAIN + b"".join(b"%d,Wels %d,1\r\n" % (number, number) for number in range(3, 5_000))
    assert len(rows(compress(many))) == 4_999
    if compress is not bytes:
        assert rejection(compress(many)[:-9]).endswith("data is damaged or ends early [ME024]")


@compressed
def test_a_read_that_fails_is_no_fault_of_the_file(compress):
    class Failing(io.BytesIO):
        def read(self, size=-1):
            if self.tell():
                raise StorageUnavailable("cannot read it")
            return super().read(size)

    with pytest.raises(StorageUnavailable):
        list(TextChangeFile(Failing(compress(PLAIN)), "Orders/1.csv", metadata(), Config()).batches())


MANY = PLAIN + b"".join(b"%d,Wels %d,1\r\n" % (number, number) for number in range(3, 5_000))


@pytest.mark.parametrize("compress", [snappy, framed, hadoop, of_java])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "windows-1252"])
@pytest.mark.parametrize("content", [PLAIN, MANY], ids=["small", "large"])
def test_snappy_of_each_form_is_rejected_by_name(compress, encoding, content):
    """LZ-6.2."""
    rejected = compress(content)
    options = {"FileFormatTypeProperties": {"Encoding": encoding}}
    assert rejection(rejected, **options) == ": file cannot be read: it is compressed with Snappy [ME024]"
    assert "compressed with GZIP or ZSTD" in caught(rejected, **options).help


def test_snappy_in_gzip_is_compressed_twice():
    assert "compressed twice" in rejection(gzip.compress(framed(PLAIN)))


@given(st.binary(max_size=40), st.integers(0, 120))
def test_text_is_not_taken_for_snappy(tail, size):
    """A block must expand to what it claims: no header that begins like one does."""
    header = bytes([size]) + b"d,City"
    assert not is_snappy(io.BytesIO(header + tail))


def test_two_gzip_members_are_one_text():
    assert rows(gzip.compress(PLAIN[:30]) + gzip.compress(PLAIN[30:])) == ROWS


def test_a_bomb_is_rejected_while_it_is_decompressed():
    bomb = gzip.compress(b"Id\r\n" + b"1" * (1 << 22))
    assert rejection(bomb, Config(max_row_size=1 << 18)) == (
        ", row 1: the row exceeds the limit of 262144 bytes [ME075]"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"", mtime=0), ": file is empty (0 bytes) [ME023]"),
        (b"\r\n", ": there is no header [ME061]"),
        (b"Id,City\r1,Linz\r", ": header: it does not end in `RowSeparator` (\\r\\n) [ME061]"),
        (
            b"__rowMarker__,Id,__ROWMARKER__\r\n",
            ": row marker occurs twice, expected one int32 column [ME036]",
        ),
        (b"Id,City\r\n1,\xff\r\n", ", row 1: bytes that are not utf-8, the default `Encoding` [ME061]"),
        (b"Id\r\n1\r\n\r\nx\r\n", ", row 2: value in column `Id` is not a valid Int32 [ME060]"),
        (b"Id,Time\r\n1,25:00:00\r\n", ", row 1: value in column `Time` is not a valid ITime [ME060]"),
    ],
)
def test_a_fault_is_named_with_its_row(content, message):
    assert rejection(content) == message


@pytest.mark.parametrize("end", ["\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_header_that_ends_in_no_known_line_end_is_rejected(end):
    for content in ("Id,City\n1,a\n2,b\n", "City\nLinz\n", "Id,City\n1,a\n2,b", "Id,__rowMarker__\n"):
        rejected = caught(content.replace("\n", end).encode())
        assert f"does not end in `RowSeparator` (\\r\\n) but in {repr(end)[1:-1]} [ME061]" in rejected.message
        assert rejected.diagnostic.help == "end each line in \\r\\n"
    assert rows(f"Id,City\r\n1,a{end}b\r\n".encode()) == [{"Id": 1, "City": f"a{end}b"}]


IN_UTF8 = "is `Encoding` `UTF-8`?"
REAL = "write the file in utf-8, or set `Encoding` to {}, which"


@pytest.mark.parametrize(
    ("content", "encodings", "code", "help"),
    [
        (b"Id,City\r1,Linz\r", ["utf-8"], "ME061", "set `RowSeparator` to \\r, or change the file"),
        (b"Id,Ci\0ty\r\n1,Linz\r\n", ["utf-8"], "ME061", "set `Encoding` to what it is, or write the file in utf-8"),
        (PLAIN.decode().encode("utf-16"), ["utf-8"], "ME061", REAL.format("UTF-16")),
        (PLAIN.decode().encode("utf-32"), ["utf-8"], "ME061", REAL.format("UTF-32")),
        (b"\0\0\xfe\xff" + PLAIN.decode().encode("utf-32-be"), ["utf-8"], "ME061", "set `Encoding` to utf-32BE"),
        (b"Id,City\r\n1,J\xf6rg\r\n", ["utf-8"], "ME061", "set `Encoding` to its real one, such as windows-1252"),
        (PLAIN, UTF_16_OR_32, "ME094", IN_UTF8),
        (PLAIN.replace(b"Linz", "\U0001f600".encode()), UTF_16_OR_32, "ME094", IN_UTF8),
        (PLAIN + b"3,a,0", UTF_16_OR_32, "ME094", IN_UTF8),
    ],
)
def test_header_that_is_misread_has_help_with_what_it_is(content, encodings, code, help):
    for declared in encodings:
        found = caught(content, FileFormatTypeProperties={"Encoding": declared}).diagnostic
        assert found.code == code
        assert help in found.help


def test_the_first_wrong_row_is_named_whichever_column_it_is_in():
    assert "row 2: row marker" in rejection(b"Big,Id,__rowMarker__\r\n1,1,0\r\n1,1,9\r\n1,,0\r\nx,1,0\r\n")
    assert "row 2: NULL in" in rejection(b"Big,Id,__rowMarker__\r\n1,1,0\r\n1,,0\r\nx,1,0\r\n1,1,9\r\n")
    assert "row 2: 1 field, " in rejection(b"Id,City\r\n1,a\r\n1\r\nx,a\r\n")


def test_a_value_out_of_range_is_no_fault_of_format():
    for cell, fault in ((b"99999", "out of range"), (b"x", "format")):
        details = dict(caught(b"Id,Small\r\n1," + cell).diagnostic.details)
        assert (details["type"], details["fault"]) == ("short", fault)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"PAR1\x15\x04\xff\xfe\r\n", "it is a Parquet file"),
        (b"PK\x03\x04\xff\r\n", "it is a ZIP archive, as Excel writes it"),
        (b'[{"Id": 1, "City": "a"}]\r\n', "it is JSON"),
        (b'[\n  {\n    "Id": 1}]\n', "it is JSON"),
        (b'{\r\n  "rows": [{"Id": 1}]}\r\n', "it is JSON"),
        (b"Obj\x01\x04\x14avro.codec\x08null", "it is an Avro file"),
        (b"ORC\n\x03\x00\x00", "it is an ORC file"),
        (b"ORC\x11\x00\x00\n\xff", "it is an ORC file"),
        (b"%PDF-1.7\n%\xe2\xe3", "it is a PDF file"),
        (b"BZh91AY&SY\x00\xff", "it is compressed with bzip2"),
        (b"BZh91AY&SY\x00", "it is compressed with bzip2"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\x00\x00", "it is an old Office file, such as `.xls`"),
        (b"\xfd7zXZ\x00\x00\x04", "it is compressed with xz"),
        (b"7z\xbc\xaf\x27\x1c", "it is a 7z archive"),
        (gzip.compress(gzip.compress(PLAIN, mtime=0), mtime=0), "it is compressed twice"),
        (b"ORCId;City\r\n", "it is one field"),  # and no ORC file
        (b"BZh;City\r\n", "it is one field"),
        (b"[Name];x\r\n", "the first line is one field"),
        (b"<html><body>404</body></html>\r\n", "it is HTML or XML"),
        (PLAIN.decode().encode("utf-16-be"), "it is in another encoding"),
        (PLAIN.decode().encode("utf-16-le"), "it is in another encoding"),
        (gzip.compress(b"Id;City\r\n1;a\r\n", mtime=0), "it is one field `Id;City`"),
    ],
)
def test_header_of_another_format_is_named(content, found):
    assert rejection(content) == f": no declared column is in the header: {found} [ME094]"


def test_header_that_is_declared_in_part_by_another_dialect_is_rejected():
    """Its deletes would be rows with nothing but a key."""
    assert rejection(b"Id,City;__rowMarker__\r\n1,Linz;2\r\n") == (
        ": header: `;` is between `City`, `__rowMarker__` [ME094]"
    )
    assert rejection(b"Id,'City'\r\n1,'Linz'\r\n").startswith(": header: it names more declared columns")


def test_row_in_the_place_of_the_header_is_not_shown():
    columns = len(metadata().declared_columns)
    row = [b"secret%d" % at for at in range(columns)]
    for cells in ([*row, b"more"], row, [b"City", b"7", *row[2:]], [*row[2:], b"1", b"City"], [b"x", b"x"]):
        rejected = caught(b",".join(cells) + b"\r\n1\r\n")
        assert "secret" not in str([rejected.diagnostic, *rejected.others])
        assert rejected.diagnostic.code == "ME094"


def test_row_with_a_column_name_as_a_cell_is_not_shown():
    """It may be a header, so that it is read as one, but its names may be cells."""
    file = opened(b"secret,City\r\nb,c\r\n")
    assert [found.message for found in file.diagnostics] == [
        "ignored: field 1 of the header is not in `SchemaDefinition`"
    ]
    assert file.diagnostics[0].column is None
    assert rejection(b"City,x,X\r\nb,c,d\r\n") == ": fields 2 and 3 of the header are equal [ME053]"
    assert rejection(b"City;secret\r\n") == ": no declared column is in the header: it is one field [ME094]"
    for header in (b"secret,City,__rowMarker__", b"secret,City,Weight,Id", b",".join([*NAMES, b"secret"])):
        assert "column `secret`" in opened(header + b"\r\n").diagnostics[0].message


@pytest.mark.parametrize("header", [b"Id,City", b'"Id",City', b"City,__rowMarker__,\xef\xbb\xbfId", b"Id"])
def test_second_byte_order_mark_is_named(header):
    """Else the first column is undeclared, and all NULL."""
    marked = b"\xef\xbb\xbf" + (header if b"\xef" in header else b"\xef\xbb\xbf" + header)
    assert rejection(marked + b"\r\n1,2\r\n").endswith("a second byte order mark is before `Id` [ME094]")
    assert codes(b"\xef\xbb\xbfId,City\r\n1,a\r\n") == []


@pytest.mark.slow
def test_many_undeclared_columns_cost_no_comparisons():
    file = opened(b"Id," + b",".join(b"c%d" % at for at in range(8000)) + b"\r\n")
    assert len(file.diagnostics) == 8000
    assert "did you mean" not in file.diagnostics[0].help
    assert "did you mean `City`?" in opened(b"Id,Citty\r\n").diagnostics[0].help


def test_the_text_marker_may_be_any_column_in_any_case():
    assert codes(b"__ROWMARKER__,Id\r\n4,1\r\n") == ["ME052", "ME034"]
    assert rows(b'Id,__ROWMARKER__,City\r\n1,"4",x\r\n') == [{"Id": 1, "City": "x", "__rowMarker__": 4}]
    assert "[ME052]" in rejection(b"__ROWMARKER__,Id\r\n4,1\r\n", Config(strict=True))


@given(st.binary(max_size=40), st.sampled_from([b"", b"Id,City\r\n", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"]))
def test_few_bytes_of_any_kind_are_rows_or_rejected(content, start):
    """Fuzzing changes files of the fixtures: it hardly comes to one byte, or to GZIP and ZSTD that are none."""
    with suppress(RejectedFile):
        assert len(rows(start + content)) <= 40


# --- whole columns

KINDS = ["short", "integer", "long", "float", "double", "boolean", "timestamp", "date", "time", "binary"]
CELLS = st.lists(
    st.none()
    | st.text("0123456789+-.eE:TZ xafINtrulns", max_size=12)
    | st.integers(-(2**70), 2**70).map(str)
    | st.floats().map(repr)
    | st.datetimes().map(lambda moment: moment.isoformat())
    | st.dates().map(str)
    | st.sampled_from(["true", "FALSE", "0000-01-01", "0x1F", "1e400", "1e39", "2024-02-29T08:00:00.1234567+00:00"]),
    max_size=4,
)


@settings(max_examples=150)
@given(st.sampled_from(KINDS), CELLS)
@example("long", ["0x1F"])
@example("date", ["0000-01-01"])
@example("float", ["1e39"])
@example("float", ["16777217", "0.1", "-1.0000000596046447753906250000000000000001", "3.4028235677973366e38"])
@example("float", ["3.4028235677973367e38"])
@example("timestamp", ["2024-02-29T08:00:00.5Z", "2024-02-29 08:00:00+00:00"])
@example("timestamp", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.9999999", None])
def test_the_fast_reading_equals_the_exact_one(kind, cells):
    def outcome(read):
        try:
            values = read(cells, kind)
        except CellFault as cell:
            return (cell.position, cell.fault)
        return str(values.type), repr(values.to_pylist())

    exact = outcome(lambda cells, kind: _cell_by_cell([cell or None for cell in cells], kind))
    assert outcome(column_array) == exact


def repeated(content, names):
    """Rows at which ME099 is reported, of a file that is read twice."""
    columns = [{"Name": name, "DataType": "String", "IsNullable": True} for name in names]
    file = opened(content, SchemaDefinition={"Columns": columns})
    for _ in range(2):
        assert sum(batch.num_rows for batch in file.batches()) == content.count(b"\r\n") - 1
    return [found.row for found in file.diagnostics if found.code == "ME099"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"a,b\r\n1,2\r\na,b\r\na,b\r\n", [2]),
        (b"a,b\r\n" + 2 * (40_000 * b"1,2345\r\n" + b"a,b\r\n"), [40_001]),
        (b"\xef\xbb\xbfa,b\r\n1,2\r\n\xef\xbb\xbfa,b\r\n", [2]),
        (b'a,b\r\n"a","b"\r\n', [1]),
        (b"a,b\r\na,a\r\nb,a\r\nA,B\r\na,\r\n", []),
        (b"a\r\na\r\n", []),
    ],
    ids=["twice", "in two later parts", "byte order mark", "quoted", "other rows", "one column"],
)
def test_repeated_header_is_reported_once_as_a_row(content, rows):
    """LZ-6.4."""
    assert repeated(content, "ab") == rows
