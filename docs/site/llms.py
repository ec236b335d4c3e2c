"""`llms.txt`: the site for language models, made of the navigation and the rules (https://llmstxt.org)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from evidence import HOME, RULE
from reference import CLI
from rules import summary

from mirror_engine.cli.main import COMMANDS
from mirror_engine.explain.pages import rules_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page

START = """\
To write a publisher: follow the rules below, check what you wrote with `mirror-engine validate FOLDER --json`, and look
a finding up with `mirror-engine explain CODE --json`. `mirror-engine rules --json` prints the rules in full,
`mirror-engine schema metadata` the JSON schema of `_metadata.json`, and `mirror-engine schema COMMAND` that of a
command's JSON."""
LAST = "Decisions"  # its pages are of use to those who change mirror-engine only
_ABOUT = {name.replace(" ", "-"): about for group in COMMANDS.values() for name, (_, about) in group.items()}
_LINK = re.compile(r"!?\[((?:[^\]\[]|\[[^\]]*\])*)\]\([^)]*\)(?:\{[^}]*\})?")


def llms(nav: Navigation, config: MkDocsConfig) -> str:
    """The whole file: what the program is, the rules, then every page by its tab of the navigation."""
    parts = [f"# {config.site_name}", f"> {config.site_description}", START, _rules()]
    last = [page for page in nav.pages if _tab(page)[1] == LAST]
    for tab in dict.fromkeys(_tab(page)[0] for page in nav.pages):
        pages = [page for page in nav.pages if _tab(page)[0] == tab and page not in last]
        parts.append("\n".join([f"## {tab}\n", *map(_line, pages)]))
    parts.append("\n".join(["## Optional\n", *map(_line, last)]))
    return "\n\n".join(parts) + "\n"


def _rules() -> str:
    protocol = (HOME / "docs/protocol.md").read_text(encoding="utf-8")
    rules = (rule for rule in rules_in(protocol).values() if RULE.fullmatch(rule.name))
    lines = (f"- [{rule.name}](protocol.html#{rule.name}): {_plain(summary(rule))}" for rule in rules)
    return "\n".join(["## Rules of the landing zone\n", *lines])


def _tab(page: Page) -> tuple[str, str]:
    """The titles of the outermost section of a page, and of the innermost."""
    titles = [each.title or "" for each in page.ancestors]
    return (titles[-1], titles[0]) if titles else ("Home", "")


def _line(page: Page) -> str:
    name = page.file.src_uri.removeprefix(f"{CLI}/").removesuffix(".md")
    about = _ABOUT.get(name) or next(_paragraphs(page.markdown or ""), "")
    return f"- [{page.title}]({page.url})" + (f": {about}" if about else "")


def _paragraphs(markdown: str) -> Iterator[str]:
    """The first sentence of each paragraph, as plain text."""
    text = re.sub(r"^```.*?^```|<!--.*?-->|^\*\*Question\.\*\*", "", markdown, flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\s*\n", text):
        if re.match(r"\**[A-Za-z`\[]", block.strip()):
            yield re.split(r"(?<=[a-z)`*]\.) |:$", _plain(" ".join(block.split())))[0]


def _plain(text: str) -> str:
    """Markdown without links and bold type."""
    return _LINK.sub(r"\1", text).replace("**", "")
