"""Exit codes, and which one an error or a report has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.errors import (
    InternalError,
    MirrorError,
    RootLocked,
    TableDamaged,
    TransientError,
    UsageError,
)
from mirror_engine.landing_zone.diagnostics import RejectedFile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror_engine.engine.run import RunResult

SUCCESS = 0
FAILURE = 1
USAGE = 2
NEEDS_ATTENTION = 3
RETRY = 4
INTERRUPTED = 130

MEANINGS = {
    SUCCESS: "success",
    FAILURE: "missing prerequisite or internal error",
    USAGE: "usage error",
    NEEDS_ATTENTION: "needs attention: a table is stuck, or the check found problems",
    RETRY: "temporary: storage, conflict, lock or timeout; retry",
    INTERRUPTED: "interrupted",
}


def of_error(error: MirrorError) -> int:
    """The exit code of a foreseen error, as drawn in `mirror_engine.errors`."""
    match error:
        case UsageError():
            return USAGE
        case InternalError():
            return FAILURE
        case RejectedFile() | TableDamaged():
            return NEEDS_ATTENTION
        case TransientError() | RootLocked():
            return RETRY
        case _:
            return FAILURE


def of_errors(errors: Iterable[MirrorError]) -> int:
    """The exit code of errors of several tables: that of the worst, which is the smallest."""
    return min(map(of_error, errors), default=SUCCESS)


def of_result(result: RunResult) -> int:
    """The exit code of a finished run."""
    return {"CAUGHT_UP": SUCCESS, "NEEDS_ATTENTION": NEEDS_ATTENTION, "RETRY": RETRY, "FAILED": FAILURE}[result.name]
