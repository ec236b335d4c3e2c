"""`doctor`: what this machine has, what it lacks, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mirror_engine.cli import exit_codes
from mirror_engine.cli.options import Json, configured
from mirror_engine.cli.output import grid, line, print_json, stdout
from mirror_engine.config import Config

JSON: dict[str, Any] = {
    "ok": False,
    "checks": [{"name": "Java", "ok": False, "found": "none", "remedy": "Install Java 17 or 21, …"}],
}

AnyRoot = Annotated[
    Path | None,
    typer.Argument(metavar="ROOT", help="The mirrored database's folder, to check as well.", show_default=False),
]


@configured("driver_memory", "jars")
def doctor(config: Config, *, root: AnyRoot = None, as_json: Json = False) -> None:
    """Say what this machine has, and what it lacks.

    Python, Java, Spark, Delta, jars, memory, disk, write permission: yes or no, and what to do. Starts no Spark.

    Example: mirror-engine doctor ./shop

    Exit codes: 0 yes, the engine can work here · 1 no, something is missing · 2 wrong usage
    """
    from mirror_engine.delta.doctor import checks  # noqa: PLC0415 - loads Arrow and more

    found = checks(root, config)
    well = all(check.ok for check in found)
    if as_json:
        told = [{"name": c.name, "ok": c.ok, "found": c.found, "remedy": c.remedy} for c in found]
        print_json({"ok": well, "checks": told})
    else:
        shown = grid("", "Check", "Found")
        for check in found:
            shown.add_row(
                line("yes" if check.ok else "NO", "green" if check.ok else "bold red"), check.name, line(check.found)
            )
            if check.remedy and not check.ok:
                shown.add_row("", "", line(f"-> {check.remedy}", "bold"))
        stdout().print(shown)
        stdout().print(line("Yes: the engine can work here." if well else "No: see the lines marked NO."))
    raise typer.Exit(exit_codes.LEVEL if well else exit_codes.FAILURE)
