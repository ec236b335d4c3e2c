"""The counting writer: tables of which only schema and keys are kept, to tell what changes would meet."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mirror_engine.delta.base import DeltaState, Met, Outcome
from mirror_engine.delta.change_bytes import digest
from mirror_engine.delta.key_book import Effects, KeyBook
from mirror_engine.delta.key_hashes import key_hashes
from mirror_engine.delta.record import beginning
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.change import MARKER_COLUMN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import BinaryIO

    from mirror_engine.delta.base import BatchRecord, ChangeBatch, FileRows, HistoryEntry
    from mirror_engine.landing_zone.column_types import TableSchema
    from mirror_engine.landing_zone.sightings import FileSighting

KEY, WHOLE = "key", "is_whole"
_KEPT = pa.schema([(KEY, pa.uint64()), (WHOLE, pa.bool_()), (MARKER_COLUMN, pa.int8())])
WHOLE_FILE_BYTES = 32 * 1024 * 1024


class KeyReading:
    """A `Reading` that keeps keys and markers alone.

    Small files are read whole; of large ones only the columns that the protocol judges.

    Args:
        sizes: of all files there are: the same content needs the same size (ME064).
        whole_file_bytes: up to which size all columns are read.
    """

    def __init__(self, sizes: Iterable[int], whole_file_bytes: int = WHOLE_FILE_BYTES) -> None:
        self._several = {size for size, count in Counter(sizes).items() if count > 1}
        self._whole_file_bytes = whole_file_bytes

    def digest(self, file: FileSighting, content: BinaryIO) -> tuple[str, int]:
        """See `Reading`."""
        if file.size <= self._whole_file_bytes or file.size in self._several:
            return digest(content)
        size = content.seek(0, 2)
        content.seek(0)
        return f"of its own: {file.path}", size

    def columns(self, file: FileSighting, needed: Collection[str]) -> Collection[str] | None:
        """See `Reading`."""
        return None if file.size <= self._whole_file_bytes else needed

    def spool(self, schema: pa.Schema, key_columns: Collection[str]) -> KeySpool:  # noqa: ARG002 - any schema has them
        """See `Reading`."""
        return KeySpool(key_columns)


class KeySpool:
    """Keeps 10 bytes a row."""

    def __init__(self, key_columns: Collection[str]) -> None:
        self._key_columns = key_columns
        self._batches: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next rows."""
        if not batch.num_rows:
            return
        if self._key_columns:
            keys, whole = key_hashes([batch.column(name) for name in self._key_columns])
        else:
            keys, whole = np.zeros(batch.num_rows, dtype=np.uint64), np.zeros(batch.num_rows, dtype=np.bool_)
        markers = batch.column(batch.num_columns - 1)
        self._batches.append(pa.RecordBatch.from_arrays([pa.array(keys), pa.array(whole), markers], schema=_KEPT))

    def finish(self) -> KeyRows:
        """All rows taken so far."""
        return KeyRows(self._batches)

    def discard(self) -> None:
        """Forget them."""
        self._batches = []


class KeyRows:
    """Keys and markers of one file, a `RowSource`."""

    schema = _KEPT

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._batches = list(batches)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in order."""
        for batch in self._batches:
            yield batch if columns is None else batch.select(list(columns))

    def close(self) -> None:
        """Forget them. Repeatable."""
        self._batches = []


@dataclass
class _Table:
    schema: TableSchema
    record: BatchRecord
    version: int = 0
    book: KeyBook = field(default_factory=KeyBook)


class KeyWriter:
    """`DeltaWriter` that knows which keys a table has, and no more; fed by a `KeyReading`.

    Attributes:
        effects: per Delta table and change file, by path from its table folder, what its changes met and did.
    """

    def __init__(self) -> None:
        self.effects: dict[str, dict[str, Effects]] = {}
        self._tables: dict[str, _Table] = {}
        self._lock = threading.RLock()

    def tables(self) -> Sequence[str]:
        """See `DeltaWriter`."""
        return sorted(self._tables)

    def state(self, table: str) -> DeltaState | None:
        """See `DeltaWriter`."""
        known = self._tables.get(table)
        return DeltaState(known.version, known.schema, known.record, known.version) if known else None

    def create(self, table: str, schema: TableSchema, record: BatchRecord) -> Outcome:
        """See `DeltaWriter`."""
        with self._lock:
            self._tables.setdefault(table, _Table(schema, record))
        return Outcome(self._tables[table].version, operation="CREATE")

    def apply(self, table: str, batch: ChangeBatch, record: BatchRecord) -> Outcome:
        """See `DeltaWriter`; nobody else writes, so that nothing conflicts."""
        self.create(table, batch.schema, beginning(record))
        known, told = self._tables[table], self.effects.setdefault(table, {})
        for file in batch.files:
            told[file.path] = _applied(known.book, file)
        known.schema, known.record, known.version = batch.schema, record, known.version + 1
        found = tuple(Met(told[file.path].repeated, told[file.path].spread) for file in batch.files)
        return Outcome(known.version, found, "MERGE")

    def drop(self, table: str) -> None:
        """See `DeltaWriter`."""
        with self._lock:
            self._tables.pop(table, None)
            self.effects.pop(table, None)

    def row_count(self, table: str) -> int | None:
        """See `DeltaWriter`."""
        known = self._tables.get(table)
        return known.book.row_count if known else None

    def rows(self, table: str, *, version: int | None = None, limit: int | None = None) -> pa.Table | None:
        """Never any.

        Raises:
            UsageError: it keeps no rows.
        """
        raise UsageError(f"{table}: rows are not kept when a landing zone is only judged (version {version}, {limit})")

    def history(self, table: str, *, limit: int | None = None) -> Sequence[HistoryEntry]:  # noqa: ARG002 - none is kept
        """See `DeltaWriter`; none is kept."""
        return ()

    def maintain(self, table: str, retention_hours: float) -> Mapping[str, Any]:  # noqa: ARG002 - nothing to do
        """See `DeltaWriter`; there is nothing to tidy up."""
        return {}

    def close(self) -> None:
        """See `DeltaWriter`."""


def _applied(book: KeyBook, file: FileRows) -> Effects:
    rows = pa.Table.from_batches(file.rows.batches(), _KEPT)
    keys, whole, markers = (column.to_numpy() for column in rows.columns)
    file.rows.close()
    return book.add(keys, whole, markers)
