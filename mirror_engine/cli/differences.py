"""What tells two tables apart, for a terminal and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from mirror_engine.cli.fitting import FittingRows
from mirror_engine.cli.output import grid, line
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.monitoring.words import cell, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from mirror_engine.publisher.diff import Difference


@dataclass(frozen=True)
class Headings:
    """What stands above the parts of a difference.

    Attributes:
        equal, unequal: the headline, before the numbers.
        style: of the headline of tables that are unequal.
        missing_columns, unexpected_columns: before the names of columns that only one table has.
        missing, unexpected, different: above the rows of each kind.
        expected, found: above the two values of a cell.
    """

    equal: str
    unequal: str
    style: str
    missing_columns: str
    unexpected_columns: str
    missing: str
    unexpected: str
    different: str
    expected: str
    found: str


def difference_text(found: Difference, headings: Headings) -> Iterator[RenderableType]:
    """Counts first, then the first rows of each kind, as grids."""
    rows = count(found.equal_rows, "equal row")
    if found.is_equal:
        yield line(f"{headings.equal}: {rows}", "green")
        return
    numbers = (
        f"{found.missing_rows:,} missing, {found.unexpected_rows:,} unexpected, {found.different_rows:,} different"
    )
    yield line(f"{headings.unequal}: {numbers}; {rows}", headings.style)
    columns = (
        (headings.missing_columns, found.missing_columns),
        (headings.unexpected_columns, found.unexpected_columns),
    )
    for heading, names in columns:
        if names:
            yield line(f"  {heading}: {', '.join(names)}")
    if found.different_cells:
        often = ", ".join(f"{name} {times:,}" for name, times in found.different_cells.items())
        yield line(f"  cells that differ: {often}")
    yield from _rows(headings.missing, found.missing, found.missing_rows)
    yield from _rows(headings.unexpected, found.unexpected, found.unexpected_rows)
    yield from _different(found, headings)


def difference_json(found: Difference) -> dict[str, Any]:
    """Counts, columns and the first rows of each kind, as plain values."""
    return {
        "key": list(found.key),
        "equal": found.is_equal,
        "counts": {
            "equal": found.equal_rows,
            "missing": found.missing_rows,
            "unexpected": found.unexpected_rows,
            "different": found.different_rows,
        },
        "columns": {"missing": list(found.missing_columns), "unexpected": list(found.unexpected_columns)},
        "different_cells": dict(found.different_cells),
        "missing": [_plain(row) for row in found.missing],
        "unexpected": [_plain(row) for row in found.unexpected],
        "different": [
            {
                "key": _plain(row.key),
                "cells": [
                    {"column": name, "expected": plain(wanted), "found": plain(there)}
                    for name, (wanted, there) in row.cells.items()
                ],
            }
            for row in found.different
        ],
    }


def _rows(heading: str, rows: Sequence[Mapping[str, Any]], total: int) -> Iterator[RenderableType]:
    if not rows:
        return
    yield from _headed(heading, len(rows), total)
    yield FittingRows([line(name).plain for name in rows[0]], [[*map(cell, row.values())] for row in rows])


def _different(found: Difference, headings: Headings) -> Iterator[RenderableType]:
    if not found.different:
        return
    yield from _headed(headings.different, len(found.different), found.different_rows)
    lines = grid(*(line(name).plain for name in found.key), "Column", headings.expected, headings.found)
    for row in found.different:
        for name, (wanted, there) in row.cells.items():
            lines.add_row(*(line(cell(value)) for value in (*row.key.values(), name, wanted, there)))
    yield lines


def _headed(heading: str, shown: int, total: int) -> Iterator[RenderableType]:
    yield Text()
    yield line(f"{heading}{f', the first {shown:,} of {total:,}, see --limit' if shown < total else ''}", "bold")


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in row.items()}
