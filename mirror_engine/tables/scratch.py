"""Which process a temporary file belongs to: what a killed one left is deleted."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PROCESS = uuid.uuid4().hex[:12]  # in the names of what this process spills


def remove_of_other_processes(files: Iterable[Path]) -> None:
    """Delete files that another process left: it was killed, as one process at a time locks ROOT."""
    for file in files:
        if PROCESS not in file.name:
            with suppress(OSError):
                file.unlink()
