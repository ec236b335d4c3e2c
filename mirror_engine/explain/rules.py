"""The protocol's rules by name: `rules.md` carries the sentences of docs/protocol.md that the wheel does not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

RULES_FILE = "rules.md"
_RULE = re.compile(r"- (LZ-\d+\.\d+) (.+)")
_CHAPTER = re.compile(r"## (\d+)\. ")


@dataclass(frozen=True)
class Rule:
    """One rule of the protocol.

    Attributes:
        name: `LZ-4.12`, or `LZ-10` for what a chapter says before its first rule.
        text: its first paragraph, with its mark.
        rows: the lines of its table, as Markdown; mostly none.
    """

    name: str
    text: str
    rows: tuple[str, ...] = ()

    def about(self, code: str) -> str:
        """The rule's text, and of its table the lines that name the diagnostic; all, where none does and it ends so."""
        rows = [row for row in self.rows if code in row]
        if not rows and self.text.endswith(":"):
            rows = [row for row in self.rows if not row.startswith("|---")]
        lines = [" | ".join(row.strip("|").split("|")) for row in rows]
        return "\n".join([self.text, *lines])


@cache
def rules() -> dict[str, Rule]:
    """Every rule that the package carries."""
    return rules_in(files(__package__).joinpath(RULES_FILE).read_text(encoding="utf-8"))


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
        elif line.startswith("|") and name in found:
            found[name].append(line)
        elif line[:1].isalpha() and name and name not in found and not is_sample:
            found[name] = [line]
    return {name: Rule(name, text, tuple(rows)) for name, (text, *rows) in found.items()}


def rules_page(protocol: str) -> str:
    """The text of `rules.md`: the rules of the protocol and nothing else."""
    parts = []
    for rule in rules_in(protocol).values():
        heading = (
            f"- {rule.name} {rule.text}" if "." in rule.name else f"## {rule.name.removeprefix('LZ-')}. \n\n{rule.text}"
        )
        parts.append("\n".join([heading, *rule.rows]))
    return "\n".join(parts) + "\n"
