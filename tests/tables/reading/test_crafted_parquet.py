"""A small Parquet file takes no more memory than it really expands to, whatever its headers and footer claim."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirror_engine.config import Config
from mirror_engine.landing_zone.diagnostics import RejectedFile
from mirror_engine.tables.reading.parquet import ParquetChangeFile

PATH = "Orders/00000000000000000001.parquet"
MEBIBYTE = 1 << 20
CLAIM = 2**31 - 1
UNCOMPRESSED_SIZE, COMPRESSED_SIZE = 1, 2  # which number of a page's header, from 0

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


def parquet(table, **options):
    sink = io.BytesIO()
    pq.write_table(
        table, sink, **{"use_dictionary": False, "write_statistics": False, "store_schema": False, **options}
    )
    return sink.getvalue()


def varint(number):
    """A zigzag varint, as Thrift's compact protocol writes an i32."""
    number = number << 1 ^ number >> 31
    content = b""
    while number > 0x7F:
        content += bytes([number & 0x7F | 0x80])
        number >>= 7
    return content + bytes([number])


def with_page_header(content, field, number):
    """The first page's header, which begins with three numbers, with another one in it."""
    at = 4
    for _ in range(field):
        at = end_of_number(content, at)
    return content[: at + 1] + varint(number) + content[end_of_number(content, at) :]


def end_of_number(content, at):
    assert content[at] == 0x15  # the next field, an i32
    return next(place for place in range(at + 1, at + 7) if content[place] < 0x80) + 1


def zeros(mebibytes):
    return parquet(pa.table({"Text": ["\0" * (mebibytes * MEBIBYTE)]}), compression="zstd")


LONG = "x" * 40_000
PREFIXED = {"column_encoding": {"Text": "DELTA_BYTE_ARRAY"}}
# a file, MiB by which its process may grow, what comes of it, and MiB by which it grows at most
FILES = {
    "2 GiB of compressed bytes, claimed by a page header": (
        lambda: with_page_header(parquet(pa.table({"Id": [1, 2]})), COMPRESSED_SIZE, CLAIM),
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
    "an honest file under a limit": (lambda: parquet(pa.table({"Id": list(range(100_000))})), 128, "read", 128),
    "a dictionary of long values, 300 MiB": (
        lambda: parquet(pa.table({"Text": [LONG] * 8_000}), use_dictionary=True),
        *(0, "read", 200),
    ),
    "values that share a long beginning": (
        lambda: parquet(pa.table({"Text": [f"{LONG}{number}" for number in range(8_000)]}), **PREFIXED),
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
def test_a_page_that_claims_an_impossible_size_is_rejected(source, field, number):
    content = with_page_header(parquet(pa.table({"Id": [1, 2], "City": ["Linz", "Graz"]})), field, number)
    with pytest.raises(RejectedFile, match="the pages of row group 1 cannot be read"):
        list(ParquetChangeFile(source(content), PATH, Config()).batches())


def test_a_footer_whose_row_groups_would_expand_beyond_the_bounds_is_rejected_unread():
    content = parquet(pa.table({"Text": ["x" * 100_000] * 20}), compression="zstd")
    with pytest.raises(RejectedFile, match="ME075"):
        next(ParquetChangeFile(io.BytesIO(content), PATH, Config(max_row_size=20_000)).batches())


def test_more_footer_structs_than_any_table_has_columns_are_rejected():
    content = parquet(pa.table({"Id": pa.array([], pa.int64())}))
    length = int.from_bytes(content[-8:-4], "little")
    columns = b"\x29\xfc" + b"\xff\xff\xff\x7f"  # a list of 268 million structs
    footer = content[-8 - length : -8]
    assert footer[2] == 0x19  # the schema
    crafted = footer[:2] + columns[:1].replace(b"\x29", b"\x19") + columns[1:] + footer[4:]
    with pytest.raises(RejectedFile, match="its footer cannot be understood"):
        ParquetChangeFile(
            io.BytesIO(content[: -8 - length] + crafted + len(crafted).to_bytes(4, "little") + b"PAR1"), PATH, Config()
        )


def test_a_footer_that_is_nested_deeply_is_rejected():
    footer = b"\x19" * 10_000  # a list of a list of a list
    content = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(RejectedFile, match="its footer cannot be understood"):
        ParquetChangeFile(io.BytesIO(content), PATH, Config())
