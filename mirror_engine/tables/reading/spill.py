"""Keeps a change file's rows until they are applied: few in memory, more in a scratch file."""

from __future__ import annotations

import math
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.ipc

from mirror_engine.errors import ScratchFailed
from mirror_engine.tables.log.tables_folder import PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from mirror_engine.tables.base import RowStore

MEMORY_BYTES = 256 * 1024  # of one file's rows; a change batch holds up to a thousand files
# Arrow's own format: written four times as fast as Parquet, and only read back here.
_WRITE_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class ReadMode:
    """How thoroughly change files are read, and what is kept of their rows."""

    # Makes the store of one file's rows, from their schema and the key columns
    store: Callable[[pa.Schema, Collection[str]], RowStore]
    # Whether Arrow may decode columns in parallel: sooner where every row is kept, but each of its threads holds on to
    # memory
    threads: bool = True
    # Bytes up to which all columns of a file are read; of larger files only those that the protocol compares or that
    # must not be NULL
    max_whole_file: float = math.inf
    # Sizes of files whose content is hashed: equal files are of equal size (ME064); None for all
    digested_sizes: Collection[int] | None = None


def all_rows(scratch: Path, memory_bytes: float = MEMORY_BYTES) -> ReadMode:
    """What is needed to apply a file."""
    return ReadMode(lambda schema, _keys: RowSpill(schema, scratch, memory_bytes))


class RowSpill:
    """A `RowStore` of all rows; more than `memory_bytes` are in a scratch file, which goes with `close` or the object.

    Raises:
        ScratchFailed: from `add`, `finish` and `batches`, when the scratch folder fails.
    """

    def __init__(self, schema: pa.Schema, scratch: Path, memory_bytes: float = MEMORY_BYTES) -> None:
        self.schema = schema
        self._memory_bytes = memory_bytes
        self._batches: list[pa.RecordBatch] = []  # not written yet
        self._bytes = 0
        self._writer: pa.ipc.RecordBatchFileWriter | None = None  # of the scratch file, once there is one
        self._path = scratch / f"rows-{PROCESS}-{uuid4().hex}.arrow"

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._batches.append(batch)
            self._bytes += batch.nbytes
        if self._bytes <= self._memory_bytes:
            return
        with scratch_errors():
            if self._writer is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                weakref.finalize(self, self._path.unlink, missing_ok=True)
                self._writer = pa.ipc.new_file(str(self._path), self.schema, options=_WRITE_OPTIONS)
            for waiting in self._batches:
                self._writer.write_batch(waiting)
        self._batches = []

    def finish(self) -> None:
        if self._writer is not None:
            with scratch_errors():
                self._writer.close()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        names = self.schema.names if columns is None else list(columns)
        if self._writer is None:
            for batch in self._batches:
                yield batch.select(names)
            return
        fields = sorted(map(self.schema.get_field_index, names))
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        with scratch_errors(), pa.OSFile(str(self._path)) as file, pa.ipc.open_file(file, options=options) as reader:
            for at in range(reader.num_record_batches):
                yield reader.get_batch(at).select(names)

    def close(self) -> None:
        self._batches = []
        if self._writer is not None:
            self._writer = None
            self._path.unlink(missing_ok=True)


@contextmanager
def scratch_errors() -> Iterator[None]:
    """Turn an `OSError` of the scratch folder into `ScratchFailed`: the next cycle tries a smaller batch."""
    try:
        yield
    except OSError as failed:
        reason = failed.strerror or type(failed).__name__
        raise ScratchFailed(f"the scratch folder failed: {reason}", "free some disk space") from failed
