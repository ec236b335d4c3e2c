"""`history`: which commit of a table holds which change files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror_engine.cli import opening
from mirror_engine.cli.options import Json, Root, Table, configured
from mirror_engine.cli.output import grid, line, moment, print_json, stdout
from mirror_engine.config import Config
from mirror_engine.monitoring.words import iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table as Grid

    from mirror_engine.tables.base import HistoryEntry

JSON: dict[str, Any] = {
    "table": "Items",
    "commits": [
        {
            "version": 1,
            "time": "2026-11-02T08:15:29.500Z",
            "operation": "MERGE",
            "files": ["00000000000000000002.parquet"],
            "rows": 4,
            "engine": "mirror_engine 0.1.0",
            "metrics": {"numTargetRowsUpdated": "4"},
            "way": "merge",
            "reasons": {"00000000000000000002.parquet": "it has row markers"},
            "plan": "broadcast; files are rewritten; without inserts; bounds on Sku",
        }
    ],
}
MAX_NAMED = 4

Limit = Annotated[int, typer.Option("--limit", metavar="N", min=0, help="Most commits to show; 0 for all.")]


@configured("default_schema")
def history(root: Root, table: Table, config: Config, *, limit: Limit = 20, as_json: Json = False) -> None:
    """Show which commit of a table holds which change files.

    Newest first. Starts no Java.

    Example: mirror-engine history ./shop Sales.Orders --limit 5

    Exit codes: 0 shown · 2 wrong usage, no such table · 4 try again
    """
    with opening.open_mirror(root, config) as mirror:
        commits = mirror.history(table, limit=limit or None)
    if as_json:
        print_json({"table": table, "commits": [_commit(entry) for entry in commits]})
    else:
        stdout().print(history_grid(commits))


def history_grid(commits: Sequence[HistoryEntry]) -> Grid:
    """Commits as lines of text."""
    shown = grid(">Version", "Time (UTC)", "Operation", "Files were", ">Rows", "Change files")
    for entry in commits:
        time = moment(iso(entry.timestamp_ms / 1000))
        shown.add_row(
            str(entry.version), time, entry.operation, entry.way, f"{entry.rows:,}", line(_named(entry.files))
        )
    return shown


def _named(files: Sequence[str]) -> str:
    """The files; of many, the first and the last and how many there are."""
    if len(files) <= MAX_NAMED:
        return ", ".join(files) or "-"
    return f"{files[0]} … {files[-1]} ({len(files):,} files)"


def _commit(entry: HistoryEntry) -> dict[str, Any]:
    return {
        "version": entry.version,
        "time": iso(entry.timestamp_ms / 1000),
        "operation": entry.operation,
        "files": list(entry.files),
        "rows": entry.rows,
        "engine": entry.engine,
        "metrics": dict(entry.metrics),
        "way": entry.way,
        "reasons": dict(entry.reasons),
        "plan": entry.plan,
    }
