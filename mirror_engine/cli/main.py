"""The program `mirror-engine`: its commands, each imported when it is called."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from mirror_engine._version import __version__
from mirror_engine.cli import exit_codes
from mirror_engine.cli.error_handler import run_command
from mirror_engine.cli.options import QUIET, ROOT, VERBOSE, WIDTH, Settings, listed, settings_of, write_sections

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PROGRAM = "mirror-engine"
COMPLETION_VARIABLE = "_MIRROR_ENGINE_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
# by heading and name: the module, and the first line of the command's help
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Replicate": {
        "sync": ("replicate", "Apply all pending change files, then exit."),
        "run": ("replicate", "Apply change files as they arrive, until stopped."),
        "plan": ("trace", "Show what the next sync would do."),
        "wait": ("replicate", "Wait until tables have caught up or a file is applied."),
    },
    "Inspect": {
        "status": ("inspection", "Show the state of every table, and what to do."),
        "tables": ("inspection", "List the Delta tables."),
        "show": ("inspection", "Show a table's rows."),
        "history": ("inspection", "Show a table's commits and their change files."),
        "trace row": ("trace", "Show every change to one key."),
        "trace file": ("trace", "Show what one change file did."),
        "trace what-if": ("trace", "Replay without a file, or in another order."),
        "diff": ("difference", "Compare a table with an expected result."),
    },
    "Check a publisher": {
        "validate": ("validate", "Check a landing zone. Reads only; needs no Java."),
        "explain": ("explain", "Explain a diagnostic code."),
        "emulator start": ("emulator", "Start a local OneLake for your publisher."),
        "emulator stop": ("emulator", "Stop it."),
        "emulator env": ("emulator", "Print the environment that leads a publisher to it."),
        "emulator exec": ("emulator", "Run one command in that environment."),
    },
    "Set up and maintain": {
        "init": ("setup", "Create an example landing zone."),
        "demo": ("setup", "Replicate the example with Spark."),
        "doctor": ("setup", "Check this machine and the Delta tables."),
        "maintain": ("maintain", "Compact and vacuum the Delta tables."),
        "rebuild": ("maintain", "DROP all Delta tables and reload them from the landing zone."),
    },
}
ALL_COMMANDS = tuple(name for group in COMMANDS.values() for name in group)
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": WIDTH}
_GROUPS = {
    "trace": "Show how rows came to be: the changes to a key, the effect of a file, or of another order.",
    "emulator": "Run OneLake, Entra ID and Fabric's REST API on this machine; a publisher keeps its production URLs.",
}


class Commands(click.Group):
    """Commands of which each is imported when it is called.

    Args:
        prefix: of a group of commands: `trace `.
    """

    def __init__(self, name: str, prefix: str = "", **settings: Any) -> None:
        super().__init__(name, context_settings=_CONTEXT, **settings)
        self._prefix = prefix

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order of help."""
        names = (name.removeprefix(self._prefix) for name in ALL_COMMANDS if name.startswith(self._prefix))
        return list(dict.fromkeys(name.partition(" ")[0] for name in names))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by its name; None if there is none."""
        if cmd_name not in self.list_commands(ctx):
            return None
        return _group(cmd_name) if cmd_name in _GROUPS and not self._prefix else _command(self._prefix + cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest command where there is none."""
        from difflib import get_close_matches

        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = get_close_matches(args[0], self.list_commands(ctx), n=1, cutoff=0.5)
            error = click.UsageError(f"no such command: {args[0]}", ctx)
            vars(error)["possibilities"] = near
            raise error
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by heading."""
        sections = [
            (heading, [(name, about) for name, (_, about) in names.items() if name.startswith(self._prefix)])
            for heading, names in COMMANDS.items()
        ]
        write_sections(formatter, [section for section in sections if section[1]])


@cache
def _command(name: str) -> click.Command:
    home = next(names[name][0] for names in COMMANDS.values() if name in names)
    function = name.rpartition(" ")[2].replace("-", "_")
    module = import_module(f"mirror_engine.cli.{home}")
    command: click.Command = getattr(module, function, None) or getattr(module, f"{function}_")  # `exec_`
    return command


@cache
def _group(name: str) -> click.Group:
    return Commands(name, prefix=f"{name} ", help=_GROUPS[name], subcommand_metavar="COMMAND …")


def _start(root_option: Path | None, verbose: int, quiet: int) -> None:
    settings = settings_of(click.get_current_context())
    settings.root, settings.verbosity = root_option, verbose - quiet


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
    codes = listed("Exit codes", [f"{code} {meaning}" for code, meaning in exit_codes.MEANINGS.items()])
    return Commands(
        PROGRAM,
        callback=_start,
        no_args_is_help=False,
        subcommand_metavar="COMMAND …",
        options_metavar="[-C ROOT] [-v|-q]",
        help="Apply a Microsoft Fabric Open Mirroring landing zone to Delta tables, on any machine.\n\n"
        "Options come from flags, MIRROR_ENGINE_* variables and mirror-engine.toml in ROOT, in that order.",
        epilog=codes,
        params=[
            ROOT,
            VERBOSE,
            QUIET,
            click.Option(
                ["--completion"],
                type=click.Choice(SHELLS),
                metavar="|".join(SHELLS),
                expose_value=False,
                is_eager=True,
                callback=_completion,
                help='Print the shell\'s completion script: eval "$(mirror-engine --completion bash)".',
            ),
            click.Option(
                ["--version"],
                is_flag=True,
                expose_value=False,
                is_eager=True,
                callback=_version,
                help="Show the version.",
            ),
        ],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Nothing is raised."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if arguments is None:
        atexit.register(gc.freeze)  # our own process: skip the last garbage collection, exit frees everything
    if instruction := os.environ.get(COMPLETION_VARIABLE):
        from click.shell_completion import shell_complete

        return shell_complete(program(), {}, PROGRAM, COMPLETION_VARIABLE, instruction)
    return run_command(lambda: _run(words), words, command=_name_of(words))


def _run(words: Sequence[str]) -> int:
    """Run one command to its exit code; whatever else ends it comes through, Ctrl+C among it."""
    if not words:
        click.echo(program().get_help(click.Context(program(), info_name=PROGRAM, **_CONTEXT)), err=True)  # type: ignore[arg-type]
        return exit_codes.USAGE
    try:
        with program().make_context(PROGRAM, list(words), obj=Settings(words)) as context:
            program().invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return exit_codes.USAGE
    return exit_codes.SUCCESS


def _name_of(words: Sequence[str]) -> str | None:
    """Name of the command on a command line."""
    for at, word in enumerate(words):
        for name in (" ".join(words[at : at + 2]), word):
            if name in ALL_COMMANDS:
                return name
    return None


if __name__ == "__main__":
    sys.exit(main())
