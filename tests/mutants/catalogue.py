"""Reads the mutants: one-line bugs, each with the tests that must notice it."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HOME = Path(__file__).parents[2]
LISTS = Path(__file__).parent / "bugs"


class Stale(Exception):
    """A mutant no longer fits the code."""


@dataclass(frozen=True)
class Mutant:
    """One bug.

    Attributes:
        name: the bug in a sentence.
        file: the module it is in, from the package's folder.
        before: code that occurs once in its place, with any white space between its words.
        after: the same code with the bug.
        caught_by: test files or tests, one of which must fail.
        inside: the function or class that contains the code, such as `_due` or `Janitor._due`; empty for the module.
        spark: whether only tests with Spark can notice it.
        area: the part of the engine, which is the name of the list the mutant stands in.
    """

    name: str
    file: str
    before: str
    after: str
    caught_by: tuple[str, ...]
    area: str
    inside: str = ""
    spark: bool = False

    def applied_to(self, module: str) -> str:
        """Return the module's text with the bug.

        Raises:
            Stale: the code to replace does not occur exactly once in its place.
        """
        start, end = _span(module, self.inside)
        found = list(_pattern(self.before).finditer(module, start, end))
        if len(found) != 1:
            raise Stale(f"{self.inside or self.file} contains its code {len(found)} times")
        return module[: found[0].start()] + self.after + module[found[0].end() :]

    def check(self) -> None:
        """Check that the mutant fits the code and the tests of today.

        Raises:
            Stale: its module, its code or one of its tests no longer exists, or what it makes is no Python.
        """
        try:
            ast.parse(self.applied_to(_text_of(f"mirror_engine/{self.file}")))
        except SyntaxError:
            raise Stale(f"{self.file} is no Python with it") from None
        for test in self.caught_by:
            path, _, function = test.partition("::")
            if not re.search(rf"^ *def {function or r'test_[a-z0-9_]+'}\(", _text_of(path), re.MULTILINE):
                raise Stale(f"{test} is gone")


def _pattern(code: str) -> re.Pattern[str]:
    words = r"\s+".join(map(re.escape, code.split()))
    return re.compile(rf"{_edge(code[0])}{words}{_edge(code[-1])}")


def _edge(character: str) -> str:
    return r"\b" if re.match(r"\w", character) else ""


def _span(module: str, name: str) -> tuple[int, int]:
    """Where a function or class begins and ends, in characters; without a name the whole module."""
    if not name:
        return 0, len(module)
    spans = [span for known, span in scopes(module) if f".{known}".endswith(f".{name}")]
    if len(spans) != 1:
        raise Stale(f"{len(spans)} functions or classes are called {name}")
    return spans[0]


def scopes(module: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each function and class by its qualified name, with the characters of its lines."""
    starts = [0, *(newline.end() for newline in re.finditer("\n", module)), len(module)]

    def below(node: ast.AST, prefix: str) -> Iterator[tuple[str, tuple[int, int]]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield f"{prefix}{child.name}", (starts[child.lineno - 1], starts[child.end_lineno or 0])
                yield from below(child, f"{prefix}{child.name}.")
            else:
                yield from below(child, prefix)

    return below(ast.parse(module), "")


def _text_of(path: str) -> str:
    try:
        return (HOME / path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Stale(f"{path} is gone") from None


def catalogue() -> list[Mutant]:
    """All mutants, area by area."""
    return [
        Mutant(area=path.stem, **{**bug, "caught_by": tuple(bug["caught_by"])})
        for path in sorted(LISTS.glob("*.toml"))
        for bug in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    ]
