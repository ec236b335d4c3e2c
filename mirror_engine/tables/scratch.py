"""Clean-up of what killed processes left: temporary files, and dropped tables on their way to deletion."""

from __future__ import annotations

import shutil
import threading
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mirror_engine.tables.log.tables_folder import TablesFolder

PROCESS = uuid.uuid4().hex[:12]  # in the names of what this process spills


def remove_of_other_processes(files: Iterable[Path]) -> None:
    """Delete files that another process left: it was killed, as one process at a time locks ROOT."""
    for file in files:
        if PROCESS not in file.name:
            with suppress(OSError):
                file.unlink()


class ScratchCleanup:
    """The scratch folder and the trash of a ROOT."""

    def __init__(self, tables: TablesFolder, scratch: Path) -> None:
        self._tables = tables
        self._scratch = scratch
        self._lock = threading.Lock()
        self._is_clean = False

    def clear(self) -> None:
        """Delete them; once, and only by one that commits: it holds ROOT. Raises nothing."""
        with self._lock:
            if not self._is_clean:
                self._tables.clear_trash()
                for batch in self._scratch.glob("batch-*"):
                    shutil.rmtree(batch, ignore_errors=True)
                remove_of_other_processes([*self._scratch.glob("rows-*.arrow"), *self._scratch.glob("copy-*.parquet")])
                self._is_clean = True
