"""One diagnostic explained: what it means, what the service does with it, what to do, and an example.

To explain a new code, add `MEnnn.md` beside this file, in the form of the others: a paragraph on why it matters,
then `What to do`, `Wrong` and `Right`, each of the last two one fenced block whose first line is the language and
the name of the file it shows. A block `json _metadata.json` must raise the code, and its right form must not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from mirror_engine.explain.rules import rules
from mirror_engine.landing_zone.register import CATALOG

if TYPE_CHECKING:
    from mirror_engine.explain.rules import Rule
    from mirror_engine.landing_zone.register import DiagnosticDefinition

_FENCED = r"```(\w+)(?: ([^\n]+))?\n(.+?)\n```"
_PAGE = re.compile(
    rf"# (ME\d{{3}}) ([^\n]+)\n\n(.+?)\n\n## What to do\n\n(.+?)\n\n## Wrong\n\n{_FENCED}\n\n## Right\n\n{_FENCED}\n",
    re.DOTALL,
)


@dataclass(frozen=True)
class Snippet:
    """An example: its language, the file it shows (`""` for none), its text."""

    language: str
    title: str
    text: str

    def markdown(self, heading: str) -> str:
        """The example below a line that says what it is."""
        title = f", `{self.title}`" if self.title else ""
        return f"{heading}{title}:\n\n```{self.language}\n{self.text}\n```"

    def to_json(self) -> dict[str, str]:
        """The same as plain values."""
        return {"title": self.title, "language": self.language, "text": self.text}


@dataclass(frozen=True)
class Explanation:
    """The long form of one line of the register.

    Attributes:
        code: `MEnnn`.
        title: what it is about, in plain words.
        why: what it means and what the service does with it.
        advice: what to do, at length.
        wrong: an example that raises it.
        right: the same, as it should be.
    """

    code: str
    title: str
    why: str
    advice: str
    wrong: Snippet
    right: Snippet

    @property
    def line(self) -> DiagnosticDefinition:
        """Its line of the register."""
        return CATALOG[self.code]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The protocol's rules behind it."""
        return tuple(rules()[name] for name in self.line.rules)

    @property
    def severity(self) -> str:
        """`warning, error under strict`."""
        usual, strict = self.line.severity.value, self.line.strict.value
        return usual if usual == strict else f"{usual}, {strict} under strict"

    @property
    def markdown(self) -> str:
        """Why it matters, what to do and the example, to stand below a heading."""
        parts = (self.why, f"**What to do.** {self.advice}", self.wrong.markdown("Wrong"), self.right.markdown("Right"))
        return "\n\n".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "code": self.code,
            "title": self.title,
            "severity": self.line.severity.value,
            "severity_strict": self.line.strict.value,
            "text": self.line.wording,
            "remedy": self.line.remedy,
            "why": self.why,
            "advice": self.advice,
            "rules": [{"name": rule.name, "text": rule.about(self.code)} for rule in self.rules],
            "wrong": self.wrong.to_json(),
            "right": self.right.to_json(),
        }


@cache
def explanation(code: str) -> Explanation:
    """The long form of a code of the register.

    Raises:
        KeyError: the register knows no such code.
        ValueError: its page is not in the form of the others.
    """
    if code not in CATALOG:
        raise KeyError(code)
    return read_page(code, files(__package__).joinpath(f"{code}.md").read_text(encoding="utf-8"))


def read_page(code: str, text: str) -> Explanation:
    """A page of Markdown as an explanation.

    Raises:
        ValueError: it is not in the form of the others.
    """
    match = _PAGE.fullmatch(text)
    if match is None or match[1] != code:
        raise ValueError(f"{code}.md is not in the form that explain/pages.py describes")
    _, title, why, advice, *snippets = match.groups(default="")
    wrong, right = Snippet(*snippets[:3]), Snippet(*snippets[3:])
    return Explanation(code, title, why, advice, wrong, right)
