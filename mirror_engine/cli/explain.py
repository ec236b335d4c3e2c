"""`explain`: the page of a diagnostic, or a rule of the protocol."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from mirror_engine import display
from mirror_engine.cli import output as out
from mirror_engine.cli.options import (
    FolderType,
    command,
)
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.diagnostics import CATALOG, PAGES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from mirror_engine.explain.pages import Explanation

MAX_NEAR = 5  # codes that are suggested
_NUMBER = re.compile(r"(?:ME)?0*(\d{1,9})")


@command(root="own")
@click.argument("codes", metavar="[CODE]...", nargs=-1, help="ME014, its name or a rule (LZ-2.7); none: list all.")
@click.option("folder", "--try", metavar="DIR", type=FolderType(), help="Land an example of one code in a new folder.")
def explain(codes: tuple[str, ...], folder: Path | None) -> None:
    """Explain a diagnostic code, or a rule of the protocol.

    What was found, why it matters, what to do, and the rules behind it. Without a code, all are listed. Of a rule, such
    as LZ-2.7 in the help of an option: its text. With --try, files that raise the code land in DIR.

    Example: mirror-engine explain ME037 --try ./lab

    Exit codes: 0 explained · 2 usage error: no such code, or DIR is not empty · 4 temporary: the disk is full
    """
    from mirror_engine.explain.pages import explanation, rules

    if folder is not None:
        _try(codes, folder)
        return
    named = [rules().get(code.strip().upper()) for code in codes]
    wanted = [known_code(code) for code, rule in zip(codes, named, strict=True) if not rule]
    pages = [explanation(code) for code in (wanted if codes else CATALOG)]
    text: list[RenderableType] = []
    for rule in filter(None, named):
        text += [*([""] if text else []), display.bullet(rule.name, rule.text), *(f"  {row}" for row in rule.rows)]
    for page in pages if codes else ():
        text += [*(["", ""] if text else []), *_page(page)]
    if not codes:
        rows = [
            (
                page.code,
                display.line(page.definition.severity.value, display.STYLES[page.definition.severity]),
                page.definition.name,
                page.title,
            )
            for page in pages
        ]
        text = [display.Grid(["Code", "Severity", "Name", "About"], rows)]
    found = [{"name": rule.name, "text": "\n".join([rule.text, *rule.rows])} for rule in filter(None, named)]
    out.report({"explanations": [page.to_json() for page in pages], "rules": found}, text)


def _try(codes: Sequence[str], folder: Path) -> None:
    from mirror_engine.cli.example import land_example
    from mirror_engine.explain.pages import explanation

    if len(codes) != 1:
        raise UsageError("--try takes one code", "for example: mirror-engine explain ME037 --try ./lab")
    code = known_code(codes[0])
    landed, text = land_example(code, folder)
    out.report({"explanations": [explanation(code).to_json()], "rules": [], "landed": landed}, text)


def known_code(text: str) -> str:
    """The code that is meant by a code or a name, in any case; raises `UsageError` where there is none."""
    code, name = text.strip().upper(), text.strip().lower()
    if code in CATALOG:
        return code
    names = {entry.name: entry.code for entry in CATALOG.values()}
    if name in names:
        return names[name]
    if (number := _NUMBER.fullmatch(code)) is not None:
        if (padded := f"ME{int(number[1]):03d}") in CATALOG:
            return padded
        raise UsageError(f'unknown diagnostic "{text}"', f"codes are {min(CATALOG)} to {max(CATALOG)}")
    near = [names[each] for each in get_close_matches(name, names, n=1)] or _about(name)
    near = near or get_close_matches(code, CATALOG, n=1, cutoff=0.5)
    found = ", ".join(f"{each} {CATALOG[each].name}" for each in near[:MAX_NEAR])
    help = f"did you mean {found}? " if near else ""
    raise UsageError(f'unknown diagnostic "{text}"', f"{help}mirror-engine explain lists all")


def _about(word: str) -> list[str]:
    """The codes whose pages have a word, those that have it most often first."""
    counts = {code: (PAGES / f"{code}.md").read_text(encoding="utf-8").lower().count(word) for code in CATALOG}
    return sorted(filter(counts.get, counts), key=lambda code: -counts[code]) if word.isalpha() else []


def _page(page: Explanation) -> display.Lines:
    from rich.text import Text

    from mirror_engine.explain.examples import examples

    style = display.STYLES[page.definition.severity]
    yield Text.assemble((page.code, "bold"), f" {page.definition.name}  ", (page.severity, style))
    yield page.title
    for heading, text in (("Why it matters", page.why), ("What to do", page.what_to_do)):
        yield from ("", display.line(heading, "bold"), display.indented(text))
    for heading, snippet in (("Example", page.example), ("Fixed", page.fixed)):
        yield from ("", display.line(f"{heading}: {snippet.title}" if snippet.title else heading, "bold"))
        yield from (display.verbatim(f"  {text}".rstrip()) for text in snippet.text.splitlines())
    yield from ("", display.line("Rules", "bold"))
    for rule in page.rules:
        first, *rows = rule.about(page.code).splitlines()
        yield display.bullet(rule.name, first)
        yield from (display.bullet(" " * len(rule.name), row) for row in rows)
    if page.code in examples():
        yield from ("", f"To try it: mirror-engine explain {page.code} --try ./lab")
