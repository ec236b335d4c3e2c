"""The table in docs/performance.md, between its markers: a work that was not measured anew keeps its line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

BEGIN, END = "<!-- bench -->", "<!-- /bench -->"
_HEAD = "| work | seconds, medians | to reach |\n| --- | --- | --- |"
_LINE = re.compile(r"^\| (?!work \||---)(.+?) \|.*\|$", re.MULTILINE)


def write(page: Path, measured: Mapping[str, Sequence[str]], machine: Mapping[str, Any], order: Sequence[str]) -> None:
    """Put lines into the table.

    Args:
        page: the Markdown file; it has both markers.
        measured: the cells of each work measured now, by title.
        machine: what they were measured on.
        order: all titles.

    Raises:
        ValueError: it has not.
    """
    text = page.read_text(encoding="utf-8")
    if not text.partition(BEGIN)[2].count(END):
        raise ValueError(f"{page}: no markers {BEGIN} and {END}")
    before, _, rest = text.partition(BEGIN)
    now, _, after = rest.partition(END)
    lines = {found[1]: found[0] for found in _LINE.finditer(now)}
    lines |= {title: f"| {' | '.join([title, *cells])} |" for title, cells in measured.items()}
    known = [lines[title] for title in order if title in lines]
    body = "\n".join([in_words(machine), "", _HEAD, *known])
    page.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")


def in_words(machine: Mapping[str, Any]) -> str:
    """The machine in a sentence or two."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"Last run: {machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB,"
        f" {machine['system']}; Java {machine['java']}, Python {machine['python']}, {versions};"
        f" load average {machine['load']} before, {machine['load_after']} after; medians of {machine['rounds']} rounds."
    )
