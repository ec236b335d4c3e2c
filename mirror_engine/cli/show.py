"""`show`: the rows of one table, now or at an earlier version."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mirror_engine.cli import opening
from mirror_engine.cli.columns import columns_of
from mirror_engine.cli.fitting import FittingRows
from mirror_engine.cli.options import Json, Root, Table, configured
from mirror_engine.cli.output import line, print_json, stdout
from mirror_engine.config import Config
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.monitoring.words import cell, plain

JSON: dict[str, Any] = {
    "table": "Items",
    "version": None,
    "columns": [{"name": "Sku", "type": "string", "nullable": False}],
    "rows": [{"Sku": "A1"}],
    "more": False,
}

Version = Annotated[
    int | None,
    typer.Option("--version", metavar="N", min=0, help="Delta version; the newest by default.", show_default=False),
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=0, help="Most rows to show; 0 for all.")]


@configured("default_schema")
def show(  # noqa: PLR0913 - as many things as a person may say
    root: Root, table: Table, config: Config, *, version: Version = None, limit: Limit = 20, as_json: Json = False
) -> None:
    """Show the rows of one table, now or at an earlier version.

    Rows have no order. In JSON, decimals are text, binary is Base64, times are ISO 8601, NaN and infinities text.
    Starts no Java.

    Example: mirror-engine show ./shop Sales.Orders --version 3 --limit 5

    Exit codes: 0 shown · 2 wrong usage, no such table or version · 4 try again
    """
    with opening.open_mirror(root, config) as mirror:
        found = mirror.read_table(table, version=version, limit=limit + 1 if limit else None)
    more = bool(limit) and found.num_rows > limit
    shown = found.slice(0, limit) if more else found
    if as_json:
        rows = [{name: plain(value) for name, value in row.items()} for row in shown.to_pylist()]
        print_json(
            {"table": table, "version": version, "columns": columns_of(shown.schema), "rows": rows, "more": more}
        )
        return
    headings = [line(name).plain for name in shown.column_names]
    stdout().print(FittingRows(headings, [[*map(cell, row.values())] for row in shown.to_pylist()]))
    rest = "; there are more, see --limit" if more else ""
    stdout().print(line(f"{count(shown.num_rows, 'row')}{rest}", "dim"))
