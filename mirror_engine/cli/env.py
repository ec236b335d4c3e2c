"""`env`: one command in a publisher's environment, and the server with it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror_engine.cli import exit_codes
from mirror_engine.cli.options import ALL, Json, configured
from mirror_engine.cli.output import bullet, line, stderr
from mirror_engine.cli.serving import (
    Batches,
    BlobBatch,
    Faults,
    HasControl,
    ItemName,
    Lenient,
    NoEngine,
    RenameTouches,
    Store,
    Ways,
    WorkspaceName,
    log_to_stderr,
    need_extra,
    opened,
    plan_of,
)
from mirror_engine.cli.signals import Stopping
from mirror_engine.config import Config
from mirror_engine.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror_engine.onelake.serving import Server

JSON: dict[str, Any] = {"error": {"kind": "UsageError", "message": "…", "help": "…", "exit_code": 2}}

LOOK_SECONDS = 0.2
ENDED_BY_SIGNAL = 128  # a shell's way to say so: 128 and the signal's number

Command = Annotated[
    list[str], typer.Argument(metavar="COMMAND", help="What is run, with its arguments.", show_default=False)
]


Wait = Annotated[
    float | None,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0.0,
        help="Once COMMAND has succeeded, until all that landed is in the tables; at most so long.",
        show_default=False,
    ),
]


@configured(*ALL)
def env(  # noqa: PLR0913 - one each for what one may want to say
    root: Store,
    command: Command,
    config: Config,
    *,
    workspace: WorkspaceName = None,
    item: ItemName = None,
    no_engine: NoEngine = False,
    lenient: Lenient = False,
    rename_touches: RenameTouches = False,
    blob_batch: BlobBatch = Batches.REFUSE,
    fault: Faults,
    control: HasControl = False,
    wait: Wait = None,
    as_json: Json = False,  # noqa: ARG001 - of errors; stdout belongs to the command
) -> None:
    """Run one command that meets a OneLake on this machine.

    The server of `serve` starts before it and ends with it. FABRIC_WORKSPACE_ID and FABRIC_MIRRORED_DATABASE_ID
    tell it where to publish. The engines end with it, too: what landed last is in the tables only with --wait, or
    after another engine has run on STORE/WORKSPACE/ITEM.

    Example: mirror-engine env ./onelake --wait 120 -- python publish.py

    Exit codes: 0 the command's own, as all others · 2 wrong usage · 3 with --wait, a table is latched or blocked ·
    4 not level in time, or STORE is being served already · 130 stopped by Ctrl+C
    """
    need_extra()
    from mirror_engine.onelake.connection import Listening  # noqa: PLC0415 - only when something is served

    ways = Ways(lenient, rename_touches, blob_batch, fault, control)
    plan = plan_of(root, config, workspace, item, ways, listening=Listening(), has_engines=not no_engine)
    with opened(plan, log_to_stderr()) as server:
        code = _run(command, server.connection.around(os.environ)) or _finish(server, wait)
    raise typer.Exit(code)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run to its end; signals are the command's own affair."""
    try:
        child = subprocess.Popen(command, env=environment)  # noqa: S603 - what the user asked for
    except OSError as error:
        raise UsageError(f"{command[0]}: {error.strerror}", "Give a command that can be run, after --.") from None
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),  # a terminal sends it to the command, too
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: child.terminate()),
    }
    try:
        code = _ended(child)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else ENDED_BY_SIGNAL - code


def _ended(child: subprocess.Popen[bytes]) -> int:
    """Its exit code; looks up now and then, as a signal that another thread took does not wake this one."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            return child.wait(LOOK_SECONDS)


def _finish(server: Server, seconds: float | None) -> int:
    """After a command that succeeded: wait for the tables, or say that they are behind; the exit code."""
    ends = time.monotonic() + (seconds or 0.0)
    with Stopping() as stopping:
        while True:
            behind = server.unfinished()
            is_over = all(each.needs_attention for _, each in behind)
            if is_over or time.monotonic() >= ends or stopping.stop.wait(LOOK_SECONDS):
                break
    for item, each in behind:
        stderr().print(line(f"{item.path}: {each.message}"))
    if seconds is None:
        if behind:
            stderr().print(bullet("->", "To end only when the tables are level: env --wait SECONDS"))
        return exit_codes.SUCCESS
    return stopping.exit_code(
        (exit_codes.NEEDS_ATTENTION if is_over else exit_codes.RETRY) if behind else exit_codes.SUCCESS
    )
