"""How thoroughly a change file is read, and what is kept of its rows."""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, BinaryIO, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.ipc

from mirror_engine.errors import StorageUnavailable
from mirror_engine.tables.reading.row_rules import byte_count
from mirror_engine.tables.scratch import PROCESS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from mirror_engine.landing_zone.listing import LandedFile
    from mirror_engine.tables.base import RowSource

MEMORY_BYTES = 256 * 1024  # of one file's rows; a change batch holds up to a thousand files
# Arrow's own format: written four times as fast as Parquet, and nobody else ever reads it.
_WRITTEN = pa.ipc.IpcWriteOptions(compression="lz4")


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
        names = self.schema.names if columns is None else list(columns)
        for batch in self._spilled(names) if self._file else self._batches:
            yield batch.select(names)

    def close(self) -> None:
        """Give back what the rows hold on disk; nothing can be read afterwards. Repeatable."""
        self._batches = ()
        if self._discard:
            self._discard()

    def _spilled(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        fields = sorted(map(self.schema.get_field_index, names))
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        with scratch_trouble():
            source = pa.OSFile(str(self._file))
        with source, pa.ipc.open_file(source, options=options) as reader:
            for at in range(reader.num_record_batches):
                with scratch_trouble():
                    batch = reader.get_batch(at)
                yield batch


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
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next rows."""
        if batch.num_rows:
            self._waiting.append(batch)
            self._bytes += batch.nbytes
        if self._bytes > self._memory_bytes:
            self._spill()

    def finish(self) -> SpooledRows:
        """All rows taken so far."""
        if self._writer is None:
            return SpooledRows(self._schema, self._waiting)
        with scratch_trouble():
            self._writer.close()
        return SpooledRows(self._schema, (), self._file)

    def discard(self) -> None:
        """Forget the rows; they turned out to be no good."""
        if self._file is not None:
            self._writer = None
            _remove(self._file)

    def _spill(self) -> None:
        """Write what waits; from now on every batch is written as it comes."""
        with scratch_trouble():
            if self._writer is None:
                self._scratch.mkdir(parents=True, exist_ok=True)
                self._file = self._scratch / f"rows-{PROCESS}-{uuid4().hex}.arrow"
                self._writer = pa.ipc.new_file(str(self._file), self._schema, options=_WRITTEN)
                self._memory_bytes = 0
            for batch in self._waiting:
                self._writer.write_batch(batch)
        self._waiting = []
        self._bytes = 0


@contextmanager
def scratch_trouble() -> Iterator[None]:
    """A scratch folder that takes or gives nothing is the machine's fault, met again in the next cycle."""
    try:
        yield
    except OSError as failed:
        reason = failed.strerror or type(failed).__name__
        raise StorageUnavailable(f"the scratch folder failed: {reason}", "free some disk space") from failed


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


_BLOCK_BYTES = 1 << 20


def digest(handle: BinaryIO) -> tuple[str, int]:
    """The digest of all bytes (BLAKE2b, 128 bits, hex) and how many they are; the handle ends at the beginning."""
    handle.seek(0)
    hasher = blake2b(digest_size=16)
    size = 0
    while block := handle.read(_BLOCK_BYTES):
        hasher.update(block)
        size += len(block)
    handle.seek(0)
    return hasher.hexdigest(), size


class RowSpool(Protocol):
    """Takes accepted rows in file order, batch after batch."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next rows, in the schema the spool was made for."""

    def finish(self) -> RowSource:
        """What was kept of them."""

    def discard(self) -> None:
        """Forget the rows; they turned out to be no good."""


class Reading(Protocol):
    """What a reader looks at, and what it keeps.

    Attributes:
        threads: whether Arrow may read the columns of a file side by side: sooner where every row is kept, but each
            of its threads holds on to memory.
    """

    threads: bool

    def digest(self, file: LandedFile, content: BinaryIO) -> tuple[str, int]:
        """A digest of the file's bytes in hex, `""` where nobody needs one, and how many there are."""

    def columns(self, file: LandedFile, needed: Collection[str]) -> Collection[str] | None:
        """The columns to be read, when those in `needed` must be; None for all of them."""

    def byte_count(self, columns: Iterable[pa.Array]) -> int:
        """How many bytes cells count for (LZ-9.3); 0 where nobody asks."""

    def spool(self, schema: pa.Schema, key_columns: Collection[str]) -> RowSpool:
        """Where accepted rows of that schema go."""


class WholeFiles:
    """What a `Reading` says that looks at everything, whatever it keeps."""

    threads = True

    def digest(self, file: LandedFile, content: BinaryIO) -> tuple[str, int]:  # noqa: ARG002 - every file alike
        """See `Reading`."""
        return digest(content)

    def columns(self, file: LandedFile, needed: Collection[str]) -> Collection[str] | None:  # noqa: ARG002 - as above
        """See `Reading`."""
        return None

    def byte_count(self, columns: Iterable[pa.Array]) -> int:
        """See `Reading`."""
        return byte_count(columns)


class EveryRow(WholeFiles):
    """A `Reading` that keeps all rows: what is needed to apply a file."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def spool(self, schema: pa.Schema, key_columns: Collection[str]) -> Spool:  # noqa: ARG002 - keys are nothing special
        """See `Reading`."""
        return Spool(schema, self._scratch)
