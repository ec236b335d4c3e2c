"""`wait`: returns once all tables are level, or one file has been applied."""

from __future__ import annotations

import time
from enum import Enum
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.padding import Padding

from mirror_engine.cli import exit_codes, opening
from mirror_engine.cli.options import READING, Json, Root, configured
from mirror_engine.cli.output import bullet, line, print_json, stderr, stdout
from mirror_engine.cli.signals import Stopping
from mirror_engine.config import Config
from mirror_engine.errors import TransientError
from mirror_engine.monitoring.words import START_ENGINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.mirror import Mirror
    from mirror_engine.monitoring.wait_conditions import UnmetCondition

JSON: dict[str, Any] = {
    "reached": False,
    "exit_code": 4,
    "seconds": 30.1,
    "engine_running": True,
    "not_yet": [
        {
            "table": "Items",
            "state": "blocked",
            "message": "Items is blocked: … is missing; 1 later file pending",
            "help": "…",
        }
    ],
}


STILL_AT_WORK = "An engine is at work: give it longer (--timeout), or see how far it is: mirror-engine status."


class Goal(str, Enum):
    """What can be waited for."""

    LEVEL = "level"


Until = Annotated[Goal, typer.Option("--until", metavar="level", help="Everything that landed is in the tables.")]
Tables = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="TABLE", help="Only this one; may be given again.", show_default=False),
]
File = Annotated[
    str | None,
    typer.Option(
        "--file",
        metavar="NAME",
        help="Until this file is applied: Items/00000000000000000002.parquet; its number will do.",
        show_default=False,
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0.0, help="How long at most.")]
Every = Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.05, help="Time between two looks.")]
FailFast = Annotated[bool, typer.Option("--fail-fast", help="End with 3 once a table is latched or blocked.")]


@configured(*READING)
def wait(  # noqa: PLR0913 - as many things as a person may say
    root: Root,
    config: Config,
    *,
    until: Until = Goal.LEVEL,  # noqa: ARG001 - the only goal but a file
    table: Tables = None,
    file: File = None,
    timeout: Timeout = 600.0,
    every: Every = 1.0,
    fail_fast: FailFast = False,
    as_json: Json = False,
) -> None:
    """Return once the tables are level.

    Or once a file is applied. An engine must be running meanwhile; this one only looks, and starts no Java. A table
    that is named is waited for even if it is not there yet. After --timeout the reason is told for each table.

    Example: mirror-engine wait ./shop --until level --table Sales.Orders --timeout 60

    Exit codes: 0 reached · 2 wrong usage · 3 a table is latched or blocked, with --fail-fast · 4 not reached in time ·
    130 stopped by Ctrl+C
    """
    started, is_told = time.monotonic(), False
    with Stopping() as stopping, opening.open_mirror(root, config) as mirror, stderr().status("waiting") as shown:
        while True:
            engine_running, not_yet = _look(mirror, file, table or ())
            left = timeout - (time.monotonic() - started)
            if not not_yet or left <= 0 or stopping.stop.is_set() or (fail_fast and _is_hopeless(not_yet)):
                break
            if not (engine_running or is_told):
                stderr().print(line(f"{START_ENGINE}; waiting {timeout:g} s for one"))
                is_told = True
            shown.update(line(f"waiting for {_said(not_yet[0])}"))
            stopping.stop.wait(min(every, left))
    code = exit_codes.SUCCESS
    if not_yet:
        code = stopping.exit_code(
            exit_codes.NEEDS_ATTENTION if fail_fast and _is_hopeless(not_yet) else exit_codes.RETRY
        )
    _tell(code, time.monotonic() - started, not_yet, engine_running=engine_running, as_json=as_json)
    raise typer.Exit(code)


def _look(mirror: Mirror, file: str | None, tables: Sequence[str]) -> tuple[bool, Sequence[UnmetCondition]]:
    """Whether an engine is running, and what is not yet so."""
    from mirror_engine.monitoring.wait_conditions import (  # noqa: PLC0415 - loads the engine
        UnmetCondition,
        file_not_applied,
        tables_not_caught_up,
    )

    schema = mirror.config.delta_default_schema
    try:
        status = mirror.status()
    except TransientError as error:  # the next look may succeed
        return True, [UnmetCondition("", "", error.message, error.help)]
    found = file_not_applied(status, file, tables, schema) if file else tables_not_caught_up(status, tables, schema)
    return status.engine_running, found


def _tell(code: int, seconds: float, not_yet: Sequence[UnmetCondition], *, engine_running: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "reached": not not_yet,
                "exit_code": code,
                "seconds": round(seconds, 3),
                "engine_running": engine_running,
                "not_yet": [found.to_json() for found in not_yet],
            }
        )
    elif not not_yet:
        stdout().print(line(f"reached after {seconds:.1f} s", "green"))
    else:
        engine = "" if engine_running else "; no engine is running"
        stdout().print(line(f"not reached after {seconds:.1f} s{engine}", "bold red"))
        for advice, tables in groupby(not_yet, attrgetter("help")):  # the same help once
            for found in tables:
                stdout().print(Padding(line(_said(found)), (0, 0, 0, 2), expand=False))
            if advice or engine_running:
                stdout().print(bullet("  ->", advice or STILL_AT_WORK))


def _is_hopeless(not_yet: Sequence[UnmetCondition]) -> bool:
    return any(found.needs_attention for found in not_yet)


def _said(found: UnmetCondition) -> str:
    return found.message
