"""What a failing Java program prints: the one line of it that says why."""

from __future__ import annotations

import re

_TRACE = re.compile(r"\s+at |\s*\.\.\. \d+ more")
_REASON = re.compile(r"Caused by|Exception|[Ee]rror")


def telling_line(printed: str) -> str:
    """The last line that names a cause, else the last line at all; `""` where nothing was printed."""
    lines = [line.strip() for line in printed.splitlines() if line.strip() and not _TRACE.match(line)]
    reasons = [line for line in lines if _REASON.search(line)]
    return (reasons or lines or [""])[-1].removeprefix("Caused by: ")
