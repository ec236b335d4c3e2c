"""`rules`: every rule of the protocol, for people and programs."""

from __future__ import annotations

from collections.abc import Sequence

from mirror_engine import display
from mirror_engine.cli import output as out
from mirror_engine.cli.options import command
from mirror_engine.explain import pages
from mirror_engine.landing_zone.diagnostics import CATALOG
from mirror_engine.results import Part, Result


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
