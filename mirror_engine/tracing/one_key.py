"""Keeps the changes to one key alone, and what each of them met and did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mirror_engine.delta.memory import MemoryDeltaWriter
from mirror_engine.delta.reading import WholeFiles
from mirror_engine.delta.rows import SpooledRows
from mirror_engine.landing_zone.change import MARKER_COLUMN, Change, RowMarker, replay
from mirror_engine.tracing.replaying import AT_THE_BEGINNING
from mirror_engine.tracing.row_values import plain_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mirror_engine.delta.base import BatchRecord, ChangeBatch, FileRows, Outcome
    from mirror_engine.tracing.row_values import Row
    from mirror_engine.tracing.wanted_key import WantedKey

ROW_COLUMN = "__row__"  # where a row stands in its file, from 1; before the marker


@dataclass(frozen=True)
class KeyChange:
    """One change to the key.

    Attributes:
        file: by path from the table folder.
        row: its place in the file, from 1, the header not counted.
        marker: the effective one.
        has_marker: whether the file has a marker column.
        before, after: the rows of the key, before and after it, over all columns known at that time.
    """

    file: str
    row: int
    marker: RowMarker
    has_marker: bool
    before: tuple[Row, ...]
    after: tuple[Row, ...]


class OneKeyReading(WholeFiles):
    """A `Reading` that keeps only the rows of one key: however large the table is, few stay in memory."""

    def __init__(self, key: WantedKey) -> None:
        self._key = key

    def spool(self, schema: pa.Schema, key_columns: Collection[str]) -> OneKeySpool:  # noqa: ARG002 - the key knows them
        """See `Reading`."""
        return OneKeySpool(schema, self._key)


class OneKeySpool:
    """Keeps the rows of one key, each with its place in the file."""

    def __init__(self, schema: pa.Schema, key: WantedKey) -> None:
        self._schema = schema.insert(len(schema) - 1, pa.field(ROW_COLUMN, pa.int64()))
        self._key = key
        self._kept: list[pa.RecordBatch] = []
        self._seen = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next rows."""
        hits = self._key.rows_of(batch)
        places = pa.array(np.arange(self._seen + 1, self._seen + batch.num_rows + 1))
        self._seen += batch.num_rows
        cells = [*batch.columns[:-1], places, batch.columns[-1]]
        kept = pa.RecordBatch.from_arrays(cells, schema=self._schema).filter(hits)
        if kept.num_rows:
            self._kept.append(kept)

    def finish(self) -> SpooledRows:
        """The rows kept."""
        return SpooledRows(self._schema, self._kept)

    def discard(self) -> None:
        """Forget them."""
        self._kept = []


class OneKeyWriter(MemoryDeltaWriter):
    """`DeltaWriter` of the rows of one key, fed by a `OneKeyReading`; each change is held to `replay` by itself.

    Attributes:
        changes: all that were applied, in order.
        first: the rows it had before them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[KeyChange] = []
        self.first: tuple[Row, ...] = ()
        self._now: tuple[Row, ...] = ()

    def apply(self, table: str, batch: ChangeBatch, record: BatchRecord) -> Outcome:
        """See `DeltaWriter`."""
        for file in batch.files:
            self._now = tuple({name: row.get(name) for name in batch.schema.names} for row in self._now)
            told = list(_told(self._now, file, batch))
            if told:
                self._now = told[-1].after
            if file.path == AT_THE_BEGINNING:
                self.first = self._now
            else:
                self.changes += told
        return super().apply(table, batch, record)

    def row_count(self, table: str) -> int | None:  # noqa: ARG002 - whichever it is
        """Never known: only one key's rows are here, and a table without them need not be empty (LZ-5.5)."""
        return None


def _told(now: tuple[Row, ...], file: FileRows, batch: ChangeBatch) -> Iterator[KeyChange]:
    for rows in file.rows.batches():
        for found in plain_rows(rows):
            marker = RowMarker(found[MARKER_COLUMN])
            row = {name: found.get(name) for name in batch.schema.names}
            change = Change(marker, tuple(row[name] for name in batch.key_columns), row)
            after, _ = replay(now, [change], batch.key_columns)
            yield KeyChange(file.path, found[ROW_COLUMN], marker, file.has_marker, now, tuple(after))
            now = tuple(after)
