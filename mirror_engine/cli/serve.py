"""`serve`: a OneLake on this machine, with an engine behind every mirrored database."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror_engine.cli import exit_codes
from mirror_engine.cli.log import LogFormat
from mirror_engine.cli.options import ALL, Json, configured
from mirror_engine.cli.output import line, print_json, stderr, stdout
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

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_engine.onelake.connection import ConnectionInfo
    from mirror_engine.onelake.serving import ServerPlan

JSON: dict[str, Any] = {
    "store": "…/store",
    "pid": 4711,
    "workspace": "Workspace",
    "workspace_id": "0b5c…",
    "item": "Mirror",
    "item_id": "6f1e…",
    "environment": {"HTTPS_PROXY": "http://127.0.0.1:41001", "REQUESTS_CA_BUNDLE": "…/bundle.pem"},
    "https": "https://127.0.0.1:41000",
    "http": "http://127.0.0.1:41002",
    "landing_zone": "https://onelake.dfs.fabric.microsoft.com/0b5c…/6f1e…/Files/LandingZone",
    "page": "http://127.0.0.1:41003/",
}

_ENTIRELY_ON_ITS_OWN = {"--background", "--print-env"}

Listen = Annotated[str, typer.Option("--listen", metavar="ADDRESS", help="The IP address to listen on.")]
ListenAnyway = Annotated[bool, typer.Option("--listen-anyway", help="Let others reach it; needs a token.")]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar="MIRROR_ENGINE_TOKEN",
        help="Refuse all requests without it.",
        show_default=False,
    ),
]
Port = Annotated[
    int,
    typer.Option(
        "--port",
        metavar="PORT",
        min=0,
        max=65532,
        help="Of the proxy; http, https and the page take the next three. 0 for any four.",
    ),
]
Background = Annotated[bool, typer.Option("--background", help="Return once it serves; it goes on.")]
PrintEnv = Annotated[bool, typer.Option("--print-env", help="Print the export lines alone, for eval.")]
Stop = Annotated[bool, typer.Option("--stop", help="End the one that serves this STORE.")]
Format = Annotated[LogFormat, typer.Option("--log-format", metavar="FORMAT", help="Of lines on stderr: text or json.")]


@configured(*ALL)
def serve(  # noqa: PLR0913 - one each for what one may want to say
    context: typer.Context,
    root: Store,
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
    listen: Listen = "127.0.0.1",
    listen_anyway: ListenAnyway = False,
    token: Token = None,
    port: Port = 0,
    background: Background = False,
    print_env: PrintEnv = False,
    stop: Stop = False,
    log_format: Format = LogFormat.TEXT,
    as_json: Json = False,
) -> None:
    """Serve a OneLake on this machine.

    Unmodified publishers meet it instead of the real one, in the environment that is printed; an engine mirrors what
    they publish. STORE holds WORKSPACE/ITEM/, each item a ROOT for all other commands.

    For a shell: eval "$(mirror-engine serve STORE --background --print-env)"

    Example: mirror-engine serve ./onelake --workspace Sales --item Orders

    Exit codes: 0 stopped by SIGTERM or --stop · 1 failure · 2 wrong usage · 4 STORE is being served already ·
    130 stopped by Ctrl+C
    """
    need_extra()
    from mirror_engine.onelake.connection import Listening  # noqa: PLC0415 - only when something is served

    if stop:
        _stop(root)
        return
    listening = Listening(listen, token, port, allow_remote=listen_anyway)
    ways = Ways(lenient, rename_touches, blob_batch, fault, control)
    plan = plan_of(root, config, workspace, item, ways, listening=listening, has_engines=not no_engine)
    if background or print_env:
        _tell(_in_background(context, root, starts=background), as_json=as_json, exports_only=print_env)
        return
    raise typer.Exit(_serve(plan, log_format, as_json=as_json))


def _serve(plan: ServerPlan, log_format: LogFormat, *, as_json: bool) -> int:
    """Until told to stop; the exit code."""
    logging.getLogger().addHandler(logging.NullHandler())  # libraries' own words would break the lines
    with Stopping() as stopping, opened(plan, log_to_stderr(log_format)) as server:
        _tell(server.connection, as_json=as_json, exports_only=False)
        stopping.wait()
    return stopping.exit_code(exit_codes.SUCCESS)


def _in_background(context: typer.Context, store: Path, *, starts: bool) -> ConnectionInfo:
    """The one that serves a STORE already, or a new one."""
    from mirror_engine.errors import UsageError  # noqa: PLC0415 - beside its only use
    from mirror_engine.onelake import background  # noqa: PLC0415 - only when something is served

    card = background.running(store)
    if card:
        return card
    if not starts:
        raise UsageError(f"{store}: nobody serves it", "Add --background to start a server.")
    words = [word for word in context.obj if word not in _ENTIRELY_ON_ITS_OWN]
    return background.start(store, words, os.environ)


def _stop(store: Path) -> None:
    from mirror_engine.onelake import background  # noqa: PLC0415 - only when something is served

    ended = background.stop(store)
    stderr().print(line(f"{store}: ended" if ended else f"{store}: nobody serves it"))


def _tell(card: ConnectionInfo, *, as_json: bool, exports_only: bool) -> None:
    if as_json:
        print_json(card.to_json())
        return
    for text in card.exports() if exports_only else card.lines():
        stdout().print(line(text), soft_wrap=True)
    sys.stdout.flush()
