"""The difference between two tables, as `diff` and `trace what-if` give it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mirror_engine.display import Grid, cell, line, rows_text
from mirror_engine.landing_zone.text import count
from mirror_engine.results import Count, Part, Result, Row

if TYPE_CHECKING:
    from mirror_engine.display import Lines


class RowCounts(Part, frozen=True):
    """How many rows are equal, missing, unexpected or different; with `keys_only`, how many keys."""

    equal: Count
    missing: Count
    unexpected: Count
    different: Count


class OtherColumns(Part, frozen=True):
    """Columns of one table alone: missing in the table, or not expected; these are not compared."""

    missing: Sequence[str]
    unexpected: Sequence[str]


class DifferentCell(Part, frozen=True):
    """A cell that differs."""

    column: str
    expected: Any
    actual: Any


class DifferentRow(Part, frozen=True):
    """A row that both tables have under one key, and its cells that differ."""

    key: Row
    cells: Sequence[DifferentCell]


class Difference(Part, frozen=True):
    """The difference between a table and the expected one; of the rows that differ the first ones.

    Attributes:
        key: columns by which rows are matched; none if rows are compared as a whole
        equal: whether nothing differs
        counts: of rows
        different_cells: how many, by column
        missing: expected, and not there
        unexpected: there, and not expected
    """

    key: Sequence[str]
    equal: bool
    counts: RowCounts
    columns: OtherColumns
    different_cells: Mapping[str, Count]
    missing: Sequence[Row]
    unexpected: Sequence[Row]
    different: Sequence[DifferentRow]

    def lines(
        self,
        headline: tuple[str, str],
        sides: tuple[str, str] = ("expected", "actual"),
        style: str = "bold red",
        *,
        of_keys: bool = False,
    ) -> Lines:
        """Counts first, then the first rows of each kind; `headline` is that of equal tables, and of others."""
        rows, counts = count(self.counts.equal, "equal key" if of_keys else "equal row"), self.counts
        if self.equal:
            yield line(f"{headline[0]}: {rows}", "green")
            return
        numbers = f"{counts.missing:,} missing, {counts.unexpected:,} unexpected"
        numbers += "" if of_keys else f", {counts.different:,} different"
        yield line(f"{headline[1]}: {numbers}; {rows}", style)
        for side, names in zip(sides, (self.columns.missing, self.columns.unexpected), strict=True):
            if names:
                yield f"  columns only in {side}: {', '.join(names)}"
        if cells := ", ".join(f"{name} {times:,}" for name, times in self.different_cells.items()):
            yield f"  different cells: {cells}"
        changed = [
            [cell(value) for value in (*row.key.values(), each.column, each.expected, each.actual)]
            for row in self.different
            for each in row.cells
        ]
        for heading, shown, total, body in (
            (f"Only in {sides[0]}", self.missing, counts.missing, rows_text(self.missing)),
            (f"Only in {sides[1]}", self.unexpected, counts.unexpected, rows_text(self.unexpected)),
            (
                "Different",
                self.different,
                counts.different,
                Grid([*self.key, "Column", *map(str.capitalize, sides)], changed),
            ),
        ):
            if shown:
                some = f" (first {len(shown):,} of {total:,}, see --limit)" if len(shown) < total else ""
                yield ""
                yield line(f"{heading}{some}", "bold")
                yield body


class TableDifference(Difference, Result, frozen=True):
    """A table compared with an expected one, or its keys with those of the source.

    Attributes:
        keys_only: whether only keys were compared and counted, each once: the source has `missing` ones, and no longer
            has `unexpected` ones
        table: name: `Sales.Orders`
        landing_folder: folder in the landing zone: `Sales.schema/Orders`; null if it is gone
        delta_path: Delta table, from ROOT: `Tables/Sales/Orders`
        at_version: that was asked for; null: the newest
    """

    table: str
    landing_folder: str | None
    delta_path: str
    at_version: Count | None
    keys_only: bool = False

    def text(self) -> Lines:
        if self.keys_only:
            same, other = f"{self.table} has the keys of the source", f"{self.table} has other keys than the source"
            yield from self.lines((same, other), ("the source", "the table"), of_keys=True)
            return
        yield from self.lines((f"{self.table} is as expected", f"{self.table} differs from expected"))
