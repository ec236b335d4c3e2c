"""Expected tables of `diff`: CSV, JSON, Parquet; an input names its form in its first byte."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from fuzzing.bytes_mutations import mutated_bytes
from fuzzing.json_mutations import mutated_json
from fuzzing.target import Target
from fuzzing.targets import parquet
from quick_folder import quick_folder

from mirror_engine.errors import UsageError
from mirror_engine.publisher.diff import compare, read_expected

if TYPE_CHECKING:
    from random import Random

SCHEMA = pa.schema(
    [
        *(("Id", pa.int32()), ("Text", pa.string()), ("Price", pa.decimal128(20, 2)), ("Yes", pa.bool_())),
        *(("At", pa.timestamp("us", "UTC")), ("Day", pa.date32()), ("Raw", pa.binary()), ("Rate", pa.float64())),
    ]
)
FORMS = (".csv", ".json", ".parquet")
CSV = b'Id,Text,Price,Yes,At,Day,Raw,Rate\n1,"a ""b""",1.50,true,2026-01-01T00:00:00Z,2026-01-01,AP8=,1e3\n2,,,,,,,\n'
JSON = (
    b'[{"Id": 1, "Text": "a", "Price": "1.50", "Yes": true, "At": "2026-01-01T00:00:00Z", "Raw": "AP8=", "Rate": 1e3},'
    b'{"Id": 2, "Price": 3.25, "Day": "2026-01-01", "Other": [1]}]'
)


def seeds() -> list[bytes]:
    """One or more of each form."""
    lines = b'{"Id": 1, "Text": "a"}\n{"Id": 2}\n'
    return [b"\0" + CSV, b"\1" + JSON, b"\1" + lines, *(b"\2" + file for file in parquet.seeds()[:20])]


def run(content: bytes) -> None:
    """A table that can be compared, or what is wrong with the file."""
    form = FORMS[content[0] % len(FORMS)] if content else ".csv"
    with quick_folder() as folder:
        path = Path(folder) / f"expected{form}"
        path.write_bytes(content[1:])
        with suppress(UsageError):
            try:
                compare(SCHEMA.empty_table(), read_expected(path, SCHEMA), ["Id"])
            except UsageError as wrong:
                str(wrong).encode()
                raise


def shaped(content: bytes, random: Random) -> bytes:
    """Changed as its form wants it."""
    changes = (mutated_bytes, mutated_json, parquet.shaped)
    return content[:1] + changes[content[0] % len(FORMS) if content else 0](content[1:], random)


TARGET = Target("expected_table", seeds, run, shaped)
