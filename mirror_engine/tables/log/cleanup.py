"""Log cleanup: commits and checkpoints that are older than the table's `delta.logRetentionDuration` are deleted.

New tables leave it to this engine alone: others do not know which commits its newest record needs, and deltalake would
look up every file of the log after each commit.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from operator import methodcaller
from typing import TYPE_CHECKING

from mirror_engine.errors import StorageUnavailable
from mirror_engine.tables.log.log_names import log_file, version_of
from mirror_engine.tables.log.table_path import LOG_FOLDER, for_each

if TYPE_CHECKING:
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_path import TablePath

LOG_RETENTION = "delta.logRetentionDuration"
FILE_RETENTION = "delta.deletedFileRetentionDuration"  # how long a checkpoint names files that were removed
_INTERVAL = re.compile(r"(?:interval )?(\d+) (second|minute|hour|day|week)s?")
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 7 * 86_400}


def log_properties(retention_days: int) -> dict[str, str]:
    """The properties of a new table whose log is cleaned up by this engine alone."""
    interval = f"interval {retention_days} days"
    return {LOG_RETENTION: interval, FILE_RETENTION: interval, "delta.enableExpiredLogCleanup": "false"}


def clean_up_log(log: DeltaLog, covered: int) -> None:
    """Delete all before the newest checkpoint that is as old as the retention, but no commit after `covered`.

    No segment says what those have applied (LZ-4.18). What stays can be read back to the retention. A retention in
    other words than Delta's default ones, such as months, keeps all. Raises nothing: what stays is deleted the next
    time.
    """
    interval = _INTERVAL.fullmatch(log.configuration.get(LOG_RETENTION, "interval 30 days").lower())
    if interval is None:
        return
    oldest = time.time() - int(interval[1]) * _SECONDS[interval[2]]
    with suppress(OSError, StorageUnavailable):
        files: list[TablePath] = [*(log.folder / LOG_FOLDER).iterdir()]
        named = ((file, log_file(file.name)) for file in files)
        whole = ((file, found.version) for file, found in named if found and not (found.is_commit or found.parts))
        first = max((version for file, version in whole if file.stat().st_mtime_ns / 1e9 < oldest), default=0)
        versions = ((file, version_of(file.name)) for file in files)
        old = [file for file, version in versions if version is not None and version < min(first, covered + 1)]
        list(for_each(log.folder, methodcaller("unlink", missing_ok=True), old))
