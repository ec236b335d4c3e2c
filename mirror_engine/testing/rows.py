"""A mirrored table's rows in a steady order, and what tells them from expected ones, in words."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from mirror_engine.landing_zone.change import comparable

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    Row = Mapping[str, Any]

SHOWN = 20


class Rows(list[dict[str, Any]]):
    """Rows as dicts, sorted; equal to a plain list of the same dicts, where NaN equals NaN (LZ-4.9).

    Sorted by the key columns in the order of `keyColumns`, then by all other columns in the table's order; NULL comes
    first, NaN last.

    Attributes:
        keys: the key columns; empty for a keyless table.
        state: what keeps the table from being level, in words; `""` where nothing does.
    """

    def __init__(self, rows: Iterable[dict[str, Any]], keys: Sequence[str] = (), state: str = "") -> None:
        super().__init__(rows)
        self.keys = tuple(keys)
        self.state = state
        self.sort(key=lambda row: [_place(row[name]) for name in (*self.keys, *row)])

    __hash__ = list.__hash__  # none

    def __eq__(self, other: object) -> bool:
        """Whether the other list has the same rows in the same order."""
        if not isinstance(other, list):
            return NotImplemented
        return len(self) == len(other) and all(map(_same_row, self, other))

    def __ne__(self, other: object) -> bool:
        """See `__eq__`; a list brings its own otherwise."""
        return not self == other

    def differences(self, expected: Iterable[Row]) -> list[str]:
        """What tells these rows from the expected ones: missing, surplus and different, by key, cell by cell.

        Raises:
            TypeError: an expected row holds a value that no table does, such as a list.
        """
        there, wanted = self._by_key(self), self._by_key(expected)
        said = [line for key in {**wanted, **there} for line in _of_key(there[key], wanted[key], self.keys)]
        if not said:
            said = ["the same rows in another order; rows() sorts by key, then by all columns, NULL first"]
        hidden = [f"… and {len(said) - SHOWN} more"] if len(said) > SHOWN else []
        return [*said[:SHOWN], *hidden, *self.state.splitlines()]

    def _by_key(self, rows: Iterable[Row]) -> defaultdict[Hashable, list[Row]]:
        found: defaultdict[Hashable, list[Row]] = defaultdict(list)
        for row in rows:
            found[tuple(comparable(row.get(name)) for name in (self.keys or row))].append(row)
        return found


def _of_key(there: list[Row], wanted: list[Row], keys: Sequence[str]) -> list[str]:
    """What is wrong with the rows of one key."""
    missing = _without(wanted, there)
    surplus = _without(there, wanted)
    if keys and len(missing) == len(surplus) == 1:
        return [f"different: {_named(missing[0], keys)}: {_cells(surplus[0], missing[0])}"]
    return [*(f"missing: {dict(row)!r}" for row in missing), *(f"surplus: {dict(row)!r}" for row in surplus)]


def _without(rows: list[Row], others: list[Row]) -> list[Row]:
    left, lone = list(others), []
    for row in rows:
        at = next((at for at, other in enumerate(left) if _same_row(row, other)), None)
        if at is None:
            lone.append(row)
        else:
            del left[at]
    return lone


def _same_row(one: Row, other: Row) -> bool:
    if one == other:
        return True
    return isinstance(other, dict) and one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)


def _same(one: object, other: object) -> bool:
    return one == other or comparable(one) == comparable(other)


def _cells(there: Row, wanted: Row) -> str:
    said = [
        f"{name} is {_cell(there, name)}, expected {_cell(wanted, name)}"
        for name in {**wanted, **there}
        if not (name in there and name in wanted and _same(there[name], wanted[name]))
    ]
    return "; ".join(said)


def _cell(row: Row, name: str) -> str:
    return repr(row[name]) if name in row else "not a column"


def _named(row: Row, keys: Sequence[str]) -> str:
    return ", ".join(f"{name}={row.get(name)!r}" for name in keys)


def _place(value: Any) -> tuple[int, Any]:  # noqa: ANN401 - a cell of any type
    """Where a cell sorts among others of its column."""
    if value is None:
        return (0, 0)
    return (2, 0) if value != value else (1, value)  # noqa: PLR0124 - the one test NaN fails
