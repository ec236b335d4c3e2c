"""Puts right what Kernel writes of its checkpoints: it counts their files, the protocol asks for their actions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from mirror_engine.delta.new_commit import write_through
from mirror_engine.delta.tables_folder import LOG_FOLDER

if TYPE_CHECKING:
    from pathlib import Path


def count_actions(folder: Path, version: int) -> None:
    """Let `_last_checkpoint` say how many actions the checkpoint of a version holds (Last Checkpoint File).

    Hadoop's checksum beside it goes first: it refuses what differs, and takes a file without one as it is.

    Raises:
        OSError: it was not put right.
    """
    log = folder / LOG_FOLDER
    actions = pq.read_metadata(log / f"{version:020}.checkpoint.parquet").num_rows
    passing = log / "._last_checkpoint.tmp"
    write_through(passing, json.dumps({"version": version, "size": actions}))
    (log / "._last_checkpoint.crc").unlink(missing_ok=True)
    passing.replace(log / "_last_checkpoint")
