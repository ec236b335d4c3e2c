"""The program `mirror-engine`: one command a file, and one place where errors end."""

from __future__ import annotations

import sys
from functools import cache
from typing import Annotated

import typer

from mirror_engine.cli import exit_codes
from mirror_engine.cli.demo import demo
from mirror_engine.cli.diff import diff
from mirror_engine.cli.doctor import doctor
from mirror_engine.cli.env import env
from mirror_engine.cli.explain import explain
from mirror_engine.cli.failures import exit_code_of
from mirror_engine.cli.help_text import help_text, leave_out_types, listed
from mirror_engine.cli.history import history
from mirror_engine.cli.init import init
from mirror_engine.cli.maintain import maintain
from mirror_engine.cli.once import once
from mirror_engine.cli.restart import restart
from mirror_engine.cli.run import run
from mirror_engine.cli.serve import serve
from mirror_engine.cli.show import show
from mirror_engine.cli.status import status
from mirror_engine.cli.tables import tables
from mirror_engine.cli.trace import trace
from mirror_engine.cli.validate import validate
from mirror_engine.cli.wait import wait

PROGRAM = "mirror-engine"
COMMANDS = (
    once,
    run,
    status,
    wait,
    tables,
    show,
    history,
    validate,
    diff,
    trace,
    explain,
    serve,
    env,
    init,
    doctor,
    maintain,
    restart,
    demo,
)

app = typer.Typer(
    name=PROGRAM,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=listed("Exit codes", [f"{code} {meaning}" for code, meaning in exit_codes.MEANINGS.items()]),
)
for _command in COMMANDS:
    app.command(_command.__name__, help=help_text(_command.__doc__ or ""))(_command)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - nobody else waits for it

        typer.echo(f"{PROGRAM} {version(PROGRAM)}")
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


@cache
def program() -> typer.core.TyperGroup:
    """All commands with their options, put together once."""
    group = typer.main.get_group(app)
    for command in group.commands.values():
        leave_out_types(command.params)
    return group


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit code. Nothing is raised."""
    words = sys.argv[1:] if arguments is None else arguments
    return exit_code_of(
        lambda: program()(words, prog_name=PROGRAM, standalone_mode=False, obj=tuple(words)),
        as_json="--json" in words,
    )


if __name__ == "__main__":
    sys.exit(main())
