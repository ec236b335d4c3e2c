"""`status`, `tables`, `show` and `history`: read a mirror while an engine may run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from mirror_engine.cli import exit_codes
from mirror_engine.cli import root as opening
from mirror_engine.cli.difference import TABLE_HELP, rows_json
from mirror_engine.cli.options import READING, argument, command, count_option, flag, time_option
from mirror_engine.cli.output import (
    AdaptiveRows,
    columns_json,
    delta_table_json,
    grid,
    line,
    moment,
    print_json,
    stdout,
)
from mirror_engine.cli.signals import Stopping
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.landing_zone.states import needs_attention
from mirror_engine.monitoring.words import cell, iso

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.table import Table

    from mirror_engine.config import Config
    from mirror_engine.mirror import Mirror
    from mirror_engine.monitoring.status import MirrorStatus
    from mirror_engine.tables.base import HistoryEntry

NO_TABLES = "There are no Delta tables yet."
MAX_NAMED = 4  # change files of one commit


@command(config=READING, reads_engine=True)
@flag("--check", help="End with 3 if a table needs attention.")
@flag("--watch", help="Refresh until Ctrl+C; with --json one document per line.")
@time_option("--interval", low=0.1, default=2.0, help="Time between two refreshes.")
def status(root: Path, config: Config, interval: float, *, check: bool, watch: bool, as_json: bool) -> None:
    """Show the state of every table, and what to do.

    Reads the landing zone; an engine may run meanwhile, and its options are used. Starts no Java.

    Example: mirror-engine status ./shop --watch

    Exit codes: 0 shown, and after Ctrl+C with --watch · 2 usage error · 3 a table needs attention, with --check · 4
    temporary: storage; retry
    """
    from mirror_engine.cli.status_text import status_text  # imports rich

    with opening.open_mirror(root, config) as mirror, Stopping() as stopping:
        latest = mirror.status()
        if as_json:
            print_json("status", latest.to_json())
            while watch and not stopping.stop.wait(interval):
                latest = mirror.status()
                print_json("status", latest.to_json())
        elif watch:
            from rich.live import Live

            with Live(console=stdout(), auto_refresh=False, vertical_overflow="visible") as live:
                live.update(status_text(latest, time.time()), refresh=True)
                while not stopping.stop.wait(interval):
                    latest = mirror.status()
                    live.update(status_text(latest, time.time()), refresh=True)
        else:
            stdout().print(status_text(latest, time.time()))
    if check and _needs_attention(latest):
        raise click.exceptions.Exit(exit_codes.NEEDS_ATTENTION)


def _needs_attention(latest: MirrorStatus) -> bool:
    return any(needs_attention(table.state) for table in latest.tables)


@command(config=("default_schema",))
def tables(root: Path, config: Config, *, as_json: bool) -> None:
    """List the Delta tables.

    Version, rows, last commit and columns of each, also of tables whose landing folder is gone. Starts no Java.

    Example: mirror-engine tables ./shop

    Exit codes: 0 listed, even if there are none yet · 2 usage error · 4 temporary: storage; retry
    """
    with opening.open_mirror(root, config) as mirror:
        row_counts = {table.delta_folder: table.row_count for table in mirror.status().tables}
        listed = [_table(mirror, folder, row_counts.get(folder)) for folder in mirror.tables()]
    if as_json:
        print_json("tables", {"tables": listed})
        return
    shown = grid("Table", ">Version", ">Rows", "Last commit (UTC)", "Columns")
    for table in listed:
        rows = "-" if table["row_count"] is None else f"{table['row_count']:,}"
        columns = ", ".join(f"{column['name']} {column['type']}" for column in table["columns"])
        moments = moment(table["last_commit_at"])
        shown.add_row(line(table["table"]), str(table["delta_version"]), rows, moments, line(columns))
    stdout().print(shown if listed else line(NO_TABLES))


def _table(mirror: Mirror, folder: str, row_count: int | None) -> dict[str, Any]:
    newest = next(iter(mirror.history(folder, limit=1)), None)
    return {
        **delta_table_json(mirror.root, folder, mirror.config.delta_default_schema),
        "delta_version": newest.version if newest else None,
        "last_commit_at": iso(newest.timestamp_ms / 1000) if newest else None,
        "row_count": row_count,
        "columns": columns_json(mirror.read_table(folder, limit=0).schema),
    }


@command(root="option", config=("default_schema",))
@argument("table", TABLE_HELP)
@count_option("--at-version", default=None, help="Delta version to show; default: the newest.")
@count_option("--limit", default=20, help="Maximum number of rows; 0 for all.")
def show(root: Path, config: Config, table: str, at_version: int | None, limit: int, *, as_json: bool) -> None:
    """Show a table's rows.

    Rows have no order. In JSON, decimals are text, binary is Base64, times are ISO 8601, NaN and infinities text.
    Starts no Java.

    Example: mirror-engine show -C ./shop Sales.Orders --at-version 3 --limit 5

    Exit codes: 0 shown · 2 usage error: no such table or version · 4 temporary: storage; retry
    """
    with opening.open_mirror(root, config) as mirror:
        folder = mirror.delta_folder(table)
        rows = mirror.read_table(folder, version=at_version, limit=limit + 1 if limit else None)
    has_more = bool(limit) and rows.num_rows > limit
    rows = rows.slice(0, limit) if has_more else rows
    if as_json:
        document = {**delta_table_json(root, folder, config.delta_default_schema), "at_version": at_version}
        document |= {"columns": columns_json(rows.schema), "rows": rows_json(rows.to_pylist()), "has_more": has_more}
        print_json("show", document)
        return
    stdout().print(rows_grid(rows.column_names, rows.to_pylist()))
    more = "; there are more, see --limit" if has_more else ""
    stdout().print(line(f"{count(rows.num_rows, 'row')}{more}", "dim"))


def rows_grid(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> AdaptiveRows:
    """Rows below the names of their columns."""
    return AdaptiveRows([line(name).plain for name in columns], [[*map(cell, row.values())] for row in rows])


@command(root="option", config=("default_schema",))
@argument("table", TABLE_HELP)
@count_option("--limit", default=20, help="Maximum number of commits; 0 for all.")
def history(root: Path, config: Config, table: str, limit: int, *, as_json: bool) -> None:
    """Show a table's commits and their change files.

    Newest first. Starts no Java.

    Example: mirror-engine history -C ./shop Sales.Orders --limit 5

    Exit codes: 0 shown · 2 usage error: no such table · 4 temporary: storage; retry
    """
    with opening.open_mirror(root, config) as mirror:
        folder = mirror.delta_folder(table)
        commits = mirror.history(folder, limit=limit or None)
    if as_json:
        reference = delta_table_json(root, folder, config.delta_default_schema)
        print_json("history", {**reference, "commits": [_commit(entry) for entry in commits]})
    else:
        stdout().print(history_grid(commits))


def history_grid(commits: Sequence[HistoryEntry]) -> Table:
    """Commits as lines of text."""
    shown = grid(">Version", "Time (UTC)", "Operation", "Applied by", ">Rows", "Change files")
    for entry in commits:
        files = ", ".join(entry.files) or "-"
        if len(entry.files) > MAX_NAMED:
            files = f"{entry.files[0]} … {entry.files[-1]} ({len(entry.files):,} files)"
        at = moment(iso(entry.timestamp_ms / 1000))
        shown.add_row(str(entry.version), at, entry.operation, entry.applied_by or "-", f"{entry.rows:,}", line(files))
    return shown


def _commit(entry: HistoryEntry) -> dict[str, Any]:
    return {
        "version": entry.version,
        "committed_at": iso(entry.timestamp_ms / 1000),
        "operation": entry.operation,
        "files": list(entry.files),
        "rows": entry.rows,
        "engine": entry.engine or None,
        "metrics": dict(entry.metrics),
        "applied_by": entry.applied_by or None,
        "passthrough_skipped_because": dict(entry.passthrough_skipped),
        "merge_plan": entry.plan or None,
    }
