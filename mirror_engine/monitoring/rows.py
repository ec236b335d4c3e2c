"""Rows as people look at them: sorted by key, in a notebook a table."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.display import MAX_CELL, cell
from mirror_engine.landing_zone.text import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class SortedRows(list[dict[str, Any]]):
    """Rows as dicts, sorted.

    Sorted by the key columns in the order of `keyColumns`, then by all other columns in the table's order; NULL comes
    first, NaN last.

    Attributes:
        keys: the key columns; empty for a keyless table.
        schema: of the table; without columns where that is not known.
        has_more: whether the table holds more rows.
        are_lowest: whether they are those with the lowest keys, not the first of the table's files.
    """

    def __init__(
        self,
        rows: Iterable[dict[str, Any]],
        keys: Sequence[str] = (),
        schema: pa.Schema = pa.schema([]),  # noqa: B008 - immutable
        *,
        has_more: bool = False,
        are_lowest: bool = True,
    ) -> None:
        super().__init__(rows)
        self.keys = tuple(keys)
        self.schema = schema
        self.has_more = has_more
        self.are_lowest = are_lowest
        self.sort(key=lambda row: [_rank(row[name]) for name in (*self.keys, *row)])

    def _repr_html_(self) -> str:
        names = self.schema.names or list(self[0] if self else ())
        caption = count(len(self), "row") + ("; there are more" if self.has_more else "")
        return html_table(caption, names, ([_cut(value) for value in row.values()] for row in self))


def lowest(table: pa.Table, keys: Sequence[str], limit: int) -> pa.Table:
    """The rows with the lowest keys, sorted by them; the first ones of a keyless table. NULL comes first."""
    if not keys:
        return table.slice(0, limit)
    ranks = [rank for key in keys for rank in (pc.is_valid(table.column(key)), table.column(key))]
    named = pa.table(ranks, names=[str(at) for at in range(len(ranks))])
    order = pc.sort_indices(named, sort_keys=[(name, "ascending") for name in named.column_names])
    return table.take(order[:limit])


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts; a column with times beyond Python's years becomes text."""
    columns = zip(*map(_values, table.columns), strict=True)
    return [dict(zip(table.column_names, values, strict=True)) for values in columns]


def html_table(caption: str, headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table in HTML; every text in it is escaped, None is NULL."""

    def cells(tag: str, values: Iterable[object]) -> str:
        return "".join(f"<{tag}>{escape('NULL' if value is None else str(value))}</{tag}>" for value in values)

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{cells('th', headings)}</tr></thead>"
    return f"<table><caption>{escape(caption)}</caption>{head}<tbody>{lines}</tbody></table>"


def _values(column: pa.ChunkedArray) -> Sequence[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        values = column.cast("string").to_pylist()
    return values


def _cut(value: object) -> object:
    """A value as a notebook shows it: long text and binary are cut."""
    return cell(value, MAX_CELL) if isinstance(value, str | bytes) and len(value) > MAX_CELL else value


def _rank(value: Any) -> tuple[int, Any]:  # noqa: ANN401 - a cell of any type
    """The rank of a cell in the sort order of its column."""
    if value is None:
        return (0, 0)
    return (2, 0) if value != value else (1, value)  # noqa: PLR0124 - true of NaN only
