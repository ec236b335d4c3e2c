"""External changes: what other programs did to a table, read from its log without a JVM."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from mirror_engine.errors import CommitConflict, UsageError
from mirror_engine.tables.log.record import read_commit
from mirror_engine.tables.log.snapshot import open_log, reading_log
from mirror_engine.tables.log.tables_folder import LOG_FOLDER

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_engine.landing_zone.schema import TableSchema


def latest_external_change(folder: Path, since: int) -> int:
    """The newest version after `since` in which another program changed rows or columns; -1 for none.

    Costs one look for a file where nothing was committed since. OPTIMIZE, VACUUM and properties change no row.

    Raises:
        TableDamaged: a commit cannot be read.
        StorageUnavailable: it cannot be read now.
    """
    found, version = -1, since + 1
    with reading_log(folder), suppress(FileNotFoundError):
        while True:
            commit = os.stat(f"{folder}/{LOG_FOLDER}/{version:020}.json")  # noqa: PTH116 - every idle table is asked this
            if _changes(folder, version, (commit.st_ino, commit.st_mtime_ns)):
                found = version
            version += 1
    return found


def refuse_external_change(table: str, folder: Path, since: int) -> None:
    """Refuse to commit what was counted at a version to rows that changed since.

    Raises:
        CommitConflict: they are.
        TableDamaged: a commit cannot be read.
        StorageUnavailable: it cannot be read now.
    """
    if latest_external_change(folder, since) >= 0:
        raise CommitConflict(f"{table}: another program changed its rows", "The next cycle counts again.")


@lru_cache(maxsize=4096)
def _changes(folder: Path, version: int, _: tuple[int, int]) -> bool:
    """Whether an external commit changed rows or columns; the last argument distinguishes recreated tables."""
    commit = read_commit(folder, version)
    if commit.is_ours:
        return False
    return commit.changes_rows or (commit.describes and _schema(folder, version) != _schema(folder, version - 1))


def _schema(folder: Path, version: int) -> TableSchema | None:
    """The columns at a version; None where the log was cleaned up."""
    try:
        log = open_log(folder, version)
    except UsageError:
        return None
    return None if log is None else log.schema
