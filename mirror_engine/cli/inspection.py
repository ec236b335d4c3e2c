"""`status`, `show`, `history` and `diff`: read a mirror while an engine may run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirror_engine import display
from mirror_engine.cli import exits
from mirror_engine.cli import output as out
from mirror_engine.cli.options import (
    COUNT,
    DROPPING,
    READING,
    TABLE_HELP,
    Value,
    command,
    refuse_given,
    with_downloads,
    with_mirror,
)
from mirror_engine.config import OptionKind, duration
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.text import count
from mirror_engine.monitoring.history import TableHistory
from mirror_engine.monitoring.status_results import Status
from mirror_engine.results import Column, Count, Result, Row, TableReference
from mirror_engine.tools.difference import TableDifference

if TYPE_CHECKING:
    from mirror_engine.cli.downloads import Downloads
    from mirror_engine.mirror import Mirror

ROWS_HELP = "Maximum number of rows to show of each kind; 0 for all."
WATCH_SECONDS = {True: 2.0, False: 30.0}  # between two looks at a folder, at a store, which asks for requests


@command(config=(*READING, *DROPPING), reads_engine=True, result=Status)
@click.option("names", "--table", metavar="TABLE", multiple=True, help="Only this table, with its files (repeatable).")
@click.option(
    "--check",
    is_flag=True,
    help="End with 3 if a table needs attention, else with 4 if a folder is not listed (ME070).",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Refresh until Ctrl+C; with --json one document per line. Reads a store without cache and --max-download.",
)
@click.option(
    "--interval",
    type=Value(duration(0.1)),
    help="Time between two refreshes.  [default: 2s; 30s for a ROOT in a store]",
)
@with_mirror(at_once=True)
def status(mirror: Mirror, names: tuple[str, ...], interval: float | None, *, check: bool, watch: bool) -> int:
    """Show the state of every table, and what to do.

    Reads the landing zone; an engine may run meanwhile, and its options are used. Starts no Java.

    Tables that need attention come first; the last line counts all.

    Example: mirror-engine status ./shop --table Sales.Orders

    Exit codes: 0 shown, and after Ctrl+C with --watch · 1 no access to a store · 2 usage error · 3 a table needs
    attention, with --check · 4 temporary: storage; retry
    """
    from rich.console import Group
    from rich.live import Live

    if not watch:
        refuse_given({"interval": "--interval"}, "without --watch, status is shown once")
    interval = interval or WATCH_SECONDS[isinstance(mirror.root, Path)]
    is_live = watch and not out.wants_json() and out.stdout().is_terminal
    view = Live(console=out.stdout(), auto_refresh=False, screen=True) if is_live else nullcontext()
    with exits.Stopping() as stopping, view as live:
        while True:
            latest = mirror.status(names)
            if live:
                live.update(Group(*latest.lines(problems_first=True, detailed=bool(names))), refresh=True)
            else:
                out.report(latest, latest.lines(detailed=bool(names)))
            if not watch or stopping.stop.wait(interval):
                break
    if check and any(table.needs_attention for table in latest.tables):
        return exits.NEEDS_ATTENTION
    return exits.RETRY if check and latest.unlisted else exits.SUCCESS


class Show(TableReference, Result, frozen=True):
    """Rows of a table.

    Attributes:
        at_version: that was asked for; null: the newest
        has_more: than `--limit`
    """

    at_version: Count | None
    columns: Sequence[Column]
    rows: Sequence[Row]
    has_more: bool

    def text(self) -> display.Lines:
        yield display.rows_text(self.rows, [column.name for column in self.columns])
        more = "; there are more, see --limit" if self.has_more else ""
        yield display.line(f"{count(len(self.rows), 'row')}{more}", "dim")


@command(root="option", config=("default_schema",), result=Show)
@click.argument("table", help=TABLE_HELP)
@click.option("--at-version", type=COUNT, help="Delta version to show; default: the newest.")
@click.option("--limit", type=COUNT, default=20, help="Maximum number of rows; 0 for all.")
@with_downloads
@with_mirror(at_once=False)
def show(mirror: Mirror, table: str, at_version: int | None, limit: int, downloads: Downloads) -> None:
    """Show a table's rows.

    Sorted by key. If the table has more rows than --limit, shows the lowest keys. If it has more than 100,000 rows, or
    is in a store, shows the first rows of its files. In JSON, decimals are text, binary is Base64, times are ISO 8601,
    NaN and infinities text. Starts no Java.

    Example: mirror-engine show -C ./shop Sales.Orders --at-version 3 --limit 5

    Exit codes: 0 shown · 1 no access to a store · 2 usage error: no such table or version · 4 temporary: storage; retry
    """
    from mirror_engine.mirror import of_delta_table
    from mirror_engine.tables.arrow_types import delta_type

    folder = mirror.delta_folder(table)
    downloads.add_table(mirror.root, folder, at_version, limit + 1 if limit else None)
    rows = mirror.show(folder, version=at_version, limit=limit or None)
    columns = [Column(each.name, delta_type(each.type) or str(each.type), each.nullable) for each in rows.schema]
    out.report(of_delta_table(Show, mirror, folder, at_version, columns, rows, rows.has_more))


@command(root="option", config=("default_schema",), result=TableHistory)
@click.argument("table", required=False, help=f"{TABLE_HELP} Without it: changes to all tables.")
@click.option("--limit", type=COUNT, default=20, help="Maximum number of commits or changes; 0 for all.")
@with_mirror(at_once=False)
def history(mirror: Mirror, table: str | None, limit: int) -> None:
    """Show a table's commits and their change files, or the other changes to all tables.

    Newest first. Without TABLE: drops, halts, resumes, maintenance, deleted archived files and rebuilt progress, from
    .mirror-engine/history.jsonl of this machine's engines. Maintenance and deleted files are one line per table and
    day. Starts no Java.

    Example: mirror-engine history -C ./shop Sales.Orders --limit 5

    Exit codes: 0 shown · 1 no access to a store · 2 usage error: no such table · 4 temporary: storage; retry
    """
    out.report(mirror.history(table, limit=limit or None))


def _tolerance(value: object) -> float:
    if not (number := float(str(value))) >= 0:
        raise ValueError
    return number


@command(root="option", config=("default_schema",), result=TableDifference)
@click.argument("table", help=TABLE_HELP)
@click.argument("expected", type=Path, required=False, help="The expected table: a .csv, .parquet or .json file.")
@click.option("--keys", type=Path, metavar="FILE", help="Keys of the source, in place of EXPECTED: compare keys alone.")
@click.option("--key", metavar="COLUMNS", multiple=True, help="Match rows by these columns; default: the table's key.")
@click.option("--at-version", type=COUNT, help="Delta version to compare; default: the newest.")
@click.option(
    "--float-tolerance",
    type=Value(OptionKind("a number of 0 or more", "X", _tolerance)),
    default="0",
    help="Floating-point values this far apart are equal.",
)
@click.option("--limit", type=COUNT, default=20, help=ROWS_HELP)
@with_downloads
@with_mirror(at_once=False)
def diff(
    mirror: Mirror,
    table: str,
    expected: Path | None,
    keys: Path | None,
    key: tuple[str, ...],
    at_version: int | None,
    float_tolerance: float,
    limit: int,
    downloads: Downloads,
) -> int:
    """Compare a table with an expected result, or with its source's keys.

    Matches rows by the table's key, or by --key Id,Line; compares whole rows of a keyless table. Compares all columns,
    in any order. Reads CSV and JSON as the table's types: an empty field is NULL, "" is empty text or binary, decimals
    may be text, times are ISO 8601, binary is Base64. Accepts the output of show --json. Starts no Java.

    With --keys keys.parquet, reads and compares the key columns alone, and counts keys: those of the source that never
    came, and those that the source no longer has. A key in several rows counts once.

    Example: mirror-engine diff -C ./shop Sales.Orders expected.csv --key Id

    Exit codes: 0 equal · 1 no access to a store · 2 usage error: no such table, column or file · 3 different · 4
    temporary: storage; retry
    """
    file = keys or expected
    if file is None or (keys and expected):
        raise UsageError("diff needs a file: EXPECTED, or --keys FILE", "see mirror-engine diff --help")
    folder = mirror.delta_folder(table)
    downloads.add_table(mirror.root, folder, at_version)
    found = mirror.diff(
        folder,
        file,
        key=key,
        version=at_version,
        tolerance=float_tolerance,
        limit=limit or None,
        keys_only=keys is not None,
    )
    out.report(found)
    return exits.SUCCESS if found.equal else exits.NEEDS_ATTENTION
