"""Explanations of diagnostics: what one means, what Fabric does, what to do, an example, and the protocol's rules.

To add a code, add `MEnnn.md` in the form of the others: front matter with the fields of `DiagnosticDefinition`, a
paragraph that explains it, then `What to do`, `Example` and `Fixed`, each of the last two one fenced block whose first
line is the language and the name of the file it shows. A `json _metadata.json` example must raise the code, and its
fixed form must not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from mirror_engine.landing_zone.diagnostics import CATALOG, PAGES, Severity, read_page
from mirror_engine.results import Part

if TYPE_CHECKING:
    from typing_extensions import Self

    from mirror_engine.landing_zone.diagnostics import DiagnosticDefinition

_FENCED = r"```(\w+)(?: ([^\n]+))?\n(.+?)\n```"
_BODY = re.compile(
    rf"# (ME\d{{3}}) ([^\n]+)\n\n(.+?)\n\n## What to do\n\n(.+?)\n\n## Example\n\n{_FENCED}\n\n## Fixed\n\n{_FENCED}\n",
    re.DOTALL,
)
_RULE = re.compile(r"- (LZ-\d+\.\d+) (.+)")
_SOURCE = re.compile(r"\[((?:documented|observed|decision)[^\]]*)\]")
_NOTE = "    - "  # below its rule
_CHAPTER = re.compile(r"## (\d+)\. ")


class Rule(NamedTuple):
    """One rule of the protocol; `LZ-10` is what a chapter says before its first rule."""

    name: str
    text: str  # its sentence, with its mark
    notes: tuple[str, ...] = ()  # its details, each with its mark
    rows: tuple[str, ...] = ()  # the lines of its table, as Markdown

    @property
    def whole(self) -> str:
        """The rule with its notes and its table."""
        return "\n".join([self.text, *(f"- {note}" for note in self.notes), *self.rows])

    @property
    def sources(self) -> list[str]:
        """The marks in its text: `documented`, `observed FXD`, `decision: …`."""
        return list(dict.fromkeys(_SOURCE.findall(self.whole)))

    def about(self, code: str) -> str:
        """The sentence, and the notes and table lines that name the diagnostic; all of them if nothing names it."""
        notes = [note for note in self.notes if code in note]
        rows = [row for row in self.rows if code in row]
        if not notes + rows and code not in self.text:
            notes = list(self.notes)
        if not rows and self.text.endswith(":"):
            rows = [row for row in self.rows if not row.startswith("|---")]
        shown = (" | ".join(row.strip("|").split("|")) for row in rows)
        return "\n".join([self.text, *(f"- {note}" for note in notes), *shown])


@cache
def rules() -> dict[str, Rule]:
    """Every rule that the package carries: `rules.md` has the sentences of docs/protocol.md."""
    return rules_in((PAGES / "rules.md").read_text(encoding="utf-8"))


def rules_in(protocol: str) -> dict[str, Rule]:
    """Every rule of a protocol in Markdown, and what each chapter says before its first one."""
    found: dict[str, list[str]] = {}
    name = ""
    is_sample = False
    for line in protocol.splitlines():
        is_sample ^= line.startswith("```")
        if (chapter := _CHAPTER.match(line)) is not None:
            name = f"LZ-{chapter[1]}"
        elif (rule := _RULE.fullmatch(line)) is not None:
            name = rule[1]
            found[name] = [rule[2]]
        elif line.startswith(("|", _NOTE)) and name in found and not is_sample:
            found[name].append(line)
        elif line[:1].isalpha() and name and name not in found and not is_sample:
            found[name] = [line]
    return {name: _rule(name, *lines) for name, lines in found.items()}


def _rule(name: str, text: str, *below: str) -> Rule:
    notes = (line.removeprefix(_NOTE) for line in below if line.startswith(_NOTE))
    return Rule(name, text, tuple(notes), tuple(line for line in below if not line.startswith(_NOTE)))


class Snippet(NamedTuple):
    """An example: its language, the file it shows (`""` for none), its text."""

    language: str
    title: str
    text: str

    def markdown(self, heading: str) -> str:
        """The example as a fenced block below its heading."""
        title = f", `{self.title}`" if self.title else ""
        return f"{heading}{title}:\n\n```{self.language}\n{self.text}\n```"


@dataclass(frozen=True)
class Explanation:
    """The page of one diagnostic; its front matter is the definition."""

    definition: DiagnosticDefinition
    title: str  # a heading in plain words
    why: str  # what it means and what Fabric does
    what_to_do: str  # the help at length
    example: Snippet  # raises it
    fixed: Snippet  # the same without the problem

    @property
    def code(self) -> str:
        return self.definition.code

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(rules()[name] for name in self.definition.rules)

    @property
    def severity(self) -> str:
        """`warning, error under strict`."""
        usual, strict = self.definition.severity.value, self.definition.severity_strict.value
        return usual if usual == strict else f"{usual}, {strict} under strict"

    @property
    def markdown(self) -> str:
        examples = [self.example.markdown("Example"), self.fixed.markdown("Fixed")]
        parts = [self.why, f"**What to do.** {self.what_to_do}", *examples]
        related = ", ".join(self.definition.related)
        return "\n\n".join([*parts, f"Related: {related}."] if related else parts)


class RuleText(Part, frozen=True):
    """A rule of the protocol."""

    name: str
    text: str


class Example(Part, frozen=True):
    """An example.

    Attributes:
        title: the file it shows; empty for none
    """

    language: str
    title: str
    text: str


class ExplainedCode(Part, frozen=True):
    """The page of a diagnostic.

    Attributes:
        title: a heading in plain words
        severity_strict: with `--strict`
        message: with names for its details
        why: what it means and what Fabric does
        what_to_do: the help at length
        example: raises it
        fixed: the same without the problem
        related: codes
    """

    code: str
    name: str
    title: str
    severity: Severity
    severity_strict: Severity
    message: str
    help: str | None
    why: str
    what_to_do: str
    rules: Sequence[RuleText]
    example: Example
    fixed: Example
    related: Sequence[str]

    @classmethod
    def of(cls, page: Explanation) -> Self:
        """Make one of a page."""
        entry = page.definition
        return cls(
            code=page.code,
            name=entry.name,
            title=page.title,
            severity=entry.severity,
            severity_strict=entry.severity_strict,
            message=entry.template,
            help=entry.help or None,
            why=page.why,
            what_to_do=page.what_to_do,
            rules=[RuleText(rule.name, rule.about(page.code)) for rule in page.rules],
            example=Example(*page.example),
            fixed=Example(*page.fixed),
            related=entry.related,
        )


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
    """A page of Markdown as an explanation; raises `ValueError` where it is not in the form of the others."""
    definition, body = read_page(text)
    match = _BODY.fullmatch(body)
    if match is None or not match[1] == definition.code == code:
        raise ValueError(f"{code}.md is not in the form that explain/pages.py describes")
    _, title, why, what_to_do, *snippets = match.groups(default="")
    return Explanation(definition, title, why, what_to_do, Snippet(*snippets[:3]), Snippet(*snippets[3:]))
