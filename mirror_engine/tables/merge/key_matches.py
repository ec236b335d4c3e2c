"""Matches of change files in a version of a table, counted by key: 8 bytes a key at most, none where keys count up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.tables.base import MatchCounts
from mirror_engine.tables.log.snapshot import scan
from mirror_engine.tables.log.statistics import bounds_of, is_bounded
from mirror_engine.tables.merge.keys_only import KeyIndex, KeyRows, KeySequence, compact, key_hashes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.tables.base import ChangeBatch, FileRows
    from mirror_engine.tables.log.snapshot import DeltaLog


def count_matches(batch: ChangeBatch, log: DeltaLog | None) -> tuple[MatchCounts, ...]:
    """Count per file of a batch the rows that its changes match, each at its position.

    Args:
        batch: its rows need hold no more than keys and markers.
        log: the table before the batch; None where the batch begins it.
    """
    keys = batch.key_columns
    if not keys:
        return (MatchCounts(),) * len(batch.files)
    extremes: list[pa.Table] = []
    runs = [_run_of(file, keys, extremes) for file in batch.files]
    book = KeyIndex()
    if extremes and log is not None and set(keys) <= set(log.schema.names):
        book.add([_held(log, keys, pa.concat_tables(extremes))])
    return tuple(MatchCounts(found.duplicate_inserts, found.multi_row_changes) for found in book.add(runs))


def _run_of(file: FileRows, keys: Sequence[str], extremes: list[pa.Table]) -> KeySequence:
    store = KeyRows(keys)
    for rows in file.rows.batches([*keys, MARKER_COLUMN]):
        store.add(rows)
        extremes.append(_extremes(rows.select(list(keys))))
    store.finish()
    return store.run


def _extremes(keys: pa.RecordBatch) -> pa.Table:
    """Two rows, the lowest and the highest value of each column that statistics bound."""
    bounds = {
        field.name: pc.min_max(cells)
        for field, cells in zip(keys.schema, keys.columns, strict=True)
        if is_bounded(field.type)
    }
    found = {name: [bound["min"].as_py(), bound["max"].as_py()] for name, bound in bounds.items()}
    return pa.table({name: pa.array(values, keys.schema.field(name).type) for name, values in found.items()})


def _held(log: DeltaLog, keys: Sequence[str], extremes: pa.Table) -> KeySequence:
    """The keys that the table holds, of files that may hold one of those wanted."""
    parts = []
    for rows in scan(log, keys, bounds_of(extremes)):
        numbers, whole = key_hashes(rows.columns)
        parts.append(compact(numbers[whole]))
    return KeySequence(parts)
