"""The error tree: one class per reaction.

```
MirrorError                      a message (place: finding) and help (what to do)
├── RejectedFile                 halts its table (in landing_zone/diagnostics.py)       exit 3
├── TransientError               retried in a later cycle, with backoff                 exit 4
│   ├── StorageUnavailable       a list, read, write, move or delete failed
│   │   ├── NoAccess             no credential for a store, or one that is refused      exit 1
│   │   └── ScratchFailed        the scratch folder is full, or failed; batches become smaller
│   ├── ConcurrentModification   the landing zone changed between scan and commit
│   ├── CommitConflict           another writer committed to the same Delta table first
│   ├── CommitFailed             the merge engine refused; the third time halts its table
│   ├── TableDamaged             a Delta log or data file is damaged; halts its table   exit 3
│   └── InternalError            a defect of the engine in one table; retried           exit 1
├── RootLocked                   another engine is running on this ROOT                 exit 4
├── UsageError                   ends the process                                       exit 2
│   ├── ConfigError              every wrong option at once
│   └── UnknownTable             no such table under this ROOT
└── SetupError                   ends the process                                       exit 1
    ├── JavaMissing              no usable Java runtime
    ├── JarsMissing              the Delta jars cannot be fetched
    └── SparkFailed              the session did not start, or died
```
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Answer = TypeVar("_Answer")

# `TABLE` is the table's name where that is known. Who only removes its folder loses the rows of archived files
REBUILD_COMMAND = "`mirror-engine rebuild --replay --table TABLE`"
RESTORE_HELP = (
    f"Restore the table's folder from a backup, or rebuild the table from its change files: {REBUILD_COMMAND}."
)


class MirrorError(Exception):
    """Base class of the errors that the engine raises: a message, and help that says what to do."""

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.help = help

    def __str__(self) -> str:
        return f"{self.message}\n  -> {self.help}" if self.help else self.message

    def to_json(self) -> dict[str, Any]:
        """Return plain values; the code is the class name: `root_locked` for `RootLocked`."""
        code = re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()
        return {"code": code, "message": self.message, "help": self.help or None}


class TransientError(MirrorError):
    """A failure that is retried (ME072); the data may be fine."""


class StorageUnavailable(TransientError):
    """A call on the landing zone's storage failed.

    Attributes:
        is_replaced: the file is no longer the one that was meant: a condition of the call was lost.
    """

    is_replaced = False


class NoAccess(StorageUnavailable):
    """A store has no credential, refuses it, or gives it no permission. An engine retries: a login may come back."""


class ScratchFailed(StorageUnavailable):
    """The scratch folder cannot be written or read; a smaller batch may fit."""


class ConcurrentModification(TransientError):
    """A file or folder was replaced between scan and commit; nothing was committed."""


class CommitConflict(TransientError):
    """Another writer committed this Delta version first; nothing was committed."""


class CommitFailed(TransientError):
    """The merge engine refused a commit; nothing was committed. Three equal refusals halt the table (ME086)."""


class TableDamaged(TransientError):
    """A table's Delta log or a data file cannot be read; only this table is halted until it is restored."""

    def __init__(self, place: object, fault: str, help: str = RESTORE_HELP) -> None:
        super().__init__(f"{place}: {fault}", help)
        self.fault = fault


class InternalError(TransientError):
    """A defect of the engine in the work on one table; the other tables continue."""


class RootLocked(MirrorError):
    """Another engine is running on this ROOT."""


class UsageError(MirrorError):
    """A request that cannot be fulfilled."""


class ConfigError(UsageError):
    """One or more options are wrong; the message lists all of them."""


class UnknownTable(UsageError):
    """No table of that name under this ROOT."""


class SetupError(MirrorError):
    """This machine lacks something the engine needs."""


class JavaMissing(SetupError):
    """No usable Java runtime."""


class JarsMissing(SetupError):
    """The Delta jars could not be fetched."""


class SparkFailed(SetupError):
    """The Spark session did not start, or died."""


def traceback_of(error: BaseException) -> str:
    """Where an error comes from, cause first, for a log: a library's message may quote a row, so it is left out."""
    import traceback  # noqa: PLC0415 - errors are imported by every command

    parts: list[str] = []
    told: set[int] = set()
    seen: BaseException | None = error
    while seen is not None and id(seen) not in told:  # a cause may be its own
        told.add(id(seen))
        message = f": {seen}" if isinstance(seen, MirrorError | OSError) else ""
        parts.insert(0, "".join(traceback.format_tb(seen.__traceback__)) + type(seen).__qualname__ + message)
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return "\n\n".join(parts)


def is_panic(error: BaseException) -> bool:
    """Whether a library in Rust (deltalake, Arrow's relatives) panicked: such an error is no `Exception`."""
    return type(error).__name__ == "PanicException"


def as_internal_error(call: Callable[[], _Answer]) -> _Answer:
    """Call a function that works on one table; an unexpected exception becomes an InternalError of that table.

    Raises:
        InternalError: the exception was unexpected; its traceback is logged.
    """
    try:
        return call()
    except MirrorError:
        raise
    except BaseException as error:
        if not (isinstance(error, Exception) or is_panic(error)):
            raise
        from concurrent.futures import CancelledError  # noqa: PLC0415 - errors are imported by every command

        if isinstance(error, CancelledError):  # the run is being stopped
            raise
        logging.getLogger(__name__).error("work on a table failed\n%s", traceback_of(error))  # noqa: TRY400 - see there
        raise InternalError(f"internal error: {type(error).__name__}", "Please report it, with the log.") from error
