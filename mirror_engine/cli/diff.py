"""`diff`: a mirrored table beside an expected one, row by row and cell by cell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from mirror_engine.cli import exit_codes, opening
from mirror_engine.cli.differences import Headings, difference_json, difference_text
from mirror_engine.cli.options import Json, Root, Table, configured
from mirror_engine.cli.output import print_json, stdout
from mirror_engine.cli.show import Version
from mirror_engine.config import Config

if TYPE_CHECKING:
    from collections.abc import Sequence

JSON: dict[str, Any] = {
    "table": "Items",
    "version": None,
    "key": ["Id"],
    "equal": False,
    "counts": {"equal": 117, "missing": 1, "unexpected": 1, "different": 1},
    "columns": {"missing": ["Size"], "unexpected": ["Note"]},
    "different_cells": {"Name": 1},
    "missing": [{"Id": 3, "Name": "Nut"}],
    "unexpected": [{"Id": 9, "Name": "Pin"}],
    "different": [{"key": {"Id": 7}, "cells": [{"column": "Name", "expected": "Bolt", "found": "Screw"}]}],
}

Expected = Annotated[
    Path,
    typer.Argument(metavar="EXPECTED", help="The expected table: .csv, .parquet or .json.", show_default=False),
]
Key = Annotated[
    list[str] | None,
    typer.Option(
        "--key", metavar="COLUMNS", help="Match rows by these; the table's own key by default.", show_default=False
    ),
]
Tolerance = Annotated[
    float, typer.Option("--tolerance", metavar="X", min=0.0, help="Floats this far apart count as equal.")
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=0, help="Most rows of a kind to show; 0 for all.")]


@configured("default_schema")
def diff(  # noqa: PLR0913 - as many things as a person may say
    root: Root,
    table: Table,
    expected: Expected,
    config: Config,
    *,
    key: Key = None,
    version: Version = None,
    tolerance: Tolerance = 0.0,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """Compare a table with an expected one.

    Rows are matched by the table's key, or by --key Id,Line; those of a keyless table are compared as a whole. Every
    column counts, in any order. CSV and JSON are read as the table's types: an empty field is NULL, "" is empty text
    or binary, decimals may be text, times are ISO 8601, binary is Base64; what `show --json` prints is taken, too.
    Starts no Java.

    Example: mirror-engine diff ./shop Sales.Orders expected.csv --key Id

    Exit codes: 0 equal · 2 wrong usage, no such table, column or file · 3 different · 4 try again
    """
    from mirror_engine.publisher.diff import compare, read_expected  # noqa: PLC0415 - loads Arrow

    with opening.open_mirror(root, config) as mirror:
        found = mirror.read_table(table, version=version)
        chosen = _columns(key, found.column_names) if key else mirror.key_columns(table)
    wanted = read_expected(expected, found.schema)
    difference = compare(found, wanted, chosen, tolerance=tolerance, limit=limit or None)
    if as_json:
        print_json({"table": table, "version": version, **difference_json(difference)})
    else:
        stdout().print(Group(*difference_text(difference, _headings(table))))
    if not difference.is_equal:
        raise typer.Exit(exit_codes.NEEDS_ATTENTION)


def _columns(given: Sequence[str], known: Sequence[str]) -> list[str]:
    """`--key a,b` as columns; a column whose name holds a comma is meant as it is."""
    return [name for text in given for name in ([text] if text in known else text.split(","))]


def _headings(table: str) -> Headings:
    return Headings(
        equal=f"{table} is as expected",
        unequal=f"{table} is not as expected",
        style="bold red",
        missing_columns="columns expected, not there",
        unexpected_columns="columns not expected",
        missing="Missing: expected, not in the table",
        unexpected="Unexpected: in the table, not expected",
        different="Different",
        expected="Expected",
        found="Found",
    )
