"""Counts a table's keys: what changes meet, told without holding a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirror_engine.delta.collapse import NO_KEY, Integers, Markers, met
from mirror_engine.landing_zone.change import RowMarker

if TYPE_CHECKING:
    from mirror_engine.delta.key_hashes import Hashes


@dataclass(frozen=True)
class Effects:
    """What one run of changes met and did, in rows.

    Attributes:
        repeated: inserts whose key was there (ME039).
        spread: changes that met several copies of their key (ME043).
        absent_updates, absent_deletes: updates and deletes that met no row.
        inserted, updated, deleted: rows of the table that were added, replaced and removed, change by change.
    """

    repeated: int = 0
    spread: int = 0
    absent_updates: int = 0
    absent_deletes: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


class KeyBook:
    """How many rows a table has of each key; 12 bytes a key. Rows that came before keys were declared have none."""

    def __init__(self) -> None:
        self._keys: Hashes = np.empty(0, dtype=np.uint64)  # ascending
        self._rows: Integers = np.empty(0, dtype=np.int32)  # of each, at least 1
        self._without_key = 0

    @property
    def row_count(self) -> int:
        """All rows."""
        return int(self._rows.sum(dtype=np.int64)) + self._without_key

    def copied(self) -> KeyBook:
        """The same, to be changed apart."""
        made = KeyBook()
        made._keys, made._rows, made._without_key = self._keys, self._rows, self._without_key
        return made

    def add(self, keys: Hashes, whole: np.ndarray[tuple[int], np.dtype[np.bool_]], markers: Markers) -> Effects:
        """Apply changes in order.

        Args:
            keys: per change its key, as `key_hashes` numbers it.
            whole: per change whether no part of its key is NULL.
            markers: per change its effective row marker.
        """
        if not len(keys):
            return Effects()
        if whole.all() and not markers.any():
            return self._add_inserts(keys)
        codes = np.full(len(keys), NO_KEY, dtype=np.int64)
        distinct, codes[whole] = np.unique(keys[whole], return_inverse=True)
        prior = self._rows_of(distinct)
        found = met(codes, markers, prior)
        self._without_key += int(np.count_nonzero(~whole & (markers != RowMarker.DELETE)))
        self._take(distinct, _left(codes, markers, found, len(distinct)))
        return _effects(markers, found)

    def _add_inserts(self, keys: Hashes) -> Effects:
        """The common case of an initial load: keys mostly rise, and are mostly new."""
        if not (keys[1:] > keys[:-1]).all():
            keys = np.sort(keys)
        if not len(self._keys) or keys[0] > self._keys[-1]:
            is_new = np.ones(len(keys), dtype=np.bool_)
            is_new[1:] = keys[1:] != keys[:-1]
            starts = np.flatnonzero(is_new)
            rows = np.diff(np.append(starts, len(keys))).astype(np.int32)
            self._keys = np.concatenate([self._keys, keys[starts]])
            self._rows = np.concatenate([self._rows, rows])
            return Effects(repeated=len(keys) - len(starts), inserted=len(keys))
        distinct, counts = np.unique(keys, return_counts=True)
        prior = self._rows_of(distinct)
        self._take(distinct, prior + counts)
        return Effects(repeated=int(len(keys) - np.count_nonzero(prior == 0)), inserted=len(keys))

    def _rows_of(self, distinct: Hashes) -> Integers:
        at = np.searchsorted(self._keys, distinct)
        known = at < len(self._keys)
        known[known] = self._keys[at[known]] == distinct[known]
        rows = np.zeros(len(distinct), dtype=np.int64)
        rows[known] = self._rows[at[known]]
        return rows

    def _take(self, distinct: Hashes, rows: Integers) -> None:
        """These keys now have that many rows each."""
        others = np.isin(self._keys, distinct, assume_unique=True, invert=True)
        keys = np.concatenate([self._keys[others], distinct[rows > 0]])
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self._rows = np.concatenate([self._rows[others], rows[rows > 0].astype(np.int32)])[order]


def _left(codes: Integers, markers: Markers, found: Integers, count: int) -> Integers:
    """Per code how many rows its last change leaves."""
    last = np.zeros(count, dtype=np.int64)
    keyed = np.flatnonzero(codes >= 0)
    np.maximum.at(last, codes[keyed], keyed)
    inserts = markers[last] == RowMarker.INSERT
    rows = np.where(inserts, found[last] + 1, np.maximum(found[last], 1))
    rows[markers[last] == RowMarker.DELETE] = 0
    left: Integers = rows
    return left


def _effects(markers: Markers, found: Integers) -> Effects:
    inserts, deletes = markers == RowMarker.INSERT, markers == RowMarker.DELETE
    updates = markers == RowMarker.UPDATE
    sets = ~inserts & ~deletes
    return Effects(
        repeated=int(np.count_nonzero(inserts & (found > 0))),
        spread=int(np.count_nonzero(~inserts & (found > 1))),
        absent_updates=int(np.count_nonzero(updates & (found == 0))),
        absent_deletes=int(np.count_nonzero(deletes & (found == 0))),
        inserted=int(np.count_nonzero(inserts) + np.count_nonzero(sets & (found == 0))),
        updated=int(found[sets].sum()),
        deleted=int(found[deletes].sum()),
    )
