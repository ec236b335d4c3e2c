"""`compare`: the tables that Fabric made of a landing zone against a replay here."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirror_engine.cli import exits
from mirror_engine.cli import output as out
from mirror_engine.cli.options import COUNT, READING, URL_HELP, Choice, command, to_place, with_config, with_downloads
from mirror_engine.cli.progress import progress_option, shown
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.tools.compare.results import Comparison

if TYPE_CHECKING:
    from mirror_engine.cli.downloads import Downloads
    from mirror_engine.config import Config
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tools.compare.results import Through


@command(root="own", config=(*READING, "memory_limit"), result=Comparison)
@click.argument("url", metavar="URL", type=to_place, help=URL_HELP)
@click.argument("tables", metavar="[TABLE]...", nargs=-1, help="Sales.Orders, Items …; default: all tables.")
@click.option("--limit", type=COUNT, default=5, help="Maximum number of keys to list per finding.")
@click.option(
    "--through",
    type=Choice(["storage", "table-api"]),
    default="storage",
    help="How to read Fabric's tables: their files, or OneLake's table read API.",
)
@click.option(
    "--sql-rows",
    metavar="FILE",
    type=Path,
    help="What SQL shows of the table (CSV, JSON or Parquet), to compare with Delta, too.",
)
@click.option("--show-keys", is_flag=True, help="Show the keys' values, on a terminal only; not with --json.")
@progress_option
@with_config
@with_downloads
def compare(
    url: Place,
    tables: tuple[str, ...],
    config: Config,
    limit: int,
    downloads: Downloads,
    progress: str,
    *,
    through: Through,
    sql_rows: Path | None,
    show_keys: bool,
) -> int:
    """Compare Fabric's tables with a replay of their landing zone.

    Replays all change files on this machine, archived ones included, and compares each table with Fabric's. A table is
    equal, equal so far (Fabric has not applied the newest files yet), or different. Each difference names the change
    file that caused it and the rule of the protocol that Fabric's table breaks. Only reads; needs no Java. The report
    contains no values of rows: keys are digests with a secret of this machine.

    With --sql-rows, it also compares what the SQL analytics endpoint shows with Fabric's table.

    Example: mirror-engine compare abfss://WORKSPACE@onelake.dfs.fabric.microsoft.com/ITEM

    Exit codes: 0 equal, or equal so far · 1 no access to a store · 2 usage error: no zone, no such table · 3 different
    · 4 temporary: storage; retry
    """
    from mirror_engine.tools.compare.report import compare_tables

    if show_keys and (out.wants_json() or not out.stdout().is_terminal):
        raise UsageError("--show-keys shows values of rows: on a terminal only, and not with --json", "omit it")
    with shown(progress) as listen:
        zone, allow = downloads.open(url, ZONE), partial(downloads.add_table, url)
        options: dict[str, Any] = {"limit": limit, "show_keys": show_keys, "listen": listen, "zone": zone}
        options |= {"through": through, "received": downloads.add, "sql_rows": sql_rows}
        found = compare_tables(url, config, tables, allow=allow, **options)
    out.report(found)
    return exits.SUCCESS if found.equal else exits.NEEDS_ATTENTION
