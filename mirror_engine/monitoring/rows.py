"""Rows as people look at them: sorted by key, in a notebook a table."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.landing_zone.diagnostics import count

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
    """

    def __init__(
        self,
        rows: Iterable[dict[str, Any]],
        keys: Sequence[str] = (),
        schema: pa.Schema = pa.schema([]),  # noqa: B008 - immutable
        *,
        has_more: bool = False,
    ) -> None:
        super().__init__(rows)
        self.keys = tuple(keys)
        self.schema = schema
        self.has_more = has_more
        self.sort(key=lambda row: [_rank(row[name]) for name in (*self.keys, *row)])

    def _repr_html_(self) -> str:
        names = self.schema.names or list(self[0] if self else ())
        caption = count(len(self), "row") + ("; there are more" if self.has_more else "")
        return html_table(caption, names, (row.values() for row in self))


def lowest(table: pa.Table, keys: Sequence[str], limit: int) -> pa.Table:
    """The rows with the lowest keys, sorted by them; the first ones of a keyless table. NULL comes first."""
    if not keys:
        return table.slice(0, limit)
    ranks = [rank for key in keys for rank in (pc.is_valid(table.column(key)), table.column(key))]
    named = pa.table(ranks, names=[str(at) for at in range(len(ranks))])
    order = pc.sort_indices(named, sort_keys=[(name, "ascending") for name in named.column_names])
    return table.take(order[:limit])


def html_table(caption: str, headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table in HTML; every text in it is escaped, None is NULL."""

    def cells(tag: str, values: Iterable[object]) -> str:
        return "".join(f"<{tag}>{escape('NULL' if value is None else str(value))}</{tag}>" for value in values)

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{cells('th', headings)}</tr></thead>"
    return f"<table><caption>{escape(caption)}</caption>{head}<tbody>{lines}</tbody></table>"


def _rank(value: Any) -> tuple[int, Any]:  # noqa: ANN401 - a cell of any type
    """The rank of a cell in the sort order of its column."""
    if value is None:
        return (0, 0)
    return (2, 0) if value != value else (1, value)  # noqa: PLR0124 - true of NaN only
