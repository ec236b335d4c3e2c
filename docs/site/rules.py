"""The protocol's page with an id for each rule, and the page of their evidence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from evidence import HOME, NO_CASE, NOT_SHOWN, Evidence, evidence
from named_tests import link_of
from reference import facts

from mirror_engine.landing_zone.diagnostics import CATALOG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror_engine.explain.pages import Rule

_SOURCE = re.compile(r"\[([A-Z]+(?:#n)?)\]\((https://[^)]+)\)")
_ITEM = re.compile(r"^- (LZ-\d+\.\d+) (.+)\n((?:    - .+\n)*)", re.MULTILINE)
_MARK = re.compile(r"\[((?:documented|observed|decision)[^\]\n]*)\](?!\()")


def with_ids(protocol: str) -> str:
    """The protocol, in which each rule is one sentence with its id; its notes, sources and evidence are folded."""
    links = sources(protocol)
    folded = _ITEM.sub(_folded, protocol)
    return _MARK.sub(lambda match: f'<span class="mark">{sourced(match[1], links)}</span>', folded)


def _folded(match: re.Match[str]) -> str:
    name, text, notes = match.groups()
    marks = " ".join(f"[{mark}]" for mark in _MARK.findall(text))
    source = [f"    - Source: {marks}"] if marks else []
    below = [*notes.splitlines(), *source, f"    - [Tests and fixtures](reference/rules.md#{name})"]
    sentence = re.sub(r" +(?=:$)", "", _MARK.sub("", text).rstrip())
    return "\n".join(
        [
            f'- <a id="{name}" href="#{name}"><b>{name}</b></a> {re.sub(r"  +", " ", sentence)}',
            "",
            '    ??? details "Details and sources"' if notes else '    ??? details "Source"',
            "",
            *(f"    {line}" for line in below),
            "\n",
        ]
    )


def sources(protocol: str) -> dict[str, str]:
    """The address of each source that the protocol names, by its short name."""
    return dict(_SOURCE.findall(protocol.partition("**Sources.**")[2].partition("\n## ")[0]))


def sourced(mark: str, links: Mapping[str, str]) -> str:
    """A mark whose sources are links: `BP`, and the issue `BC#404`."""

    def link(match: re.Match[str]) -> str:
        name, number = match[1], match[2] or ""
        url = links.get(f"{name}#n" if number else name)
        return f"[{match[0]}]({url}{number.replace('#', '/')})" if url else match[0]

    return re.sub(r"\b([A-Z]{2,})(#\d+)?\b", link, mark)


def rule_list() -> str:
    """Every rule with its source, its diagnostics, its fixtures and its tests."""
    links = sources((HOME / "docs/protocol.md").read_text(encoding="utf-8"))
    parts, chapter = [], ""
    for name, found in evidence().items():
        if name.partition(".")[0] != chapter:
            chapter = name.partition(".")[0]
            parts.append(f"## Chapter {chapter.removeprefix('LZ-')}\n")
        parts.append(f"### {name} {{#{name}}}\n\n{rule_section(found, links)}")
    return "\n".join(parts)


def summary(rule: Rule) -> str:
    """A rule up to the first mark of its source."""
    return re.split(r" \[(?:documented|observed|decision)", rule.text)[0]


def rule_section(found: Evidence, links: Mapping[str, str]) -> str:
    """The text of a rule and its evidence."""
    fixtures = ", ".join(
        f"[{name}]({'diagnostics' if name in CATALOG else 'fixtures'}/{name}.md)" for name in found.fixtures
    )
    shown = {
        "rule": found.rule.name,  # becomes a link to the protocol
        "source": sourced("; ".join(found.rule.sources), links) or "see the rule's text",
        "diagnostics": ", ".join(found.codes),
        "fixtures": fixtures,
        "tests": "<br>".join(map(link_of, found.tests)),
        "no fixture": f"it takes {NO_CASE[found.rule.name]}" if found.rule.name in NO_CASE else "",
        "not shown": NOT_SHOWN.get(found.rule.name, ""),
    }
    return f"{summary(found.rule)}\n\n{facts(shown)}\n"
