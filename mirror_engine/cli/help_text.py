"""Lays out a command's docstring as help: its examples and exit codes keep their lines."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

VERBATIM = "\b"  # typer leaves the lines of a paragraph that begins so as they are
SEPARATOR = " · "


def help_text(docstring: str) -> str:
    """The docstring with `Example: …` and `Exit codes: 0 … · 1 …` as blocks of lines."""
    return "\n\n".join(_laid_out(paragraph) for paragraph in inspect.cleandoc(docstring).split("\n\n"))


def leave_out_types(parameters: Iterable[object]) -> None:
    """Show no Python types and ranges such as `<list[Path]>` and `[x>=0.0]`: names and sentences say it."""
    for parameter in parameters:
        vars(parameter)["_get_number_range_help_str"] = str  # which makes ""
        if isinstance(parameter, typer.core.TyperArgument):
            vars(parameter)["display_type_rich"] = lambda ctx: ""  # noqa: ARG005 - typer calls it so


def listed(heading: str, lines: Iterable[str]) -> str:
    """A heading with lines below it; an exit code before each stands in a column of its own."""
    return "\n".join([VERBATIM, f"{heading}:", *(f"  {_aligned(line)}" for line in lines)])


def _laid_out(paragraph: str) -> str:
    text = " ".join(paragraph.split())
    heading, colon, rest = text.partition(": ")
    if colon and heading in {"Example", "Exit codes"}:
        return listed(heading, rest.split(SEPARATOR))
    return text


def _aligned(line: str) -> str:
    code, _, meaning = line.partition(" ")
    return f"{code:<4} {meaning}" if code.isdigit() else line
