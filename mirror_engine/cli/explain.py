"""`explain` and `rules`: pages of diagnostics, examples to land, and the rules of the protocol."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click
from msgspec import UNSET, UnsetType

from mirror_engine import display
from mirror_engine.cli import output as out
from mirror_engine.cli.options import command
from mirror_engine.cli.setup import writing
from mirror_engine.config import Config, flag_of
from mirror_engine.errors import UsageError
from mirror_engine.explain import pages
from mirror_engine.explain.pages import ExampleBlock, ExplainedCode, RuleText, explanation
from mirror_engine.landing_zone.diagnostics import CATALOG, PAGES
from mirror_engine.results import Part, Result
from mirror_engine.storage.roots import check_place, pasted
from mirror_engine.storage.store_url import local_folder

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

MAX_NEAR = 5  # codes that are suggested
_NUMBER = re.compile(r"(?:ME)?0*(\d{1,9})")


class LandedStage(Part, frozen=True):
    """A stage of an example.

    Attributes:
        removed: paths that were deleted, from ROOT
        files: that landed, from ROOT
    """

    title: str
    removed: Sequence[str]
    files: Sequence[str]


class Landed(Part, frozen=True):
    """What landed of an example; the engine ran after each stage but the last.

    Attributes:
        title: of the example
        options: flags that the commands take
    """

    title: str
    root: str
    options: Sequence[str]
    stages: Sequence[LandedStage]

    def lines(self) -> display.Lines:
        """What landed, and the commands to try."""
        yield from (f"{self.title}.", "")
        for number, stage in enumerate(self.stages):
            yield f"The engine has run. Then {stage.title}:" if number else f"Landed in {self.root}:"
            yield from (f"  deleted {path}" for path in stage.removed)
            yield from (f"  {path}" for path in stage.files)
        at = " ".join([pasted(self.root), *self.options])
        commands = ("sync",) if len(self.stages) > 1 else ("validate", "sync")  # `validate` sees the last stage alone
        yield from ("", "Next:", *(f"  mirror-engine {command} {at}" for command in commands))


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
    named = [pages.rules().get(code.strip().upper()) for code in codes]
    wanted = [known_code(code) for code, rule in zip(codes, named, strict=True) if not rule]
    explained = [explanation(code) for code in (wanted if codes else CATALOG)]
    found = [RuleText(rule.name, rule.whole) for rule in filter(None, named)]
    out.report(Explanations(explained, found))


def _try(codes: Sequence[str], folder: Path) -> None:
    if len(codes) != 1:
        raise UsageError("--try takes one code", "for example: mirror-engine explain ME037 --try ./lab")
    code = known_code(codes[0])
    out.report(Explanations([explanation(code)], [], _land_example(code, folder)))


def _land_example(code: str, root: Path) -> Landed:
    """Land the case of a code in a new ROOT; the engine runs after each of its stages but the last.

    Raises:
        UsageError: its case lands no files, or there is something in the folder.
    """
    from mirror_engine.mirror import Mirror
    from mirror_engine.testing.cases import load

    case = load(code)
    if not case.stages:
        raise UsageError(f"{code} has no example to land", f"to read about it: mirror-engine explain {code}")
    with writing():
        check_place(root)
        if root.exists() and any(root.iterdir()):
            raise UsageError(f"{root} is not empty; nothing was written", "choose a new folder")
        for stage in case.stages[:-1]:
            stage.land(root)
            with Mirror(root, Config(**case.options)) as mirror:
                mirror.sync()
        case.stages[-1].land(root)
    flags = [flag_of(each) if value is True else f"{flag_of(each)} {value}" for each, value in case.options.items()]
    stages = [LandedStage(stage.title, stage.removed, [file.path for file in stage.files]) for stage in case.stages]
    return Landed(case.title, str(root), flags, stages)


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


class ListedRule(Part, frozen=True):
    """A rule of the protocol with its sources and diagnostics.

    Attributes:
        name: `LZ-2.7`
        text: Markdown, with the marks of its sources in brackets
        sources: these marks: `documented BP`, `observed FXD`, `decision: …`
        diagnostics: codes that report what breaks the rule
    """

    name: str
    text: str
    sources: Sequence[str]
    diagnostics: Sequence[str]


class RuleList(Result, frozen=True):
    """The rules of the protocol, in its order."""

    rules: Sequence[ListedRule]

    def text(self) -> display.Lines:
        for rule in self.rules:
            first, *others = rule.text.splitlines()
            yield display.bullet(rule.name, first)
            yield from (display.Verbatim(f"  {line}") for line in others)


@command(root="own", result=RuleList)
def rules() -> None:
    """List the rules of the landing zone.

    Each line is a rule of the protocol with its source: documented by Microsoft, observed on a real tenant, or our own
    decision where nothing is known. With --json, each rule also has the diagnostics that report what breaks it.

    Example: mirror-engine rules --json > rules.json

    Exit codes: 0 listed · 2 usage error: there is no such option
    """
    codes: dict[str, list[str]] = {}
    for code, definition in CATALOG.items():
        for name in definition.rules:
            codes.setdefault(name, []).append(code)
    found = (rule for rule in pages.rules().values() if "." in rule.name)
    out.report(RuleList([ListedRule(rule.name, rule.whole, rule.sources, codes.get(rule.name, [])) for rule in found]))
