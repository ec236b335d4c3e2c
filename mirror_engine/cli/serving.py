"""What `serve` and `env` share: their options, and a server that is opened when the extra `serve` is there."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror_engine.cli.log import Log, LogFormat
from mirror_engine.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.config import Config
    from mirror_engine.onelake.connection import Listening
    from mirror_engine.onelake.middleware import RejectedRequest
    from mirror_engine.onelake.serving import Server, ServerPlan

_EXTRA = ("cryptography", "httptools", "jinja2", "prometheus_client", "starlette", "uvicorn")


class Batches(str, Enum):
    """What happens to batch requests of the Blob dialect."""

    REFUSE = "refuse"
    ACCEPT = "accept"


Store = Annotated[
    Path,
    typer.Argument(metavar="STORE", help="The folder of workspaces and items; made if need be.", show_default=False),
]
WorkspaceName = Annotated[
    str | None,
    typer.Option("--workspace", metavar="NAME", help="Made if missing.  [default: the first]", show_default=False),
]
ItemName = Annotated[
    str | None,
    typer.Option("--item", metavar="NAME", help="Made if missing.  [default: the first]", show_default=False),
]
NoEngine = Annotated[bool, typer.Option("--no-engine", help="The endpoint alone: nothing is applied.")]
Lenient = Annotated[bool, typer.Option("--lenient", help="Let managed folders be made, renamed and deleted.")]
RenameTouches = Annotated[bool, typer.Option("--rename-touches", help="A rename sets LastModified.")]
BlobBatch = Annotated[
    Batches, typer.Option("--blob-batch", metavar="ANSWER", help="refuse, as OneLake does, or accept batch requests.")
]


Faults = Annotated[
    list[str],
    typer.Option(
        "--fault",
        metavar="FAULT",
        default_factory=list,
        help="Play a fault, as 'throttle status=429 path=*/Orders/* nth=3'; may be repeated.",
        show_default=False,
    ),
]
HasControl = Annotated[bool, typer.Option("--control", help="Let faults be switched while it runs.")]


@dataclass(frozen=True)
class Ways:
    """How the endpoint differs from the real service."""

    lenient: bool
    rename_touches: bool
    blob_batch: Batches
    faults: Sequence[str]
    has_control: bool


def plan_of(  # noqa: PLR0913 - one each for what one may want to say
    store: Path,
    config: Config,
    workspace: str | None,
    item: str | None,
    ways: Ways,
    *,
    listening: Listening,
    has_engines: bool,
) -> ServerPlan:
    """What is to be served, from what was said."""
    from mirror_engine.onelake.faults import EmulatorOptions, parse_fault  # noqa: PLC0415 - only when something is served
    from mirror_engine.onelake.serving import ServerPlan  # noqa: PLC0415 - likewise

    faults = [parse_fault(text) for text in ways.faults]
    switches = EmulatorOptions(ways.lenient, ways.rename_touches, ways.blob_batch.value, faults)
    return ServerPlan(store, workspace, item, has_engines, listening, switches, config, has_fault_api=ways.has_control)


def opened(plan: ServerPlan, log: Log) -> Server:
    """The server of a plan; what goes wrong in it, or is refused, is logged."""
    from mirror_engine.onelake.serving import Server  # noqa: PLC0415 - the endpoint takes a moment

    plan.options.on_fault = lambda fault, method, path: log.say(
        "warning", "fault_injected", fault=fault, method=method, path=path
    )
    return Server(
        plan,
        lambda what: log.say("error", "emulator_error", message=what),
        lambda item, event: log.tell(event, mirror=item.path),
        lambda refused: _log_refused(log, refused),
    )


def _log_refused(log: Log, refused: RejectedRequest) -> None:
    name, fields = refused.to_json()
    log.say("warning", name, **fields)


def log_to_stderr(log_format: LogFormat = LogFormat.TEXT) -> Log:
    """Where a server's log goes."""
    return Log(log_format, sys.stderr)


def need_extra() -> None:
    """Refuse to go on without the packages that an endpoint needs.

    Raises:
        UsageError: one of them is missing.
    """
    missing = [name for name in _EXTRA if not _is_there(name)]
    if missing:
        raise UsageError(
            f"{', '.join(missing)}: not installed, and an endpoint needs them",
            "Install the extra: pip install 'mirror-engine[serve]'",
        )


def _is_there(name: str) -> Any:  # noqa: ANN401 - anything or nothing
    try:
        return find_spec(name)
    except ValueError:  # half a package
        return None
