"""`init`: an example landing zone to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mirror_engine.cli.options import Json  # noqa: TC001 - typer reads the annotations
from mirror_engine.cli.output import line, print_json, stdout
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE

JSON: dict[str, Any] = {
    "root": "./shop",
    "zone": "Files/LandingZone",
    "files": ["Files/LandingZone/Items/_metadata.json"],
}

NewRoot = Annotated[
    Path, typer.Argument(metavar="ROOT", help="The folder to write to; made if need be.", show_default=False)
]


def init(root: NewRoot, *, as_json: Json = False) -> None:
    """Write an example landing zone to start from.

    Four tables, and a commented _metadata.json to read.
    Nothing is overwritten: a ROOT that has a landing zone is left alone.

    Example: mirror-engine init ./shop

    Exit codes: 0 written · 2 wrong usage, or there is a landing zone already
    """
    taken = next((folder for folder in (ZONE, OLDER_ZONE) if (root / folder).exists()), None)
    if taken:
        raise UsageError(f"{root / taken}: is there already, nothing was written", "Name another folder.")
    try:
        files = write_example(root)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"{error.filename}: {error.strerror}", "Name another folder.") from None
    if as_json:
        print_json({"root": str(root), "zone": ZONE, "files": files})
        return
    console = stdout()
    for path in files:
        console.print(line(f"  {path}"))
    console.print(line(f"Written below {root}. Next:"))
    console.print(line(f"  mirror-engine once {root}         apply it"))
    console.print(line(f"  mirror-engine tables {root}       see what came out"))
    console.print(line(f"  mirror-engine show {root} Orders  see the rows of one table"))
    console.print(line(f"  mirror-engine run {root}          go on with whatever lands"))


def write_example(root: Path) -> list[str]:
    """Write the example zone; returns the paths of its files, from ROOT."""
    from mirror_engine.cli.example_zone import ExampleZone  # noqa: PLC0415 - Arrow takes most of a second

    zone = ExampleZone(root)
    zone.explain_metadata()
    zone.land_initial_load()
    zone.land_changes()
    written = (root / ZONE).rglob("*")
    return sorted(path.relative_to(root).as_posix() for path in written if path.is_file())
