"""Witnesses: tests, fixtures and benchmarks that show a claim; the pages with the source of these tests; the claims."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

from evidence import HOME, evidence, fixtures, functions
from fixture_pages import FIXTURES
from reference import fenced, table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

TESTS = "reference/tests"
CLAIMS = HOME / "docs/claims.toml"
NOT_SHOWN = "not shown: "  # before the reason why nothing here can show a limit
# `tests/engine/test_cycle.py::test_x`, a method's with its class; `…::test_y` is in the file named before it
NODE = re.compile(r"`(tests/[\w/]+\.py|…)((?:::\w+)*)`")
WORK = re.compile(r'^    "(\w+)": ', re.MULTILINE)  # of benchmarks/speed/catalogue.py


@dataclass(frozen=True)
class Claim:
    """A sentence of a page, as it is there, and what shows it."""

    page: str
    quote: str
    witnesses: tuple[str, ...]


@cache
def claims() -> list[Claim]:
    """Every claim of docs/claims.toml, and those of pages that name their witnesses themselves."""
    return [*stated(), *guarantees(), *figures(), *threats()]


@cache
def stated() -> list[Claim]:
    """Every claim of docs/claims.toml."""
    pages = _claims_file()["claims"]
    return [Claim(page, quote, tuple(shown)) for page, quotes in pages.items() for quote, shown in quotes.items()]


def faults() -> list[str]:
    """What is wrong with the claims: no witness or none that exists, words that are not there, an item without one."""
    found = [f"{claim.page}: no witness for {claim.quote!r}" for claim in claims() if not claim.witnesses]
    for claim in claims():
        found += [f"{claim.page}: {each}: {why}" for each in claim.witnesses if (why := missing(each))]
    found += [
        f"{claim.page}: docs/{CLAIMS.name} has words that it does not say: {claim.quote!r}"
        for claim in stated()
        if claim.quote not in plain(_page(claim.page))
    ]
    for page, headings in _claims_file()["lists"].items():
        quotes = [claim.quote for claim in stated() if claim.page == page]
        items = [item for heading in headings for item in items_of(section(_page(page), heading))]
        found += [
            f"{page}: no claim of docs/{CLAIMS.name} is in {item!r}"
            for item in items
            if not any(quote in item for quote in quotes)
        ]
        found += [
            f"{page}: no list below {heading!r}" for heading in headings if not items_of(section(_page(page), heading))
        ]
    return found


def section(markdown: str, heading: str) -> str:
    """What is below a heading up to the next one; what comes before the first one, if it is `""`."""
    parts = re.split(r"^#{2,} (.*)$", markdown, flags=re.MULTILINE)
    return dict(zip(["", *parts[1::2]], parts[::2], strict=True)).get(heading, "")


def items_of(markdown: str) -> list[str]:
    """The items of its lists, and the rows of its tables, in one line each."""
    items = re.findall(r"^- .*(?:\n  .*)*", markdown, re.MULTILINE)
    tables = re.findall(r"^\|.*\n\|[ :|-]+\n((?:\|.*\n?)+)", markdown, re.MULTILINE)
    return [plain(item) for item in [*items, *(row for rows in tables for row in rows.splitlines())]]


def plain(text: str) -> str:
    """A text in one line."""
    return " ".join(text.split())


def guarantees() -> list[Claim]:
    """The guarantees of docs/promises.md: the sentence in italics below each heading."""
    sections = re.split(r"^## \d\. .*\n", _page("docs/promises.md"), flags=re.MULTILINE)[1:]
    quotes = [re.search(r"^\*([^*]+)\*$", section.strip(), re.MULTILINE) for section in sections]
    return [
        Claim("docs/promises.md", " ".join(quote[1].split()) if quote else "", tuple(nodes(section)))
        for quote, section in zip(quotes, sections, strict=True)
    ]


def figures() -> list[Claim]:
    """The figures of docs/promises.md, each with the command that measures it."""
    rows = re.findall(
        r"^\| (.+?) \| (.+) \| `(.+)` \|$", _page("docs/promises.md").partition("## Latest figures")[2], re.MULTILINE
    )
    commands = [re.search(r"make \w+|tests/[\w/]+\.py", command) for _, _, command in rows]
    return [
        Claim("docs/promises.md", f"{what}: {figure}", (command[0],) if command else ())
        for (what, figure, _), command in zip(rows, commands, strict=True)
    ]


def threats() -> list[Claim]:
    """The threats of docs/threat-model.md, and what stops each."""
    rows = re.findall(r"^\| (?!threat)(.+?) \| (.+?) \| (.+) \|$", _page("docs/threat-model.md"), re.MULTILINE)
    return [Claim("docs/threat-model.md", f"{threat}: {stops}", tuple(nodes(shown))) for threat, stops, shown in rows]


def nodes(markdown: str) -> list[str]:
    """The tests that a text names."""
    found, before = [], ""
    for path, name in NODE.findall(markdown):
        before = before if path == "…" else path
        found.append(before + name)
    return list(dict.fromkeys(found))


def missing(witness: str) -> str:
    """Why a witness is none; `""` where it is there."""
    path, *names = witness.split("::")
    if witness.startswith(NOT_SHOWN):
        is_there, what = bool(witness.removeprefix(NOT_SHOWN)), "reason"
    elif witness.startswith("tests/"):
        is_there, what = (HOME / path).is_file(), "file"
        if is_there and names:
            is_there, what = "::".join(names) in sources(path), "test"
    elif witness.startswith("fixtures/"):
        is_there, what = witness.removeprefix("fixtures/") in fixtures(), "fixture"
    elif witness.startswith("LZ-"):
        is_there, what = any(f"{name}.".startswith(f"{witness}.") for name in evidence()), "rule or chapter"
    elif witness.startswith("make bench "):
        known = WORK.findall(_page("benchmarks/speed/catalogue.py"))
        is_there, what = set(witness.split()[2:]) <= {*known}, f"work; there are {', '.join(known)}"
    elif witness.startswith("make "):
        is_there, what = f"\n{witness.split()[1]}: " in _page("Makefile"), "target"
    else:
        is_there = witness.startswith("benchmarks/") and (HOME / witness).is_file()
        what = "test, fixture, rule, `make` target or file of benchmarks/"
    return "" if is_there else f"no such {what}"


@cache
def sources(path: str) -> dict[str, str]:
    """The source of each test of a file, by name; of a class's by `Class::test`."""
    text = _page(path)
    lines, found = text.splitlines(), {}
    for name, node in functions(ast.parse(text)):
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        found[name] = dedent("\n".join(lines[first - 1 : node.end_lineno]))
    return found


@cache
def named() -> dict[str, list[str]]:
    """The tests that rules, claims and pages name, by file."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((HOME / "docs").rglob("*.md"))]
    every = [*(test for found in evidence().values() for test in found.tests), *nodes("\n".join(texts))]
    every += [each for claim in claims() for each in claim.witnesses if each.startswith("tests/")]
    by_file: dict[str, list[str]] = defaultdict(list)
    for path, _, name in (test.partition("::") for test in dict.fromkeys(every)):
        by_file[path] += [name] if name else []
    return dict(by_file)


def test_pages() -> dict[str, str]:
    """A page for each file with a named test, by its path below docs/."""
    return {page_of(path): _test_page(path, names) for path, names in named().items() if (HOME / path).is_file()}


def _test_page(path: str, names: list[str]) -> str:
    known = sources(path)
    parts = [
        "---\nsearch: {exclude: true}\n---",
        f"# {Path(path).name}",
        f"`{path}`. {ast.get_docstring(ast.parse(_page(path))) or ''}",
    ]
    for name in names:
        parts += [f"## {name} {{#{name.replace('::', '.')}}}", fenced("python", known.get(name, ""))]
    if others := [name for name in known if name not in names]:
        parts += ["## Other tests of this file", "\n".join(f"- `{name}`" for name in others)]
    return "\n\n".join(parts) + "\n"


def page_of(path: str) -> str:
    """The page of a test file below docs/."""
    return f"{TESTS}/{path.removeprefix('tests/').removesuffix('.py')}.md"


def target_of_witness(witness: str) -> str:
    """The page and fragment below docs/ that show a witness; `""` where it has none."""
    path, _, name = witness.partition("::")
    if witness.startswith("tests/"):
        return page_of(path) + (f"#{name.replace('::', '.')}" if name else "")
    if witness.startswith("LZ-"):
        return f"reference/rules.md#{witness if '.' in witness else witness.replace('LZ-', 'chapter-')}"
    if witness.startswith("fixtures/"):
        return f"{FIXTURES}/{witness.removeprefix('fixtures/')}.md"
    return "performance.md#side-by-side" if witness.startswith("make bench ") else ""


def claim_list() -> str:
    """Every claim by page, with its witnesses."""
    parts = []
    for page in dict.fromkeys(claim.page for claim in claims()):
        rows = (
            (claim.quote, "<br>".join(witness_link(each) for each in claim.witnesses))
            for claim in claims()
            if claim.page == page
        )
        parts.append(f"## {page}\n\n{table(('claim', 'shown by'), rows)}")
    return "\n\n".join(parts)


def witness_link(witness: str) -> str:
    """A witness as a link from a page in reference/."""
    target = target_of_witness(witness)
    return f"[{words_of(witness)}](../{target})" if target else words_of(witness)


def words_of(witness: str) -> str:
    """A test in plain words, a reason as it is, all else by its name."""
    if witness.startswith(NOT_SHOWN):
        return witness
    name = witness.rpartition("::")[2]
    return f"*{name.removeprefix('test_').replace('_', ' ')}*" if "::" in witness else f"`{witness}`"


@cache
def _claims_file() -> dict[str, Any]:
    claims: dict[str, Any] = tomllib.loads(CLAIMS.read_text(encoding="utf-8"))
    return claims


def _page(path: str) -> str:
    return (HOME / path).read_text(encoding="utf-8")
