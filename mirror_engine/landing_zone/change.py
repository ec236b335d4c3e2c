"""Row markers, changes and `replay`, the slow specification that property tests compare every fast path with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum
from typing import TYPE_CHECKING, Any, assert_never

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

MARKER_COLUMN = "__rowMarker__"
_LETTERS_OF_MARKER = "rowmarker"
_LONGEST_NEAR = 40  # characters of a name that may be meant so
_NEAR = 0.85  # `__rowMaker__`, `_Row Markers_` and `__rowmark` are near, `__rowNumber__` and `__marker__` are not


class RowMarker(IntEnum):
    """The kind of change of a row (LZ-4.1). Other values are rejected (LZ-4.12)."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    UPSERT = 4


def looks_like_marker(name: str) -> bool:
    """Whether a column's name is nearly that of the marker (LZ-4.10).

    It has the same letters, whatever its underscores, blanks and case, or nearly these between underscores.
    """
    if len(name) >= _LONGEST_NEAR or name.casefold() == MARKER_COLUMN.casefold():
        return False
    letters = "".join(filter(str.isalnum, name)).casefold()
    if letters == _LETTERS_OF_MARKER or not has_outer_underscore(name):
        return letters == _LETTERS_OF_MARKER
    return bool(get_close_matches(letters, [_LETTERS_OF_MARKER], cutoff=_NEAR))


def has_outer_underscore(name: str) -> bool:
    """Whether an underscore begins or ends a name, as in the marker's."""
    return name.strip().startswith("_") or name.strip().endswith("_")


@dataclass(frozen=True)
class Change:
    """One row with its marker."""

    marker: RowMarker  # what to do
    key: tuple[Any, ...]  # the key columns' values, in the order of `keyColumns`; empty in a keyless table
    row: dict[str, Any]  # the full row by column name; a delete's row is never read beyond its key (LZ-4.6)


@dataclass(frozen=True)
class Effect:
    """Row counts of a change's key: `matched` before the change, `remaining` after it."""

    matched: int
    remaining: int


def comparable(part: object) -> Hashable:
    """A key part as LZ-4.9 compares it: NaN equals NaN, -0.0 equals 0.0, 1 differs from True and 1.0."""
    if isinstance(part, float):
        return ("float", "nan" if part != part else part + 0.0)  # noqa: PLR0124 - the one test NaN fails
    return (type(part).__name__, part)


def same_rows(some: Iterable[Mapping[str, Any]], others: Iterable[Mapping[str, Any]]) -> bool:
    """Whether two sets of rows are equal, in any order; a missing column is NULL."""
    return Counter(map(_content, some)) == Counter(map(_content, others))


def same_key(key: tuple[Any, ...]) -> tuple[Hashable, ...] | None:
    """The key in comparable form, or None if a NULL part makes it match nothing (LZ-4.8)."""
    return None if not key or any(part is None for part in key) else tuple(map(comparable, key))


def replay(
    rows: Iterable[dict[str, Any]], changes: Iterable[Change], key_columns: Sequence[str]
) -> tuple[list[dict[str, Any]], list[Effect]]:
    """Apply changes one by one, in order of detection and file (LZ-4.1, LZ-4.2), to a table with a key or without.

    Returns:
        The table after, and each change's effect. The order of the rows means nothing.
    """
    table = list(rows)
    effects = []
    for change in changes:
        key = same_key(change.key)
        matches = [key is not None and same_key(tuple(row[name] for name in key_columns)) == key for row in table]
        matched = sum(matches)
        match change.marker:
            case RowMarker.DELETE:
                table = [row for row, is_match in zip(table, matches, strict=True) if not is_match]
                effects.append(Effect(matched, 0))
            case RowMarker.UPDATE | RowMarker.UPSERT if matched:
                table = [dict(change.row) if is_match else row for row, is_match in zip(table, matches, strict=True)]
                effects.append(Effect(matched, matched))
            case RowMarker.INSERT | RowMarker.UPDATE | RowMarker.UPSERT:
                table.append(dict(change.row))
                effects.append(Effect(matched, matched + 1))
            case _:
                assert_never(change.marker)
    return table, effects


def _content(row: Mapping[str, Any]) -> Hashable:
    return frozenset((name, comparable(value)) for name, value in row.items() if value is not None)
