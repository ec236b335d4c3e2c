"""`maintain`: OPTIMIZE and VACUUM under the tables' retention."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mirror_engine.cli import opening, progress
from mirror_engine.cli.options import Json, Root, configured
from mirror_engine.cli.output import line, print_json, stdout
from mirror_engine.config import Config
from mirror_engine.monitoring.cells import plain

JSON: dict[str, Any] = {"tables": {"dbo/Items": {"files_removed": 4}}}

Tables = Annotated[
    list[str] | None,
    typer.Argument(metavar="TABLE", help="Sales.Orders, Items …; all tables by default.", show_default=False),
]


@configured("default_schema", "retention_days", "profile", "driver_memory", "jars")
def maintain(root: Root, config: Config, *, tables: Tables = None, as_json: Json = False) -> None:
    """Compact the Delta tables and delete what is superseded.

    OPTIMIZE, then VACUUM of what is older than --retention-days: time travel reaches back no further.
    No engine may be at work on ROOT meanwhile.

    Example: mirror-engine maintain ./shop Sales.Orders --retention-days 1

    Exit codes: 0 done · 1 failure · 2 wrong usage, no such table · 4 another engine is at work, or try again ·
    130 interrupted
    """
    with progress.shown() as listeners, opening.open_mirror(root, config, listeners) as mirror:
        done = mirror.maintain(tables or ())
    if as_json:
        print_json({"tables": {folder: {k: plain(v) for k, v in facts.items()} for folder, facts in done.items()}})
        return
    for folder, facts in done.items():
        numbers = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
        stdout().print(line(f"{folder}: {numbers or 'nothing to do'}"))
    if not done:
        stdout().print(line("No table has been mirrored here yet."))
