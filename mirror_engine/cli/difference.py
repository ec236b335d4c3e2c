"""`diff`: compare a mirrored table with an expected one, row by row and cell by cell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirror_engine.cli import exit_codes
from mirror_engine.cli import root as opening
from mirror_engine.cli.options import argument, command, count_option, option
from mirror_engine.cli.output import AdaptiveRows, delta_table_json, grid, line, print_json, stdout
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.monitoring.words import cell, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from mirror_engine.config import Config
    from mirror_engine.publisher.diff import Difference

TABLE_HELP = "Sales.Orders, Sales.schema/Orders or Items, in any case."
ROWS_HELP = "Maximum number of rows to show of each kind; 0 for all."


@command(root="option", config=("default_schema",))
@argument("table", TABLE_HELP)
@argument("expected", "The expected table: a .csv, .parquet or .json file.", type=Path)
@option("key", "--key", metavar="COLUMNS", multiple=True, help="Match rows by these columns; default: the table's key.")
@count_option("--at-version", default=None, help="Delta version to compare; default: the newest.")
@option(
    "--float-tolerance",
    metavar="X",
    type=click.FloatRange(min=0.0),
    default=0.0,
    default_text="0",
    help="Floating-point values this far apart are equal.",
)
@count_option("--limit", default=20, help=ROWS_HELP)
def diff(
    root: Path,
    config: Config,
    table: str,
    expected: Path,
    key: tuple[str, ...],
    at_version: int | None,
    float_tolerance: float,
    limit: int,
    *,
    as_json: bool,
) -> None:
    """Compare a table with an expected result.

    Rows are matched by the table's key, or by --key Id,Line; rows of a keyless table are compared as a whole. Every
    column counts, in any order. CSV and JSON are read as the table's types: an empty field is NULL, "" is empty text
    or binary, decimals may be text, times are ISO 8601, binary is Base64; output of show --json is accepted. Starts
    no Java.

    Example: mirror-engine diff -C ./shop Sales.Orders expected.csv --key Id

    Exit codes: 0 equal · 2 usage error: no such table, column or file · 3 different · 4 temporary: storage; retry
    """
    from mirror_engine.publisher.diff import compare, read_expected

    with opening.open_mirror(root, config) as mirror:
        folder = mirror.delta_folder(table)
        actual = mirror.read_table(folder, version=at_version)
        # a column whose name contains a comma may be given as it is
        columns = [name for text in key for name in ([text] if text in actual.column_names else text.split(","))]
        columns = columns or list(mirror.key_columns(folder))
    rows = read_expected(expected, actual.schema)
    difference = compare(actual, rows, columns, tolerance=float_tolerance, limit=limit or None)
    reference = delta_table_json(root, folder, config.delta_default_schema)
    if as_json:
        print_json("diff", {**reference, "at_version": at_version, **difference_json(difference)})
    else:
        for part in difference_text(difference, _headings(reference["table"])):
            stdout().print(part)
    if not difference.is_equal:
        raise click.exceptions.Exit(exit_codes.NEEDS_ATTENTION)


@dataclass(frozen=True)
class Headings:
    """Texts of a difference.

    Attributes:
        equal, unequal: the headline, before the numbers.
        style: of the headline of unequal tables.
        missing_columns, unexpected_columns: before the names of columns that only one table has.
        missing, unexpected, different: above the rows of each kind.
        expected, actual: above the two values of a cell.
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
    actual: str


def _headings(table: str) -> Headings:
    return Headings(
        equal=f"{table} is as expected",
        unequal=f"{table} differs from expected",
        style="bold red",
        missing_columns="missing columns",
        unexpected_columns="unexpected columns",
        missing="Missing: expected, not in the table",
        unexpected="Unexpected: in the table, not expected",
        different="Different",
        expected="Expected",
        actual="Actual",
    )


def difference_text(difference: Difference, headings: Headings) -> Iterator[RenderableType]:
    """Counts first, then the first rows of each kind."""
    rows = count(difference.equal_rows, "equal row")
    if difference.is_equal:
        yield line(f"{headings.equal}: {rows}", "green")
        return
    numbers = f"{difference.missing_rows:,} missing, {difference.unexpected_rows:,} unexpected"
    yield line(f"{headings.unequal}: {numbers}, {difference.different_rows:,} different; {rows}", headings.style)
    for heading, names in (
        (headings.missing_columns, difference.missing_columns),
        (headings.unexpected_columns, difference.unexpected_columns),
    ):
        if names:
            yield line(f"  {heading}: {', '.join(names)}")
    if difference.different_cells:
        cells = ", ".join(f"{name} {times:,}" for name, times in difference.different_cells.items())
        yield line(f"  different cells: {cells}")
    for heading, shown, total in (
        (headings.missing, difference.missing, difference.missing_rows),
        (headings.unexpected, difference.unexpected, difference.unexpected_rows),
    ):
        if shown:
            yield from _heading(heading, len(shown), total)
            yield AdaptiveRows([line(name).plain for name in shown[0]], [[*map(cell, row.values())] for row in shown])
    if difference.different:
        yield from _heading(headings.different, len(difference.different), difference.different_rows)
        lines = grid(*(line(name).plain for name in difference.key), "Column", headings.expected, headings.actual)
        for row in difference.different:
            for name, (expected, actual) in row.cells.items():
                lines.add_row(*(line(cell(value)) for value in (*row.key.values(), name, expected, actual)))
        yield lines


def difference_json(difference: Difference) -> dict[str, Any]:
    """Counts, columns and the first rows of each kind, as plain values."""
    return {
        "key": list(difference.key),
        "equal": difference.is_equal,
        "counts": {
            "equal": difference.equal_rows,
            "missing": difference.missing_rows,
            "unexpected": difference.unexpected_rows,
            "different": difference.different_rows,
        },
        "columns": {"missing": list(difference.missing_columns), "unexpected": list(difference.unexpected_columns)},
        "different_cells": dict(difference.different_cells),
        "missing": rows_json(difference.missing),
        "unexpected": rows_json(difference.unexpected),
        "different": [
            {
                "key": row_json(row.key),
                "cells": [
                    {"column": name, "expected": plain(expected), "actual": plain(actual)}
                    for name, (expected, actual) in row.cells.items()
                ],
            }
            for row in difference.different
        ],
    }


def row_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as plain values."""
    return {name: plain(value) for name, value in row.items()}


def rows_json(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows as plain values."""
    return [row_json(row) for row in rows]


def _heading(heading: str, shown: int, total: int) -> Iterator[RenderableType]:
    yield ""
    yield line(f"{heading}{f' (first {shown:,} of {total:,}, see --limit)' if shown < total else ''}", "bold")
