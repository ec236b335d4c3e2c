"""The peer `collapse`: the product up to the net changes that a commit would take."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import lines_of
from mirror_engine import Config, Mirror
from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.tables.changes.counted import count_changes
from mirror_engine.tables.log.commit import commit_batch
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.tables.merge.by_position import Merge

if TYPE_CHECKING:
    from mirror_engine.tables.base import BatchRecord, ChangeBatch, MatchCounts
    from mirror_engine.tables.log.snapshot import DeltaLog

ONE_BATCH = 1 << 40


class Collapsing:
    """Commands of the peer `collapse`."""

    def __init__(self) -> None:
        self._idle_bytes = _resident("VmRSS")

    def once(self, root: str, target: str) -> dict[str, Any]:
        """Read and collapse all that has landed as one batch; its net changes are copied to `target`, untimed.

        Returns:
            the seconds until they lay ready, and the most memory taken meanwhile.
        """
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
        writer = _Ready(Path(root), Path(target))
        started = time.perf_counter()
        with Mirror(root, Config(max_batch_size=ONE_BATCH), writer=writer) as mirror:
            mirror.sync()
        assert writer.commits == 1, "more than one batch"
        return {"seconds": writer.at - started, "peak_bytes": writer.peak_bytes - self._idle_bytes}


class _Ready(ArrowWriter):
    """Notes when the net changes lie ready, and commits that without them."""

    def __init__(self, root: Path, target: Path) -> None:
        super().__init__(root / TABLES, root / SCRATCH)
        self._target = target
        self.commits = 0
        self.at = 0.0
        self.peak_bytes = 0

    def replay(
        self, _table: str, log: DeltaLog, batch: ChangeBatch, record: BatchRecord
    ) -> tuple[str, tuple[MatchCounts, ...]]:
        with self._scratch_folder() as folder:
            changes = count_changes(batch, log)
            plan = self.evolution(log, batch)
            merge = Merge(log, batch, changes, plan, touched=(), folder=folder)
            merge.actions()
            matches = changes.match_counts
            self.at, self.peak_bytes = time.perf_counter(), _resident("VmHWM")
            self.commits += 1
            for file in merge.files:
                file.put(self._target)
            commit_batch(log, record, plan)
            return "append", matches


def _resident(name: str) -> int:
    """A line of this process's status in bytes (Linux)."""
    found = next(line for line in lines_of(Path("/proc/self/status")) if line.startswith(name))
    return int(found.split()[1]) * 1024
