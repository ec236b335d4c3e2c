"""Matches of change files in a version of a table, counted by key."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.tables.base import MatchCounts
from mirror_engine.tables.log.snapshot import scan
from mirror_engine.tables.log.statistics import bounds_of
from mirror_engine.tables.merge.keys_only import KeyIndex, KeyRows

if TYPE_CHECKING:
    from mirror_engine.tables.base import ChangeBatch
    from mirror_engine.tables.log.snapshot import DeltaLog


def count_matches(batch: ChangeBatch, log: DeltaLog | None) -> tuple[MatchCounts, ...]:
    """Count per file of a batch the rows that its changes match, each at its position.

    Args:
        batch: its rows need hold no more than keys and markers.
        log: the table before the batch; None where the batch begins it.
    """
    keys = list(batch.key_columns)
    if not keys:
        return (MatchCounts(),) * len(batch.files)
    extremes: defaultdict[str, list[pa.Scalar[Any]]] = defaultdict(list)
    changes = [KeyRows(keys) for _ in batch.files]
    for file, run in zip(batch.files, changes, strict=True):
        for rows in file.rows.batches([*keys, MARKER_COLUMN]):
            run.add(rows)
            for name, bounds in bounds_of(pa.Table.from_batches([rows.select(keys)])).items():
                extremes[name] += bounds
    index = KeyIndex()
    if log is not None and set(keys) <= set(log.schema.names):
        held = KeyRows(keys)
        wanted: dict[str, Any] = {}
        for name, values in extremes.items():
            wanted |= bounds_of(pa.table({name: pa.array(values, values[0].type)}))
        for rows in scan(log, keys, wanted):
            inserts = pa.repeat(pa.scalar(RowMarker.INSERT.value, pa.int8()), rows.num_rows)
            held.add(rows.append_column(MARKER_COLUMN, inserts))
        index.add([held])
    effects = index.add(changes)
    return tuple(MatchCounts(found.duplicate_inserts, found.multi_row_changes) for found in effects)
