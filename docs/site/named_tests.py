"""The tests that rules and pages name, and the pages with their source."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from textwrap import dedent

from evidence import HOME, evidence, functions
from reference import fenced

from mirror_engine.landing_zone.diagnostics import CATALOG
from mirror_engine.testing.cases import load

TESTS = "reference/tests"
# `tests/engine/test_cycle.py::test_x`, a method's with its class; `…::test_y` is in the file named before it
NODE = re.compile(r"`(tests/[\w/]+\.py|…)((?:::\w+)*)`")


def nodes(markdown: str) -> list[str]:
    """The tests that a text names."""
    found, before = [], ""
    for path, name in NODE.findall(markdown):
        before = before if path == "…" else path
        found.append(before + name)
    return list(dict.fromkeys(found))


def missing(node: str) -> str:
    """Why a test's name leads nowhere; `""` where it is there."""
    path, *names = node.split("::")
    if not (HOME / path).is_file():
        return "no such file"
    return "" if not names or "::".join(names) in sources(path) else "no such test"


@cache
def sources(path: str) -> dict[str, str]:
    """The source of each test of a file, by name; of a class's by `Class::test`."""
    text = (HOME / path).read_text(encoding="utf-8")
    lines, found = text.splitlines(), {}
    for name, node in functions(ast.parse(text)):
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        found[name] = dedent("\n".join(lines[first - 1 : node.end_lineno]))
    return found


@cache
def named() -> dict[str, list[str]]:
    """The tests that rules, diagnostics and pages name, by file."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((HOME / "docs").rglob("*.md"))]
    shown_by = filter(None, (load(code).shown_by for code in CATALOG))
    every = [*(test for found in evidence().values() for test in found.tests), *shown_by, *nodes("\n".join(texts))]
    by_file: dict[str, list[str]] = defaultdict(list)
    for path, _, name in (test.partition("::") for test in dict.fromkeys(every)):
        by_file[path] += [name] if name else []
    return dict(by_file)


def test_pages() -> dict[str, str]:
    """A page for each file with a named test, by its path below docs/."""
    return {page_of(path): _test_page(path, names) for path, names in named().items() if (HOME / path).is_file()}


def _test_page(path: str, names: list[str]) -> str:
    known, text = sources(path), (HOME / path).read_text(encoding="utf-8")
    parts = [
        "---\nsearch: {exclude: true}\n---",
        f"# {Path(path).name}",
        f"`{path}`. {ast.get_docstring(ast.parse(text)) or ''}",
    ]
    for name in names:
        parts += [f"## {name} {{#{name.replace('::', '.')}}}", fenced("python", known.get(name, ""))]
    if others := [name for name in known if name not in names]:
        parts += ["## Other tests of this file", "\n".join(f"- `{name}`" for name in others)]
    return "\n\n".join(parts) + "\n"


def page_of(path: str) -> str:
    """The page of a test file below docs/."""
    return f"{TESTS}/{path.removeprefix('tests/').removesuffix('.py')}.md"


def place_of(node: str) -> str:
    """The page and fragment below docs/ that show a test."""
    path, _, name = node.partition("::")
    return page_of(path) + (f"#{name.replace('::', '.')}" if name else "")


def link_of(node: str) -> str:
    """A test as a link from a page in reference/."""
    return f"[{words_of(node)}](../{place_of(node)})"


def words_of(node: str) -> str:
    """A test in plain words, a file by its name."""
    name = node.rpartition("::")[2]
    return f"*{name.removeprefix('test_').replace('_', ' ')}*" if "::" in node else f"`{node}`"
