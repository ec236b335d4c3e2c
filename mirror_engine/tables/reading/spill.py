"""Keeps change files' rows until they are applied: in memory what fits, the rest in scratch files."""

from __future__ import annotations

import weakref
from collections import deque
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock
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

MEMORY_BYTES = 64 * 1024 * 1024  # of all rows that an engine has read and not applied yet
# Arrow's own format: written four times as fast as Parquet, and only read back here.
_WRITE_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class ReadMode:
    """How change files are read, and what is kept of their rows."""

    # Makes the store of one file's rows, from their schema and the key columns
    store: Callable[[pa.Schema, Collection[str]], RowStore]
    # Whether Arrow may decode columns in parallel: sooner where every row is kept, but each of its threads holds on to
    # memory
    threads: bool = True
    # Sizes of files whose content is hashed: equal files are of equal size (ME064); None for all
    digested_sizes: Collection[int] | None = None


def all_rows(scratch: Path, memory_bytes: float = MEMORY_BYTES) -> ReadMode:
    """The read mode for applying files; up to `memory_bytes` of their rows stay in memory."""
    memory = RowMemory(memory_bytes)
    return ReadMode(lambda schema, _keys: RowSpill(schema, scratch, memory))


class RowMemory:
    """Bytes of memory that the rows of several files share; safe to share between threads."""

    def __init__(self, size: float) -> None:
        self._free = size
        self._returned: deque[int] = deque()  # not counted as free yet
        self._lock = Lock()

    def take(self, size: int) -> bool:
        """Take so many bytes; False if they are not free."""
        with self._lock:
            while self._returned:
                self._free += self._returned.popleft()
            is_free = size <= self._free
            self._free -= size if is_free else 0
        return is_free

    def give_back(self, size: int) -> None:
        """Free so many bytes. Takes no lock: a finalizer may call it while this thread holds it."""
        self._returned.append(size)


class RowSpill:
    """A `RowStore` of all rows: the first in memory as long as there is some, the others in a scratch file.

    `close`, or the end of the object, frees both.

    Raises:
        ScratchFailed: from `add`, `finish` and `batches`, when the scratch folder fails.
    """

    def __init__(self, schema: pa.Schema, scratch: Path, memory: RowMemory) -> None:
        self.schema = schema
        self._memory = memory
        self._batches: list[pa.RecordBatch] = []  # in memory
        self._writer: pa.ipc.RecordBatchFileWriter | None = None  # of the scratch file, once there is one
        self._path = scratch / f"rows-{PROCESS}-{uuid4().hex}.arrow"
        self._held = ExitStack()
        weakref.finalize(self, self._held.close)

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._writer is None and self._memory.take(batch.nbytes):
            self._held.callback(self._memory.give_back, batch.nbytes)
            self._batches.append(batch)
            return
        with scratch_errors():
            if self._writer is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._held.callback(self._path.unlink, missing_ok=True)
                self._writer = pa.ipc.new_file(str(self._path), self.schema, options=_WRITE_OPTIONS)
            self._writer.write_batch(batch)

    def finish(self) -> None:
        if self._writer is not None:
            with scratch_errors():
                self._writer.close()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        names = self.schema.names if columns is None else list(columns)
        for batch in self._batches:
            yield batch.select(names)
        if self._writer is None:
            return
        fields = sorted(map(self.schema.get_field_index, names))
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        with scratch_errors(), pa.OSFile(str(self._path)) as file, pa.ipc.open_file(file, options=options) as reader:
            for at in range(reader.num_record_batches):
                yield reader.get_batch(at).select(names)

    def close(self) -> None:
        self._batches = []
        self._writer = None
        self._held.close()


@contextmanager
def scratch_errors() -> Iterator[None]:
    """Turn an `OSError` of the scratch folder into `ScratchFailed`: the next cycle tries a smaller batch."""
    try:
        yield
    except OSError as failed:
        reason = failed.strerror or type(failed).__name__
        raise ScratchFailed(f"the scratch folder failed: {reason}", "free some disk space") from failed
