"""Runs commands as whole processes, interleaved, and keeps seconds and peak memory of each."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass
class Figures:
    """What the rounds of one work came to."""

    seconds: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)

    @property
    def median_seconds(self) -> float:
        """Half of the rounds took less."""
        return statistics.median(self.seconds)

    @property
    def most_bytes(self) -> int:
        """The highest peak of resident memory."""
        return max(self.peak_bytes)


def interleaved(works: Mapping[str, Sequence[str]], rounds: int) -> dict[str, Figures]:
    """Every work once per round, after one round that warms the file cache; each must end with 0."""
    figures = {name: Figures() for name in works}
    for number in range(rounds + 1):
        for name, command in works.items():
            seconds, peak = _timed(command)
            if number:
                figures[name].seconds.append(seconds)
                figures[name].peak_bytes.append(peak)
    return figures


def _timed(command: Sequence[str]) -> tuple[float, int]:
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 - our own commands
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - started
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"failed: {command}")
    return seconds, usage.ru_maxrss * 1024


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "load": round(os.getloadavg()[0], 2),
    }
