"""Reads the mutants: one-line bugs, each with the tests that must notice it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HOME = Path(__file__).parents[2]
LISTS = Path(__file__).parent / "bugs"


@dataclass(frozen=True)
class Mutant:
    """One bug.

    Attributes:
        name: the bug in a sentence.
        file: the module it is in, from the package's folder.
        before: the lines as they are; they stand there exactly once.
        after: the lines with the bug.
        caught_by: test files or tests, one of which must fail.
        spark: whether only tests with Spark can notice it.
        area: the part of the engine, which is the name of the list the mutant stands in.
    """

    name: str
    file: str
    before: str
    after: str
    caught_by: tuple[str, ...]
    area: str
    spark: bool = False

    def applied_to(self, text: str) -> str:
        """The module's text with the bug.

        Raises:
            ValueError: the lines to be changed do not stand there exactly once.
        """
        if (found := text.count(self.before)) != 1:
            raise ValueError(f"{self.file} has the lines to be changed {found} times: {self.name}")
        return text.replace(self.before, self.after)


def catalogue() -> list[Mutant]:
    """All mutants, area by area."""
    return [
        Mutant(area=path.stem, **{**bug, "caught_by": tuple(bug["caught_by"])})
        for path in sorted(LISTS.glob("*.toml"))
        for bug in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    ]
