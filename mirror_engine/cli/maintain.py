"""`maintain`: OPTIMIZE and VACUUM under the tables' retention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror_engine.cli import exit_codes, opening, progress
from mirror_engine.cli.options import Json, Root, configured
from mirror_engine.cli.output import line, print_json, stderr, stdout
from mirror_engine.config import Config
from mirror_engine.monitoring.words import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror_engine.errors import TransientError

JSON: dict[str, Any] = {
    "tables": {"dbo/Items": {"files_removed": 4}},
    "failed": {"dbo/Orders": {"kind": "TableDamaged", "message": "…", "help": "…"}},
}

Tables = Annotated[
    list[str] | None,
    typer.Argument(metavar="TABLE", help="Sales.Orders, Items …; all tables by default.", show_default=False),
]


@configured("default_schema", "vacuum_retention_days", "spark_profile", "driver_memory", "delta_jars_dir")
def maintain(root: Root, config: Config, *, tables: Tables = None, as_json: Json = False) -> None:
    """Compact the Delta tables and delete what is superseded.

    OPTIMIZE, then VACUUM of what is older than --vacuum-retention: time travel reaches back no further.
    A table that cannot be maintained keeps no other from it. No engine may be at work on ROOT meanwhile.

    Example: mirror-engine maintain ./shop Sales.Orders --vacuum-retention 1

    Exit codes: 0 done · 1 failure · 2 wrong usage, no such table · 3 a table is damaged · 4 another engine is at
    work, or try again · 130 interrupted
    """
    failed: dict[str, TransientError] = {}

    def note(folder: str, error: TransientError) -> None:
        failed[folder] = error
        if not as_json:  # at once: who knows how the next one ends
            for said in f"{folder}: {error}".splitlines():
                stderr().print(line(said))

    with progress.shown() as listeners, opening.open_mirror(root, config, listeners) as mirror:
        done = mirror.maintain(tables or (), note)
    (_tell_json if as_json else _tell_text)(done, failed)
    raise typer.Exit(exit_codes.of_errors(failed.values()))


def _tell_json(done: Mapping[str, Mapping[str, Any]], failed: Mapping[str, TransientError]) -> None:
    tables = {folder: {name: plain(value) for name, value in facts.items()} for folder, facts in done.items()}
    told = {
        folder: {"kind": type(error).__name__, "message": error.message, "help": error.help}
        for folder, error in failed.items()
    }
    print_json({"tables": tables, "failed": told})


def _tell_text(done: Mapping[str, Mapping[str, Any]], failed: Mapping[str, TransientError]) -> None:
    for folder, facts in done.items():
        numbers = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
        stdout().print(line(f"{folder}: {numbers or 'nothing to do'}"))
    if not done and not failed:
        stdout().print(line("No table has been mirrored here yet."))
