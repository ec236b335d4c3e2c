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
from fuzzing.thrift_mutations import LIST, SET, STRUCT, Reader, Several, Struct, written

from mirror_engine.config import Config
from mirror_engine.delta.parquet import open_parquet
from mirror_engine.delta.parquet_pace import BATCH_BYTES
from mirror_engine.errors import PublisherError

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = "Orders/00000000000000000001.parquet"
TABLE = pa.table({"Id": [1, 2], "City": ["Linz", "Graz" * 5000]})
MEGABYTE = 1 << 20


def parquet(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, **{"use_dictionary": False, **options})
    return sink.getvalue()


def refused(content: bytes, config: Config) -> str:
    with pytest.raises(PublisherError) as caught:
        list(open_parquet(io.BytesIO(content), PATH, config).batches())
    return str(caught.value)


def with_footer(content: bytes, change: Callable[[Struct], None]) -> bytes:
    length = int.from_bytes(content[-8:-4], "little")
    footer = Reader(content[-8 - length : -8]).struct()
    change(footer)
    new = written(footer)
    return content[: -8 - length] + new + len(new).to_bytes(4, "little") + b"PAR1"


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
    pq.write_table(TABLE.slice(0, 0), sink)

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
    assert list(open_parquet(io.BytesIO(content), PATH, Config(row_bytes=20_010)).batches())
    assert "a page of 20,018 bytes" in refused(content, Config(row_bytes=5_002))


@pytest.mark.slow
def test_a_page_that_really_unfolds_to_much_is_refused_before_it_does_whatever_the_footer_says() -> None:
    zeros = pa.table({"Text": ["\0" * (64 * MEGABYTE)]})
    sink = io.BytesIO()
    pq.write_table(zeros, sink, compression="zstd", use_dictionary=False, write_statistics=False)

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
        "from mirror_engine.delta.parquet import open_parquet\n"
        "content = sys.stdin.buffer.read()\n"
        "before = peak_bytes()\n"
        "try:\n"
        "    list(open_parquet(io.BytesIO(content), 'x', Config(row_bytes=1 << 20)).batches())\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error.diagnostic.code)\n"
        "print(peak_bytes() - before)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, input=content, capture_output=True, check=True)
    said, more = done.stdout.decode().splitlines()
    assert said == "PublisherError ME075"
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


def test_a_small_file_of_many_long_values_of_one_dictionary_is_read_in_pieces() -> None:
    rows, length = 2_000, 40_000
    sink = io.BytesIO()
    pq.write_table(pa.table({"City": ["x" * length] * rows}), sink)
    assert sink.tell() < MEGABYTE
    counts = [batch.num_rows for batch in open_parquet(io.BytesIO(sink.getvalue()), PATH, Config()).batches()]
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
    with pytest.raises(PublisherError, match=r"Orders/3\.parquet"):
        read(3, strict=True)


def with_schema_of(content: bytes, other: bytes) -> bytes:
    """The same file, with another's schema behind its own, as a set: Arrow passes over what is no list."""

    def change(footer: Struct) -> None:
        length = int.from_bytes(other[-8:-4], "little")
        footer.fields.append((2, SET, field(Reader(other[-8 - length : -8]).struct(), 2)))

    return with_footer(content, change)


def as_written_here(content: bytes) -> bytes:
    """The same file; a length may be written in several ways, and bytes are compared."""
    return with_footer(content, lambda _: None)


def test_a_crafted_footer_does_not_tell_what_the_columns_of_later_files_are() -> None:
    def written_with(columns: dict[str, list[int]]) -> bytes:
        sink = io.BytesIO()
        pq.write_table(pa.table(columns), sink, store_schema=False)
        return as_written_here(sink.getvalue())

    def columns_of(content: bytes) -> list[str]:
        return [column.name for column in open_parquet(io.BytesIO(content), PATH, Config()).columns]

    honest = written_with({"Amount": [1], "Fee": [2]})
    crafted = with_schema_of(written_with({"Fee": [2], "Amount": [1]}), honest)
    assert columns_of(crafted) == ["Fee", "Amount"]
    assert columns_of(honest) == ["Amount", "Fee"]


def test_a_crafted_footer_does_not_make_a_nested_column_look_like_a_flat_one() -> None:
    inner = pa.field("Depth", pa.int64(), nullable=False)
    outer = pa.field("Nested", pa.struct([inner]), nullable=False)
    flat, nested = io.BytesIO(), io.BytesIO()
    pq.write_table(pa.table([[1]], schema=pa.schema([inner])), flat, store_schema=False)
    pq.write_table(pa.table([pa.array([{"Depth": 1}], outer.type)], schema=pa.schema([outer])), nested)
    honest = as_written_here(flat.getvalue())
    open_parquet(io.BytesIO(honest), PATH, Config())
    assert "ME049" in refused(with_schema_of(nested.getvalue(), honest), Config())
