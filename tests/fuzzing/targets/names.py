"""Names of change files, of Hive folders, of tables: as listed, in one table folder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fuzzing.bytes_mutations import mutated_bytes
from fuzzing.target import FIXTURES, Target, check_said

from mirror_engine.landing_zone.detection import ChangeFileName, detect
from mirror_engine.landing_zone.listing import LandedFile
from mirror_engine.landing_zone.metadata import Metadata, Strategy
from mirror_engine.landing_zone.names import TableName, conflicts, schema_of
from mirror_engine.landing_zone.progress import AppliedFile, Progress
from mirror_engine.storage.base import is_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

APPLIED = {"day=1/00000000000000000001.parquet": AppliedFile("etag", "", 0, 1, 5)}


def seeds() -> list[bytes]:
    """What lies in the fixtures' table folders."""
    found = set()
    for zone in FIXTURES.glob("*/landing_zone"):
        paths = [path.relative_to(zone).as_posix() for path in zone.rglob("*") if path.is_file()]
        found.add("\0".join(path.partition("/")[2] or path for path in paths).encode())
    return sorted(found)


def run(content: bytes) -> None:
    """Every file is ready, later, or ignored; none twice."""
    paths = list(dict.fromkeys(_paths(content)))
    names = [TableName(schema_of(path.partition("/")[0]) or "", path.rpartition("/")[2]) for path in paths]
    assert conflicts(names, "dbo").keys() <= set(names)
    for name in names:
        parsed = ChangeFileName.parse(name.table)
        assert parsed is None or str(parsed) == name.table
    files = [LandedFile(path, 1, at % 3, f"id{at}") for at, path in enumerate(paths)]
    progress = Progress("g", "1", watermarks={"day=1": 1}, applied=APPLIED)
    for metadata in _tables():
        found = detect(TableName("S", "T"), files, metadata, progress if metadata.key_columns else None)
        check_said(found.diagnostics)
        sorted_out = [file.path for file in (*found.ready, *found.later, *found.ignored)]
        assert len(set(sorted_out)) == len(sorted_out)
        assert set(sorted_out) <= set(paths)


def _paths(content: bytes) -> Iterable[str]:
    for path in content.split(b"\0"):
        parts = [part for part in path.decode("utf-8", "surrogateescape").split("/") if part not in ("", ".", "..")]
        if parts and all(map(is_text, parts)):  # door 1 shows no other
            yield "/".join(parts)


def _tables() -> list[Metadata]:
    plain = [Metadata(partitioned=True), Metadata(), Metadata(key_columns=("Id",), partitioned=True)]
    return [*plain, *(replace(each, strategy=Strategy.LAST_UPDATE_TIME) for each in plain)]


def shaped(content: bytes, random: Random) -> bytes:
    """One name changed, or two swapped."""
    names = content.split(b"\0")
    at, other = random.randrange(len(names)), random.randrange(len(names))
    names[at], names[other] = names[other], mutated_bytes(names[at], random)
    return b"\0".join(names)


TARGET = Target("names", seeds, run, shaped)
