"""Every rule has evidence, and each test that a page names is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from evidence import NO_CASE, NOT_SHOWN, evidence, rules_of, without_evidence
from named_tests import missing, nodes

HOME = Path(__file__).parents[1]


@pytest.mark.slow
def test_every_rule_has_a_case_or_says_what_one_would_take():
    """A fixture, or the page of a code; or a test alone."""
    assert {name for name, found in evidence().items() if not found.fixtures} == {*NO_CASE, *NOT_SHOWN}


@pytest.mark.slow
def test_every_rule_has_a_case_or_a_test():
    """Names it: a case's front matter, or the docstring of a test or of its file."""
    assert without_evidence() == []
    assert [name for name in NOT_SHOWN if evidence()[name].fixtures + evidence()[name].tests] == []


def test_every_rule_says_whether_it_is_documented_observed_or_our_decision():
    unmarked = [found.rule for found in evidence().values() if not found.rule.sources]
    assert [rule.text for rule in unmarked if not rule.text.endswith(":")] == []  # the marks of a table are in it


@pytest.mark.slow
def test_every_test_that_a_page_names_exists():
    pages = [path.read_text(encoding="utf-8") for path in sorted((HOME / "docs").rglob("*.md"))]
    assert [test for page in pages for test in nodes(page) if missing(test)] == []


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("tests/test_evidence.py", ""),
        ("tests/test_evidence.py::test_no_such", "no such test"),
        ("tests/test_no_such.py::test_x", "no such file"),
        ("tests/engine/test_poller.py::TestPartnerEvents::test_they_are_read_once_for_display", ""),
        ("tests/engine/test_poller.py::test_they_are_read_once_for_display", "no such test"),
    ],
)
def test_a_name_that_leads_nowhere_is_found(node, why):
    assert missing(node) == why


def test_a_short_name_is_of_the_file_named_before_it():
    assert nodes("`tests/a.py::test_x`, `…::test_y`; `tests/b.py`, `…::Case::test_z`") == [
        "tests/a.py::test_x",
        "tests/a.py::test_y",
        "tests/b.py",
        "tests/b.py::Case::test_z",
    ]


def test_a_range_of_rules_names_each():
    assert rules_of("LZ-1.3 to LZ-1.5, LZ-2.1") == {"LZ-1.3", "LZ-1.4", "LZ-1.5", "LZ-2.1"}
