"""The program `mirror-engine`: its commands, each imported when it is called."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import click

from mirror_engine._version import __version__
from mirror_engine.cli import exits
from mirror_engine.cli.options import CONTEXT, QUIET, ROOT, VERBOSE, Choice, listed, write_sections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.cli.options import Command

PROGRAM = "mirror-engine"
COMPLETION_VARIABLE = "_MIRROR_ENGINE_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
# by heading and name: the module, and the first line of the command's help
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Replicate": {
        "sync": ("replicate", "Apply all pending change files, then exit."),
        "run": ("replicate", "Apply change files as they arrive, until stopped."),
        "plan": ("plan", "Show what the next sync would do."),
        "wait": ("replicate", "Wait until tables have caught up or a file is applied."),
    },
    "Inspect": {
        "status": ("inspection", "Show the state of every table, and what to do."),
        "show": ("inspection", "Show a table's rows."),
        "history": ("inspection", "Show a table's commits and their change files."),
        "trace row": ("trace", "Show every change to one key."),
        "trace file": ("trace", "Show what one change file did."),
        "trace what-if": ("trace", "Replay without a file, or in another order."),
        "diff": ("inspection", "Compare a table with an expected result, or with its source's keys."),
        "compare": ("compare", "Compare Fabric's tables with a replay of their landing zone."),
        "pull": ("pull", "Copy a landing zone to this machine."),
    },
    "Check a publisher": {
        "validate": ("validate", "Check a landing zone. Reads only; needs no Java."),
        "generate": ("generate", "Land tables of a shop, then changes at a steady pace."),
        "explain": ("explain", "Explain a diagnostic code."),
        "rules": ("explain", "List the rules of the landing zone."),
        "schema": ("schema", "Print a JSON schema, for editors and programs."),
        "emulator start": ("emulator", "Start a local OneLake for your publisher."),
        "emulator stop": ("emulator", "Stop it."),
        "emulator env": ("emulator", "Print the environment variables that point a publisher at it."),
        "emulator exec": ("emulator", "Run one command in that environment."),
    },
    "Set up and maintain": {
        "init": ("setup", "Create an example landing zone."),
        "doctor": ("setup", "Check this machine and the Delta tables."),
        "maintain": ("maintain", "Compact and vacuum the Delta tables."),
        "rebuild": ("maintain", "DROP Delta tables and reload them from the landing zone."),
    },
}
_MODULES = {name: module for group in COMMANDS.values() for name, (module, _) in group.items()}
ALL_COMMANDS = tuple(_MODULES)
_GROUPS = {
    "trace": "Explain rows: the changes to a key, the effect of a file, or of another order.",
    "emulator": "Run OneLake, Entra ID and Fabric's REST API on this machine; a publisher keeps its production URLs.",
}


class Commands(click.Group):
    """Commands, each imported when it is called. Commands of a group have a `prefix` in `COMMANDS`."""

    def __init__(self, name: str, prefix: str = "", **settings: Any) -> None:
        super().__init__(name, context_settings=CONTEXT, subcommand_metavar="COMMAND …", **settings)
        self._prefix = prefix
        self.commands = dict.fromkeys(self.list_commands(click.Context(self)), self)  # names, to suggest the nearest

    def list_commands(self, ctx: click.Context) -> list[str]:
        names = (name.removeprefix(self._prefix) for name in ALL_COMMANDS if name.startswith(self._prefix))
        return list(dict.fromkeys(name.partition(" ")[0] for name in names))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = self._prefix + cmd_name
        if name in _GROUPS:
            return Commands(name, f"{name} ", help=_GROUPS[name])
        if name not in ALL_COMMANDS:
            return None
        return command_named(name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = (
            (heading, [(name, about) for name, (_, about) in names.items() if name.startswith(self._prefix)])
            for heading, names in COMMANDS.items()
        )
        write_sections(formatter, [section for section in sections if section[1]])


def command_named(name: str) -> Command:
    """Import a command by its name in `ALL_COMMANDS`."""
    module, attribute = import_module(f"mirror_engine.cli.{_MODULES[name]}"), name.rpartition(" ")[2].replace("-", "_")
    found: Command = getattr(module, "exec_" if attribute == "exec" else attribute)
    return found


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click calls it so
    if wanted:
        click.echo(f"{PROGRAM} {__version__}")
        context.exit()


def _completion(context: click.Context, _: click.Parameter, shell: str | None) -> None:
    from click.shell_completion import get_completion_class

    if shell and (script := get_completion_class(shell)):
        click.echo(script(program(), {}, PROGRAM, COMPLETION_VARIABLE).source())
        context.exit()


@cache
def program() -> click.Group:
    """All commands."""
    completion = 'Print the shell\'s completion script: eval "$(mirror-engine --completion bash)".'
    eager: dict[str, Any] = {"expose_value": False, "is_eager": True}
    return Commands(
        PROGRAM,
        callback=lambda **_: None,  # commands read its options from the context
        options_metavar="[-C ROOT] [-v|-q]",
        help="Apply a Microsoft Fabric Open Mirroring landing zone to Delta tables, on any machine.\n\n"
        "Options come from flags, MIRROR_ENGINE_* variables and mirror-engine.toml in ROOT, in that order.",
        epilog=listed("Exit codes", [f"{code} {meaning}" for code, meaning in exits.MEANINGS.items()]),
        params=[
            ROOT,
            VERBOSE,
            QUIET,
            click.Option(["--completion"], type=Choice(SHELLS), callback=_completion, help=completion, **eager),
            click.Option(["--version"], is_flag=True, callback=_version, help="Show the version.", **eager),
        ],
    )


def _prepare_process() -> None:
    """Prepare a process of our own: replace closed streams, keep pandas out, and collect less garbage."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # no other file may get its number
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - until we exit
    sys.meta_path.insert(0, cast("Any", SimpleNamespace(find_spec=_refuse_pandas)))
    gc.set_threshold(50_000)  # new objects: most commands end soon
    atexit.register(gc.freeze)  # skips the last collection: the exit frees everything


def _refuse_pandas(name: str, *_: object) -> None:
    """Let Arrow and PySpark work without pandas. They import it if it is installed: 0.3 s or more, never used here."""
    if name == "pandas":
        raise ModuleNotFoundError(name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Nothing is raised."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if arguments is None:
        _prepare_process()
    if instruction := os.environ.get(COMPLETION_VARIABLE):
        from click.shell_completion import shell_complete

        return shell_complete(program(), {}, PROGRAM, COMPLETION_VARIABLE, instruction)
    pairs = zip(words, [*words, ""][1:], strict=True)
    names = (name for first, second in pairs for name in (f"{first} {second}", first) if name in ALL_COMMANDS)
    return exits.run_command(lambda: _run(words), words, next(names, None))


def _run(words: list[str]) -> int:
    """Run one command and return its exit code. Other exceptions propagate, Ctrl+C included."""
    try:
        with program().make_context(PROGRAM, words.copy(), obj=words) as context:
            return program().invoke(context) or exits.SUCCESS
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return exits.USAGE


if __name__ == "__main__":
    sys.exit(main())
