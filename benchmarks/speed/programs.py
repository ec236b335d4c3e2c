"""Whole programs, timed from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from speed.peers import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

MIRROR = (sys.executable, "-m", "mirror_engine.cli.main")
NOTEBOOK = (sys.executable, "-m", "speed.notebook")
DELTA_RS = (sys.executable, "-m", "speed.engines")
SECONDS_BETWEEN_LOOKS = 0.005
MAX_SECONDS = 300.0


def sync(root: Path, merge_engine: str) -> list[str]:
    """The command that applies what has landed."""
    return [*MIRROR, "sync", str(root), "--merge-engine", merge_engine]


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
