"""Reads the mutants: one-line bugs, each with the tests that must notice it."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

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
        before: text that occurs once in the module.
        after: the same text with the bug.
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

    def applied_to(self, module: str) -> str:
        """Return the module's text with the bug.

        Raises:
            Stale: the text to replace does not occur exactly once.
        """
        if (found := module.count(self.before)) != 1:
            raise Stale(f"{self.file} contains its text {found} times")
        return module.replace(self.before, self.after)

    def check(self) -> None:
        """Check that the mutant fits the code and the tests of today.

        Raises:
            Stale: its module, its text or one of its tests no longer exists.
        """
        self.applied_to(_text_of(f"mirror_engine/{self.file}"))
        for test in self.caught_by:
            path, _, function = test.partition("::")
            if not re.search(rf"^ *def {function or r'test_[a-z0-9_]+'}\(", _text_of(path), re.MULTILINE):
                raise Stale(f"{test} is gone")


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
