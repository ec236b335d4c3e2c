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
    return KeyCodes(codes, _first(codes, codes >= 0)[:-1])


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
    sets, inserts = _sets(markers), markers == RowMarker.INSERT
    keyed = codes >= 0
    last_delete = _last(codes, keyed & (markers == RowMarker.DELETE))
    counts = keyed & (np.arange(len(codes)) >= last_delete[codes])
    last_set = _last(codes, counts & sets)[codes]
    behind_set = counts & inserts & (np.arange(len(codes)) < last_set)
    copied = np.bincount(codes[behind_set], minlength=len(last_delete))
    insert_first = _first(codes, counts & inserts) < _first(codes, counts & sets)

    final_set = counts & (np.arange(len(codes)) == last_set)
    after_delete = last_delete >= 0
    role = np.full(len(codes), Role.INSERT, dtype=np.int8)
    role[keyed & (markers == RowMarker.DELETE)] = Role.DELETE
    matching = np.where(insert_first, Role.SET_ONLY, Role.SET)
    role[final_set] = np.where(after_delete, Role.INSERT, matching)[codes[final_set]]
    copies = (role == Role.INSERT).astype(np.int64)
    copies[final_set] = (copied + (after_delete & ~insert_first))[codes[final_set]]
    loose = ~keyed & (markers != RowMarker.DELETE)
    kept = np.flatnonzero(loose | (counts & ~behind_set & (~sets | final_set)))
    return NetChanges(kept, role[kept], copies[kept])


def matched_rows(codes: Integers, markers: Markers, prior: Integers) -> Integers:
    """How many rows of its key each change finds in the table just before it: `replay`'s `Effect.matched`.

    `codes` and `markers` are those of each change; `prior` is per code how many rows the table held before the batch.
    """
    found = np.zeros(len(codes), dtype=np.int64)
    if not len(prior):
        return found
    # ordered by key, then position, and cut into segments, each ended by a delete; values sort faster than argsort
    bits = len(codes).bit_length()
    packed = np.sort((codes << bits) | np.arange(len(codes)))
    positions, ordered = packed & ((1 << bits) - 1), packed >> bits
    marker = markers[positions]
    new_key, is_start = np.ones((2, len(codes)), dtype=np.bool_)
    new_key[1:] = ordered[1:] != ordered[:-1]
    is_start[1:] = new_key[1:] | (marker[:-1] == RowMarker.DELETE)
    start = np.flatnonzero(is_start)[np.cumsum(is_start) - 1]  # of each change's segment
    inserts = np.cumsum(marker == RowMarker.INSERT) - (marker == RowMarker.INSERT)
    base = np.where(new_key[start], prior[ordered], 0)  # only a key's first segment knows rows from before the batch
    begun_by_set = _sets(marker)[start] & ~is_start
    found[positions] = base + inserts - inserts[start] + (begun_by_set & (base == 0))
    found[codes < 0] = 0
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
    chunks: list[Any] = column.dictionary_encode().chunks  # one dictionary serves them all
    parts = [chunk.indices.fill_null(NO_KEY).to_numpy(zero_copy_only=False) for chunk in chunks]
    return np.concatenate([np.empty(0, dtype=np.int64), *parts]).astype(np.int64, copy=False)


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
