"""Names of the files in a table's log, which begin with a version: commits, checkpoints, and their checksums.

A checkpoint is one file, with or without an id of its own, or several parts (Delta protocol, "Checkpoints").
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# a commit; or a checkpoint in parts (group 3: how many), or in one file, with an id or without
_LOG_FILE = re.compile(
    r"(\d{20})\.(?:(json)|checkpoint\.(?:\d{10}\.(\d{10})\.parquet|(?:[0-9a-f-]{36}\.)?(?:parquet|json)))"
)
_OF_A_VERSION = re.compile(r"\.?(\d{20})\.(?:json|crc|checkpoint\.).*")


class LogFile(NamedTuple):
    """What the name of a commit or a checkpoint says."""

    version: int
    is_commit: bool  # else a checkpoint
    parts: int  # how many files the checkpoint is; 0 of a commit, and of a checkpoint in one file


def log_file(name: str) -> LogFile | None:
    """What the name of a commit or a checkpoint says; None for any other file."""
    found = _LOG_FILE.fullmatch(name)
    return LogFile(int(found[1]), bool(found[2]), int(found[3] or 0)) if found else None


def version_of(name: str) -> int | None:
    """The version that a file is of: commits, checkpoints and checksums, Hadoop's own too; None for any other file."""
    found = _OF_A_VERSION.fullmatch(name)
    return int(found[1]) if found else None


def commit_name(version: int) -> str:
    """The name of a commit; names sort by version."""
    return f"{version:020}.json"


def checksum_name(version: int) -> str:
    """The name of a version's checksum, which Spark writes."""
    return f"{version:020}.crc"


def checkpoint_names(version: int, parts: int = 0) -> Sequence[str]:
    """The names of a checkpoint's files."""
    if not parts:
        return [f"{version:020}.checkpoint.parquet"]
    return [f"{version:020}.checkpoint.{part:010}.{parts:010}.parquet" for part in range(1, parts + 1)]
