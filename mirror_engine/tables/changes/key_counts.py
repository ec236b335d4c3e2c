"""Keys of changes and tables as numbers, and how many rows a table has of each: enough to count matches."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.tables.base import MatchCounts
from mirror_engine.tables.changes.net_changes import NO_KEY, Integers, Markers, comparable, exact_numbers, matched_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from mirror_engine.tables.changes.net_changes import Flags

Hashes: TypeAlias = NDArray[np.uint64]

CHANGES_PER_CHUNK = 1_000_000  # changes that are looked at together
LOAD_ROWS = 100_000  # of a file of inserts that is looked at alone
_BASE = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class ChangeEffects(MatchCounts):
    """How many rows one run of changes matched and changed.

    Attributes:
        unmatched_updates, unmatched_deletes: updates and deletes that matched no row.
        inserted, updated, deleted: rows of the table that were added, replaced and removed, change by change.
        first_unmatched_update, first_unmatched_delete: which change of the run was the first such, from 1; 0 for none.
    """

    unmatched_updates: int = 0
    unmatched_deletes: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    first_unmatched_update: int = field(default=0, compare=False)
    first_unmatched_delete: int = field(default=0, compare=False)


class KeyCounts:
    """Number of rows per key of a table; 12 bytes a key, 8 if each key occurs once.

    Rows that came before keys were declared have none.
    """

    def __init__(self, keys: Hashes | None = None) -> None:
        self._keys: Hashes = np.empty(0, np.uint64) if keys is None else keys  # distinct, ascending
        self._rows: Integers | None = None  # of each key, at least 1; None where each has one
        self._without_key = 0

    @property
    def row_count(self) -> int:
        """All rows."""
        keyed = len(self._keys) if self._rows is None else int(self._rows.sum(dtype=np.int64))
        return keyed + self._without_key

    def add(self, runs: Iterable[KeyRows]) -> list[ChangeEffects]:
        """Apply runs of changes, one after the other; returns their effects."""
        effects: list[ChangeEffects] = []
        together: list[KeyRows] = []
        waiting = 0
        for run in runs:
            count = len(run.keys)
            is_load = count >= LOAD_ROWS and run.whole.all() and not run.markers.any()
            if is_load or waiting + count > CHANGES_PER_CHUNK:
                effects += self._add_mixed(together)
                together, waiting = [], 0
            if is_load:
                effects.append(self._add_inserts(run.keys))
            else:
                together.append(run)
                waiting += count
        return effects + self._add_mixed(together)

    def common(self, others: Iterable[Hashes]) -> Hashes:
        """Its keys that are among others, which come in pieces; distinct and ascending."""
        found = np.zeros(len(self._keys), np.bool_)
        for keys in others if len(self._keys) else ():
            wanted = np.sort(keys)  # what is sorted is found several times as fast
            at = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
            found[at[self._keys[at] == wanted]] = True
        return self._keys[found]

    def _add_mixed(self, runs: Sequence[KeyRows]) -> list[ChangeEffects]:
        """Any changes, all at once."""
        if not runs:
            return []
        keys = np.concatenate([run.keys for run in runs])
        whole = np.concatenate([run.whole for run in runs])
        markers = np.concatenate([run.markers for run in runs])
        codes = np.full(len(keys), NO_KEY, dtype=np.int64)
        distinct, codes[whole] = np.unique(keys[whole], return_inverse=True)
        found = matched_rows(codes, markers, self._rows_of(distinct))
        self._without_key += int(np.count_nonzero(~whole & (markers != RowMarker.DELETE)))
        self._take(distinct, _left(codes, markers, found, len(distinct)))
        return _effects(markers, found, [len(run.keys) for run in runs])

    def _add_inserts(self, keys: Hashes) -> ChangeEffects:
        """Inserts of a large file; its keys are sorted in place, and joined where they come behind all others."""
        if not (keys[1:] > keys[:-1]).all():
            keys.sort()
        is_first = not len(self._keys)
        if (keys[1:] > keys[:-1]).all() and (is_first or keys[0] > self._keys[-1]):
            self._keys = keys if is_first else np.concatenate([self._keys, keys])
            if self._rows is not None:
                self._rows = np.concatenate([self._rows, np.ones(len(keys), self._rows.dtype)])
            return ChangeEffects(inserted=len(keys))
        distinct, rows = np.unique(keys, return_counts=True)
        prior = self._rows_of(distinct)
        self._take(distinct, prior + rows)
        return ChangeEffects(duplicate_inserts=len(keys) - int(np.count_nonzero(prior == 0)), inserted=len(keys))

    def _rows_of(self, distinct: Hashes) -> Integers:
        at = np.searchsorted(self._keys, distinct)
        is_known = at < len(self._keys)
        is_known[is_known] = self._keys[at[is_known]] == distinct[is_known]
        rows = np.zeros(len(distinct), dtype=np.int64)
        rows[is_known] = 1 if self._rows is None else self._rows[at[is_known]]
        return rows

    def _take(self, distinct: Hashes, rows: Integers) -> None:
        """Set the number of rows of these keys."""
        before = self._keys
        rows_before = np.ones(len(before), dtype=np.int32) if self._rows is None else self._rows
        others = np.ones(len(before), dtype=np.bool_)
        if len(before):
            at = np.minimum(np.searchsorted(before, distinct), len(before) - 1)
            others[at[before[at] == distinct]] = False
        left = rows > 0
        keys = np.concatenate([before[others], distinct[left]])
        order = np.argsort(keys, kind="stable")
        counts = np.concatenate([rows_before[others], rows[left].astype(np.int32)])[order]
        self._keys, self._rows = keys[order], counts if (counts != 1).any() else None


def _left(codes: Integers, markers: Markers, found: Integers, count: int) -> Integers:
    """Per code how many rows its last change leaves."""
    last = np.zeros(count, dtype=np.int64)
    keyed = np.flatnonzero(codes >= 0)
    np.maximum.at(last, codes[keyed], keyed)
    inserts = markers[last] == RowMarker.INSERT
    rows: Integers = np.where(inserts, found[last] + 1, np.maximum(found[last], 1))
    rows[markers[last] == RowMarker.DELETE] = 0
    return rows


def _effects(markers: Markers, found: Integers, counts: Sequence[int]) -> list[ChangeEffects]:
    """The effects of runs of `counts` changes one after the other."""
    ends = np.concatenate([[0], np.cumsum(counts)])

    def summed(numbers: NDArray[Any]) -> list[int]:
        sums: list[int] = np.diff(np.concatenate([[0], np.cumsum(numbers)])[ends]).tolist()
        return sums

    def first(flags: Flags) -> list[int]:
        flagged = np.flatnonzero(flags)
        at = np.append(flagged, len(flags))[np.searchsorted(flagged, ends[:-1])]
        rows: list[int] = np.where(at < ends[1:], at - ends[:-1] + 1, 0).tolist()
        return rows

    inserts, deletes = markers == RowMarker.INSERT, markers == RowMarker.DELETE
    sets, absent = ~inserts & ~deletes, found == 0
    unmatched_updates, unmatched_deletes = (markers == RowMarker.UPDATE) & absent, deletes & absent
    numbers = (
        inserts & ~absent,
        ~inserts & (found > 1),
        unmatched_updates,
        unmatched_deletes,
        inserts | (sets & absent),
        np.where(sets, found, 0),
        np.where(deletes, found, 0),
    )
    columns = [*map(summed, numbers), *map(first, (unmatched_updates, unmatched_deletes))]
    return list(itertools.starmap(ChangeEffects, zip(*columns, strict=True)))


def key_hashes(columns: Sequence[pa.Array]) -> tuple[Hashes, NDArray[np.bool_]]:
    """Keys as numbers: equal where LZ-4.9 sees equal keys; else different but for one in about 10^19 pairs.

    Returns:
        Per row its number (a key of one number is itself), and whether every part of its key is there (LZ-4.8).
    """
    parts = [comparable(pa.chunked_array([column])).combine_chunks() for column in columns]
    whole = np.ones(len(parts[0]), dtype=np.bool_)
    for part in parts:
        if part.null_count:
            whole &= part.is_valid().to_numpy(zero_copy_only=False)
    numbers = [exact_numbers(_as_if_valid(part)) for part in parts]
    if len(parts) == 1 and numbers[0] is not None:
        return numbers[0].view(np.uint64), whole
    made = np.zeros(len(whole), dtype=np.uint64)
    for part, known in zip(parts, numbers, strict=True):
        own = _of_bytes(part) if known is None else _mixed(known.view(np.uint64))
        made = _mixed(made * _BASE + own)
    return made, whole


def _as_if_valid(part: pa.Array) -> pa.Array:
    """Drop the validity bitmap; NULLs show the bytes in their place."""
    return pa.Array.from_buffers(part.type, len(part), [None, *part.buffers()[1:]], offset=part.offset)


def _of_bytes(part: pa.Array) -> Hashes:
    """Text, bytes and decimals: a sum over bytes, each with its own number times a power of its place."""
    if pa.types.is_decimal(part.type):
        part = part.view(pa.binary(part.type.byte_width)).cast(pa.large_binary())
    filled: Any = part.fill_null(b"" if pa.types.is_large_binary(part.type) else "")
    offsets = np.frombuffer(filled.buffers()[1], dtype=np.int64)[filled.offset : filled.offset + len(filled) + 1]
    content = np.frombuffer(filled.buffers()[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    lengths, starts = np.diff(offsets), offsets - offsets[0]
    places = np.arange(len(content), dtype=np.int64) - np.repeat(starts[:-1], lengths)
    powers = np.cumprod(np.full(max(int(lengths.max(initial=0)), 1), _BASE), dtype=np.uint64)
    terms = _byte_numbers()[content] * powers[places]
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(terms, dtype=np.uint64)])
    return _mixed(sums[starts[1:]] - sums[starts[:-1]] + lengths.astype(np.uint64))


@cache
def _byte_numbers() -> Hashes:
    """A number for each byte, none of them 0."""
    return _mixed(np.arange(1, 257, dtype=np.uint64))


def _mixed(numbers: Hashes) -> Hashes:
    """Spread every bit over all (the finalizer of splitmix64)."""
    with np.errstate(over="ignore"):
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Hashes = numbers ^ (numbers >> np.uint64(31))
    return mixed


class KeyRows:
    """A `RowStore` of keys and markers, 10 bytes a row; each column is one array that grows in place.

    Attributes:
        keys: each change's key, as `key_hashes` numbers it; `KeyCounts` may sort and keep them.
        whole: whether no part of the key is NULL.
        markers: the effective row marker.
    """

    schema = pa.schema([(MARKER_COLUMN, pa.int8())])

    def __init__(self, key_columns: Collection[str]) -> None:
        self._key_columns = key_columns
        self.close()

    def add(self, batch: pa.RecordBatch) -> None:
        if self._key_columns:
            keys, whole = key_hashes([batch.column(name) for name in self._key_columns])
        else:
            keys, whole = np.zeros(batch.num_rows, np.uint64), np.zeros(batch.num_rows, np.bool_)
        added = (keys, whole, batch.column(MARKER_COLUMN).to_numpy())
        arrays: tuple[np.ndarray[Any, Any], ...] = (self.keys, self.whole, self.markers)
        for known, more in zip(arrays, added, strict=True):
            known.resize(len(known) + len(more), refcheck=False)
            known[len(known) - len(more) :] = more

    def finish(self) -> None:
        """Nothing is left to do."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is one
        """The markers in order."""
        yield pa.RecordBatch.from_arrays([pa.array(self.markers)], schema=self.schema)

    def close(self) -> None:
        self.keys, self.whole, self.markers = np.empty(0, np.uint64), np.empty(0, np.bool_), np.empty(0, np.int8)
