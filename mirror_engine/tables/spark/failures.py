"""Spark's exceptions as errors of the engine; their full text goes to the debug log, never to the user."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirror_engine.errors import (
    CommitConflict,
    CommitFailed,
    MirrorError,
    SparkFailed,
    StorageUnavailable,
    TransientError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger("mirror_engine.spark")

_CONFLICT = re.compile(
    r"Concurrent\w+Exception|MetadataChangedException|ProtocolChangedException|DELTA_CONCURRENT|CommitRetryLimit|TableAlreadyExists"
)
_DEAD = re.compile(
    r"stopped SparkContext|SparkContext (was|has been) (stopped|shut down)|Answer from Java side is empty"
)
_LOST_EXECUTOR = re.compile(r"ExecutorLostFailure|FetchFailed")
_STORAGE = re.compile(r"java\.(?:nio\.file\.\w+Exception|io\.\w*IOException|io\.FileNotFoundException)[^\n]*")


@contextmanager
def spark_failures(table: str, action: str) -> Iterator[None]:
    """Turn Spark's exceptions into errors of the engine; messages name the table's folder and the action.

    Raises:
        CommitConflict: another writer was first.
        StorageUnavailable: a file could not be read or written.
        SparkFailed: the JVM is gone.
        CommitFailed: anything else.
    """
    try:
        yield
    except MirrorError:
        raise
    except Exception as error:
        # not before: another thread may be importing PySpark, whose modules import each other
        from py4j.protocol import Py4JError  # noqa: PLC0415 - as above
        from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

        if not isinstance(error, (Py4JError, PySparkException, ConnectionError, EOFError)):
            raise
        text = f"{type(error).__name__}: {error}\n{getattr(error, '_stackTrace', None) or ''}"
        _log.debug("%s: %s failed: %s", table, action, text)
        raise _engine_error(table, action, error, text) from None


def _engine_error(table: str, action: str, error: Exception, text: str) -> MirrorError:
    if _CONFLICT.search(text):
        return CommitConflict(f"{table}: another writer committed first", "The next cycle tries again.")
    is_disconnected = isinstance(error, ConnectionError | EOFError) or type(error).__name__ == "Py4JNetworkError"
    if is_disconnected or _DEAD.search(text):
        return SparkFailed(f"{table}: Spark exited during {action}", "See Spark's log; start again, no data is lost.")
    if _LOST_EXECUTOR.search(text):
        return TransientError(f"{table}: {action} lost an executor", "See Spark's log; the next cycle tries again.")
    if "java.lang.OutOfMemoryError" in text:
        return CommitFailed(f"{table}: Spark ran out of memory during {action}", "Raise --driver-memory.")
    if (cause := _STORAGE.search(text)) is not None:
        reason = cause[0].rpartition("Exception: ")[2]
        return StorageUnavailable(
            f"{table}: {action} failed: {reason}", "Check free disk space and permissions below ROOT."
        )
    return CommitFailed(f"{table}: {action} failed in Spark: {_condition(text)}", "See Spark's log.")


def _condition(text: str) -> str:
    """Spark's name of the error condition, else the exception's class, and the class of what caused all of it.

    Never a value that the message may quote.
    """
    condition = re.search(r"\[([A-Z][A-Z0-9_.]+)\]", text)
    cause = re.search(r"(?:[a-z]\w*\.)+([A-Z]\w*(?:Exception|Error))", text)
    named = condition[1] if condition else cause[1] if cause else text.partition(":")[0]
    causes = re.findall(r"^\t[^\n]*\nCaused by: (?:[a-z]\w*\.)+([A-Z]\w*)", text, re.MULTILINE)
    return f"{named}, caused by {causes[-1]}" if causes and causes[-1] != named else named
