"""Temporary folders that wait for no disk."""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory

IN_MEMORY = "/dev/shm"  # noqa: S108 - each folder in it has a name of its own


def quick_folder():
    """A temporary folder, in memory where the machine offers that: a run of the engine is mostly waiting for disks."""
    return TemporaryDirectory(dir=IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None)
