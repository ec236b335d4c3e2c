"""`make mutants` tells which of its mutants no longer fit the code."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mutants import catalogue
from mutants.catalogue import Mutant, Stale

MUTANT = Mutant("bug", "a.py", "x < y", "x <= y", ("tests/test_a.py", "tests/test_a.py::test_b"), "area")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "HOME", tmp_path)
    for path, text in (("mirror_engine/a.py", "x < y\nz < y\n"), ("tests/test_a.py", "def test_b():\n    pass\n")):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"file": "b.py"}, "mirror_engine/b.py is gone"),
        ({"before": "x > y"}, "a.py contains its text 0 times"),
        ({"before": "< y"}, "a.py contains its text 2 times"),
        ({"caught_by": ("tests/test_b.py",)}, "tests/test_b.py is gone"),
        ({"caught_by": ("tests/test_a.py::test_",)}, "tests/test_a.py::test_ is gone"),
    ],
)
def test_a_mutant_that_no_longer_fits_is_stale(change, why):
    MUTANT.check()
    with pytest.raises(Stale, match=rf"^{why}$"):
        replace(MUTANT, **change).check()
