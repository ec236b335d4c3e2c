"""Prints for people and for programs: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mirror_engine.landing_zone.diagnostics import Severity, printable

WIDTH_OF_A_PIPE = 10_000  # so that every row stays on one line, for grep and its like
# how a diagnostic's severity reads to a person
NAMES = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def stdout() -> Console:
    """For results; colour only on a terminal, and never with NO_COLOR."""
    return _console(is_error=False)


def stderr() -> Console:
    """For progress and errors."""
    return _console(is_error=True)


def _console(*, is_error: bool) -> Console:
    stream = sys.stderr if is_error else sys.stdout
    width = None if stream.isatty() else WIDTH_OF_A_PIPE
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=not stream.isatty())


def print_json(value: object) -> None:
    """One JSON document on one line of stdout, readable by any JSON reader: no NaN, UTF-8."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


def grid(*headings: str) -> Table:
    """A plain table of text; headings that begin with `>` are for numbers."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        is_number = heading.startswith(">")
        made.add_column(heading.removeprefix(">"), justify="right" if is_number else "left", overflow="fold")
    return made


def line(text: str, style: str = "") -> Text:
    """Text that is shown as it is: no markup, no control characters."""
    return Text(printable(text), style=style)


def bullet(mark: str, text: str, style: str = "") -> Table:
    """Indented text behind a mark; what does not fit on the line goes on below its beginning."""
    made = Table.grid(padding=(0, 1, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    made.add_row(line(f"  {mark}", style), line(text, style))
    return made


def moment(text: str | None) -> str:
    """`2026-11-02 08:15:29` of a time as JSON has it; `-` for none."""
    return text[:19].replace("T", " ") if text else "-"
