"""Counts the rows that a table holds of the keys of a batch, reading no more of it than its statistics ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.delta.collapse import key_codes
from mirror_engine.delta.data_files import scan
from mirror_engine.delta.file_bounds import bounds_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror_engine.delta.collapse import Integers, KeyCodes
    from mirror_engine.delta.log import DeltaLog

_CHUNK_ROWS = 1_000_000
_BATCH_ROWS = 524_288  # a filter is made anew for each batch, from all keys


def prior_rows(keys: pa.Table, codes: KeyCodes, log: DeltaLog) -> Integers:
    """Per key of a batch, how many rows of it the table holds before.

    Args:
        keys: the key columns, one row per change.
        codes: of these keys.
        log: the table before the batch.
    """
    prior = np.zeros(codes.count, dtype=np.int64)
    if codes.count and set(keys.column_names) <= set(log.schema.names):
        wanted = keys.take(codes.first_position)
        for chunk in _chunks(log, wanted):
            both = key_codes(pa.concat_tables([wanted, chunk.cast(wanted.schema)])).codes
            seen = both[codes.count :]
            found = np.bincount(seen[seen >= 0], minlength=int(both.max()) + 1)
            prior += found[both[: codes.count]]
    return prior


def _chunks(log: DeltaLog, wanted: pa.Table) -> Iterator[pa.Table]:
    """The table's keys that may be among those wanted, in pieces of a bounded size."""
    first = wanted.column(0).combine_chunks()
    waiting: list[pa.RecordBatch] = []
    for batch in scan(log, wanted.column_names, bounds_of(wanted), _BATCH_ROWS):
        # a filter by equal bits would lose a NaN or a zero of the other sign
        found = batch if pa.types.is_floating(first.type) else batch.filter(pc.is_in(batch.column(0), value_set=first))
        if found.num_rows:
            waiting.append(found)
        if sum(rows.num_rows for rows in waiting) >= _CHUNK_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)
