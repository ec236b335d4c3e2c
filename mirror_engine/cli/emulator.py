"""`emulator start|stop|env|exec`: OneLake, Entra ID and Fabric's REST API on this machine, with an engine per item."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import fields
from functools import partial, reduce
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mirror_engine import display
from mirror_engine.cli import exits, log
from mirror_engine.cli import output as out
from mirror_engine.cli.options import ALL, DURATION, Choice, Value, command, refuse_given, with_config
from mirror_engine.config import flag_of, read_effective, whole
from mirror_engine.errors import UsageError
from mirror_engine.extras import install_command
from mirror_engine.onelake.connection import (
    ConnectionInfo,
    Listening,
    StateFolder,
    UndoLines,
    running,
    start_detached,
    unfinished,
)
from mirror_engine.onelake.connection import stop as stop_emulator
from mirror_engine.onelake.hosts import MAX_PORT, PassedHost
from mirror_engine.results import Result
from mirror_engine.storage.roots import check_store, pasted
from mirror_engine.storage.store_url import local_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror_engine.config import Config
    from mirror_engine.monitoring.wait_conditions import UnmetCondition
    from mirror_engine.onelake.serving import Server

CHECK_SECONDS = 0.2
SIGNAL_EXIT = 128  # of a command that a signal ended, as shells say it: 128 and the signal's number
_PACKAGES = ("cryptography", "httptools", "prometheus_client", "starlette", "uvicorn")
_STORE = "Folder of workspaces and items"


def _fault(text: str) -> Any:
    from mirror_engine.onelake.faults import parse_fault

    return parse_fault(text)


# of `start` and `exec`, named as in `ServerPlan` and `EmulatorOptions`
_OPTIONS = (
    click.option("--workspace", metavar="NAME", help="Workspace to create or use.  [default: the first one]"),
    click.option("--item", metavar="NAME", help="Mirrored database to create or use.  [default: the first one]"),
    click.option("--storage-only", is_flag=True, help="Only the storage: nothing is replicated."),
    click.option(
        "--on-restart",
        type=Choice(("rebuild", "resume")),
        default="rebuild",
        help="Tables of a stopped item that starts again: rebuild like Fabric, or resume.",
    ),
    click.option(
        "--allow-managed-folder-changes", is_flag=True, help="Let clients create, rename and delete managed folders."
    ),
    click.option("--allow-bare-names", is_flag=True, help="Let paths name an item without its type: Workspace/Mirror."),
    click.option("--rename-updates-mtime", is_flag=True, help="A rename sets Last-Modified."),
    click.option(
        "--blob-batch",
        type=Choice(("reject", "accept")),
        default="reject",
        help="Batch requests of the Blob API: reject like OneLake, or accept.",
    ),
    click.option(
        "--long-running",
        type=Choice(("mixed", "always", "never")),
        default="mixed",
        help="REST calls that may answer 202: every other call, always, or never.",
    ),
    click.option(
        "faults",
        "--inject-fault",
        metavar="FAULT",
        type=_fault,
        multiple=True,
        help="Inject a fault: 'throttle status=429 path=*/Orders/* nth=3' (repeatable).",
    ),
    click.option(
        "--pass-through",
        metavar="HOST",
        type=PassedHost.parse,
        multiple=True,
        help="Let the proxy also connect to HOST[:PORT], '*.DOMAIN' or all (repeatable).",
    ),
    click.option("has_fault_api", "--fault-api", is_flag=True, help="Let clients change faults while it runs."),
)


def _emulator_options(function: Callable[..., Any]) -> Callable[..., Any]:
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), function)


@command(root="own", config=ALL, result=ConnectionInfo)
@click.argument("store", type=local_folder, help=f"{_STORE}; created if missing.")
@_emulator_options
@click.option("address", "--host", metavar="ADDRESS", default="127.0.0.1", help="IP address to listen on.")
@click.option("--allow-remote", is_flag=True, help="Listen on a non-loopback address (requires a token).")
@click.option(
    "--token",
    metavar="TOKEN",
    envvar="MIRROR_ENGINE_TOKEN",
    help="Reject requests without it; env: MIRROR_ENGINE_TOKEN.",
)
@click.option("--token-file", metavar="FILE", type=Path, help="Read the token from a file.")
@click.option(
    "--port",
    type=Value(whole("PORT", 0, MAX_PORT)),
    default=0,
    help="Port of the proxy; HTTP (with the page) and HTTPS take the next two. 0: any three.",
)
@click.option(
    "is_single_port",
    "--single-port",
    is_flag=True,
    help="Use one port for all three. With --allow-remote, others can also use HTTP on it.",
)
@click.option(
    "names",
    "--host-name",
    metavar="NAME",
    multiple=True,
    help="Name under which clients reach this machine, for HTTPS (repeatable).",
)
@click.option("-d", "--detach", is_flag=True, help="Return when it is ready; it keeps running.")
@click.option("--foreground", is_flag=True, help="Do not detach.", hidden=True)
@log.log_options("text", "json")
@with_config
def start(
    store: Path,
    config: Config,
    token_file: Path | None,
    log_format: str,
    log_level: str,
    *,
    detach: bool,
    foreground: bool,
    **served: Any,
) -> int:
    """Start a local OneLake for your publisher.

    Run your publisher with the printed environment variables; its production URLs then reach the emulator. With -q
    they are not printed, because stdout may be a log. Each STORE/WORKSPACE/ITEM is a ROOT for all other commands, and
    an engine applies its change files.

    Example: mirror-engine emulator start ./onelake --workspace Sales --item Orders --detach

    Exit codes: 0 stopped by SIGTERM or emulator stop · 1 missing prerequisite or internal error · 2 usage error · 4
    an emulator is already running for STORE · 130 stopped by Ctrl+C
    """
    _check_packages()
    if token_file:
        refuse_given({"token": "--token"}, "--token-file has another one")
        try:
            served["token"] = token_file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            message = f"--token-file: {token_file} cannot be read: {error}"
            raise UsageError(message, "give a file with one token") from None
    served["listening"] = _listening(served)
    if detach and not foreground:
        check_store(store)
        words = [*click.get_current_context().find_root().obj, "--foreground"]
        info = running(store) or start_detached(store, words, os.environ)
        out.report(info)
        return exits.SUCCESS
    logging.getLogger().addHandler(logging.NullHandler())  # log lines of libraries would break the format
    writer = log.Log(log_format, log.level_of(log_level))
    with exits.Stopping() as stopping, _server(store, config, writer, **served) as server:
        if out.verbosity() >= 0:
            out.report(server.connection)
        stopping.wait()
    return stopping.exit_code(exits.SUCCESS)


class Stopped(Result, frozen=True):
    """Whether an emulator was stopped."""

    store: str
    stopped: bool

    def text(self) -> display.Lines:
        shown = self.store if Path(self.store).name else Path(self.store).resolve()  # "of .." says nothing
        yield f"Stopped the emulator of {shown}." if self.stopped else f"No emulator is running for {shown}."


@command(root="own", result=Stopped)
@click.argument("store", type=local_folder, help=f"{_STORE}.")
def stop(store: Path) -> None:
    """Stop the emulator of STORE, after the current commits.

    Example: mirror-engine emulator stop ./onelake

    Exit codes: 0 stopped, or none was running · 2 usage error · 4 it has not stopped yet
    """
    _check_packages()
    stopped = stop_emulator(store)
    found = Stopped(str(store), stopped is not None)
    if out.wants_json():
        out.report(found)
    else:
        display.print_to(out.stderr(), found.text())
        if stopped and stopped.environment["HTTPS_PROXY"] == os.environ.get("HTTPS_PROXY"):
            undo = f'eval "$(mirror-engine emulator env {pasted(store)} --unset)"'
            out.stderr().print(display.bullet("help:", f"this shell's programs still look for it; undo that: {undo}"))


@command(root="own", result=ConnectionInfo | UndoLines)
@click.argument("store", type=local_folder, help=f"{_STORE}.")
@click.option("--unset", is_flag=True, help="Print lines that unset the variables, even if no emulator runs.")
def env(store: Path, *, unset: bool) -> None:
    """Print the environment variables that point a publisher at the emulator of STORE.

    Prints lines for a shell: eval "$(mirror-engine emulator env ./onelake)"

    Example: mirror-engine emulator env ./onelake

    Exit codes: 0 printed · 2 usage error, or no emulator is running
    """
    _check_packages()
    if unset:
        out.report(UndoLines.of(store, os.environ.get("PATH", "")))
        return
    info = running(store)
    if info is None:
        raise UsageError(
            f"no emulator is running for {store}", f"start one: mirror-engine emulator start {pasted(store)} -d"
        )
    out.report(info, map(display.Verbatim, info.exports()))


@command("exec", root="own", config=ALL)
@click.argument("store", type=local_folder, help=f"{_STORE}; created if missing.")
@click.argument(
    "program", metavar="COMMAND...", nargs=-1, required=True, help="The command and its arguments, after --."
)
@_emulator_options
@click.option(
    "--wait", type=DURATION, help="After COMMAND succeeded, wait at most this long until its files are applied."
)
@with_config
def exec_(store: Path, config: Config, program: tuple[str, ...], wait: float | None, **served: Any) -> int:
    """Run one command in that environment.

    Starts the emulator before the command and stops it afterwards. If one is already running for STORE, uses that one
    and leaves it running. FABRIC_WORKSPACE_ID and FABRIC_MIRRORED_DATABASE_ID tell the command where to publish. The
    engines stop with the emulator: use --wait to apply the last files, or a later sync of STORE/WORKSPACE/ITEM.

    Example: mirror-engine emulator exec ./onelake --wait 120s -- python publish.py

    Exit codes: 0 and others: those of the command · 2 usage error · 3 a table is halted or blocked, with --wait · 4
    timed out · 130 interrupted
    """
    _check_packages()
    if info := running(store):
        _check_options(store, info, config)
        if not info.has_engines:
            refuse_given({"wait": "--wait"}, f"no engine runs: the emulator of {store} was started with --storage-only")
            return _run(program, info.around(os.environ))
        return _run(program, info.around(os.environ)) or _finish(partial(unfinished, store, info), wait)
    with _server(store, config, log.Log(), listening=_listening(served), **served) as server:
        return _run(program, server.connection.around(os.environ)) or _finish(server.unfinished, wait)


def _check_options(store: Path, info: ConnectionInfo, config: Config) -> None:
    """Raise UsageError for a flag that the running emulator lacks; report such a variable or line of a file."""
    context = click.get_current_context()
    of_engines = read_effective(StateFolder(store).options) if info.has_engines else None
    same = {name for name in ALL if of_engines and getattr(config, name) == getattr(of_engines, name)}
    own = {"store", "program", "wait", "verbose", "quiet", *same}
    for option in context.command.params:
        name = option.name or ""
        if name not in own and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{option.opts[-1]}: the emulator of {store} is already running (pid {info.pid}), without it",
                f"leave the option out, or stop that one: mirror-engine emulator stop {pasted(store)}",
            )
    for place in sorted(config.place(name) for name in config.given - same if of_engines):
        out.note(f"{place}: no effect, the emulator of {store} is already running (pid {info.pid}), without it")


def _run(program: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command until it exits. The command handles signals itself."""
    try:
        child = subprocess.Popen(program, env=environment)  # noqa: S603 - what the user asked for
    except OSError as error:
        raise UsageError(f"{program[0]}: {error.strerror}", "give an executable command after --") from None
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),  # a terminal sends it to the command, too
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: child.terminate()),
    }
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: child.send_signal(signal.SIGHUP))
    try:
        code = None
        while code is None:  # a signal that another thread took does not wake this one
            with suppress(subprocess.TimeoutExpired):
                code = child.wait(CHECK_SECONDS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else SIGNAL_EXIT - code


def _finish(unfinished: Callable[[], Sequence[tuple[str, UnmetCondition]]], seconds: float | None) -> int:
    """Wait for the tables after a successful command, or report that they are behind. Returns the exit code."""
    ends = time.monotonic() + (seconds or 0.0)
    with exits.Stopping() as stopping:
        while True:
            behind = unfinished()
            is_final = all(unmet.needs_attention for _, unmet in behind)
            if is_final or time.monotonic() >= ends or stopping.stop.wait(CHECK_SECONDS):
                break
    for path, unmet in behind:
        out.note(f"{path}: {unmet.message}")
    if behind and seconds is not None:
        return stopping.exit_code(exits.NEEDS_ATTENTION if is_final else exits.RETRY)
    if behind:
        out.stderr().print(
            display.bullet("help:", "to wait until tables have caught up: emulator exec --wait DURATION")
        )
    return exits.SUCCESS


def _taken(kind: Any, served: dict[str, Any]) -> dict[str, Any]:
    """Remove the options that are fields of a class from all options, and return them."""
    return {field.name: served.pop(field.name) for field in fields(kind) if field.name in served}


def _listening(served: dict[str, Any]) -> Listening:
    return Listening(**_taken(Listening, served))


def _server(
    store: Path, config: Config, writer: log.Log, *, storage_only: bool, on_restart: str, **served: Any
) -> Server:
    """Make the emulator; its errors, faults and rejected requests are logged."""
    from mirror_engine.onelake.options import EmulatorOptions, ServerPlan
    from mirror_engine.onelake.serving import Server
    from mirror_engine.tables.spark.choice import refuse_idle_options

    def log_fault(fault: str, method: str, path: str) -> None:
        writer.write("warning", "fault_injected", {"fault": fault, "method": method, "path": path})

    if storage_only:
        flags = {name: flag_of(name) for name in ALL} | {"on_restart": "--on-restart", "wait": "--wait"}
        refuse_given(flags, "with --storage-only no engine runs")
    else:
        refuse_idle_options(config, None, store)
    options = EmulatorOptions(on_fault=log_fault, **_taken(EmulatorOptions, served))
    served |= {"has_engines": not storage_only, "resumes": on_restart == "resume", "config": config}
    return Server(
        ServerPlan(store, options=options, **served),
        on_error=lambda message: writer.write("error", "emulator_error", {"message": message}),
        on_event=lambda item, event: writer(event, item.path),
        on_rejected=lambda request: writer.write(*request.record()),
    )


def _check_packages() -> None:
    """Raise UsageError without the packages that the emulator needs."""
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        raise UsageError(f"the emulator needs {', '.join(missing)}", f"install it: {install_command('emulator')}")
