"""The peer `collapse`: the product up to the net changes that a commit would take, without Spark."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import lines_of
from mirror_engine import Config, Mirror
from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.tables.changes.staged import stage_here, staged
from mirror_engine.tables.log.commit import commit_batch, create_table
from mirror_engine.tables.log.record import creation_record
from mirror_engine.tables.log.snapshot import open_known
from mirror_engine.tables.merge.spark import SparkDeltaWriter

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


class _Ready(SparkDeltaWriter):
    """Notes when the net changes lie ready, and commits that without them."""

    def __init__(self, root: Path, target: Path) -> None:
        super().__init__(root / TABLES, root / SCRATCH, _no_session, ONE_BATCH)
        self._target = target
        self.commits = 0
        self.at = 0.0
        self.peak_bytes = 0

    def _apply_rows(
        self, table: str, batch: ChangeBatch, record: BatchRecord, log: DeltaLog | None
    ) -> tuple[str, tuple[MatchCounts, ...]]:
        if log is None:
            create_table(self.path(table), batch.schema, creation_record(record))
            log = open_known(table, self.path(table))
        with staged(batch, log, self._scratch, stage_here) as changes:
            self.at, self.peak_bytes = time.perf_counter(), _resident("VmHWM")
            self.commits += 1
            shutil.copytree(changes.folder, self._target, dirs_exist_ok=True)
            commit_batch(log, record)
            return "APPEND", changes.match_counts


def _no_session() -> Any:  # noqa: ANN401 - never called
    raise AssertionError("no Spark here")


def _resident(name: str) -> int:
    """A line of this process's status in bytes (Linux)."""
    found = next(line for line in lines_of(Path("/proc/self/status")) if line.startswith(name))
    return int(found.split()[1]) * 1024
