"""`trace`: why a row is what it is, what a file did, what comes next, and what another order would have done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from mirror_engine.cli import exit_codes, opening
from mirror_engine.cli.options import READING, Json, Root, Table, configured
from mirror_engine.cli.output import print_json, stdout
from mirror_engine.cli.trace_json import JSON, file_json, key_json, plan_json, what_if_json
from mirror_engine.cli.trace_text import file_text, key_text, plan_text, what_if_text
from mirror_engine.config import Config
from mirror_engine.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from mirror_engine.engine.planner import MirrorSnapshot

__all__ = ["JSON", "trace"]  # the reference prints JSON, as every command's

Key = Annotated[
    list[str] | None,
    typer.Option(
        "--key", metavar="VALUE", help="Why a row is what it is: 42, or Order=7 once a column.", show_default=False
    ),
]
File = Annotated[
    str | None,
    typer.Option("--file", metavar="NAME", help="What a file did; its number will do.", show_default=False),
]
Planned = Annotated[bool, typer.Option("--plan", help="What comes next, and why not more.")]
WhatIf = Annotated[
    list[str] | None,
    typer.Option(
        "--what-if",
        metavar="CHANGE",
        help="skip=3, or swap=3,2: 3 takes the place of 2, and 2 that of 3; may be given again.",
        show_default=False,
    ),
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=0, help="Most rows of a kind of --what-if; 0 for all.")]


@configured(*READING, "memory_limit")
def trace(  # noqa: PLR0913 - as many things as a person may say
    root: Root,
    table: Table,
    config: Config,
    *,
    key: Key = None,
    file: File = None,
    plan: Planned = False,
    what_if: WhatIf = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """Say why a row is what it is.

    The table's files are replayed once more, in memory: those that wait, were applied, or were moved away; where old
    ones are gone, from the table's version behind them. Nothing is changed. Values of rows are shown, and never
    logged. Starts no Java.

    Give one of --key, --file, --plan and --what-if; in JSON it is the one that is there beside `table`.

    Example: mirror-engine trace ./shop Sales.Orders --key 42

    Exit codes: 0 told · 2 wrong usage, no such table, key or file · 3 the Delta table holds something else than its
    files make · 4 try again
    """
    wishes = sum(map(bool, (key, file, plan, what_if)))
    if wishes != 1:
        raise UsageError(
            "trace: nothing to trace" if not wishes else "trace: one thing at a time",
            "Give one of --key VALUE, --file NAME, --plan and --what-if skip=FILE.",
        )
    with opening.open_mirror(root, config) as mirror, mirror.snapshot() as look:
        told = _told(look, table, key or (), file, what_if or (), limit or None)
    if as_json:
        print_json({"table": table, told.name: told.as_json})
    else:
        stdout().print(Group(*told.as_text))
    if not told.agrees:
        raise typer.Exit(exit_codes.NEEDS_ATTENTION)


@dataclass(frozen=True)
class _Told:
    """What was traced, under its name in JSON, and whether the Delta table agrees with it."""

    name: str
    as_json: dict[str, Any]
    as_text: Iterable[RenderableType]
    agrees: bool = True


def _told(  # noqa: PLR0913, PLR0917 - the four things that can be traced, and of which table
    look: MirrorSnapshot, table: str, key: Sequence[str], file: str | None, what_if: Sequence[str], limit: int | None
) -> _Told:
    # here, for they load Arrow and an engine
    from mirror_engine.publisher.trace.file import trace_file  # noqa: PLC0415
    from mirror_engine.publisher.trace.plan_report import trace_plan  # noqa: PLC0415
    from mirror_engine.publisher.trace.replay import scene_of  # noqa: PLC0415
    from mirror_engine.publisher.trace.row import trace_key  # noqa: PLC0415
    from mirror_engine.publisher.trace.what_if import trace_what_if  # noqa: PLC0415

    scene = scene_of(look, table)
    if key:
        row = trace_key(scene, key)
        return _Told("key", key_json(row), key_text(scene.name.normalized, row), row.agrees is not False)
    if file:
        found = trace_file(scene, file)
        return _Told("file", file_json(found), file_text(scene.name.normalized, found))
    if what_if:
        otherwise = trace_what_if(scene, what_if, limit=limit)
        return _Told("what_if", what_if_json(otherwise), what_if_text(scene.name.normalized, otherwise))
    plan = trace_plan(scene)
    return _Told("plan", plan_json(plan), plan_text(plan))
