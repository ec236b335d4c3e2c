"""What Spark's failures mean to the engine; the whole story goes to the log, never to the user."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirror_engine.errors import CommitConflict, CommitFailed, MirrorError, SparkFailed, StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger("mirror_engine.spark")

_CONFLICT = re.compile(
    r"Concurrent\w+Exception|MetadataChangedException|ProtocolChangedException|DELTA_CONCURRENT|CommitRetryLimit|TableAlreadyExists"
)
_DEAD = re.compile(
    r"stopped SparkContext|SparkContext (was|has been) (stopped|shut down)|Answer from Java side is empty"
)
_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError")
_STORAGE = re.compile(r"java\.(?:nio\.file\.\w+Exception|io\.\w*IOException|io\.FileNotFoundException)[^\n]*")


@contextmanager
def spark_failures(table: str, what: str) -> Iterator[None]:
    """Whatever Spark throws within becomes one of the engine's own errors.

    Args:
        table: its folder, for messages.
        what: is being done, for messages: `commit`.

    Raises:
        CommitConflict: another writer was first.
        StorageUnavailable: a file could not be read or written.
        SparkFailed: the JVM is gone.
        CommitFailed: anything else.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - importing mirror_engine must not import Spark
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    try:
        yield
    except MirrorError:
        raise
    except (Py4JError, PySparkException, ConnectionError, EOFError) as error:
        told = f"{type(error).__name__}: {error}\n{getattr(error, '_stackTrace', None) or ''}"
        _log.debug("%s: %s failed: %s", table, what, told)
        raise _meaning(table, what, error, told) from None


def _meaning(table: str, what: str, error: Exception, told: str) -> MirrorError:
    if _CONFLICT.search(told):
        return CommitConflict(f"{table}: another writer committed first", "The next cycle tries again.")
    if (
        isinstance(error, ConnectionError | EOFError)
        or type(error).__name__ == "Py4JNetworkError"
        or _DEAD.search(told)
    ):
        return SparkFailed(f"{table}: Spark died during the {what}", "Its log tells why; start again, nothing is lost.")
    if _MEMORY.search(told):
        return CommitFailed(f"{table}: Spark ran out of memory during the {what}", "Raise driver_memory.")
    if (found := _STORAGE.search(told)) is not None:
        reason = found[0].rpartition("Exception: ")[2]
        return StorageUnavailable(f"{table}: {what} failed: {reason}", "Check disk space and rights below ROOT.")
    return CommitFailed(f"{table}: Spark refused the {what}: {_first_line(told)}", "Spark's log has the whole story.")


def _first_line(told: str) -> str:
    """The error's class, in Spark's own word where it has one; never the values it may quote."""
    condition = re.search(r"\[([A-Z][A-Z0-9_.]+)\]", told)
    cause = re.search(r"(?:[a-z]\w*\.)+([A-Z]\w*(?:Exception|Error))", told)
    return condition[1] if condition else cause[1] if cause else told.partition(":")[0]
