"""Whole landing zones on a real disk, read by the whole engine: an input holds their files by path."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fuzzing.bytes_mutations import mutated_bytes
from fuzzing.json_mutations import mutated_json
from fuzzing.target import FIXTURES, Target, check_said, packed, unpacked
from fuzzing.targets import parquet
from quick_folder import quick_folder

from mirror_engine import Mirror
from mirror_engine.config import Config
from mirror_engine.events import DiagnosticRaised, Event, RetryScheduled, TableHalted
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

if TYPE_CHECKING:
    from random import Random

CONFIG = Config(max_row_size=1 << 20, max_batch_size=1 << 20)
UNFORESEEN = "unforeseen"  # as `InternalError` says it


def seeds() -> list[bytes]:
    """The fixtures' zones."""
    found = []
    for zone in sorted(FIXTURES.glob("*/landing_zone")):
        files = sorted(path for path in zone.rglob("*") if path.is_file())
        found.append(packed((os.fsencode(path.relative_to(zone)), path.read_bytes()) for path in files))
    return found


def run(content: bytes) -> None:
    """The engine ends each of its runs, and meets nothing that it did not foresee."""
    with quick_folder() as folder:
        root = Path(folder)
        land(root / ZONE, content)
        writer = MemoryDeltaWriter()
        for _ in range(2):
            stop = threading.Event()
            Mirror(root, CONFIG, writer=writer, listeners=[partial(foreseen, stop)]).sync(stop)
        Mirror(root, CONFIG, writer=writer).status()


def land(zone: Path, content: bytes) -> None:
    """Write an input's files below a folder, whatever their paths, but never beside it."""
    zone.mkdir(parents=True)
    for path, file in unpacked(content):
        parts = [part for part in path.replace(b"\0", b"").split(b"/") if part not in (b"", b".", b"..")]
        with suppress(OSError):  # a name too long, a file where a folder must be
            place = Path(os.fsdecode(b"/".join([os.fsencode(zone), *parts])))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file)


def foreseen(stop: threading.Event, event: Event) -> None:
    match event:
        case DiagnosticRaised(_, diagnostic) | TableHalted(_, diagnostic):
            check_said([diagnostic])
        case RetryScheduled(_, message, _):
            assert UNFORESEEN not in message
            stop.set()  # a file stands where a folder must be: to wait would not help


def shaped(content: bytes, random: Random) -> bytes:
    """One file's path or content changed, as its kind wants it; or a file of another zone beside it."""
    files = list(unpacked(content))
    if not files or random.random() < 0.1:
        return packed([*files, *unpacked(random.choice(TARGET.begun_with))])
    at = random.randrange(len(files))
    path, file = files[at]
    if random.random() < 0.4:
        return packed([*files[:at], (mutated_bytes(path, random), file), *files[at + 1 :]])
    change = {b"json": mutated_json, b"parquet": parquet.shaped}.get(path.rpartition(b".")[2], mutated_bytes)
    return packed([*files[:at], (path, change(file, random)), *files[at + 1 :]])


TARGET = Target("zone", seeds, run, shaped)
