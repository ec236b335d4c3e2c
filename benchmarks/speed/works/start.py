"""From nothing to the first applied file, as whole processes; and a second run that finds nothing to do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from speed import equality, floor, rows
from speed.bench import Told
from speed.figures import Goal, Line
from speed.peers import environment
from speed.places import TABLE, land, mirrored, zone

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from speed.bench import Bench

ONCE = (sys.executable, "-m", "mirror_engine.cli.main", "once")
NOTEBOOK = (sys.executable, "-m", "speed.notebook")
SECONDS_BETWEEN_LOOKS = 0.005
LONGEST_SECONDS = 300.0


def start(bench: Bench) -> Line:
    """One small file into a new table."""
    files = rows.initial_load(bench.home / "data" / "start", bench.sizes.tiny_rows, 1)
    expected = equality.of_query(floor.after(files, []))

    def mirror(place: Path) -> Told:
        zone(place)
        land(place, files)
        log = mirrored(place) / "_delta_log"
        first, whole = until_applied([*ONCE, str(place)], log)
        level = seconds_of([*ONCE, str(place)])
        seconds = {"mirror": first, "its whole process": whole, "second run, level": level}
        return Told(seconds, mirrored(place), expected)

    def notebook(place: Path) -> Told:
        command = [*NOTEBOOK, str(place / TABLE), *map(str, files)]
        first, whole = until_applied(command, place / TABLE / "_delta_log")
        return Told({"notebook": first, "notebook's whole process": whole}, place / TABLE, expected)

    figures = bench.compare({"mirror": mirror, "notebook": notebook})
    return Line(
        figures,
        (
            Goal("≤ 0.45 x the notebook", figures.ratio("mirror", "notebook"), at_most=0.45),
            Goal("second run on a level zone ≤ 0.5 s", figures.median("second run, level"), " s", at_most=0.5),
        ),
    )


def until_applied(command: Sequence[str], log: Path) -> tuple[float, float]:
    """How long until a Delta log has a commit with a data file, as seen from outside; and until the process ends."""
    os.sync()
    started = time.monotonic()
    process = _started(command)
    applied = None
    while process.poll() is None and time.monotonic() < started + LONGEST_SECONDS:
        if applied is None and has_data(log):
            applied = time.monotonic() - started
        time.sleep(SECONDS_BETWEEN_LOOKS)
    seconds = time.monotonic() - started
    _must_be_well(process, command)
    return applied if applied is not None else seconds, seconds


def has_data(log: Path) -> bool:
    """Whether a commit of a Delta log adds a data file."""
    return any('"add"' in commit.read_text(encoding="utf-8") for commit in log.glob("*.json"))


def seconds_of(command: Sequence[str]) -> float:
    """How long a process takes."""
    os.sync()
    started = time.monotonic()
    process = _started(command)
    process.wait(LONGEST_SECONDS)
    seconds = time.monotonic() - started
    _must_be_well(process, command)
    return seconds


def _started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet, env=environment())  # noqa: S603 - our own


def _must_be_well(process: subprocess.Popen[bytes], command: Sequence[str]) -> None:
    if process.poll() != 0:
        process.kill()
        raise RuntimeError(f"{process.wait()} from {' '.join(command)}")
