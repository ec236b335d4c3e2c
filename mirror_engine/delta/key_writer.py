"""The counting writer: tables of which only schema and keys are kept, to tell what changes would meet."""

from __future__ import annotations

import math
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mirror_engine.delta.base import DeltaState, Met, Outcome
from mirror_engine.delta.digest import digest
from mirror_engine.delta.key_book import Effects, KeyBook, KeyRun, Part, append, compact, filled
from mirror_engine.delta.key_hashes import key_hashes
from mirror_engine.delta.record import beginning
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.change import MARKER_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import BinaryIO

    from numpy.typing import NDArray

    from mirror_engine.delta.base import BatchRecord, ChangeBatch, FileRows
    from mirror_engine.delta.collapse import Flags, Markers
    from mirror_engine.delta.history import HistoryEntry
    from mirror_engine.landing_zone.column_types import TableSchema
    from mirror_engine.landing_zone.sightings import FileSighting


class KeyReading:
    """A `Reading` that keeps keys and markers alone.

    Args:
        sizes: of all files there are: the same content needs the same size (ME064); None where more may come.
        whole_file_bytes: up to which size all columns are read; of larger files only those that are compared or
            must not be NULL, so that damage elsewhere is not noticed.
    """

    threads = False  # counting keys takes as long as unfolding the rest

    def __init__(self, sizes: Iterable[int] | None, whole_file_bytes: float = math.inf) -> None:
        self._several = None if sizes is None else {size for size, count in Counter(sizes).items() if count > 1}
        self._whole_file_bytes = whole_file_bytes

    def digest(self, file: FileSighting, content: BinaryIO) -> tuple[str, int]:
        """See `Reading`."""
        if self._several is None or file.size in self._several:
            return digest(content)
        size = content.seek(0, 2)
        content.seek(0)
        return f"of its own: {file.path}", size

    def columns(self, file: FileSighting, needed: Collection[str]) -> Collection[str] | None:
        """See `Reading`."""
        return None if file.size <= self._whole_file_bytes else needed

    def byte_count(self, columns: Iterable[pa.Array]) -> int:  # noqa: ARG002 - a verdict tells rows
        """See `Reading`."""
        return 0

    def spool(self, schema: pa.Schema, key_columns: Collection[str]) -> KeySpool:  # noqa: ARG002 - any schema has them
        """See `Reading`."""
        return KeySpool(key_columns)


class KeySpool:
    """Keeps 8 bytes a row, 10 where rows are not mere inserts of whole keys."""

    def __init__(self, key_columns: Collection[str]) -> None:
        self._key_columns = key_columns
        self._keys: list[Part] = []
        self._counts: list[int] = []
        self._whole: list[Flags | None] = []
        self._markers: list[Markers | None] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next rows."""
        if self._key_columns:
            keys, whole = key_hashes([batch.column(name) for name in self._key_columns])
        else:
            keys, whole = np.zeros(batch.num_rows, dtype=np.uint64), np.zeros(batch.num_rows, dtype=np.bool_)
        markers = batch.column(batch.num_columns - 1).to_numpy()
        append(self._keys, compact(keys))
        self._counts.append(batch.num_rows)
        self._whole.append(None if whole.all() else whole)
        self._markers.append(markers if markers.any() else None)

    def finish(self) -> KeyRows:
        """All rows taken so far."""
        whole, markers = _joined(self._whole, self._counts, np.True_), _joined(self._markers, self._counts, np.int8(0))
        return KeyRows(KeyRun(self._keys, whole, markers))

    def discard(self) -> None:
        """Forget them."""
        self._keys, self._counts, self._whole, self._markers = [], [], [], []


class KeyRows:
    """Keys and markers of one file, a `RowSource` with nothing else to read."""

    schema = pa.schema([(MARKER_COLUMN, pa.int8())])

    def __init__(self, run: KeyRun) -> None:
        self.run = run

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is one
        """The markers in order."""
        markers = np.zeros(self.run.row_count, np.int8) if self.run.markers is None else self.run.markers
        yield pa.RecordBatch.from_arrays([pa.array(markers)], schema=self.schema)

    def close(self) -> None:
        """Forget them. Repeatable."""
        self.run = KeyRun([])


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

    def prepare(self) -> None:
        """See `DeltaWriter`; it always is ready."""

    def apply(self, table: str, batch: ChangeBatch, record: BatchRecord) -> Outcome:
        """See `DeltaWriter`; nobody else writes, so that nothing conflicts."""
        self.create(table, batch.schema, beginning(record))
        known, told = self._tables[table], self.effects.setdefault(table, {})
        effects = known.book.add([_run_of(file) for file in batch.files])
        told.update(zip((file.path for file in batch.files), effects, strict=True))
        known.schema, known.record, known.version = batch.schema, record, known.version + 1
        found = tuple(Met(told[file.path].repeated, told[file.path].spread) for file in batch.files)
        return Outcome(known.version, found, "MERGE")

    def data_file(self, table: str, name: str) -> BinaryIO:
        """Never any.

        Raises:
            UsageError: it keeps no files.
        """
        raise UsageError(f"{table}/{name}: files are not kept when a landing zone is only judged")

    def met(self, table: str, batch: ChangeBatch, version: int) -> Sequence[Met]:  # noqa: ARG002 - `apply` tells all
        """See `DeltaWriter`; what changes met, `apply` has told."""
        return ()

    def changed_by_others(self, table: str, since: int) -> int:  # noqa: ARG002 - nobody else writes
        """See `DeltaWriter`; nobody does."""
        return -1

    def make_durable(self, table: str, since: int) -> None:
        """See `DeltaWriter`; nothing is kept."""

    def drop(self, table: str) -> None:
        """See `DeltaWriter`."""
        with self._lock:
            self._tables.pop(table, None)
            self.effects.pop(table, None)

    def row_count(self, table: str) -> int | None:
        """See `DeltaWriter`."""
        known = self._tables.get(table)
        return known.book.row_count if known else None

    def rows(self, table: str, **_: object) -> pa.Table | None:
        """Never any.

        Raises:
            UsageError: it keeps no rows.
        """
        raise UsageError(f"{table}: rows are not kept when a landing zone is only judged")

    def history(self, table: str, *, limit: int | None = None) -> Sequence[HistoryEntry]:  # noqa: ARG002 - none is kept
        """See `DeltaWriter`; none is kept."""
        return ()

    def maintain(
        self,
        table: str,  # noqa: ARG002 - nothing to do
        retention_hours: float,  # noqa: ARG002 - likewise
        is_wanted: Callable[[], bool] = lambda: False,  # noqa: ARG002 - likewise
    ) -> Mapping[str, Any]:
        """See `DeltaWriter`; there is nothing to tidy up."""
        return {}

    def close(self) -> None:
        """See `DeltaWriter`."""


def _joined(parts: Sequence[NDArray[Any] | None], counts: Sequence[int], usual: np.generic) -> NDArray[Any] | None:
    """All parts in one, those of the usual value alone filled in; None where all are."""
    return None if all(part is None for part in parts) else filled(parts, counts, usual)


def _run_of(file: FileRows) -> KeyRun:
    if not isinstance(file.rows, KeyRows):
        raise TypeError("a KeyWriter is fed by a KeyReading")
    return file.rows.run
