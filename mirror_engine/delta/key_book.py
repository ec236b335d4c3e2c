"""Counts a table's keys: what changes meet, told without holding a row."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mirror_engine.delta.collapse import NO_KEY, Integers, Markers, met
from mirror_engine.landing_zone.change import RowMarker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from mirror_engine.delta.collapse import Flags
    from mirror_engine.delta.key_hashes import Hashes

Part: TypeAlias = "Hashes | range"

TOGETHER = 1_000_000  # changes that are looked at together
PIECE = 1_000_000  # keys of which it is asked at once whether they rise


@dataclass(frozen=True)
class Effects:
    """What one run of changes met and did, in rows.

    Attributes:
        repeated: inserts whose key was there (ME039).
        spread: changes that met several copies of their key (ME043).
        absent_updates, absent_deletes: updates and deletes that met no row.
        inserted, updated, deleted: rows of the table that were added, replaced and removed, change by change.
        first_absent_update, first_absent_delete: which change of the run was the first such, from 1; 0 for none.
    """

    repeated: int = 0
    spread: int = 0
    absent_updates: int = 0
    absent_deletes: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    first_absent_update: int = field(default=0, compare=False)
    first_absent_delete: int = field(default=0, compare=False)


@dataclass(frozen=True)
class KeyRun:
    """The changes of one file in order: 8 bytes a row where all of them insert whole keys.

    Attributes:
        keys: each change's key, as `key_hashes` numbers it, in parts that follow each other; `KeyBook` may use them up.
            A part of consecutive numbers may be a range, which takes no room.
        whole: per change whether no part of its key is NULL; None where all are whole.
        markers: per change its effective row marker; None where all of them insert.
    """

    keys: list[Part]
    whole: Flags | None = None
    markers: Markers | None = None

    @property
    def row_count(self) -> int:
        """How many changes there are."""
        return sum(map(len, self.keys))

    @property
    def is_plain(self) -> bool:
        """Whether it only inserts, and only rows with a key."""
        return self.whole is None and self.markers is None


def compact(keys: Hashes) -> Part:
    """The same numbers, as a range where they are consecutive."""
    first, last = (int(keys[0]), int(keys[-1])) if len(keys) else (0, 0)
    is_range = last - first == len(keys) - 1 and _rises(keys)
    return range(first, last + 1) if is_range else keys


def append(parts: list[Part], part: Part) -> None:
    """Add the next numbers; those that are no range become one array, which grows where it lies."""
    last = parts[-1] if parts else range(0)
    if isinstance(last, range) or isinstance(part, range):
        parts.append(part)
        return
    count = len(last)
    parts[-1] = grown = last if last.flags.owndata else last.copy()
    grown.resize(count + len(part), refcheck=False)
    grown[count:] = part


def filled(parts: Sequence[NDArray[Any] | None], counts: Sequence[int], usual: np.generic) -> NDArray[Any]:
    """All parts in one; None stands for so many of the usual value."""
    pairs = zip(parts, counts, strict=True)
    return np.concatenate([np.broadcast_to(usual, count) if part is None else part for part, count in pairs])


def _array(part: Part) -> Hashes:
    return np.arange(part.start, part.stop, dtype=np.uint64) if isinstance(part, range) else part


class KeyBook:
    """How many rows a table has of each key; 12 bytes a key, 8 where keys rise and come once, 0 where they count up.

    Rows that came before keys were declared have none.
    """

    def __init__(self) -> None:
        self._parts: list[Part] = []  # distinct keys, ascending within and from part to part
        self._rows: Integers | None = None  # of each key, at least 1; None where each has one
        self._without_key = 0

    @property
    def row_count(self) -> int:
        """All rows."""
        keyed = sum(map(len, self._parts)) if self._rows is None else int(self._rows.sum(dtype=np.int64))
        return keyed + self._without_key

    def add(self, runs: Iterable[KeyRun]) -> list[Effects]:
        """Apply runs of changes, one after the other; returns what each met and did."""
        effects: list[Effects] = []
        together: list[KeyRun] = []
        waiting = 0
        for run in runs:
            if waiting + run.row_count > TOGETHER:
                effects += self._add_mixed(together)
                together, waiting = [], 0
            if run.is_plain and run.row_count > TOGETHER:
                effects.append(self._add_inserts(run.keys))
            else:
                together.append(run)
                waiting += run.row_count
        return effects + self._add_mixed(together)

    def _add_mixed(self, runs: Sequence[KeyRun]) -> list[Effects]:
        """Any changes, all at once."""
        if not runs:
            return []
        counts = [run.row_count for run in runs]
        keys = np.concatenate([np.empty(0, dtype=np.uint64), *(_array(part) for run in runs for part in run.keys)])
        whole = filled([run.whole for run in runs], counts, np.True_)
        markers = filled([run.markers for run in runs], counts, np.int8(0))
        codes = np.full(len(keys), NO_KEY, dtype=np.int64)
        distinct, codes[whole] = np.unique(keys[whole], return_inverse=True)
        found = met(codes, markers, self._rows_of(distinct))
        self._without_key += int(np.count_nonzero(~whole & (markers != RowMarker.DELETE)))
        self._take(distinct, _left(codes, markers, found, len(distinct)))
        return _effects(markers, found, counts)

    def _add_inserts(self, parts: list[Part]) -> Effects:
        """An initial load: keys mostly rise, and are mostly new."""
        count = sum(map(len, parts))
        if self._rows is None and _rise([*self._parts[-1:], *parts]):
            self._parts += parts
            return Effects(inserted=count)
        keys = _joined(parts, count)
        keys.sort()
        if not self._parts and _rises(keys):
            self._parts = [keys]
            return Effects(inserted=count)
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        distinct, rows = keys[starts], np.diff(np.append(starts, len(keys)))
        prior = self._rows_of(distinct)
        self._take(distinct, prior + rows)
        return Effects(repeated=count - int(np.count_nonzero(prior == 0)), inserted=count)

    @property
    def _keys(self) -> Hashes:
        if len(self._parts) != 1 or isinstance(self._parts[0], range):
            self._parts = [np.concatenate([np.empty(0, dtype=np.uint64), *map(_array, self._parts)])]
        return _array(self._parts[0])

    def _rows_of(self, distinct: Hashes) -> Integers:
        known = self._keys
        at = np.searchsorted(known, distinct)
        is_known = at < len(known)
        is_known[is_known] = known[at[is_known]] == distinct[is_known]
        rows = np.zeros(len(distinct), dtype=np.int64)
        rows[is_known] = 1 if self._rows is None else self._rows[at[is_known]]
        return rows

    def _take(self, distinct: Hashes, rows: Integers) -> None:
        """These keys now have that many rows each."""
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
        self._parts, self._rows = [keys[order]], counts if (counts != 1).any() else None


def _joined(parts: list[Part], count: int) -> Hashes:
    """All parts in one; each is let go once it is copied, so that they are not held twice."""
    if len(parts) == 1:
        return _array(parts.pop())
    made = np.empty(count, dtype=np.uint64)
    end = 0
    for at, part in enumerate(parts):
        made[end : end + len(part)] = _array(part)
        end += len(part)
        parts[at] = range(0)
    return made


def _rise(parts: Sequence[Part]) -> bool:
    filled = [part for part in parts if len(part)]
    return all(isinstance(part, range) or _rises(part) for part in filled) and all(
        after[0] > before[-1] for before, after in itertools.pairwise(filled)
    )


def _rises(keys: Hashes) -> bool:
    """Looked at piece by piece: most keys that do not rise show it early, and no answer is held for each."""
    pieces = (keys[start : start + PIECE + 1] for start in range(0, len(keys), PIECE))
    return all((piece[1:] > piece[:-1]).all() for piece in pieces)


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


def _effects(markers: Markers, found: Integers, counts: Sequence[int]) -> list[Effects]:
    """What each run met and did, `counts` changes one after the other."""
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
    absent_updates, absent_deletes = (markers == RowMarker.UPDATE) & absent, deletes & absent
    told = (
        inserts & ~absent,
        ~inserts & (found > 1),
        absent_updates,
        absent_deletes,
        inserts | (sets & absent),
        np.where(sets, found, 0),
        np.where(deletes, found, 0),
    )
    return list(
        itertools.starmap(Effects, zip(*map(summed, told), *map(first, (absent_updates, absent_deletes)), strict=True))
    )
