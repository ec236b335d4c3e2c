"""Links that pages get when the site is built: rules, diagnostics, and files outside of docs/."""

from __future__ import annotations

import re
from posixpath import dirname, normpath, relpath

from evidence import HOME, RULE, evidence
from named_tests import NODE, TESTS, missing, place_of, words_of
from reference import CLI, DIAGNOSTICS, FIXTURES

from mirror_engine.cli.main import ALL_COMMANDS, PROGRAM
from mirror_engine.landing_zone.diagnostics import CATALOG

OVERVIEW = "overview.md"  # README.md
# Files and folders of the repository, which pages link to, and the pages that are made from them
MADE_FROM = {
    "README.md": OVERVIEW,
    "docs/decisions": "decisions/index.md",
    "fixtures": f"{FIXTURES}/index.md",
    "mirror_engine/config.py": "reference/configuration.md",
    "mirror_engine/explain": f"{DIAGNOSTICS}/index.md",
    **{f"mirror_engine/explain/{code}.md": f"{DIAGNOSTICS}/{code}.md" for code in CATALOG},
}
_COMMANDS = {name: f"{CLI}/{name.replace(' ', '-')}.md" for name in ALL_COMMANDS}

# What is left as it is: fenced blocks, code, links, comments and tags, headings; or a name that becomes a link
_PARTS = re.compile(
    r"(?P<kept>^(?P<fence>```+|~~~+).*?^(?P=fence)|`[^`\n]+`|!?\[(?:[^\]\[]|\[[^\]]*\])*\]\([^)]*\)"
    r"|<!--.*?-->|<[^>\n]+>|^#+ .*?$)"
    r"|(?<![\w/.#-])(?P<name>LZ-\d+\.\d+|ME\d{3})(?![\w/-]|\.\d)",
    re.DOTALL | re.MULTILINE,
)
_RELATIVE = re.compile(r"\]\((?!https?:|#)([^)\s]+)")
_LINK = re.compile(r"(!?\[[^\]]*\])\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")


def linked(markdown: str, page: str, source: str = "") -> str:
    """A page in which names of rules, diagnostics, commands and tests are links, and links lead to pages.

    Args:
        markdown: the page.
        page: its path below docs/.
        source: where its links begin, relative to docs/, if that is another place: `../README.md`.
    """
    file = ""  # that the last test named is in

    def link(match: re.Match[str]) -> str:
        nonlocal file
        words = match[0]
        if placed := _LINK.fullmatch(words):
            return _placed(placed, page, source)
        if node := NODE.fullmatch(words):
            file = file if node[1] == "…" else node[1]
            target = "" if missing(file + node[2]) else place_of(file + node[2])
            words = words_of(file + node[2])
        else:
            target = target_of(match["name"]) if match["name"] else _command(match)
        return f"[{words}]({path_to(target, page)})" if target and target != page else match[0]

    return markdown if page.startswith(TESTS) else _PARTS.sub(link, markdown)


def _placed(match: re.Match[str], page: str, source: str) -> str:
    """A link to a file outside of docs/ leads to the page that is made from it, or is text."""
    words, target, fragment = match[1], normpath(f"docs/{dirname(source or page)}/{match[2]}"), match[3] or ""
    path = MADE_FROM.get(target, target.removeprefix("docs/"))
    if path == target:
        text = words.strip("![]")
        return f"`{target}`" if text.strip("`") == target else f"{text} (`{target}`)"
    return f"{words}({path_to(path, page)}{fragment})"


def part_of(source: str, name: str, page: str) -> str:
    """What a page below docs/ has between the comments `name` and `/name`, its links as another page needs them."""
    text = (HOME / "docs" / source).read_text(encoding="utf-8")
    part = text.partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0].strip()
    return _RELATIVE.sub(
        lambda match: f"]({path_to(normpath(f'{dirname(source)}/{match[1]}'.lstrip('/')), page)}", part
    )


def target_of(name: str) -> str:
    """The page and fragment of a rule or code below docs/; `""` where there is none."""
    if RULE.fullmatch(name):
        return f"protocol.md#{name}" if name in evidence() else ""
    return f"{DIAGNOSTICS}/{name}.md" if name in CATALOG else ""


def path_to(target: str, page: str) -> str:
    """The relative path from one page below docs/ to another."""
    return relpath(target, dirname(page) or ".")


def _command(match: re.Match[str]) -> str:
    program, _, name = match[0].strip("`").removesuffix(" --help").partition(" ")
    return _COMMANDS.get(name, "") if program == PROGRAM else ""
