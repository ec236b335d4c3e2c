"""Rows on their way to a table: few stay in memory, many wait in a scratch Parquet file."""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from mirror_engine.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MEMORY_BYTES = 256 * 1024  # of one file's rows; a change batch holds up to a thousand files
ROW_GROUP_BYTES = 16 * 1024 * 1024


class SpooledRows:
    """Typed rows in file order, a `RowSource`.

    What they hold on disk goes with `close`, or with the object.
    """

    def __init__(self, schema: pa.Schema, batches: Sequence[pa.RecordBatch], scratch_file: Path | None = None) -> None:
        self.schema = schema
        self._batches = tuple(batches)
        self._file = scratch_file
        self._discard = weakref.finalize(self, _remove, scratch_file) if scratch_file else None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in order, all columns or those named."""
        found = self._spilled() if self._file else iter(self._batches)
        for batch in found:
            yield batch if columns is None else batch.select(list(columns))

    def close(self) -> None:
        """Give back what the rows hold on disk; nothing can be read afterwards. Repeatable."""
        self._batches = ()
        if self._discard:
            self._discard()

    def _spilled(self) -> Iterator[pa.RecordBatch]:
        with _scratch_trouble(), pq.ParquetFile(self._file) as file:
            for group in range(file.num_row_groups):
                yield from file.read_row_group(group).cast(self.schema).to_batches()


class Spool:
    """Collects record batches of one schema into `SpooledRows`.

    Raises:
        StorageUnavailable: from `add` and `finish`, when the scratch folder takes no more.
    """

    def __init__(self, schema: pa.Schema, scratch: Path, memory_bytes: int = MEMORY_BYTES) -> None:
        self._schema = schema
        self._scratch = scratch
        self._memory_bytes = memory_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: Path | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next rows."""
        if batch.num_rows:
            self._waiting.append(batch)
            self._bytes += batch.nbytes
        if self._bytes > (ROW_GROUP_BYTES if self._writer else self._memory_bytes):
            self._spill()

    def finish(self) -> SpooledRows:
        """All rows taken so far."""
        if self._writer is None:
            return SpooledRows(self._schema, self._waiting)
        self._spill()
        with _scratch_trouble():
            self._writer.close()
        return SpooledRows(self._schema, (), self._file)

    def discard(self) -> None:
        """Forget the rows; they turned out to be no good."""
        if self._writer is not None and self._file is not None:
            try:
                self._writer.close()
            finally:
                _remove(self._file)

    def _spill(self) -> None:
        with _scratch_trouble():
            if self._writer is None:
                self._scratch.mkdir(parents=True, exist_ok=True)
                self._file = self._scratch / f"rows-{uuid4().hex}.parquet"
                self._writer = pq.ParquetWriter(self._file, self._schema)
            if self._waiting:
                rows = pa.Table.from_batches(self._waiting, self._schema)
                self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self._waiting = []
        self._bytes = 0


@contextmanager
def _scratch_trouble() -> Iterator[None]:
    try:
        yield
    except OSError as failed:
        reason = failed.strerror or type(failed).__name__
        raise StorageUnavailable(f"the scratch folder failed: {reason}", "free some disk space") from failed


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
