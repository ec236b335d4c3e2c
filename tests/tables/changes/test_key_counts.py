"""Counting keys tells what row-by-row replay tells."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import asdict
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seed import by_night

from mirror_engine.landing_zone.change import MARKER_COLUMN, Change, RowMarker, replay
from mirror_engine.tables.changes import key_counts
from mirror_engine.tables.changes.key_counts import ChangeEffects, KeyCounts, KeyRows, key_hashes

CHANGE = st.tuples(st.sampled_from(list(RowMarker)), st.none() | st.integers(0, 4))
INSERT = st.tuples(st.just(RowMarker.INSERT), st.integers(0, 4))
FILES = st.lists(st.lists(CHANGE, max_size=8) | st.lists(INSERT, max_size=8), max_size=6)


def run_of(changes):
    keys, markers = [key for _, key in changes], [int(marker) for marker, _ in changes]
    rows = KeyRows(["Id"])
    rows.add(pa.record_batch({"Id": pa.array(keys, pa.int64()), MARKER_COLUMN: pa.array(markers, pa.int8())}))
    return rows


def told_by_replay(files):
    rows: list[dict[str, Any]] = []
    told = []
    for changes in files:
        counts: Counter[str] = Counter()
        rows, effects = replay(rows, [Change(marker, (key,), {"Id": key}) for marker, key in changes], ["Id"])
        firsts = {RowMarker.UPDATE: 0, RowMarker.DELETE: 0}
        for row, ((marker, _), effect) in enumerate(zip(changes, effects, strict=True), start=1):
            if effect.matched == 0 and marker in firsts:
                firsts[marker] = firsts[marker] or row
            counts["duplicate_inserts"] += marker is RowMarker.INSERT and effect.matched > 0
            counts["multi_row_changes"] += marker is not RowMarker.INSERT and effect.matched > 1
            counts["unmatched_updates"] += marker is RowMarker.UPDATE and effect.matched == 0
            counts["unmatched_deletes"] += marker is RowMarker.DELETE and effect.matched == 0
            counts["deleted"] += effect.matched if marker is RowMarker.DELETE else 0
            inserts = marker is RowMarker.INSERT or (marker is not RowMarker.DELETE and not effect.matched)
            counts["inserted"] += inserts
            counts["updated"] += 0 if inserts or marker is RowMarker.DELETE else effect.matched
        absent = {
            "first_unmatched_update": firsts[RowMarker.UPDATE],
            "first_unmatched_delete": firsts[RowMarker.DELETE],
        }
        told.append(ChangeEffects(**counts, **absent))
    return len(rows), told


@settings(max_examples=by_night(150, 300))
@given(FILES, st.sampled_from([0, 3, 1_000_000]), st.sampled_from([1, 3, 1_000_000]), st.booleans())
def test_key_counts_are_those_of_replay(files, together, load, at_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_counts, "CHANGES_PER_CHUNK", together)
        patch.setattr(key_counts, "LOAD_ROWS", load)
        book = KeyCounts()
        runs = [run_of(changes) for changes in files]
        effects = book.add(runs) if at_once else [told for run in runs for told in book.add([run])]
    row_count, expected = told_by_replay(files)
    assert (book.row_count, list(map(asdict, effects))) == (row_count, list(map(asdict, expected)))


def test_keys_in_any_order_are_held_once_eight_bytes_each(monkeypatch):
    monkeypatch.setattr(key_counts, "CHANGES_PER_CHUNK", 100_000)
    ids = np.random.default_rng(1).permutation(400_000).astype(np.uint64)
    rows = KeyRows(["Id"])
    tracemalloc.start()
    try:
        for part in np.array_split(ids, 20):
            markers = pa.repeat(pa.scalar(0, pa.int8()), len(part))
            rows.add(pa.record_batch({"Id": pa.array(part.view(np.int64)), MARKER_COLUMN: markers}))
        book = KeyCounts()
        book.add([rows])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (book.row_count, book._rows) == (len(ids), None)
    assert peak < 1.5 * ids.nbytes


COLUMNS: list[pa.Array] = [
    pa.array([1, 2, -1, None], pa.int64()),
    pa.array(["", "a", "aa", "ab", "ba", "b", "é", None, "a" * 300]),
    pa.array([b"", b"\x00", b"\x00\x00", b"\x01"]),
    pa.array([Decimal("1.10"), Decimal("11.00"), Decimal("-1.10"), None], pa.decimal128(10, 2)),
    pa.array([True, False, None]),
    pa.array([0.0, 1.0, float("nan"), float("inf")]),
    pa.array([0, 1, 10**15], pa.timestamp("us", "UTC")),
    pa.array([0, 1, 20_000], pa.date32()),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_different_keys_have_different_numbers_and_equal_ones_equal_numbers(column):
    keys, whole = key_hashes([column])
    valid = column.is_valid().to_pylist()
    assert whole.tolist() == valid
    assert len({int(key) for key, is_valid in zip(keys, valid, strict=True) if is_valid}) == sum(valid)
    sliced, _ = key_hashes([column.slice(1)])
    assert sliced.tolist() == keys[1:].tolist()
    again, _ = key_hashes([pa.concat_arrays([column.slice(2), column])])
    assert again.tolist() == [*keys[2:].tolist(), *keys.tolist()]


def test_zero_has_no_sign_and_parts_are_not_run_together():
    keys, _ = key_hashes([pa.array([0.0, -0.0])])
    assert keys[0] == keys[1]
    keys, whole = key_hashes([pa.array(["a", "ab", "a"]), pa.array(["bc", "c", None])])
    assert keys[0] != keys[1]
    assert whole.tolist() == [True, True, False]
