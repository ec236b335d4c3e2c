"""`make mutants` tells which of its mutants no longer fit the code."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mutants import catalogue
from mutants.catalogue import Mutant, Stale

MUTANT = Mutant("bug", "a.py", "x < y", "x <= y", ("tests/test_a.py", "tests/test_a.py::test_b"), "area", "find")
MODULE = """
class A:
    def find(self, x, y):
        return (x
                < y)

    def last(self, x, y):
        return x < y


class B:
    def last(self, x, y):
        return [x < y, max < y]
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "HOME", tmp_path)
    for path, text in (("mirror_engine/a.py", MODULE), ("tests/test_a.py", "def test_b():\n    pass\n")):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_mutant_changes_its_function_alone_however_it_is_wrapped():
    assert MUTANT.applied_to(MODULE) == MODULE.replace("x\n                < y", "x <= y")
    assert replace(MUTANT, inside="B.last").applied_to(MODULE) == MODULE.replace("[x < y", "[x <= y")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"file": "b.py"}, "mirror_engine/b.py is gone"),
        ({"inside": "look"}, "0 functions or classes are called look"),
        ({"inside": "last"}, "2 functions or classes are called last"),
        ({"before": "x > y"}, "find contains its code 0 times"),
        ({"before": "< y", "inside": "B.last"}, "B.last contains its code 2 times"),
        ({"inside": ""}, "a.py contains its code 3 times"),
        ({"after": "x <"}, "a.py is no Python with it"),
        ({"caught_by": ("tests/test_b.py",)}, "tests/test_b.py is gone"),
        ({"caught_by": ("tests/test_a.py::test_",)}, "tests/test_a.py::test_ is gone"),
    ],
)
def test_a_mutant_that_no_longer_fits_is_stale(change, why):
    MUTANT.check()
    with pytest.raises(Stale, match=rf"^{why}$"):
        replace(MUTANT, **change).check()
