"""The program `mirror-engine`: one command a file, and one place where errors end."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

from mirror_engine._version import __version__
from mirror_engine.cli import exit_codes
from mirror_engine.cli.failures import exit_code_of
from mirror_engine.cli.help_text import help_text, leave_out_types, listed
from mirror_engine.cli.plain_values import take_plain_values

PROGRAM = "mirror-engine"
COMMANDS = (
    "once",
    "run",
    "status",
    "wait",
    "tables",
    "show",
    "history",
    "validate",
    "diff",
    "trace",
    "explain",
    "serve",
    "env",
    "init",
    "doctor",
    "maintain",
    "restart",
    "demo",
)

_HELP = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name=PROGRAM,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={**_HELP, "max_content_width": 100},
    epilog=listed("Exit codes", [f"{code} {meaning}" for code, meaning in exit_codes.MEANINGS.items()]),
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")]


@app.callback(invoke_without_command=True)
def _program(context: typer.Context, *, _: Version = False) -> None:
    """A Microsoft Fabric Open Mirroring landing zone becomes Delta tables, on any machine.

    Options come from flags, MIRROR_ENGINE_* variables and mirror-engine.toml in ROOT, in that order.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(exit_codes.USAGE)


class Commands(Mapping[str, Any]):
    """The commands by name, each imported when it is asked for: a run of one does not wait for the others."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - as `_command`
        if name not in COMMANDS:
            raise KeyError(name)
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


@cache
def _command(name: str) -> Any:  # noqa: ANN401 - typer names no public class for it
    call = getattr(import_module(f"mirror_engine.cli.{name}"), name)
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, help=help_text(call.__doc__ or ""))(call)
    made = typer.main.get_command(single)
    leave_out_types(made.params)
    take_plain_values(made, _HELP)
    return made


@cache
def program() -> typer.core.TyperGroup:
    """All commands, put together once."""
    group = typer.main.get_group(app)
    group.commands = Commands()  # type: ignore[assignment]  # it is only read
    take_plain_values(group, _HELP)
    return group


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit code. Nothing is raised."""
    if arguments is None:  # the process is ours: what nobody has closed by then goes with it, unlooked for
        atexit.register(gc.freeze)
    words = sys.argv[1:] if arguments is None else arguments
    return exit_code_of(lambda: _ended(words), as_json="--json" in words)


def _ended(words: list[str]) -> int:
    """Run one command; whatever ends it otherwise than by an exit code comes through, Ctrl+C among it."""
    try:
        with program().make_context(PROGRAM, list(words), obj=tuple(words)) as context:
            program().invoke(context)
    except typer.Exit as end:
        return end.exit_code
    return exit_codes.SUCCESS


if __name__ == "__main__":
    sys.exit(main())
