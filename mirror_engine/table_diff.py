"""Compares a mirrored table with an expected one: rows by key, cell by cell; without a key as multisets of rows.

Values are compared as the protocol compares keys (LZ-4.9): NaN equals NaN, -0.0 equals 0.0, all else exactly; NULL
equals NULL. Every column becomes integer codes that both tables share, so that a row costs a few integers besides
the tables themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.column_types import folded
from mirror_engine.near_rows import near_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Truths = NDArray[np.bool_]
    _Both = tuple[pa.ChunkedArray, pa.ChunkedArray]

Row = dict[str, Any]


@dataclass(frozen=True)
class DifferentRow:
    """One row that both tables have under one key, and its cells that differ: expected value, found value."""

    key: Row
    cells: Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Difference:
    """What tells a table from the expected one.

    Attributes:
        key: the columns by which rows were matched; empty where they were compared as multisets.
        equal_rows, missing_rows, surplus_rows, different_rows: how many; missing ones are expected and not there.
        missing_columns: expected and not in the table.
        surplus_columns: in the table and not expected; not compared.
        different_cells: by column, in how many of the different rows.
        missing, surplus, different: the first of them.
    """

    key: tuple[str, ...]
    equal_rows: int
    missing_rows: int
    surplus_rows: int
    different_rows: int
    missing_columns: tuple[str, ...]
    surplus_columns: tuple[str, ...]
    different_cells: Mapping[str, int]
    missing: tuple[Row, ...]
    surplus: tuple[Row, ...]
    different: tuple[DifferentRow, ...]

    @property
    def is_equal(self) -> bool:
        """Whether the tables are one and the same, columns and rows."""
        rows = self.missing_rows + self.surplus_rows + self.different_rows
        return not (rows or self.missing_columns or self.surplus_columns)


def compare(
    found: pa.Table, expected: pa.Table, key: Sequence[str] = (), *, tolerance: float = 0.0, limit: int | None = 20
) -> Difference:
    """Compare a table with the expected one.

    Args:
        found: the table.
        expected: with columns in the table's spelling and types, as `expected_table.read_expected` gives them.
        key: columns by which rows are matched, in any case; none: rows are compared as multisets.
        tolerance: by how much two floats may differ and count as equal; see `near_pairs` for rows without a key.
        limit: how many rows of each kind are told; None for all.

    Raises:
        UsageError: a key column is missing in one of the tables, or they have no column in common.
    """
    names = [name for name in expected.column_names if name in found.column_names]
    if not names:
        here, there = (", ".join(table.column_names) or "none" for table in (found, expected))
        raise UsageError("the tables have no column in common", f"The table has {here}; the expected one has {there}.")
    pairing = _Pairing(found, expected, names, _key_columns(key, found, expected), tolerance)
    first = slice(None, limit)
    return Difference(
        key=tuple(pairing.key),
        equal_rows=expected.num_rows - len(pairing.missing) - len(pairing.different),
        missing_rows=len(pairing.missing),
        surplus_rows=len(pairing.surplus),
        different_rows=len(pairing.different),
        missing_columns=tuple(name for name in expected.column_names if name not in names),
        surplus_columns=tuple(name for name in found.column_names if name not in names),
        different_cells=pairing.different_cells(),
        missing=tuple(expected.take(pairing.missing[first]).to_pylist()),
        surplus=tuple(found.take(pairing.surplus[first]).to_pylist()),
        different=pairing.different_rows(first),
    )


def _key_columns(key: Sequence[str], found: pa.Table, expected: pa.Table) -> list[str]:
    known = {folded(name): name for name in found.column_names}
    chosen = []
    for name in key:
        column = known.get(folded(name))
        if column is None:
            raise UsageError(f"key column {name}: the table has none of that name", f"It has {', '.join(known)}.")
        if column not in expected.column_names:
            raise UsageError(f"key column {column}: the expected table lacks it", "Add it, or name another: --key.")
        chosen.append(column)
    return chosen


class _Pairing:
    """Which row of one table belongs to which of the other: equal ones first, the rest by key.

    Attributes:
        missing: rows of the expected table without a partner.
        surplus: rows of the found table without a partner.
        different: which of the pairs differ in any column.
    """

    def __init__(
        self, found: pa.Table, expected: pa.Table, names: Sequence[str], key: Sequence[str], tolerance: float
    ) -> None:
        self.key = list(key)
        self._found, self._expected, self._names, self._tolerance = found, expected, names, tolerance
        self._floats = [name for name in names if pa.types.is_floating(found.schema.field(name).type)]
        both = [(found.column(name), expected.column(name)) for name in names]
        mine, theirs = _ids(both, found.num_rows, expected.num_rows)
        here, there = _unmatched(mine, theirs), _unmatched(theirs, mine)
        if key:
            self.surplus, self.missing, self._pairs = self._paired(here, there)
        elif tolerance and self._floats:
            self.surplus, self.missing, self._pairs = self._near(here, there)
        else:
            self.surplus, self.missing, self._pairs = here, there, (here[:0], there[:0])
        # without a key, rows that are not equal have nothing to do with each other
        self._cells = {name: self._differ(name) for name in names if name not in key} if key else {}
        none = np.zeros(len(self._pairs[0]), np.bool_)
        self.different = np.flatnonzero(np.logical_or.reduce([none, *self._cells.values()]))

    def different_cells(self) -> dict[str, int]:
        """In how many pairs each column differs; columns that never do are left out."""
        counts = {name: int(differs.sum()) for name, differs in self._cells.items()}
        return {name: count for name, count in counts.items() if count}

    def different_rows(self, first: slice) -> tuple[DifferentRow, ...]:
        """The first different pairs with their values."""
        chosen = self.different[first]
        there = self._found.take(self._pairs[0][chosen]).to_pylist()
        wanted = self._expected.take(self._pairs[1][chosen]).to_pylist()
        return tuple(
            DifferentRow(
                {name: row[name] for name in self.key},
                {name: (want[name], row[name]) for name, differs in self._cells.items() if differs[pair]},
            )
            for pair, row, want in zip(chosen, there, wanted, strict=True)
        )

    def _differ(self, name: str) -> Truths:
        here = self._found.column(name).take(self._pairs[0])
        there = self._expected.column(name).take(self._pairs[1])
        mine, theirs = _codes(here, there)
        apart: Truths = mine != theirs
        if self._tolerance and name in self._floats:
            near = pc.less_equal(pc.abs(pc.subtract(here, there)), self._tolerance)
            apart &= ~pc.fill_null(near, False).to_numpy().astype(np.bool_)
        return apart

    def _near(self, here: Integers, there: Integers) -> tuple[Integers, Integers, Any]:
        """Rows left of each table without a key, matched where they are equal but for floats near each other."""
        both = [(self._found.column(name).take(here), self._expected.column(name).take(there)) for name in self._names]
        mine, theirs = _ids(map(_but_for_floats, both), len(here), len(there))
        floats = [pair for pair in both if pa.types.is_floating(pair[0].type)]
        mine_near, theirs_near = (_finite(side) for side in zip(*floats, strict=True))
        first, second = near_pairs(mine, theirs, mine_near, theirs_near, self._tolerance)
        return np.delete(here, first), np.delete(there, second), (here[first], there[second])

    def _paired(self, here: Integers, there: Integers) -> tuple[Integers, Integers, Any]:
        """Rows left of each table, matched by the key; several of one key in the order they come."""
        here, there = self._ordered(self._found, here), self._ordered(self._expected, there)
        both = ((self._found.column(name).take(here), self._expected.column(name).take(there)) for name in self.key)
        mine, theirs = _ids(both, len(here), len(there))
        places = _joined(np.concatenate([mine, theirs]), np.concatenate([_rank(mine), _rank(theirs)]))
        _, first, second = np.intersect1d(
            places[: len(here)], places[len(here) :], assume_unique=True, return_indices=True
        )
        order = np.argsort(there[second])
        pairs = here[first][order], there[second][order]
        return np.sort(np.delete(here, first)), np.sort(np.delete(there, second)), pairs

    def _ordered(self, table: pa.Table, rows: Integers) -> Integers:
        """The rows by their floats where these may differ a little, so that near ones meet."""
        if not self._tolerance or not self._floats:
            return rows
        order = pc.sort_indices(
            table.select(self._floats).take(rows), sort_keys=[(name, "ascending") for name in self._floats]
        )
        ordered: Integers = rows[order.to_numpy()]
        return ordered


def _but_for_floats(columns: _Both) -> _Both:
    """Floats as nothing but what no other can be near to: NULL, NaN, infinities."""
    found, expected = columns
    if not pa.types.is_floating(found.type):
        return columns
    return tuple(pc.if_else(pc.is_finite(column), pa.scalar(0.0, column.type), column) for column in (found, expected))


def _finite(columns: Iterable[pa.ChunkedArray]) -> NDArray[np.float64]:
    """Floats side by side, a row each; 0 where there is none, or no finite one."""
    numbers = (pc.if_else(pc.is_finite(column), column, None).fill_null(0.0).to_numpy() for column in columns)
    return np.stack([np.asarray(values, np.float64) for values in numbers], axis=1)


def _ids(columns: Iterable[_Both], mine: int, theirs: int) -> tuple[Integers, Integers]:
    """A number for each row of both tables, so many of each; rows that are equal in every column have the same one."""
    ids = np.zeros(mine + theirs, np.int64)
    for at, column in enumerate(columns):
        codes = np.concatenate(_codes(*column))
        ids = _joined(ids, codes) if at else codes
    return ids[:mine], ids[mine:]


def _codes(found: pa.ChunkedArray, expected: pa.ChunkedArray) -> tuple[Integers, Integers]:
    """A number for each value of both columns; equal values have the same one, and NULL has its own."""
    both = pa.chunked_array([*found.chunks, *expected.chunks], found.type)
    if pa.types.is_floating(both.type):
        both = pc.add(both, pa.scalar(0.0, both.type))  # -0.0 becomes 0.0
    parts = both.dictionary_encode(null_encoding="encode").chunks  # all of one dictionary
    codes: Integers = np.concatenate([np.zeros(0, np.int64), *(np.asarray(part.indices, np.int64) for part in parts)])
    return codes[: len(found)], codes[len(found) :]


def _joined(one: Integers, other: Integers) -> Integers:
    """A number for each pair of numbers, counted from 0."""
    width = int(other.max(initial=0)) + 1
    joined: Integers = np.unique(one * width + other, return_inverse=True)[1].astype(np.int64)
    return joined


def _unmatched(mine: Integers, theirs: Integers) -> Integers:
    """Rows of mine that have no equal among theirs, one for one."""
    most = max(int(mine.max(initial=0)), int(theirs.max(initial=0)))
    counts = np.bincount(theirs, minlength=most + 1)
    return np.flatnonzero(_rank(mine) >= counts[mine])


def _rank(ids: Integers) -> Integers:
    """For each row how many of the same number come before it."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    places = np.arange(len(ids), dtype=np.int64)
    begins = np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ids)]
    ranks: Integers = np.empty_like(places)
    ranks[order] = places - np.maximum.accumulate(np.where(begins, places, 0))
    return ranks
