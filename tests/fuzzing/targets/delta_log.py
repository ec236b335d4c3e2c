"""A Delta table as the engine reads it without a JVM: its log, its checkpoint, its data files."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
from delta_scenario import Scenario, schema_of
from deltalake import DeltaTable, write_deltalake
from fuzzing.bytes_mutations import mutated_bytes
from fuzzing.json_mutations import mutated_json
from fuzzing.target import Target, packed, unpacked
from fuzzing.targets import parquet
from fuzzing.targets.zone import land
from quick_folder import quick_folder

from mirror_engine import Mirror
from mirror_engine.errors import MirrorError
from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.tables.merge.spark import SparkDeltaWriter

if TYPE_CHECKING:
    from random import Random

TABLE = "dbo/T"


def _writer(root: Path) -> SparkDeltaWriter:
    def no_session() -> NoReturn:
        raise AssertionError("Spark was started")

    return SparkDeltaWriter(root / TABLES, root / SCRATCH, no_session)


def seeds() -> list[bytes]:
    """A table of ours with foreign commits behind it; then with a checkpoint."""
    with quick_folder() as folder:
        root = Path(folder)
        writer = _writer(root)
        Scenario(writer, schema_of("Id", "City:string"), ["Id"]).create()
        place = str(root / TABLES / TABLE)
        for number in (1, 2):
            rows = pa.table({"Id": pa.array([number], pa.int32()), "City": ["x"]})
            write_deltalake(place, rows, mode="append")
        first = _contents(root / TABLES / TABLE)
        DeltaTable(place).create_checkpoint()
        return [first, _contents(root / TABLES / TABLE)]


def _contents(folder: Path) -> bytes:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return packed((os.fsencode(path.relative_to(folder)), path.read_bytes()) for path in files)


def run(content: bytes) -> None:
    """What the log says, or that this table is damaged; and every other table goes on."""
    with quick_folder() as folder:
        root = Path(folder)
        land(root / TABLES / TABLE, content)
        writer = _writer(root)
        for read in (writer.state, writer.history, writer.row_count, writer.rows):
            with suppress(MirrorError):
                read(TABLE)
        Mirror(root, writer=writer).status()


def shaped(content: bytes, random: Random) -> bytes:
    """One file changed: a line of a commit, a checkpoint, a data file."""
    files = list(unpacked(content))
    if not files:
        return mutated_bytes(content, random)
    at = random.randrange(len(files))
    path, file = files[at]
    if path.endswith(b".parquet"):
        return packed([*files[:at], (path, parquet.shaped(file, random)), *files[at + 1 :]])
    lines = file.split(b"\n")
    line = random.randrange(len(lines))
    lines[line] = mutated_json(lines[line], random)
    return packed([*files[:at], (path, b"\n".join(lines)), *files[at + 1 :]])


TARGET = Target("delta_log", seeds, run, shaped)
