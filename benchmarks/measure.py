"""What the figures are measured on, and what a process uses."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from mirror_engine.tables.spark.java import find_java

PACKAGES = ("mirror-engine", "pyspark", "delta-spark", "deltalake", "duckdb", "pyarrow", "numpy")


def machine() -> dict[str, Any]:
    """Describe this machine and its software."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _line_of(Path("/proc/cpuinfo"), "model name") or platform.processor(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "java": find_java().version,
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "load": round(os.getloadavg()[0], 2),
    }


def status_bytes(name: str) -> int:
    """A size in this process's status: `VmRSS`, `VmHWM` (Linux)."""
    return int(_line_of(Path("/proc/self/status"), name).split()[0]) * 1024


def _line_of(path: Path, name: str) -> str:
    """What follows a name in one of the system's files; empty if the file or the name is missing."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
