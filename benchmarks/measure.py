"""Runs commands as whole processes, interleaved, and keeps seconds and peak memory of each."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_engine.tables.spark.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PACKAGES = ("mirror-engine", "pyspark", "delta-spark", "deltalake", "duckdb", "pyarrow", "numpy")


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
        "cores": len(os.sched_getaffinity(0)),
        "processor": _stated(Path("/proc/cpuinfo"), "model name") or platform.processor(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "java": find_java().version,
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "load": round(os.getloadavg()[0], 2),
    }


def family(pid: int) -> Iterator[int]:
    """A process and all below it (Linux)."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in " ".join(lines_of(children)).split():
            yield from family(int(child))


def cpu_seconds(pid: int) -> float:
    """What a process and all below it have used of processors so far (Linux)."""
    # the name may hold spaces; after it come 11 fields, then time in user and system mode
    stats = [" ".join(lines_of(Path(f"/proc/{each}/stat"))).rpartition(")")[2].split() for each in family(pid)]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats if stat) / os.sysconf("SC_CLK_TCK")


def lines_of(path: Path) -> list[str]:
    """A file of the system's; nothing where it is gone."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _stated(path: Path, name: str) -> str:
    return next((line.partition(":")[2].strip() for line in lines_of(path) if line.startswith(name)), "")
