"""What the program's exit codes mean, and which one an error or a report gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.errors import (
    EngineFault,
    MirrorError,
    PublisherError,
    RootInUse,
    TableDamaged,
    TransientError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror_engine.running import Verdict

LEVEL = 0
FAILURE = 1
USAGE = 2
REFUSED = 3
RETRY = 4
INTERRUPTED = 130

MEANINGS = {
    LEVEL: "done; with `once`, all tables are level",
    FAILURE: "failure: this machine lacks something, or a fault of the program",
    USAGE: "wrong usage: command, option, value, table or folder",
    REFUSED: "a table latched or blocked; `validate`, `diff`, `trace` found something",
    RETRY: "try again: storage, a conflict, or another engine on this ROOT",
    INTERRUPTED: "interrupted with Ctrl+C",
}


def of_error(error: MirrorError) -> int:
    """The exit code of a foreseen error, as drawn in `mirror_engine.errors`."""
    match error:
        case UsageError():
            return USAGE
        case EngineFault():
            return FAILURE
        case PublisherError() | TableDamaged():
            return REFUSED
        case TransientError() | RootInUse():
            return RETRY
        case _:
            return FAILURE


def of_errors(errors: Iterable[MirrorError]) -> int:
    """The exit code of what some of several tables met: the gravest, which is the smallest."""
    return min(map(of_error, errors), default=LEVEL)


def of_verdict(verdict: Verdict) -> int:
    """The exit code of a run that came to its end."""
    return {"LEVEL": LEVEL, "REFUSED": REFUSED, "RETRY": RETRY, "FAILED": FAILURE}[verdict.name]
