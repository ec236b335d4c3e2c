"""What is looked at while the engine runs, and whether it grows."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from deltalake import DeltaTable

PROC = Path("/proc")
CLEANING_SECONDS = 3.0  # Spark gives back what a collection freed; the next one takes it
FEWEST = 3  # values that make a trend
READER = "tokio-rt-worker"
POOLS = {  # Spark's, as the system cuts their names; a thread that is idle for a minute ends
    "block-manager-s",
    "block-manager-a",
    "shuffle-exchang",
    "broadcast-excha",
    "ResultQueryStag",
    "QueryStageCreat",
}
_USED = re.compile(r"heap .* used (\d+)K")


@dataclass(frozen=True)
class Sample:
    """One look; None where it could not be taken.

    Attributes:
        at: seconds since 1970.
        python_mb, jvm_mb: resident memory.
        live_heap_mb: of the JVM, what is left after a full garbage collection; only now and then, and with a JDK.
        python_files, jvm_files: open files.
        python_threads, jvm_threads: threads, those of the next two lines aside.
        reader_threads: of deltalake's, which reads the files of a log side by side; each ends when idle for 10 s.
        pool_threads: in Spark's own pools, which start one for each job until they are full.
        behind: files landed and not yet in a commit.
        delta_files: data files that make up all tables.
        fullest_table: data files of the table that has most.
        log_entries: commits in all Delta logs.
    """

    at: float
    python_mb: float | None
    jvm_mb: float | None
    live_heap_mb: float | None
    python_files: float | None
    jvm_files: float | None
    python_threads: float | None
    jvm_threads: float | None
    reader_threads: float | None
    pool_threads: float | None
    behind: float | None
    delta_files: float | None
    fullest_table: float | None
    log_entries: float | None


@dataclass(frozen=True)
class Trend:
    """A measure over the second two thirds of the run.

    Attributes:
        mean, highest: of the values.
        growth_a_minute: by linear regression.
        growth: what that comes to over the whole time looked at.
    """

    mean: float
    highest: float
    growth_a_minute: float
    growth: float


def sample(engine: int, tables: Path, behind: int, live_heap_mb: float | None) -> Sample:
    """Look once.

    Args:
        engine: the process's id.
        tables: `ROOT/Tables`.
        behind: files landed and not yet in a commit.
        live_heap_mb: as `live_heap_mb` told, where it was asked.
    """
    jvm = _jvm_of(engine)
    python, java = _Process.of(engine), _Process.of(jvm) if jvm else _Process()
    counts = [len(DeltaTable(str(folder.parent)).file_uris()) for folder in tables.glob("*/*/_delta_log")]
    return Sample(
        at=time.time(),
        python_mb=python.memory_mb,
        jvm_mb=java.memory_mb,
        live_heap_mb=live_heap_mb,
        python_files=python.files,
        jvm_files=java.files,
        python_threads=python.threads,
        jvm_threads=java.threads,
        reader_threads=python.passing,
        pool_threads=java.passing,
        behind=behind,
        delta_files=sum(counts),
        fullest_table=max(counts, default=0),
        log_entries=sum(1 for _ in tables.glob("*/*/_delta_log/*.json")),
    )


def live_heap_mb(engine: int) -> float | None:
    """What the engine's JVM holds once all garbage is gone; None without a JVM, or without the JDK's own tool."""
    jvm, tool = _jvm_of(engine), shutil.which("jcmd")
    if not jvm or not tool:
        return None

    def told(word: str) -> str:
        return subprocess.run([tool, str(jvm), word], capture_output=True, text=True, check=False).stdout

    told("GC.run")
    time.sleep(CLEANING_SECONDS)
    told("GC.run")
    used = _USED.search(told("GC.heap_info"))
    return int(used[1]) / 1024 if used else None


def trend(times: list[float], values: list[float | None]) -> Trend | None:
    """How a measure went in the second two thirds; None where it was hardly taken."""
    pairs = [(at, value) for at, value in zip(times, values, strict=True) if value is not None]
    begin, end = times[0], times[-1]
    late = [(at - begin, value) for at, value in pairs if at >= begin + (end - begin) / 3]
    if len(late) < FEWEST:
        return None
    at, value = np.array(late).T
    slope = float(np.polyfit(at, value, 1)[0])
    return Trend(float(value.mean()), float(value.max()), slope * 60, slope * float(at[-1] - at[0]))


def trends(samples: list[Sample]) -> dict[str, Trend]:
    """The trend of every measure."""
    times = [each.at for each in samples]
    found = {
        field.name: trend(times, [getattr(each, field.name) for each in samples])
        for field in fields(Sample)
        if field.name != "at"
    }
    return {name: each for name, each in found.items() if each is not None}


def _jvm_of(process: int) -> int | None:
    """The Java process below it, however many shells lie between."""
    below = [process]
    while below:
        process = below.pop()
        try:
            if (PROC / str(process) / "comm").read_text().strip() == "java":
                return process
            for task in (PROC / str(process) / "task").iterdir():
                below += [int(child) for child in (task / "children").read_text().split()]
        except FileNotFoundError:
            continue
    return None


@dataclass(frozen=True)
class _Process:
    """What a process holds; None where it is gone."""

    memory_mb: float | None = None
    files: int | None = None
    threads: int | None = None
    passing: int | None = None

    @classmethod
    def of(cls, process: int) -> _Process:
        """As it is now."""
        home = PROC / str(process)
        try:
            status = dict(line.split(":", 1) for line in (home / "status").read_text().splitlines())
            names = [(task / "comm").read_text().strip() for task in (home / "task").iterdir()]
            files = sum(1 for _ in (home / "fd").iterdir())
            passing = sum(name == READER or name in POOLS for name in names)
            return cls(int(status["VmRSS"].split()[0]) / 1024, files, len(names) - passing, passing)
        except (FileNotFoundError, ProcessLookupError, KeyError):  # it, or one of its threads, has just ended
            return cls()
