"""One mirrored database: wires the two doors, the engine and the listeners, for programs and for the command line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(str, Enum):
    """How a run ended, gravest first; the command line's exit codes."""

    RETRY = "try again"  # storage or a conflict: exit 4
    REFUSED = "refused"  # a table is latched or blocked: exit 3
    LEVEL = "level"  # exit 0


@dataclass(frozen=True)
class Report:
    """What `once` did.

    Attributes:
        verdict: the gravest thing found.
        batches: commits made.
        files: change files applied.
        rows: rows applied.
        seconds: from start to end.
    """

    verdict: Verdict
    batches: int
    files: int
    rows: int
    seconds: float
