"""The parsers that are fuzzed: how each runs on bytes, and the valid examples that are changed."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import socket
import sqlite3
import struct
import threading
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from fuzzing.mutations import mutated
from quick_folder import quick_folder

from mirror_engine import Mirror
from mirror_engine.config import Config
from mirror_engine.events import DiagnosticRaised, RetryScheduled, TableHalted
from mirror_engine.landing_zone.diagnostics import RejectedFile
from mirror_engine.landing_zone.layout import LEDGER
from mirror_engine.landing_zone.metadata import parse
from mirror_engine.landing_zone.text import UNSAFE
from mirror_engine.onelake.proxy import grant_tunnel
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.reading.parquet import ParquetChangeFile
from mirror_engine.tables.reading.text import TextChangeFile
from mirror_engine.testing.cases import load, names
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random


CONFIG = Config(max_row_size=1 << 20, max_batch_size=1 << 20, cleanup="off")
PATH = "Orders/00000000000000000001.parquet"
TAIL = 8  # of a Parquet file: the footer's length, and the magic
_LENGTH = struct.Struct("<I")
HOARDED_BYTES = 64 << 20


@dataclass(frozen=True)
class Target:
    """One parser.

    Attributes:
        seeds: valid examples.
        run: parses one input; an exception is a finding.
        changed: an input after one change.
        max_bytes: by how much one input may raise the memory's peak.
    """

    seeds: Callable[[], Iterable[bytes]]
    run: Callable[[bytes], None]
    changed: Callable[[bytes, Random], bytes] = mutated
    max_bytes: int = 400 << 20

    @cached_property
    def examples(self):
        return sorted(set(self.seeds()))

    def mutated(self, content, random):
        """The input after a few changes."""
        for _ in range(random.choice((1, 1, 2, 4))):
            content = self.changed(content, random)
        return content


def fixture_files(pattern):
    files = (file for name in names() for file in load(name).stages[0].files)
    return (file.content for file in files if PurePosixPath(file.path).match(pattern))


def check_messages(diagnostics):
    """Messages can be printed on one line of a log, and are bounded."""
    for diagnostic in diagnostics:
        for line in (diagnostic.message, diagnostic.help):
            assert line == line.translate(UNSAFE), diagnostic.code
            line.encode()
            assert len(line) < 1 << 20, diagnostic.code


def read_whole(open_file):
    """A file's rows are valid and twice the same, or it is rejected."""
    with suppress(RejectedFile):
        try:
            file = open_file()
            counts = []
            for batch in file.batches():
                batch.validate(full=True)
                counts.append(batch.num_rows)
            check_messages(file.diagnostics)
            assert [batch.num_rows for batch in file.batches()] == counts
        except RejectedFile as rejected:
            check_messages([rejected.diagnostic, *rejected.others])
            raise


# ---- Parquet


def parquet_files():
    """The fixtures' files, and encodings, versions and codecs that they do not use."""
    columns = {
        "Id": pa.array([1, 2, None, 4], pa.int32()),
        "Text": ["a", "b", None, "a" * 300],
        "Dict": pa.array(["x", "y", "x", None]).dictionary_encode(),
        "Price": pa.array([1, None, -9, 0], pa.decimal128(20, 2)),
        "At": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 4, pa.timestamp("us", "UTC")),
        "__rowMarker__": pa.array([0, 1, 2, 4], pa.int32()),
    }
    kinds = [
        {},
        {"data_page_version": "2.0", "compression": "zstd"},
        {"version": "1.0", "use_dictionary": False, "compression": "gzip"},
        {"row_group_size": 2, "write_page_index": True, "write_page_checksum": True},
        {"use_dictionary": False, "column_encoding": {"Id": "DELTA_BINARY_PACKED", "Text": "DELTA_BYTE_ARRAY"}},
        {"use_deprecated_int96_timestamps": True, "compression": "lz4"},
        {"store_decimal_as_integer": True, "compression": "brotli", "store_schema": False},
    ]
    yield from fixture_files("*.parquet")
    for options in kinds:
        sink = io.BytesIO()
        pq.write_table(pa.table(columns), sink, **options)
        yield sink.getvalue()


def changed_parquet(content, random):
    """Pages changed; or the footer, and its length put right; or any bytes."""
    begin = len(content) - TAIL - int.from_bytes(content[-TAIL:-4], "little")
    if begin < 4 or random.random() < 0.3:
        return mutated(content, random)
    if random.random() < 0.5:
        return content[:4] + mutated(content[4:begin], random) + content[begin:]
    footer = mutated(content[begin:-TAIL], random)
    return content[:begin] + footer + len(footer).to_bytes(4, "little") + content[-4:]


# ---- delimited text: an input holds metadata and a file


def text_files():
    for name in names():
        files = {PurePosixPath(file.path): file.content for file in load(name).stages[0].files}
        for path, content in files.items():
            described = files.get(path.with_name("_metadata.json"))
            if described is not None and path.suffix in {".csv", ".tsv", ".txt"}:
                yield _LENGTH.pack(len(described)) + described + content


def run_text(content):
    length = int.from_bytes(content[: _LENGTH.size], "little")
    described, text = content[_LENGTH.size :][:length], content[_LENGTH.size + length :]
    metadata, _ = parse(described, "Orders/_metadata.json")
    if metadata is not None and metadata.is_text:
        read_whole(lambda: TextChangeFile(io.BytesIO(text), PATH, metadata, CONFIG))


# ---- metadata


def run_metadata(content):
    """Usable metadata, or errors."""
    for strict in (False, True):
        metadata, diagnostics = parse(content, "Orders/_metadata.json", strict=strict)
        check_messages(diagnostics)
        str(metadata).encode()
        assert metadata is not None or diagnostics


# ---- ledger


@cache
def _mirror():
    """A ROOT with a caught-up, a blocked and a halted table, its tables, and its ledger's bytes."""
    folder, writer = quick_folder(), MemoryDeltaWriter()
    zone = LandingZoneWriter(folder.name)
    for name in ("CaughtUp", "Blocked", "S.Halted"):
        table = zone.table(name, keys=["Id"])
        table.insert({"Id": 1, "City": "Linz"})
        table.skip_numbers(name == "Blocked")
        table.land(b"not Parquet")
    Mirror(folder.name, CONFIG, writer=writer).sync()
    ledger = Path(folder.name) / LEDGER
    with closing(sqlite3.connect(ledger)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return folder, writer, ledger.read_bytes()


def run_ledger(content):
    """It is read, or put aside; and the engine goes on."""
    folder, tables, _ = _mirror()
    ledger = Path(folder.name) / LEDGER
    for file in ledger.parent.glob("*ledger*"):
        file.unlink()
    ledger.write_bytes(content)
    writer = MemoryDeltaWriter()
    writer._tables = {name: list(commits) for name, commits in tables._tables.items()}
    Mirror(folder.name, CONFIG, writer=writer).status()
    stop = threading.Event()
    Mirror(folder.name, CONFIG, writer=writer, listeners=[partial(_check_event, stop)]).sync(stop)


def _check_event(stop, event):
    match event:
        case DiagnosticRaised(_, diagnostic) | TableHalted(_, diagnostic):
            check_messages([diagnostic])
        case RetryScheduled(_, message, _):
            assert "internal error" not in message  # see `InternalError`
            stop.set()


# ---- HTTP head of the emulator's proxy

HEADS = (
    b"CONNECT onelake.dfs.fabric.microsoft.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n",
    b"CONNECT user:secret@example.org:443 HTTP/1.0\r\n\r\n",
)


def run_head(content):
    """A tunnel, or one response."""
    asyncio.run(_proxied(content))


async def _proxied(content):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        ours.sendall(content[: 1 << 16])
        ours.shutdown(socket.SHUT_WR)
        is_granted = await grant_tunnel(theirs)
        answer = ours.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 200" if is_granted else b"HTTP/1.1 4")
    assert b"secret" not in answer


# ---- broken on purpose: fuzzing must find them


def _broken(break_it):
    def run(content):
        if content != b"good":
            break_it()

    return Target(lambda: [b"good"], run, max_bytes=HOARDED_BYTES // 2)


TARGETS = {
    "parquet": Target(parquet_files, lambda content: read_whole(partial(_parquet, content)), changed_parquet),
    "delimited_text": Target(text_files, run_text),
    "metadata": Target(lambda: fixture_files("_metadata.json"), run_metadata),
    "ledger": Target(lambda: [_mirror()[2]], run_ledger),
    "http_head": Target(lambda: HEADS, run_head),
}
BROKEN = {
    "raises": _broken(lambda: {}["missing"]),
    "crashes": _broken(lambda: os.kill(os.getpid(), signal.SIGSEGV)),
    "hoards": _broken(lambda: bytes(b"\1" * HOARDED_BYTES)),
}


def _parquet(content):
    return ParquetChangeFile(io.BytesIO(content), PATH, CONFIG)
