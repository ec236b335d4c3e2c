"""The engines that are compared. Each method is timed inside its process, warm, and returns its seconds."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from mirror_engine import Mirror, RunResult
from mirror_engine.config import load
from mirror_engine.landing_zone.change import MARKER_COLUMN
from speed.rows import DELETE, KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mirror_engine.tables.base import DeltaWriter

HEAP = "4g"


class ArrowEngine:
    """The engine `arrow-engine`: the product, through its public class. Tests pass a `writer` of a ROOT."""

    options: dict[str, str] = {"merge_engine": "arrow"}  # noqa: RUF012 - never changed

    def __init__(self, writer: Callable[[Path], DeltaWriter] | None = None) -> None:
        self._writer = writer
        self._open: dict[Path, Mirror] = {}

    def once(self, root: Path) -> float:
        """Apply everything that has landed."""
        if root not in self._open:
            config = load(root, self.options, os.environ)
            self._open[root] = Mirror(root, config, writer=self._writer(root) if self._writer else None)
        started = time.perf_counter()
        report = self._open[root].sync()
        assert report.result is RunResult.CAUGHT_UP, f"{root}: {report.result.value}"
        return time.perf_counter() - started

    def close(self, root: Path) -> None:
        """Close a ROOT. The first one stays open, and the JVM with it."""
        if root != next(iter(self._open)):
            self._open.pop(root).close()

    def end(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


class SparkEngine(ArrowEngine):
    """The engine `spark-engine`."""

    options: dict[str, str] = {"merge_engine": "spark", "driver_memory": HEAP}  # noqa: RUF012 - never changed


class DeltaRs:
    """The engine `delta-rs`."""

    def append(self, table: Path, files: Sequence[Path]) -> float:
        """Add all rows of all files in one commit, streamed."""
        started = time.perf_counter()
        write_deltalake(str(table), ds.dataset(list(map(str, files))).scanner().to_reader(), mode="append")
        return time.perf_counter() - started

    def merge(self, table: Path, files: Sequence[Path]) -> float:
        """Merge each file's last row per key."""
        started = time.perf_counter()
        for file in files:
            changes, same = _last_per_key(pq.read_table(file)), f"t.{KEY} = s.{KEY}"
            merge = DeltaTable(str(table)).merge(changes, same, source_alias="s", target_alias="t")
            (
                merge.when_matched_delete(f"s.{MARKER_COLUMN} = {DELETE}")
                .when_matched_update_all(except_cols=[MARKER_COLUMN])
                .when_not_matched_insert_all(f"s.{MARKER_COLUMN} <> {DELETE}", except_cols=[MARKER_COLUMN])
                .execute()
            )
        return time.perf_counter() - started


def _last_per_key(changes: pa.Table) -> pa.Table:
    placed = changes.select([KEY]).append_column("place", pa.array(range(changes.num_rows)))
    last = placed.group_by(KEY).aggregate([("place", "max")])
    return changes if last.num_rows == changes.num_rows else changes.take(last.column("place_max"))
