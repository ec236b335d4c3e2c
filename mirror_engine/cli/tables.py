"""`tables`: what came out, table by table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirror_engine.cli import opening
from mirror_engine.cli.columns import columns_of
from mirror_engine.cli.options import Json, Root, configured
from mirror_engine.cli.output import grid, line, moment, print_json, stdout
from mirror_engine.config import Config
from mirror_engine.monitoring.words import iso

if TYPE_CHECKING:
    from mirror_engine.mirror import Mirror

JSON: dict[str, Any] = {
    "tables": [
        {
            "delta_folder": "dbo/Items",
            "version": 1,
            "last_commit": "2026-11-02T08:15:29.500Z",
            "rows_live": 7,
            "columns": [{"name": "Sku", "type": "string", "nullable": False}],
        }
    ]
}


@configured("default_schema")
def tables(root: Root, config: Config, *, as_json: Json = False) -> None:
    """List the mirrored Delta tables.

    Version, rows, last commit and columns of each, also of tables whose folder is gone. Starts no Java.

    Example: mirror-engine tables ./shop

    Exit codes: 0 listed, also where there is none yet · 2 wrong usage · 4 try again
    """
    with opening.open_mirror(root, config) as mirror:
        live = {table.delta_folder: table.row_count for table in mirror.status().tables}
        found = [_table(mirror, folder, live.get(folder)) for folder in mirror.tables()]
    if as_json:
        print_json({"tables": found})
        return
    shown = grid("Table", ">Version", ">Rows", "Last commit (UTC)", "Columns")
    for table in found:
        rows = "-" if table["rows_live"] is None else f"{table['rows_live']:,}"
        columns = line(", ".join(f"{column['name']} {column['type']}" for column in table["columns"]))
        shown.add_row(line(table["delta_folder"]), str(table["version"]), rows, moment(table["last_commit"]), columns)
    stdout().print(shown if found else line("No table has been mirrored here yet."))


def _table(mirror: Mirror, folder: str, rows_live: int | None) -> dict[str, Any]:
    newest = next(iter(mirror.history(folder, limit=1)), None)
    return {
        "delta_folder": folder,
        "version": newest.version if newest else None,
        "last_commit": iso(newest.timestamp_ms / 1000) if newest else None,
        "rows_live": rows_live,
        "columns": columns_of(mirror.read_table(folder, limit=0).schema),
    }
