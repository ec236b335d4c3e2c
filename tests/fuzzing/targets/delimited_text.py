"""Delimited text under any metadata: an input holds both."""

from __future__ import annotations

import io
from contextlib import suppress
from typing import TYPE_CHECKING

from fuzzing.bytes_mutations import mutated_bytes
from fuzzing.json_mutations import mutated_json
from fuzzing.target import FIXTURES, Target, check_said, packed, unpacked

from mirror_engine.config import Config
from mirror_engine.landing_zone.diagnostics import RejectedFile
from mirror_engine.landing_zone.metadata import parse
from mirror_engine.tables.reading.text import open_text

if TYPE_CHECKING:
    from random import Random

CONFIG = Config(max_row_size=1 << 20, max_batch_size=1 << 20)
PATH = "Orders/00000000000000000001.csv"


def seeds() -> list[bytes]:
    """The fixtures' text files, each with its metadata."""
    found = set()
    for described in FIXTURES.glob("*/landing_zone/**/_metadata.json"):
        files = [path for path in described.parent.iterdir() if path.suffix in (".csv", ".tsv", ".txt")]
        found |= {packed([(b"m", described.read_bytes()), (b"f", path.read_bytes())]) for path in files}
    return sorted(found)


def run(content: bytes) -> None:
    """Rows as declared, twice the same, or a refusal."""
    files = dict(unpacked(content))
    metadata, _ = parse(files.get(b"m", b""), "Orders/_metadata.json")
    if metadata is None or not metadata.is_text:
        return
    with suppress(RejectedFile):
        try:
            file = open_text(io.BytesIO(files.get(b"f", b"")), PATH, metadata, CONFIG)
            first = [batch.num_rows for batch in file.batches()]
            check_said(file.diagnostics)
            assert [batch.num_rows for batch in file.batches()] == first
        except RejectedFile as refused:
            check_said([refused.diagnostic, *refused.others])
            raise


def shaped(content: bytes, random: Random) -> bytes:
    """Mostly the text is changed, sometimes its metadata."""
    files = dict(unpacked(content))
    name = b"m" if random.random() < 0.2 else b"f"
    change = mutated_json if name == b"m" else mutated_bytes
    return packed({**files, name: change(files.get(name, b""), random)})


TARGET = Target("delimited_text", seeds, run, shaped)
