"""The most memory that this process has had so far."""

from __future__ import annotations

import resource
from pathlib import Path

KIB = 1024


def peak_bytes() -> int:
    """In bytes; where there is no /proc, never less than the peak of the process that started this one."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) * KIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
