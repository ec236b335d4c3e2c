"""The mutants of `make mutants` fit the code: else nothing would show that its tests can fail."""

from __future__ import annotations

import ast
import re
from functools import cache

from mutants.__main__ import _tried
from mutants.catalogue import HOME, Mutant, catalogue

MUTANTS = catalogue()
FEWEST = 30


@cache
def text_of(path):
    return (HOME / path).read_text(encoding="utf-8")


def test_a_mutant_changes_lines_that_stand_there_once_and_names_tests_there_are():
    for mutant in MUTANTS:
        text = text_of(f"mirror_engine/{mutant.file}")
        changed = mutant.applied_to(text)
        assert changed != text, mutant
        assert compile(changed, mutant.file, "exec", ast.PyCF_ONLY_AST)
        assert mutant.caught_by, mutant
        for test in mutant.caught_by:
            path, _, function = test.partition("::")
            wanted = rf"^def {function}\(" if function else "^ *def test_"
            assert re.search(wanted, text_of(path), re.MULTILINE), mutant


def test_there_are_enough_of_them_without_spark_and_each_has_a_name_of_its_own():
    assert len([mutant for mutant in MUTANTS if not mutant.spark]) >= FEWEST
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_mutant_whose_lines_are_gone_is_told_and_fails_the_run():
    gone = Mutant("bug", "janitor.py", "no such line", "", ("tests/engine/test_janitor.py",), "keeping")
    outcome = _tried(gone)
    assert (outcome.verdict, outcome.is_bad) == ("STALE", True)
