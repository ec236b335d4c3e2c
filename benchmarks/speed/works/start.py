"""From nothing to the first applied file, as whole processes; and a second run that finds nothing to do."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from speed import equality, floor, rows
from speed.bench import Told
from speed.figures import Goal, Line
from speed.peers import environment
from speed.places import TABLE, land, mirrored, zone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from speed.bench import Bench

ONCE = (sys.executable, "-m", "mirror_engine.cli.main", "sync")
NOTEBOOK = (sys.executable, "-m", "speed.notebook")
SECONDS_BETWEEN_LOOKS = 0.005
MAX_SECONDS = 300.0


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
    applied: list[float] = []

    def look(seconds: float) -> None:
        if not applied and has_data(log):
            applied.append(seconds)

    seconds = seconds_of(command, look)
    return (*applied, seconds)[0], seconds


def has_data(log: Path) -> bool:
    """Whether a commit of a Delta log adds a data file."""
    return any('"add"' in commit.read_text(encoding="utf-8") for commit in log.glob("*.json"))


def seconds_of(command: Sequence[str], look: Callable[[float], None] = lambda _: None) -> float:
    """How long a process takes.

    Args:
        command: it.
        look: called again and again meanwhile, with the seconds so far.

    Raises:
        RuntimeError: it failed, or takes minutes; what it said last.
    """
    os.sync()
    with tempfile.TemporaryFile() as said:
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, env=environment())  # noqa: S603 - ours
        while process.poll() is None and time.monotonic() < started + MAX_SECONDS:
            look(time.monotonic() - started)
            time.sleep(SECONDS_BETWEEN_LOOKS)
        seconds = time.monotonic() - started
        if process.poll() != 0:
            process.kill()
            said.seek(0)
            last = said.read()[-2000:].decode(errors="replace")
            raise RuntimeError(f"{process.wait()} from {' '.join(command)}\n{last}")
    return seconds
