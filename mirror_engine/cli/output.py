"""Output for people and programs: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from mirror_engine import display

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import Console, RenderableType

    from mirror_engine.results import Result

SCHEMA_VERSION = 1  # of every JSON document


def verbosity() -> int:
    """0; 1 and more with `-v`, -1 and less with `-q`, whether given before or after the command."""
    context = click.get_current_context()
    contexts = {context, context.find_root()}
    return sum(each.params.get("verbose", 0) - each.params.get("quiet", 0) for each in contexts)


def report(found: Result, text: Iterable[RenderableType] | None = None) -> None:
    """Print a command's result: its document with `--json`, otherwise the given text or its own."""
    if wants_json():
        print_json(found.to_json())
        return
    display.print_to(stdout(), found.text() if text is None else text)
    sys.stdout.flush()


def wants_json() -> bool:
    """Whether `--json` was given."""
    return bool(click.get_current_context().params.get("as_json"))


def print_json(document: Mapping[str, Any]) -> None:
    """Print a command's document on one line of stdout: UTF-8, no NaN."""
    command = click.get_current_context().command_path.partition(" ")[2]
    sys.stdout.write(json.dumps(envelope(command, document), ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


def envelope(command: str | None, document: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON document with its schema version and command."""
    return {"schema_version": SCHEMA_VERSION, "command": command, **document}


def note(text: str) -> None:
    """Print a line on stderr."""
    display.print_to(stderr(), [text])


def stdout() -> Console:
    """Console for results."""
    return display.console_of(sys.stdout)


def stderr() -> Console:
    """Console for progress and errors."""
    return display.console_of(sys.stderr)
