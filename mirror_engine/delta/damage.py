"""What is wrong with a Delta log that cannot be read, and the way out of it, in words."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from mirror_engine.delta.commits import read_commit
from mirror_engine.delta.parquet_footer import PARSE_FAULTS
from mirror_engine.delta.tables_folder import LOG_FOLDER
from mirror_engine.errors import MEND, TableDamaged

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint.*\.parquet")
_WITHOUT_CHECKPOINT = (
    "Delete _last_checkpoint and the checkpoint from the table's _delta_log: every commit is there and tells the same."
)


def damaged(folder: Path, words: str) -> TableDamaged:
    """The error to raise for a table whose log cannot be read.

    Args:
        folder: of the table.
        words: what the reader of the log said; told where nothing better is found.

    Raises:
        OSError: the log's folder cannot be read at all.
    """
    names = [entry.name for entry in (folder / LOG_FOLDER).iterdir()]
    commits = _versions(_COMMIT, names)
    checkpoints = _versions(_CHECKPOINT, names)
    first = checkpoints[-1] + 1 if checkpoints else 0
    needed = [version for version in commits if version >= first]
    try:
        for version in sorted({*needed, *commits[-1:]}):
            read_commit(folder, version)
    except TableDamaged as error:
        return error
    if (bad := _bad_checkpoint(folder, names, checkpoints)) is not None:
        is_complete = commits == list(range(len(commits))) and bool(commits)
        return TableDamaged(folder, bad, _WITHOUT_CHECKPOINT if is_complete else MEND)
    if (missing := _first_missing(needed, first)) is not None:
        return TableDamaged(folder, f"commit {missing} of its Delta log is missing")
    return TableDamaged(folder, f"its Delta log cannot be read: {words.splitlines()[0]}")


def _versions(pattern: re.Pattern[str], names: Sequence[str]) -> list[int]:
    return sorted(int(found[1]) for found in map(pattern.fullmatch, names) if found)


def _first_missing(versions: Sequence[int], first: int) -> int | None:
    expected = range(first, first + len(versions))
    return next((wanted for wanted, found in zip(expected, versions, strict=True) if wanted != found), None)


def _bad_checkpoint(folder: Path, names: Sequence[str], checkpoints: Sequence[int]) -> str | None:
    newest = checkpoints[-1] if checkpoints else None
    if (hinted := _hinted(folder)) is not None and hinted not in checkpoints:
        return f"checkpoint {hinted} of its Delta log is missing"
    for name in names:
        if (found := _CHECKPOINT.fullmatch(name)) and int(found[1]) == newest:
            content = (folder / LOG_FOLDER / name).read_bytes()
            try:
                pq.read_metadata(pa.BufferReader(content))
            except PARSE_FAULTS:
                return f"checkpoint {newest} of its Delta log is damaged"
    return None


def _hinted(folder: Path) -> int | None:
    try:
        return int(json.loads((folder / LOG_FOLDER / "_last_checkpoint").read_bytes())["version"])
    except (FileNotFoundError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
