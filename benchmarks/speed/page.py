"""The table in docs/performance.md, between its markers: a work that was not measured anew keeps its line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

WORKS = "bench"
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
    lines = {found[1]: found[0] for found in _LINE.finditer(_parts(page, WORKS)[1])}
    lines |= {title: f"| {' | '.join([title, *cells])} |" for title, cells in measured.items()}
    known = [lines[title] for title in order if title in lines]
    replace(page, WORKS, "\n".join([in_words(machine), "", _HEAD, *known]))


def replace(page: Path, name: str, body: str) -> None:
    """Put text between the markers of a name.

    Raises:
        ValueError: it has not both.
    """
    before, _, after = _parts(page, name)
    begin, end = _markers(name)
    page.write_text(f"{before}{begin}\n{body}\n{end}{after}", encoding="utf-8")


def _parts(page: Path, name: str) -> tuple[str, str, str]:
    """What is before the markers of a name, between them, and after them."""
    begin, end = _markers(name)
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    if not rest.count(end):
        raise ValueError(f"{page}: no markers {begin} and {end}")
    now, _, after = rest.partition(end)
    return before, now, after


def _markers(name: str) -> tuple[str, str]:
    return f"<!-- {name} -->", f"<!-- /{name} -->"


def in_words(machine: Mapping[str, Any]) -> str:
    """The machine in a sentence or two."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"Last run: {machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB,"
        f" {machine['system']}; Java {machine['java']}, Python {machine['python']}, {versions};"
        f" load average {machine['load']} before, {machine['load_after']} after; medians of {machine['rounds']} rounds."
    )
