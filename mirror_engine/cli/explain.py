"""`explain`: the page of a diagnostic: what it means, what to do, an example; and diagnostics by code or name."""

from __future__ import annotations

from difflib import get_close_matches
from textwrap import indent
from typing import TYPE_CHECKING

from mirror_engine.cli.options import argument, command
from mirror_engine.cli.output import STYLES, bullet, grid, line, print_json, stdout
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.diagnostics import CATALOG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from mirror_engine.explain.pages import Explanation, Snippet


def known_code(text: str) -> str:
    """The code that is meant by a code or a name, in any case.

    Raises:
        UsageError: there is none.
    """
    code = text.strip().upper()
    if code in CATALOG:
        return code
    names = {entry.name: entry.code for entry in CATALOG.values()}
    if text.strip().lower() in names:
        return names[text.strip().lower()]
    near = get_close_matches(code, CATALOG, n=1, cutoff=0.5) or get_close_matches(text.lower(), names, n=1)
    help = f"did you mean {near[0]}? " if near else ""
    raise UsageError(f'unknown diagnostic "{text}"', f"{help}mirror-engine explain lists all")


@command(root="own")
@argument("codes", "ME014 or its name, in any case; none: list all.", metavar="CODE", nargs=-1)
def explain(codes: tuple[str, ...], *, as_json: bool) -> None:
    """Explain a diagnostic code.

    What was found, why it matters, what to do, and the protocol's rules behind it. Without a code, all are listed.

    Example: mirror-engine explain ME014

    Exit codes: 0 explained · 2 usage error: no such code
    """
    from mirror_engine.explain.pages import explanation

    chosen = [known_code(code) for code in codes]
    if as_json:
        print_json("explain", {"explanations": [explanation(code).to_json() for code in chosen or CATALOG]})
        return
    for number, code in enumerate(chosen):
        for part in (*(["", ""] if number else ()), *_page(explanation(code))):
            stdout().print(part, crop=False)
    if not chosen:
        table = grid("Code", "Severity", "Name", "About")
        for code, entry in CATALOG.items():
            severity = line(entry.severity.value, STYLES[entry.severity])
            table.add_row(code, severity, entry.name, explanation(code).title)
        stdout().print(table)


def _page(page: Explanation) -> Iterator[RenderableType]:
    from rich.text import Text

    style = STYLES[page.definition.severity]
    yield Text.assemble((page.code, "bold"), f" {page.definition.name}  ", (page.severity, style))
    yield line(page.title)
    yield from _section("Why it matters", line(page.why))
    yield from _section("What to do", line(page.what_to_do))
    yield from _example("Example", page.example)
    yield from _example("Fixed", page.fixed)
    yield from _section("Rules")
    for rule in page.rules:
        first, *rows = rule.about(page.code).splitlines()
        yield bullet(rule.name, first)
        yield from (bullet(" " * len(rule.name), row) for row in rows)


def _example(heading: str, snippet: Snippet) -> Iterator[RenderableType]:
    from rich.text import Text

    yield from _section(f"{heading}: {snippet.title}" if snippet.title else heading)
    # not folded, however narrow the terminal: it is to be pasted
    yield Text(indent(snippet.text, "  "), no_wrap=True, overflow="ignore")


def _section(heading: str, *body: RenderableType) -> Iterator[RenderableType]:
    from rich.padding import Padding

    yield ""
    yield line(heading, "bold")
    for part in body:
        yield Padding(part, (0, 0, 0, 2), expand=False)
