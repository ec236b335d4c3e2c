"""`explain`: the long form of a diagnostic: what it means, why it matters, what to do, an example."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from mirror_engine.cli.codes import known_code
from mirror_engine.cli.options import Json  # noqa: TC001 - typer reads the annotations
from mirror_engine.cli.output import STYLES, bullet, grid, line, print_json, stdout
from mirror_engine.explain.pages import explanation
from mirror_engine.landing_zone.diagnostics import CATALOG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from mirror_engine.explain.pages import Explanation, Snippet

JSON: dict[str, Any] = {
    "explanations": [
        {
            "code": "ME014",
            "name": "conditional-update-column",
            "title": "ConditionalUpdateColumn does nothing",
            "severity": "warning",
            "severity_strict": "error",
            "message": "ignored: `ConditionalUpdateColumn` has no effect",
            "help": "remove it",
            "why": "…",
            "what_to_do": "…",
            "rules": [{"name": "LZ-2.7", "text": "Honour these properties. …"}],
            "example": {"title": "_metadata.json", "language": "json", "text": "{…}"},
            "fixed": {"title": "_metadata.json", "language": "json", "text": "{…}"},
            "related": [],
        }
    ]
}

Codes = Annotated[
    list[str] | None,
    typer.Argument(metavar="CODE", help="ME014, in any case; without one, all are listed.", show_default=False),
]


def explain(codes: Codes = None, *, as_json: Json = False) -> None:
    """Explain a diagnostic, with an example.

    What was found, why it matters, what to do, and the protocol's rules behind it. Without a code, all are listed.

    Example: mirror-engine explain ME014

    Exit codes: 0 explained · 2 wrong usage, no such code
    """
    wanted = [known_code(code) for code in codes or ()]
    if as_json:
        print_json({"explanations": [explanation(code).to_json() for code in wanted or CATALOG]})
    elif wanted:
        stdout().print(_pages(map(explanation, wanted)), crop=False)
    else:
        stdout().print(_overview())


def _overview() -> RenderableType:
    table = grid("Code", "Severity", "What it is about")
    for code, entry in CATALOG.items():
        table.add_row(code, line(entry.severity.value, STYLES[entry.severity]), explanation(code).title)
    return table


def _pages(pages: Iterable[Explanation]) -> RenderableType:
    parts: list[RenderableType] = []
    for page in pages:
        parts += [Text(), Text()] if parts else []
        parts += _page(page)
    return Group(*parts)


def _page(page: Explanation) -> Iterator[RenderableType]:
    yield Text.assemble((page.code, "bold"), "  ", (page.severity, STYLES[page.definition.severity]))
    yield line(page.title)
    yield from _section("Why it matters", line(page.why))
    yield from _section("What to do", line(page.what_to_do))
    yield from _example("Example", page.example)
    yield from _example("Fixed", page.fixed)
    yield from _section("What the protocol says")
    for rule in page.rules:
        first, *rows = rule.about(page.code).splitlines()
        yield bullet(rule.name, first)
        yield from (bullet(" " * len(rule.name), row) for row in rows)


def _example(heading: str, snippet: Snippet) -> Iterator[RenderableType]:
    title = f"{heading}: {snippet.title}" if snippet.title else heading
    yield from _section(title)
    # as it is, however narrow the terminal: an example that is folded cannot be pasted
    yield Text(indent(snippet.text, "  "), no_wrap=True, overflow="ignore")


def _section(heading: str, *body: RenderableType) -> Iterator[RenderableType]:
    yield Text()
    yield line(heading, "bold")
    for part in body:
        yield Padding(part, (0, 0, 0, 2), expand=False)
