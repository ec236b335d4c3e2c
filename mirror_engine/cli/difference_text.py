"""The rows that tell two tables apart, for a terminal and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from mirror_engine.cli.output import cell, grid, line, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from mirror_engine.table_diff import Difference


@dataclass(frozen=True)
class Headings:
    """What stands above missing, surplus and different rows, and above the two values of a cell."""

    missing: str
    surplus: str
    different: str
    expected: str
    found: str


AS_EXPECTED = Headings(
    "Missing: expected, not in the table",
    "Surplus: in the table, not expected",
    "Different",
    "Expected",
    "Found",
)


def rows_apart(found: Difference, headings: Headings) -> Iterator[RenderableType]:
    """The first rows of each kind, as grids."""
    yield from _rows(headings.missing, found.missing, found.missing_rows)
    yield from _rows(headings.surplus, found.surplus, found.surplus_rows)
    yield from _different(found, headings)


def difference_json(found: Difference) -> dict[str, Any]:
    """Counts, columns and the first rows of each kind, as plain values."""
    return {
        "key": list(found.key),
        "equal": found.is_equal,
        "counts": {
            "equal": found.equal_rows,
            "missing": found.missing_rows,
            "surplus": found.surplus_rows,
            "different": found.different_rows,
        },
        "columns": {"missing": list(found.missing_columns), "surplus": list(found.surplus_columns)},
        "different_cells": dict(found.different_cells),
        "missing": [_plain(row) for row in found.missing],
        "surplus": [_plain(row) for row in found.surplus],
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
    lines = grid(*(line(name).plain for name in rows[0]))
    for row in rows:
        lines.add_row(*(line(cell(value)) for value in row.values()))
    yield lines


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
