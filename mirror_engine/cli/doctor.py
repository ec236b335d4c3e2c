"""`doctor`: what this machine has, what it lacks, which Delta tables need a person, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror_engine.cli import exit_codes, opening
from mirror_engine.cli.options import Json, configured
from mirror_engine.cli.output import grid, line, print_json, stdout
from mirror_engine.config import Config
from mirror_engine.errors import TransientError
from mirror_engine.landing_zone.diagnostics import count

if TYPE_CHECKING:
    from mirror_engine.tables.spark.doctor import Check

OF_DELTA_TABLES = frozenset({"ME080", "ME081"})  # changed by someone else; damaged

JSON: dict[str, Any] = {
    "ok": False,
    "checks": [{"name": "Java", "ok": False, "found": "none", "remedy": "Install Java 17 or 21, …"}],
}

AnyRoot = Annotated[
    Path | None,
    typer.Argument(metavar="ROOT", help="The mirrored database's folder, to check as well.", show_default=False),
]


@configured("driver_memory", "delta_jars_dir")
def doctor(config: Config, *, root: AnyRoot = None, as_json: Json = False) -> None:
    """Say what this machine has and lacks, and its Delta tables.

    Python, Java, Spark, Delta, jars, memory, disk, write permission, and with ROOT its Delta tables: yes or no, and
    what to do. Starts no Spark.

    Example: mirror-engine doctor ./shop

    Exit codes: 0 yes, the engine can work here · 1 no, something is missing · 2 wrong usage · 3 a Delta table needs
    a person
    """
    from mirror_engine.tables.spark.doctor import checks  # noqa: PLC0415 - loads Arrow and more

    machine = checks(root, config)
    tables = _delta_tables(root, config) if root is not None and root.is_dir() else []
    found = [*machine, *tables]
    well = all(check.ok for check in found)
    if as_json:
        told = [{"name": c.name, "ok": c.ok, "found": c.found, "remedy": c.help} for c in found]
        print_json({"ok": well, "checks": told})
    else:
        shown = grid("", "Check", "Found")
        for check in found:
            shown.add_row(
                line("yes" if check.ok else "NO", "green" if check.ok else "bold red"), check.name, line(check.found)
            )
            if check.help and not check.ok:
                shown.add_row("", "", line(f"-> {check.help}", "bold"))
        stdout().print(shown)
        stdout().print(line("Yes: the engine can work here." if well else "No: see the lines marked NO."))
    if not all(check.ok for check in machine):
        raise typer.Exit(exit_codes.FAILURE)
    raise typer.Exit(exit_codes.SUCCESS if well else exit_codes.NEEDS_ATTENTION)


def _delta_tables(root: Path, config: Config) -> list[Check]:
    """One check for each Delta table that is not as the engine left it, or one that all are."""
    from mirror_engine.tables.spark.doctor import Check  # noqa: PLC0415 - as above

    try:
        with opening.open_mirror(root, config) as mirror:
            tables = mirror.status().tables
    except TransientError as error:
        return [Check("Delta tables", ok=False, found=error.message, help=error.help)]
    wrong = [
        Check(table.name.folder, ok=False, found=said.message, help=said.help)
        for table in tables
        for said, _ in table.diagnostics
        if said.code in OF_DELTA_TABLES
    ]
    kept = sum(table.delta_version is not None for table in tables)
    return wrong or [Check("Delta tables", ok=True, found=f"{count(kept, 'table')}, as the engine left them")]
