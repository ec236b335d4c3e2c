"""Explanations of diagnostics: what one means, what Fabric does, what to do, an example, and the protocol's rules.

The page of a code is a case, too: fixtures/README.md has its form, and tests/test_fixtures.py runs it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from mirror_engine.explain.markdown import parts
from mirror_engine.landing_zone.diagnostics import CATALOG, PAGES, Severity, read_page
from mirror_engine.results import Part

_EXAMPLES = {"Lands", "Session"}  # headings
_NOT_SHOWN = {"undecided"}  # blocks for the test alone
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


class RuleText(Part, frozen=True):
    """A rule of the protocol."""

    name: str
    text: str


class ExampleBlock(Part, frozen=True):
    """A file, a table, or what else an example shows.

    Attributes:
        kind: `json`, `csv`, `rows` (Parquet), `table`, `console`, …; empty for text between blocks
        title: the file or table that it shows; empty for none
    """

    kind: str
    title: str
    text: str

    @property
    def markdown(self) -> str:
        """It as a fenced block below its title."""
        if not self.kind:
            return self.text
        language = self.kind if self.kind in {"json", "console"} else "text"
        title = re.sub("^(.+?)( \\(|$)", r"`\1`\2", self.title) if "/" in self.title else self.title
        return f"{title}:\n\n{_fenced(language, self.text)}" if title else _fenced(language, self.text)


class ExampleSection(Part, frozen=True):
    """What lands in one stage, the result, what lands in the fixed form, or a session."""

    title: str
    blocks: Sequence[ExampleBlock]

    @property
    def markdown(self) -> str:
        """Its blocks below its title."""
        return "\n\n".join([f"## {self.title}", *(block.markdown for block in self.blocks)])


def _fenced(language: str, text: str) -> str:
    fence = "~~~" if "```" in text else "```"
    return f"{fence}{language}\n{text}\n{fence}"


def sections_of(body: str) -> dict[str, ExampleSection]:
    """The sections of a page or case by their headings; the title's is the first.

    Raises:
        ValueError: a block does not end or is of no known form, a heading is there twice, or text is before the title.
    """
    found: dict[str, list[ExampleBlock]] = {}
    for part in parts(body):
        if part.level == "`":
            block = part.block
            if block.kind not in _NOT_SHOWN:
                found[[*found][-1]].append(ExampleBlock(block.kind, block.title, block.text))
        elif part.words in found:
            raise ValueError(f'"{part.words}" is there twice')
        elif part.level:
            found[part.words] = []
        elif found:
            found[[*found][-1]].append(ExampleBlock("", "", part.words))
        else:
            raise ValueError(f"text before the title: {part.words}")
    return {
        heading: ExampleSection("Example" if heading in _EXAMPLES else heading.replace("_", " "), blocks)
        for heading, blocks in found.items()
    }


class ExplainedCode(Part, frozen=True):
    """The page of a diagnostic.

    Attributes:
        title: a heading in plain words
        severity_strict: with `--strict`
        message: with names for its details
        why: what it means and what Fabric does
        what_to_do: the help at length
        example: what raises it, and the same without the problem
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
    example: Sequence[ExampleSection]
    related: Sequence[str]

    @property
    def lands(self) -> bool:
        """Whether `explain --try` can land its example: it is no session."""
        return any(block.kind not in {"", "console"} for section in self.example[:1] for block in section.blocks)

    @property
    def markdown(self) -> str:
        parts = [self.why, f"**What to do.** {self.what_to_do}", *(section.markdown for section in self.example)]
        related = ", ".join(self.related)
        return "\n\n".join([*parts, f"Related: {related}."] if related else parts)


@cache
def explanation(code: str) -> ExplainedCode:
    """The page of a code.

    Raises:
        KeyError: the code is unknown.
        ValueError: its page is not in the form of the others.
    """
    _ = CATALOG[code]
    return parse(code, (PAGES / f"{code}.md").read_text(encoding="utf-8"))


def parse(code: str, text: str) -> ExplainedCode:
    """A page of Markdown as an explanation; raises `ValueError` where it is not in the form of the others."""
    definition, _, body = read_page(text)
    sections = sections_of(body)
    title, *others = sections
    what_to_do = sections.get("What to do")
    if not title.startswith(f"{code} ") or definition.code != code or what_to_do is None:
        raise ValueError(f"{code}.md is not in the form that fixtures/README.md describes")
    why, do = ("\n\n".join(block.text for block in section.blocks) for section in (sections[title], what_to_do))
    return ExplainedCode(
        code=code,
        name=definition.name,
        title=title.removeprefix(f"{code} "),
        severity=definition.severity,
        severity_strict=definition.severity_strict,
        message=definition.template,
        help=definition.help or None,
        why=why,
        what_to_do=do,
        rules=[RuleText(name, rules()[name].about(code)) for name in definition.rules],
        example=[sections[each] for each in others if each != "What to do"],
        related=definition.related,
    )
