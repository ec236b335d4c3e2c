"""External changes: what other programs did to a table, read from its log without a JVM."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from mirror_engine.errors import CommitConflict, UsageError
from mirror_engine.tables.log.record import commit_file, is_ours, read_commit
from mirror_engine.tables.log.snapshot import open_log, reading_log

if TYPE_CHECKING:
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_path import TablePath


def latest_external_change(folder: TablePath, since: int) -> int:
    """See `DeltaWriter`; costs one look for a file where nothing was committed since."""
    found, version = -1, since + 1
    with reading_log(folder), suppress(FileNotFoundError):
        while True:
            commit = commit_file(folder, version).stat()
            if _changes(folder, version, (commit.st_ino, commit.st_mtime_ns)):
                found = version
            version += 1
    return found


def external_change_in(log: DeltaLog, since: int) -> int:
    """The same, up to the version of a log; nothing newer is asked for."""
    found = -1
    with reading_log(log.folder), suppress(FileNotFoundError):
        for version in range(since + 1, log.version + 1):
            found = version if _is_change(log.folder, version) else found
    return found


def refuse_external_change(table: str, folder: TablePath, since: int) -> None:
    """Refuse to commit what was counted at a version to rows that changed since.

    Raises:
        CommitConflict: they are.
    """
    if latest_external_change(folder, since) >= 0:
        raise CommitConflict(f"{table}: another program changed its rows", "The next cycle counts again.")


@lru_cache(maxsize=4096)
def _changes(folder: TablePath, version: int, _: tuple[int, int]) -> bool:
    """As below; the last argument distinguishes recreated tables."""
    return _is_change(folder, version)


def _is_change(folder: TablePath, version: int) -> bool:
    """Whether an external commit changed rows or columns."""
    commit = read_commit(folder, version)
    if is_ours(commit.information) or not (commit.changes_rows or commit.describes):
        return False
    if commit.changes_rows:
        return True
    try:
        logs = [open_log(folder, each) for each in (version, version - 1)]
    except UsageError:  # one of them was cleaned up
        return True
    return len({log.schema for log in logs if log}) > 1
