"""What the pages of a Parquet file claim is known before anything makes room for it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzzing.thrift_mutations import BINARY, I16, I32, I64, LIST, SET, STRUCT, Reader, Several, Struct, written

from mirror_engine.config import Config
from mirror_engine.errors import RejectedFile
from mirror_engine.tables.reading import parquet_pages
from mirror_engine.tables.reading.parquet import open_parquet
from mirror_engine.tables.reading.parquet_pace import BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = "Orders/00000000000000000001.parquet"
TABLE = pa.table({"Id": [1, 2], "City": ["Linz", "Graz" * 5000]})
MEGABYTE = 1 << 20


def parquet(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, **{"use_dictionary": False, "store_schema": False, **options})
    return sink.getvalue()


def refused(content: bytes, config: Config) -> str:
    """What is said of it, whether it lies in memory or not."""
    said = set()
    for source in (io.BytesIO(content), pa.BufferReader(content)):
        with pytest.raises(RejectedFile) as caught:
            list(open_parquet(source, PATH, config).batches())
        said.add(str(caught.value))
    (one,) = said
    return one


def with_footer(content: bytes, change: Callable[[Struct], None]) -> bytes:
    length = int.from_bytes(content[-8:-4], "little")
    footer = Reader(content[-8 - length : -8]).struct()
    change(footer)
    new = written(footer)
    return content[: -8 - length] + new + len(new).to_bytes(4, "little") + b"PAR1"


def footer_of(content: bytes) -> Struct:
    return Reader(content[-8 - int.from_bytes(content[-8:-4], "little") : -8]).struct()


def field(value: Struct, name: int) -> Any:
    return next(inner for at, _, inner in value.fields if at == name)


def with_page(content: bytes, name: int, number: int) -> bytes:
    """The first page's header with another number in it."""
    reader = Reader(content[4:])
    header = reader.struct()
    header.fields = [(at, kind, number if at == name else inner) for at, kind, inner in header.fields]
    return content[:4] + written(header) + content[4 + reader.at :]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_pages_of_any_version_and_codec_pass(version: str, codec: str) -> None:
    content = parquet(data_page_version=version, compression=codec, use_dictionary=True, write_page_index=True)
    file = open_parquet(io.BytesIO(content), PATH, Config())
    assert pa.Table.from_batches(list(file.batches())).to_pylist() == TABLE.to_pylist()


def test_an_empty_list_may_be_of_any_kind() -> None:
    """Thrift's compact protocol does not say of what nothing is."""
    sink = io.BytesIO()
    pq.write_table(TABLE.slice(0, 0), sink, store_schema=False)

    def change(footer: Struct) -> None:
        footer.fields = [(at, kind, Several(0, [], 0) if at == 4 else inner) for at, kind, inner in footer.fields]

    content = with_footer(sink.getvalue(), change)
    assert list(open_parquet(io.BytesIO(content), PATH, Config()).batches()) == []


@pytest.mark.parametrize(
    ("name", "number", "said"),
    [
        (3, 2**31 - 1, "a page is said to be longer than the file"),
        (3, -1, "a page is said to have no length"),
        (2, -(2**31), "a page is said to have no length"),
        (2, 2**31 - 1, "a page of 2,147,483,647 bytes"),
    ],
)
def test_a_page_that_claims_what_cannot_be_is_refused(name: int, number: int, said: str) -> None:
    assert said in refused(with_page(parquet(), name, number), Config())


def test_a_page_may_hold_four_of_the_longest_rows_and_no_more() -> None:
    content = parquet(compression="zstd")
    assert list(open_parquet(io.BytesIO(content), PATH, Config(max_row_size=20_010)).batches())
    assert "a page of 20,018 bytes" in refused(content, Config(max_row_size=5_002))


@pytest.mark.slow
def test_a_page_that_really_unfolds_to_much_is_refused_before_it_does_whatever_the_footer_says() -> None:
    zeros = pa.table({"Text": ["\0" * (64 * MEGABYTE)]})
    sink = io.BytesIO()
    pq.write_table(zeros, sink, compression="zstd", use_dictionary=False, write_statistics=False, store_schema=False)

    def lie(footer: Struct) -> None:
        column = field(field(footer, 4).values[0], 1).values[0]
        described = field(column, 3)
        described.fields = [(at, kind, 100 if at == 6 else inner) for at, kind, inner in described.fields]

    content = with_footer(sink.getvalue(), lie)
    assert len(content) < MEGABYTE
    del zeros, sink
    program = (
        "import io, sys\n"
        "from peak_memory import peak_bytes\n"
        "from mirror_engine.config import Config\n"
        "from mirror_engine.tables.reading.parquet import open_parquet\n"
        "content = sys.stdin.buffer.read()\n"
        "before = peak_bytes()\n"
        "try:\n"
        "    list(open_parquet(io.BytesIO(content), 'x', Config(max_row_size=1 << 20)).batches())\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error.diagnostic.code)\n"
        "print(peak_bytes() - before)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, input=content, capture_output=True, check=True)
    said, more = done.stdout.decode().splitlines()
    assert said == "RejectedFile ME075"
    assert int(more) < 32 * MEGABYTE  # of the 64


def test_a_row_group_with_another_number_of_columns_is_refused() -> None:
    def shorten(footer: Struct) -> None:
        columns = field(field(footer, 4).values[0], 1)
        columns.values, columns.count = columns.values[:1], 1

    assert "about the number of columns" in refused(with_footer(parquet(), shorten), Config())


@pytest.mark.parametrize("name", [2, 4], ids=["schema", "row groups"])
def test_a_footer_with_a_struct_for_a_list_is_refused(name: int) -> None:
    def unlist(footer: Struct) -> None:
        footer.fields = [
            (at, STRUCT, inner.values[0]) if at == name else (at, kind, inner) for at, kind, inner in footer.fields
        ]

    assert "cannot be understood" in refused(with_footer(parquet(), unlist), Config())


def test_a_footer_of_lists_in_lists_is_refused() -> None:
    deep: Any = Several(STRUCT, [], 0)
    for _ in range(100):
        deep = Several(LIST, [deep], 1)

    assert "cannot be understood" in refused(
        with_footer(parquet(), lambda f: f.fields.append((20, LIST, deep))), Config()
    )


def test_a_small_file_whose_footer_claims_much_is_refused_as_a_large_one_is() -> None:
    def claim(footer: Struct) -> None:
        for chunk in field(field(footer, 4).values[0], 1).values:
            described = field(chunk, 3)
            described.fields = [(at, kind, 2**40 if at == 6 else inner) for at, kind, inner in described.fields]

    assert "[ME075]" in refused(with_footer(parquet(), claim), Config())


@pytest.mark.parametrize(
    "lies", [{}, {6: 200}, {11: None}], ids=["honest", "it is said to be small", "its dictionary is not told"]
)
@pytest.mark.parametrize("source", [io.BytesIO, pa.BufferReader], ids=["from a file", "from memory"])
def test_a_small_file_of_many_long_values_of_one_dictionary_is_read_in_pieces(
    source: Callable[[bytes], Any], lies: dict[int, int | None]
) -> None:
    rows, length = 2_000, 40_000
    sink = io.BytesIO()
    pq.write_table(pa.table({"City": ["x" * length] * rows}), sink, store_schema=False)
    assert sink.tell() < MEGABYTE
    content = sink.getvalue()

    def lie(footer: Struct) -> None:
        described = field(field(field(footer, 4).values[0], 1).values[0], 3)
        begin = field(described, 11)
        told = {9: begin, **lies} if 11 in lies else lies
        changed = [(at, kind, told.get(at, inner)) for at, kind, inner in described.fields]
        described.fields = [each for each in changed if each[2] is not None]

    content = with_footer(content, lie)
    counts = [batch.num_rows for batch in open_parquet(source(content), PATH, Config()).batches()]
    assert sum(counts) == rows
    assert max(counts) * length <= BATCH_BYTES


def test_files_of_one_schema_differ_in_all_but_their_columns() -> None:
    def read(number: int, *, strict: bool) -> tuple[list[object], list[str]]:
        sink = io.BytesIO()
        pq.write_table(pa.table({"__rowMarker__": pa.array([0], pa.int8()), "Id": [number]}), sink)
        file = open_parquet(io.BytesIO(sink.getvalue()), f"Orders/{number}.parquet", Config(strict=strict))
        return [batch.column("Id")[0].as_py() for batch in file.batches()], [said.path for said in file.diagnostics]

    assert read(1, strict=False) == ([1], ["Orders/1.parquet"])
    assert read(2, strict=False) == ([2], ["Orders/2.parquet"])
    with pytest.raises(RejectedFile, match=r"Orders/3\.parquet"):
        read(3, strict=True)


def as_written_here(content: bytes) -> bytes:
    """The same file; a length may be written in several ways, and bytes are compared."""
    return with_footer(content, lambda _: None)


@pytest.mark.parametrize("kind", [SET, LIST], ids=["as a set", "again"])
def test_a_footer_with_a_schema_for_arrow_and_another_for_us_is_refused(kind: int) -> None:
    """Arrow passes over what is no list, and takes the last of several."""
    other = pa.BufferOutputStream()
    pq.write_table(pa.table({"Fee": [2], "Amount": [1]}), other)
    footer = footer_of(other.getvalue().to_pybytes())
    crafted = with_footer(parquet(), lambda mine: mine.fields.append((2, kind, field(footer, 2))))
    assert "cannot be understood" in refused(crafted, Config())


def with_page_fields(content: bytes, *more: tuple[int, int, int]) -> bytes:
    """The first page's header with more fields behind its own."""
    reader = Reader(content[4:])
    header = reader.struct()
    header.fields += more
    return content[:4] + written(header) + content[4 + reader.at :]


@pytest.mark.parametrize(
    "more", [(2, I64, 10), (2, I32, 10), (3, I16, 10), (65538, I32, 10), (-1, I32, 10)], ids=lambda more: f"{more[:2]}"
)
def test_a_page_whose_header_others_read_otherwise_is_refused(more: tuple[int, int, int]) -> None:
    """Arrow skips a field of another kind, and cuts a field's number to 16 bits."""
    assert "header of a page cannot be understood" in refused(with_page_fields(parquet(), more), Config())


@pytest.mark.parametrize("more", [(9, I16, 4), (9, I64, 4), (65545, I64, 4)], ids=lambda more: f"{more[:2]}")
def test_a_footer_that_others_read_otherwise_is_refused(more: tuple[int, int, int]) -> None:
    def extend(footer: Struct) -> None:
        field(field(field(footer, 4).values[0], 1).values[0], 3).fields.append(more)

    assert "cannot be understood" in refused(with_footer(parquet(), extend), Config())


@pytest.mark.parametrize(
    ("way", "name"), [((), 2), ((), 5), ((), 7), ((4, 1, 3), 2), ((4, 1, 3), 3), ((4, 1, 3), 13)], ids=str
)
def test_a_list_of_values_of_another_kind_is_refused(way: tuple[int, ...], name: int) -> None:
    """Arrow reads them by the kind it expects, whatever is written."""

    def change(footer: Struct) -> None:
        inside = footer
        for step in way:
            found = field(inside, step)
            inside = found.values[0] if isinstance(found, Several) else found
        kind = BINARY if name != 3 else I32
        other = Several(kind, [b"x"] if kind == BINARY else [1], 1)
        inside.fields = [each for each in inside.fields if each[0] != name] + [(name, LIST, other)]

    assert "cannot be understood" in refused(with_footer(parquet(), change), Config())


def with_chunk(content: bytes, name: int, number: int) -> bytes:
    """The first column's description with another number in it."""

    def change(footer: Struct) -> None:
        described = field(field(field(footer, 4).values[0], 1).values[0], 3)
        described.fields = [(at, kind, number if at == name else inner) for at, kind, inner in described.fields]

    return with_footer(content, change)


@pytest.mark.parametrize(("name", "number"), [(9, 1 << 40), (9, -1), (7, 1 << 40), (7, -1)])
def test_a_column_outside_its_file_is_refused(name: int, number: int) -> None:
    assert "outside the file" in refused(with_chunk(parquet(), name, number), Config())


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    crafted = with_chunk(parquet(), 9, 1 << 40)
    wide = crafted.replace(zigzag(1 << 40), b"\x88" + b"\x80" * 8 + b"\x02")  # Arrow cuts it to 4
    assert len(wide) == len(crafted) + 4
    footer = int.from_bytes(crafted[-8:-4], "little") + 4
    assert "cannot be understood" in refused(wide[:-8] + footer.to_bytes(4, "little") + b"PAR1", Config())


def zigzag(value: int) -> bytes:
    return written(Struct([(1, I64, value)]))[2:-1]


def test_pages_are_looked_at_where_arrow_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The footer in memory is changed before Arrow reads it: a page's header in it would else be read two ways."""
    sources = []

    def check_pages(source: Any, *others: Any) -> Any:
        sources.append(source)
        return parquet_pages.check_pages(source, *others)

    monkeypatch.setattr("mirror_engine.tables.reading.parquet.check_pages", check_pages)
    content = parquet(store_schema=True)
    assert b"ARROW:schema" in content
    file = open_parquet(pa.BufferReader(content), PATH, Config())
    assert sum(batch.num_rows for batch in file.batches()) == TABLE.num_rows
    (source,) = sources
    source.seek(0)
    looked_at = source.read()
    assert b"ARROW:schema" not in looked_at
    assert len(looked_at) == len(content)
    assert pq.ParquetFile(pa.BufferReader(looked_at)).metadata.num_rows == TABLE.num_rows


def test_a_schema_of_arrows_in_another_spelling_is_refused() -> None:
    """Field numbers in long form: Arrow would read it all the same, and types that are not Parquet's."""
    respelled = with_footer(parquet(store_schema=True), lambda _: None)
    assert "cannot be understood" in refused(respelled, Config())


@pytest.mark.parametrize(
    ("writer", "is_refused"),
    [
        ("parquet-mr version 1.2.8 (build 1)", True),
        ("parquet-mr version 1.2.9", False),
        ("parquet-mr version 1.16.0 (build 5)", False),
        ("parquet-mr-trino version 448 (n/a)", False),
        ("Parquet-MR", True),
        ("other version 1.0.0", False),
    ],
)
def test_a_writer_that_tells_lengths_wrong_is_refused(writer: str, is_refused: bool) -> None:  # noqa: FBT001 - a case
    def signed(footer: Struct) -> None:
        footer.fields = [(at, of, writer.encode() if at == 6 else inner) for at, of, inner in footer.fields]

    content = with_footer(parquet(), signed)
    if is_refused:
        assert "parquet-mr before 1.2.9" in refused(content, Config())
    else:
        assert sum(b.num_rows for b in open_parquet(pa.BufferReader(content), PATH, Config()).batches()) == 2


def test_values_that_repeat_the_one_before_are_reckoned_with_whichever_header_tells_them() -> None:
    """A page may have both versions' headers: which one Arrow goes by, another field says."""
    content = parquet(column_encoding={"City": "PLAIN", "Id": "PLAIN"})
    both = Struct([(1, I32, 2), (4, I32, 7)])
    reader = Reader(content[4:])
    header = reader.struct()
    header.fields.append((8, STRUCT, both))
    page = written(header)
    size = next(inner for at, _, inner in header.fields if at == 3)
    chunk = parquet_pages.Chunk(0, len(page) + size, 0, 0)
    found = parquet_pages.check_pages(io.BytesIO(page + bytes(size)), len(page) + size, [chunk], PATH, Config())
    assert list(found.prefixed) == [True]
