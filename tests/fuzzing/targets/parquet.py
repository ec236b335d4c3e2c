"""Parquet change files: footers, page headers, pages."""

from __future__ import annotations

import io
from contextlib import suppress
from datetime import datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from fuzzing.bytes_mutations import mutated_bytes
from fuzzing.target import Target, check_said, fixture_files

from mirror_engine.config import Config
from mirror_engine.landing_zone.diagnostics import RejectedFile
from mirror_engine.tables.reading.parquet import open_parquet

if TYPE_CHECKING:
    from random import Random

CONFIG = Config(max_row_size=1 << 20, max_batch_size=1 << 20)
PATH = "Orders/00000000000000000001.parquet"
TAIL = 8  # the footer's length, and the magic


def seeds() -> list[bytes]:
    """The fixtures' files, and some that use what they do not: encodings, versions, indexes, Bloom filters."""
    columns: dict[str, Any] = {
        "Id": pa.array([1, 2, None, 4], pa.int32()),
        "Text": ["a", "b", None, "a" * 300],
        "Dict": pa.array(["x", "y", "x", None]).dictionary_encode(),
        "Price": pa.array([Decimal("1.50"), None, Decimal("-9.99"), Decimal(0)], pa.decimal128(20, 2)),
        "At": pa.array([datetime(2026, 1, 1, tzinfo=timezone.utc)] * 4, pa.timestamp("us", "UTC")),
        "Yes": [True, False, None, True],
        "Fixed": pa.array([b"abcd"] * 4, pa.binary(4)),
        "__rowMarker__": pa.array([0, 1, 2, 4], pa.int32()),
    }
    table = pa.table(columns)
    kinds: list[dict[str, Any]] = [
        {},
        {"data_page_version": "2.0", "compression": "zstd"},
        {"version": "1.0", "use_dictionary": False, "compression": "gzip"},
        {"row_group_size": 2, "write_page_index": True, "write_page_checksum": True},
        {"use_dictionary": False, "column_encoding": {"Id": "DELTA_BINARY_PACKED", "Text": "DELTA_BYTE_ARRAY"}},
        {"use_dictionary": False, "column_encoding": {"Text": "DELTA_LENGTH_BYTE_ARRAY"}, "compression": "none"},
        {"use_deprecated_int96_timestamps": True, "compression": "lz4"},
        {"store_decimal_as_integer": True, "compression": "brotli", "store_schema": False},
    ]
    return [*(table_bytes(table, **options) for options in kinds), *fixture_files("*.parquet")]


def table_bytes(table: pa.Table | dict[str, list[Any]], **options: Any) -> bytes:
    """A table as Parquet."""
    sink = io.BytesIO()
    pq.write_table(pa.table(table), sink, **options)
    return sink.getvalue()


def run(content: bytes) -> None:
    """Rows in the types that were told, or a refusal."""
    with suppress(RejectedFile):
        try:
            file = open_parquet(io.BytesIO(content), PATH, CONFIG)
            names = [column.name for column in file.columns]
            for batch in file.batches(names[:1]):
                batch.validate(full=True)
            for batch in file.batches():
                batch.validate(full=True)
                assert batch.schema.names[: len(names)] == names
            check_said(file.diagnostics)
        except RejectedFile as refused:
            check_said([refused.diagnostic, *refused.others])
            raise


def shaped(content: bytes, random: Random) -> bytes:
    """Pages changed; or the footer, and its length put right."""
    length = int.from_bytes(content[-TAIL:-4], "little")
    begin = len(content) - TAIL - length
    if begin < 4 or random.random() < 0.4:
        at = random.randrange(4, max(begin, 5))
        return content[:4] + mutated_bytes(content[4:at], random) + content[at:]
    footer = mutated_bytes(content[begin:-TAIL], random)
    return content[:begin] + footer + len(footer).to_bytes(4, "little") + content[-4:]


TARGET = Target("parquet", seeds, run, shaped)
