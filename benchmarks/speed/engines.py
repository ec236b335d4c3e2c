"""The engines that are compared, each with the commands it takes; every time is taken inside the call, warm.

`python -m speed.engines TABLE FILE ...` is the bare delta-rs script: one append as a whole process.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from mirror_engine import Mirror, RunResult
from mirror_engine.config import load
from mirror_engine.events import BatchCommitted
from mirror_engine.landing_zone.change import MARKER_COLUMN
from speed.rows import DELETE, NUMBER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror_engine.events import Event
    from mirror_engine.tables.base import DeltaWriter

HEAP = "4g"


class MirrorEngine:
    """Commands of a peer that is the product, through its public surface, with one merge engine.

    Args:
        writer: makes the writer of a ROOT; by default the product's own.
    """

    merge_engine: str

    def __init__(self, writer: Callable[[Path], DeltaWriter] | None = None) -> None:
        self._writer = writer
        self._open: dict[str, Mirror] = {}
        self._heard: list[tuple[float, Event]] = []

    def once(self, root: str) -> dict[str, Any]:
        """Apply what has landed; how long until the last commit lay there, was on the disk, and the call was over."""
        mirror = self._open.get(root) or self._opened(root)
        self._heard.clear()
        began, started = time.time(), time.perf_counter()
        report = mirror.sync()
        seconds = time.perf_counter() - started
        assert report.result is RunResult.CAUGHT_UP, f"{root}: {report.result.value}"
        committed = [at - started for at, event in self._heard if isinstance(event, BatchCommitted)]
        logs = Path(root).glob("Tables/*/*/_delta_log/*.json")
        return {
            "seconds": seconds,
            "readable": max((log.stat().st_mtime for log in logs), default=began) - began,
            "durable": max(committed, default=0.0),
            "commits": len(committed),
        }

    def close(self, root: str) -> dict[str, Any]:
        """Let go of a ROOT; the first stays open, so that the JVM does."""
        if root != next(iter(self._open)):
            self._open.pop(root).close()
        return {}

    def end(self) -> None:
        """Let go of all."""
        while self._open:
            self._open.popitem()[1].close()

    def _opened(self, root: str) -> Mirror:
        writer = self._writer(Path(root)) if self._writer else None
        listen = lambda event: self._heard.append((time.perf_counter(), event))  # noqa: E731 - a listener is a callable
        given = {"driver_memory": HEAP} if self.merge_engine == "spark" else {}
        config = load(Path(root), {**given, "merge_engine": self.merge_engine}, os.environ)
        self._open[root] = Mirror(root, config, writer=writer, listeners=[listen])
        return self._open[root]


class SparkEngine(MirrorEngine):
    """Commands of the peer `spark-engine`."""

    merge_engine = "spark"


class ArrowEngine(MirrorEngine):
    """Commands of the peer `arrow-engine`."""

    merge_engine = "arrow"


class DeltaRs:
    """Commands of the peer `delta-rs`."""

    def append(self, table: str, files: list[str]) -> dict[str, Any]:
        """Add all rows of all files in one commit, streamed."""
        started = time.perf_counter()
        write_deltalake(table, ds.dataset(files).scanner().to_reader(), mode="append")
        return {"seconds": time.perf_counter() - started}

    def merge(self, table: str, files: list[str], keys: Sequence[str] = NUMBER) -> dict[str, Any]:
        """One merge a file: last row per key."""
        started = time.perf_counter()
        for file in files:
            merge = DeltaTable(table).merge(
                _last_per_key(pq.read_table(file), keys),
                " AND ".join(f"t.{key} = s.{key}" for key in keys),
                source_alias="s",
                target_alias="t",
            )
            (
                merge.when_matched_delete(f"s.{MARKER_COLUMN} = {DELETE}")
                .when_matched_update_all(except_cols=[MARKER_COLUMN])
                .when_not_matched_insert_all(f"s.{MARKER_COLUMN} <> {DELETE}", except_cols=[MARKER_COLUMN])
                .execute()
            )
        return {"seconds": time.perf_counter() - started}


def _last_per_key(changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    placed = changes.select(keys).append_column("place", pa.array(range(changes.num_rows)))
    last = placed.group_by(list(keys)).aggregate([("place", "max")])
    return changes if last.num_rows == changes.num_rows else changes.take(last.column("place_max"))


if __name__ == "__main__":
    DeltaRs().append(sys.argv[1], sys.argv[2:])
