"""Draws the tree of everything that can go wrong and says how each branch is met.

```
MirrorError                    carries a message (place: what was found) and a hint (what to do)
├── RejectedFile             latches its table; all other tables go on          exit 3
├── TransientError             met again in the next cycle, with growing pauses   exit 4
│   ├── StorageUnavailable     a listing, read, write, move or delete failed
│   ├── ConcurrentModification            the zone moved on between poll and commit
│   ├── CommitConflict         another writer committed to the same Delta table first
│   ├── CommitFailed           Spark could not carry out a commit; nothing was committed
│   ├── TableDamaged           a table's Delta log cannot be read; its table latches       exit 3
│   └── InternalError            a defect of ours met at one table; tried again, too       exit 1
├── RootLocked                  another engine holds this ROOT                     exit 4
├── UsageError                 ends the process                                   exit 2
│   ├── ConfigError            every wrong option at once
│   └── UnknownTable           no such table under this ROOT
└── SetupError                 ends the process                                   exit 1
    ├── JavaMissing            no usable Java runtime
    ├── JarsMissing            the Delta jars cannot be fetched
    └── SparkFailed            the session did not start, or died
```
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror_engine.landing_zone.diagnostics import Diagnostic

_Answer = TypeVar("_Answer")

MEND = "Restore the table's folder from a backup, or remove it: the table is built anew from what lies in the zone."


class MirrorError(Exception):
    """Anything the engine itself raises: a message, and a hint that says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  -> {self.hint}" if self.hint else self.message


class RejectedFile(MirrorError):
    """What a publisher landed breaks the protocol: its table latches (LZ-4.17), all others go on."""

    def __init__(self, diagnostic: Diagnostic, others: Sequence[Diagnostic] = ()) -> None:
        super().__init__(diagnostic.message, diagnostic.remedy)
        self.diagnostic = diagnostic
        self.others = tuple(others)

    def __reduce__(self) -> tuple[object, ...]:
        """An executor's refusal travels to the driver."""
        return type(self), (self.diagnostic, self.others)


class TransientError(MirrorError):
    """Nothing is wrong with the data; the next cycle tries again (ME072)."""


class StorageUnavailable(TransientError):
    """A call on the landing zone's storage failed."""


class ConcurrentModification(TransientError):
    """A file or folder was replaced between poll and commit; nothing was committed."""


class CommitConflict(TransientError):
    """Another writer won the race for this Delta version; nothing was committed."""


class CommitFailed(TransientError):
    """Spark could not carry out a commit; nothing was committed."""


class TableDamaged(TransientError):
    """A table's Delta log cannot be read; only that table stands still, until somebody mends it.

    Args:
        place: the table's folder, or a file of it.
        fault: what is wrong with it.
        hint: what to do.
    """

    def __init__(self, place: object, fault: str, hint: str = MEND) -> None:
        super().__init__(f"{place}: {fault}", hint)
        self.fault = fault


class InternalError(TransientError):
    """Something unforeseen went wrong at one table: a defect of the engine, and no reason to stop the others."""


class RootLocked(MirrorError):
    """Another engine holds this ROOT."""


class UsageError(MirrorError):
    """The caller asked for something that cannot be."""


class ConfigError(UsageError):
    """One or more options are wrong; the message lists all of them."""


class UnknownTable(UsageError):
    """No table of that name under this ROOT."""


class SetupError(MirrorError):
    """This machine lacks something the engine needs."""


class JavaMissing(SetupError):
    """No usable Java runtime was found."""


class JarsMissing(SetupError):
    """The Delta jars could not be fetched."""


class SparkFailed(SetupError):
    """The Spark session did not start, or died."""


def foreseen(call: Callable[[], _Answer]) -> _Answer:
    """What a call for one table comes to; the unforeseen becomes a fault of that table alone (protocol chapter 10).

    Raises:
        InternalError: it was unforeseen; the log has the story.
    """
    try:
        return call()
    except MirrorError:
        raise
    except Exception as error:
        logging.getLogger(__name__).exception("work on a table failed")
        raise InternalError(f"unforeseen: {type(error).__name__}", "Please report it, with the log.") from error
