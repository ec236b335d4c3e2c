"""`restart`: stop and start the mirroring, as Fabric does: all tables are rebuilt from what still lies in the zone."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror_engine.cli import opening
from mirror_engine.cli.options import READING, Json, Root, configured
from mirror_engine.cli.output import line, print_json, stdout
from mirror_engine.config import Config
from mirror_engine.errors import UsageError
from mirror_engine.events import DiagnosticRaised

if TYPE_CHECKING:
    from mirror_engine.events import Event
    from mirror_engine.landing_zone.diagnostics import Diagnostic

JSON: dict[str, Any] = {
    "dropped": ["Sales.schema/Orders"],
    "diagnostics": [
        {
            "code": "ME069",
            "name": "rebuild-loses-rows",
            "severity": "warning",
            "message": "9 rows cannot be rebuilt: the change files were deleted",
            "help": "recreate single tables instead of rebuilding all",
            "location": {"path": "Sales.schema/Orders", "row": None, "column": None},
            "rules": ["LZ-7.7"],
            "details": {"count": "9"},
        }
    ],
}

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@configured(*READING)
def restart(root: Root, config: Config, *, yes: Yes = False, as_json: Json = False) -> None:
    """Drop all tables and begin anew, as Fabric's stop and start does.

    All progress is forgotten (LZ-7.7). The next once or run reads again what still lies in the zone. Rows of files
    that are gone from there are lost; they are listed as ME069. To rebuild a single table, have its publisher drop
    and recreate the folder instead.

    Example: mirror-engine restart ./shop --yes

    Exit codes: 0 done · 1 failure · 2 wrong usage, or not confirmed · 4 another engine is at work, or try again
    """
    said: list[Diagnostic] = []

    def note(event: Event) -> None:
        if isinstance(event, DiagnosticRaised):
            said.append(event.diagnostic)

    with opening.open_mirror(root, config, [note]) as mirror:
        if not yes:
            _confirm(root)
        dropped = mirror.rebuild()
    if as_json:
        print_json({"dropped": [table.folder for table in dropped], "diagnostics": [d.to_json() for d in said]})
        return
    for diagnostic in said:
        stdout().print(
            line(f"{diagnostic.full_message} -> {diagnostic.help}" if diagnostic.help else diagnostic.full_message)
        )
    for table in dropped:
        stdout().print(line(f"dropped {table.folder}"))
    stdout().print(line("The next once or run reads again what lies in the landing zone."))


def _confirm(root: Root) -> None:
    if not sys.stdin.isatty():
        raise UsageError("restart drops every Delta table", "Say --yes where nobody can be asked.")
    if not typer.confirm(f"Drop every Delta table under {root}/Tables?", err=True):
        raise UsageError("not confirmed, nothing was dropped")
