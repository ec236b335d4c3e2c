"""Net changes: ordered changes reduced to at most one matching row per key, and how many rows each change matched.

`landing_zone.change.replay` says what this means, row by row; here the same is said about whole columns. A key is
a small number, its code, so that nothing below has to know what a key looks like. Positions are row numbers within
the change batch, in detection order of the files and file order of the rows (LZ-4.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mirror_engine.landing_zone.change import RowMarker

Integers: TypeAlias = NDArray[np.int64]
Markers: TypeAlias = NDArray[np.int8]
Flags: TypeAlias = NDArray[np.bool_]

NO_KEY = -1  # the code of a row that matches nothing (LZ-4.8)
_SLICE_ROWS = 1_000_000  # about so many changes are sorted at once; more would take memory and no less time
_SORTED_BITS = 63  # of a number and its position, to be sorted as one
_LONG_DIGITS = 18  # of a decimal that fits 64 bits


class Role(IntEnum):
    """How a net change takes part in a MERGE."""

    DELETE = 0  # the key's old rows go
    SET = 1  # the key's old rows become this row; inserted where none matched
    SET_ONLY = 2  # the key's old rows become this row; nothing where none matched
    INSERT = 3  # matches nothing


@dataclass(frozen=True)
class KeyCodes:
    """Per row of a batch its key's code, `NO_KEY` where a part is NULL; per code the first row that has it."""

    codes: Integers
    first_position: Integers


@dataclass(frozen=True)
class NetChanges:
    """Rows of a change batch that count, ordered by position; columns of one length."""

    position: Integers  # the row whose content is used; no position twice
    role: Markers  # a `Role`; at most one per key is not `INSERT`
    copies: Integers  # how many rows are appended besides the matching one; of an `INSERT` at least 1, of a `DELETE` 0


def key_codes(keys: pa.Table) -> KeyCodes:
    """Number the distinct keys from 0, comparing parts by typed value, exactly (LZ-4.9).

    Without columns (a keyless table) every row is `NO_KEY`.
    """
    codes = np.full(keys.num_rows, NO_KEY, dtype=np.int64)
    for index, column in enumerate(keys.columns):
        part = _dense(comparable(column))
        codes = part if index == 0 else _paired(codes, part)
    first = np.full(_count(codes) + 1, len(codes), dtype=np.int64)  # the last place is that of `NO_KEY`
    np.minimum.at(first, codes, np.arange(len(codes)))
    return KeyCodes(codes, first[:-1])


def net_changes(codes: Integers, markers: Markers) -> NetChanges:
    """Reduce ordered changes to net changes that leave any table as `replay` does (LZ-4.1 to LZ-4.4).

    Within a key, d is its last delete and S any 1 or 4. Before d nothing counts: d itself says that old rows go. From
    d on (or from the start), with n inserts before the last S:

    - the last S becomes all older rows. Without d it matches: `SET`, or `SET_ONLY` where an insert precedes the first
      S, so that it must not be inserted again; n copies are appended. After d nothing is left to match: `INSERT` of
      n copies, and one more where no insert precedes the first S.
    - each insert after the last S (each one, where there is no S) is appended as it is.

    A row without a key is appended, unless it deletes (LZ-4.8). `codes` and `markers` are those of each change.
    """
    sets, inserts, deletes = _sets(markers), markers == RowMarker.INSERT, markers == RowMarker.DELETE
    keyed, position = codes >= 0, np.arange(len(codes))
    last_delete = _last(codes, keyed & deletes)
    counts = keyed & (position >= last_delete[codes])
    last_set = _last(codes, counts & sets)[codes]
    behind_set = counts & inserts & (position < last_set)
    copied = np.bincount(codes[behind_set], minlength=len(last_delete))
    insert_first = _first(codes, counts & inserts) < _first(codes, counts & sets)

    final_set = counts & (position == last_set)
    after_delete = last_delete >= 0
    role = np.full(len(codes), Role.INSERT, dtype=np.int8)
    role[keyed & deletes] = Role.DELETE
    matching = np.where(insert_first, Role.SET_ONLY, Role.SET)
    role[final_set] = np.where(after_delete, Role.INSERT, matching)[codes[final_set]]
    copies = (role == Role.INSERT).astype(np.int64)
    copies[final_set] = (copied + (after_delete & ~insert_first))[codes[final_set]]
    loose = ~keyed & ~deletes
    kept = np.flatnonzero(loose | (counts & ~behind_set & (~sets | final_set)))
    return NetChanges(kept, role[kept], copies[kept])


def matched_rows(codes: Integers, markers: Markers, prior: Integers) -> Integers:
    """How many rows of its key each change finds in the table just before it: `replay`'s `Effect.matched`.

    `codes` and `markers` are those of each change; `prior` is per code how many rows the table held before the batch.
    """
    found = np.zeros(len(codes), dtype=np.int64)
    keys = max(len(prior) * _SLICE_ROWS // max(len(codes), 1), 1)  # of a slice, which bounds memory
    for first in range(0, len(prior), keys):
        chosen = np.flatnonzero((codes >= first) & (codes < first + keys))
        found[chosen] = _matched(codes[chosen], markers[chosen], prior)
    return found


def _matched(codes: Integers, markers: Markers, prior: Integers) -> Integers:
    """As `matched_rows`, for changes that all have a key."""
    ordered, positions = _sorted(codes)
    # cut into segments, each begun by its key's first change or behind a delete
    marker = markers[positions]
    new_key = _is_new(ordered)
    is_start = new_key.copy()
    is_start[1:] |= marker[:-1] == RowMarker.DELETE
    start = np.flatnonzero(is_start)
    base = np.where(new_key[start], prior[ordered[start]], 0)  # only a key's first segment knows rows from before
    adds = marker == RowMarker.INSERT
    adds[start] |= _sets(marker[start]) & (base == 0)  # a set that matches nothing inserts
    added = np.cumsum(adds) - adds  # before each change, over all segments
    found = np.empty_like(codes)
    found[positions] = added + np.repeat(base - added[start], np.diff(start, append=len(ordered)))
    return found


def _sets(markers: Markers) -> Flags:
    either: Flags = (markers == RowMarker.UPDATE) | (markers == RowMarker.UPSERT)
    return either


def _count(codes: Integers) -> int:
    return int(codes.max(initial=NO_KEY)) + 1


def _last(codes: Integers, chosen: Flags) -> Integers:
    """Per code the last chosen position, -1 where there is none; one more place at the end, for `NO_KEY`."""
    positions = np.flatnonzero(chosen)
    last = np.full(_count(codes) + 1, -1, dtype=np.int64)
    np.maximum.at(last, codes[positions], positions)
    return last


def _first(codes: Integers, chosen: Flags) -> Integers:
    """Per code the first chosen position, the number of rows where there is none; one more place for `NO_KEY`."""
    positions = np.flatnonzero(chosen)
    first = np.full(_count(codes) + 1, len(codes), dtype=np.int64)
    np.minimum.at(first, codes[positions], positions)
    return first


def _paired(left: Integers, right: Integers) -> Integers:
    """Codes of pairs; both sides are dense, so the product stays below rows squared and cannot overflow."""
    pairs = left * _count(right) + right
    return _dense(pa.chunked_array([pa.array(pairs, mask=(left < 0) | (right < 0))]))


def _dense(column: pa.ChunkedArray[Any]) -> Integers:
    """Codes of values, `NO_KEY` for NULL."""
    if (numbers := exact_numbers(column.drop_null())) is not None:
        found = _numbered(numbers)
        if not column.null_count:
            return found
        codes = np.full(len(column), NO_KEY, dtype=np.int64)
        codes[column.is_valid().to_numpy()] = found
        return codes
    chunks: list[Any] = column.dictionary_encode().chunks  # one dictionary serves them all
    parts = [chunk.indices.fill_null(NO_KEY).to_numpy(zero_copy_only=False) for chunk in chunks]
    return np.concatenate([np.empty(0, dtype=np.int64), *parts]).astype(np.int64, copy=False)


def exact_numbers(column: pa.ChunkedArray[Any] | pa.Array[Any]) -> Integers | None:
    """Values without NULL as 64-bit integers that are equal where the values are; None for types without such."""
    values: Any = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif pa.types.is_decimal128(kind) and kind.precision <= _LONG_DIGITS:
        halves = np.frombuffer(values.buffers()[1], dtype=np.int64)[2 * values.offset :]
        return np.ascontiguousarray(halves[: 2 * len(values) : 2])
    elif pa.types.is_temporal(kind):
        values = values.view(pa.int32() if kind.bit_width == pa.int32().bit_width else pa.int64())
    elif not pa.types.is_integer(kind):
        return None
    numbers: Integers = values.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return numbers


def _numbered(values: Integers) -> Integers:
    """Codes of whole numbers, without a hash table: by distance from the lowest where they lie dense, else by order."""
    if not len(values):
        return values
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span <= len(values):
        distance = values - low
        met = np.zeros(span, dtype=np.bool_)
        met[distance] = True
        return (np.cumsum(met) - 1)[distance]
    if span.bit_length() + len(values).bit_length() > _SORTED_BITS:
        return np.unique(values, return_inverse=True)[1]
    ordered, positions = _sorted(values - low)
    codes = np.empty_like(values)
    codes[positions] = np.cumsum(_is_new(ordered)) - 1
    return codes


def _sorted(values: Integers) -> tuple[Integers, Integers]:
    """Whole numbers in order, equal ones as they came, and the position of each; number and position fit 63 bits."""
    bits = len(values).bit_length()
    packed = values << bits
    packed |= np.arange(len(values))
    packed.sort()  # twice as fast as a stable argsort
    positions = packed & ((1 << bits) - 1)
    packed >>= bits
    return packed, positions


def _is_new(ordered: Integers) -> Flags:
    """Mark the numbers that differ from the one before."""
    is_new = np.ones(len(ordered), dtype=np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return is_new


def comparable(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    """A key column with equal bits where LZ-4.9 sees equal values, in a type without a 2 GB limit."""
    kind = column.type
    if pa.types.is_floating(kind):
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
            values = column.to_numpy() + 0.0  # -0.0 + 0.0 is 0.0
        values[np.isnan(values)] = np.nan
        bits = values.view(np.dtype(f"i{values.itemsize}"))
        return pa.chunked_array([pa.array(bits, mask=column.is_null().to_numpy())])
    if pa.types.is_string(kind):
        return column.cast(pa.large_string())
    return column.cast(pa.large_binary()) if pa.types.is_binary(kind) else column
