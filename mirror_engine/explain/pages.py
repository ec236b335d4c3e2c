"""Explanations of diagnostics: what one means, what Fabric does, what to do, and an example.

To add a code, add `MEnnn.md` in the form of the others: front matter with the fields of `DiagnosticDefinition`, a
paragraph that explains it, then `What to do`, `Example` and `Fixed`, each of the last two one fenced block whose first
line is the language and the name of the file it shows. A `json _metadata.json` example must raise the code, and its
fixed form must not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from mirror_engine.explain.rules import rules
from mirror_engine.landing_zone.diagnostics import CATALOG, PAGES, read_page

if TYPE_CHECKING:
    from mirror_engine.explain.rules import Rule
    from mirror_engine.landing_zone.diagnostics import DiagnosticDefinition

_FENCED = r"```(\w+)(?: ([^\n]+))?\n(.+?)\n```"
_BODY = re.compile(
    rf"# (ME\d{{3}}) ([^\n]+)\n\n(.+?)\n\n## What to do\n\n(.+?)\n\n## Example\n\n{_FENCED}\n\n## Fixed\n\n{_FENCED}\n",
    re.DOTALL,
)


@dataclass(frozen=True)
class Snippet:
    """An example: its language, the file it shows (`""` for none), its text."""

    language: str
    title: str
    text: str

    def markdown(self, heading: str) -> str:
        """The example as a fenced block below its heading."""
        title = f", `{self.title}`" if self.title else ""
        return f"{heading}{title}:\n\n```{self.language}\n{self.text}\n```"

    def to_json(self) -> dict[str, str]:
        """The same as plain values."""
        return {"title": self.title, "language": self.language, "text": self.text}


@dataclass(frozen=True)
class Explanation:
    """The page of one diagnostic.

    Attributes:
        definition: its front matter.
        title: a heading in plain words.
        why: what it means and what Fabric does.
        what_to_do: the help at length.
        example: one that raises it.
        fixed: the same without the problem.
    """

    definition: DiagnosticDefinition
    title: str
    why: str
    what_to_do: str
    example: Snippet
    fixed: Snippet

    @property
    def code(self) -> str:
        """`MEnnn`."""
        return self.definition.code

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The protocol's rules behind it."""
        return tuple(rules()[name] for name in self.definition.rules)

    @property
    def severity(self) -> str:
        """`warning, error under strict`."""
        usual, strict = self.definition.severity.value, self.definition.severity_strict.value
        return usual if usual == strict else f"{usual}, {strict} under strict"

    @property
    def markdown(self) -> str:
        """The page below its heading."""
        related = self.definition.related
        return "\n\n".join(
            [
                self.why,
                f"**What to do.** {self.what_to_do}",
                self.example.markdown("Example"),
                self.fixed.markdown("Fixed"),
                *([f"Related: {', '.join(f'[{code}](#{code.lower()})' for code in related)}."] if related else ()),
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "code": self.code,
            "name": self.definition.name,
            "title": self.title,
            "severity": self.definition.severity.value,
            "severity_strict": self.definition.severity_strict.value,
            "message": self.definition.template,
            "help": self.definition.help or None,
            "why": self.why,
            "what_to_do": self.what_to_do,
            "rules": [{"name": rule.name, "text": rule.about(self.code)} for rule in self.rules],
            "example": self.example.to_json(),
            "fixed": self.fixed.to_json(),
            "related": list(self.definition.related),
        }


@cache
def explanation(code: str) -> Explanation:
    """The page of a code.

    Raises:
        KeyError: the code is unknown.
        ValueError: its page is not in the form of the others.
    """
    _ = CATALOG[code]
    return parse(code, (PAGES / f"{code}.md").read_text(encoding="utf-8"))


def parse(code: str, text: str) -> Explanation:
    """A page of Markdown as an explanation.

    Raises:
        ValueError: it is not in the form of the others.
    """
    definition, body = read_page(text)
    match = _BODY.fullmatch(body)
    if match is None or not match[1] == definition.code == code:
        raise ValueError(f"{code}.md is not in the form that explain/pages.py describes")
    _, title, why, what_to_do, *snippets = match.groups(default="")
    return Explanation(definition, title, why, what_to_do, Snippet(*snippets[:3]), Snippet(*snippets[3:]))
