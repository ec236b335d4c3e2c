"""`explain`: the page of a diagnostic, or a rule of the protocol."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click
from msgspec import UNSET, UnsetType

from mirror_engine import display
from mirror_engine.cli import output as out
from mirror_engine.cli.example import Landed, land_example
from mirror_engine.cli.options import command
from mirror_engine.errors import UsageError
from mirror_engine.explain.pages import ExampleBlock, ExplainedCode, RuleText, explanation, rules
from mirror_engine.landing_zone.diagnostics import CATALOG, PAGES
from mirror_engine.results import Result
from mirror_engine.storage.store_url import local_folder

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

MAX_NEAR = 5  # codes that are suggested
_NUMBER = re.compile(r"(?:ME)?0*(\d{1,9})")


class Explanations(Result, frozen=True):
    """Pages of diagnostics, and rules of the protocol.

    Attributes:
        landed: of `--try`
    """

    explanations: Sequence[ExplainedCode]
    rules: Sequence[RuleText]
    landed: Landed | UnsetType = UNSET

    def text(self) -> display.Lines:
        if isinstance(self.landed, Landed):
            yield from self.landed.lines()
            return
        if len(self.explanations) == len(CATALOG):
            yield display.Grid(["Code", "Severity", "Name", "About"], [_row(page) for page in self.explanations])
            return
        for number, rule in enumerate(self.rules):
            first, *rows = rule.text.splitlines()
            yield from [""] if number else []
            yield display.bullet(rule.name, first)
            yield from (f"  {row}" for row in rows)
        for number, page in enumerate(self.explanations):
            yield from ["", ""] if number or self.rules else []
            yield from _page(page)


@command(root="own", result=Explanations)
@click.argument("codes", metavar="[CODE]...", nargs=-1, help="ME014, its name or a rule (LZ-2.7); none: list all.")
@click.option("folder", "--try", metavar="DIR", type=local_folder, help="Land an example of one code in a new folder.")
def explain(codes: tuple[str, ...], folder: Path | None) -> None:
    """Explain a diagnostic code, or a rule of the protocol.

    Shows what a code means, why it matters, what to do, and its rules. For a rule, such as LZ-2.7, shows its text.
    Without a code, lists all codes. With --try, lands files that raise the code in DIR.

    Example: mirror-engine explain ME037 --try ./lab

    Exit codes: 0 explained · 2 usage error: no such code, or DIR is not empty · 4 temporary: the disk is full
    """
    if folder is not None:
        _try(codes, folder)
        return
    named = [rules().get(code.strip().upper()) for code in codes]
    wanted = [known_code(code) for code, rule in zip(codes, named, strict=True) if not rule]
    pages = [explanation(code) for code in (wanted if codes else CATALOG)]
    found = [RuleText(rule.name, rule.whole) for rule in filter(None, named)]
    out.report(Explanations(pages, found))


def _try(codes: Sequence[str], folder: Path) -> None:
    if len(codes) != 1:
        raise UsageError("--try takes one code", "for example: mirror-engine explain ME037 --try ./lab")
    code = known_code(codes[0])
    out.report(Explanations([explanation(code)], [], land_example(code, folder)))


def known_code(text: str) -> str:
    """Return the code for a code or a name, in any case. Raises `UsageError` if there is none."""
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
    """Codes whose pages contain a word before their example, most occurrences first."""
    pages = {code: (PAGES / f"{code}.md").read_text(encoding="utf-8").lower() for code in CATALOG}
    counts = {code: re.split("\n## (?:lands|session)\n", page)[0].count(word) for code, page in pages.items()}
    return sorted(filter(counts.get, counts), key=lambda code: -counts[code]) if word.isalpha() else []


def _row(page: ExplainedCode) -> tuple[RenderableType, ...]:
    severity = display.line(page.severity.value, display.STYLES[page.severity])
    return page.code, severity, page.name, page.title


def _page(page: ExplainedCode) -> display.Lines:
    from rich.text import Text

    usual, strict = page.severity.value, page.severity_strict.value
    severity = usual if usual == strict else f"{usual}, {strict} under strict"
    yield Text.assemble((page.code, "bold"), f" {page.name}  ", (severity, display.STYLES[page.severity]))
    yield page.title
    for heading, text in (("Why it matters", page.why), ("What to do", page.what_to_do)):
        yield from ("", display.line(heading, "bold"), display.indented(text))
    for section in page.example:
        yield from ("", display.line(section.title, "bold"))
        for number, block in enumerate(section.blocks):
            yield from [""] if number else []
            yield from _block(block)
    yield from ("", display.line("Rules", "bold"))
    for rule in page.rules:
        first, *rows = rule.text.splitlines()
        yield display.bullet(rule.name, first)
        yield from (display.bullet(" " * len(rule.name), row) for row in rows)
    if page.lands:
        yield from ("", f"To try it: mirror-engine explain {page.code} --try ./lab")


def _block(block: ExampleBlock) -> display.Lines:
    """A title with the unchanged text below it."""
    if not block.kind:
        yield display.indented(block.text)
        return
    if block.title:
        yield display.line(f"  {block.title}", "cyan")
    indent = "    " if block.title else "  "
    yield from (display.Verbatim(f"{indent}{line}".rstrip()) for line in block.text.splitlines())
