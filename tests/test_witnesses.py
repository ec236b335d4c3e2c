"""Every rule and every claim has evidence, and the evidence exists."""

from __future__ import annotations

from pathlib import Path

import pytest
import witnesses
from evidence import NOT_SHOWN, evidence, rules_of, without_evidence
from witnesses import claims, faults, items_of, missing, nodes, section

HOME = Path(__file__).parents[1]
NO_SUCH = "no such test, fixture, rule, `make` target or file of benchmarks/"


def test_every_claim_has_a_witness_that_exists():
    assert faults() == [], "docs/claims.toml names the witnesses of claims"
    assert {claim.page for claim in claims()} >= {
        "README.md",
        "docs/promises.md",
        "docs/threat-model.md",
        "docs/performance.md",
    }


def test_every_rule_has_a_fixture_or_a_test():
    """Names it: a fixture's README.md, or the docstring of a test or of its file."""
    assert without_evidence() == []
    assert [name for name in NOT_SHOWN if evidence()[name].fixtures + evidence()[name].tests] == []


def test_every_rule_says_whether_it_is_documented_observed_or_our_decision():
    unmarked = [found.rule for found in evidence().values() if not found.sources]
    assert [rule.text for rule in unmarked if not rule.text.endswith(":")] == []  # the marks of a table are in it


def test_every_test_that_a_page_names_exists():
    pages = [path.read_text(encoding="utf-8") for path in sorted((HOME / "docs").rglob("*.md"))]
    assert [test for page in pages for test in nodes(page) if missing(test)] == []


@pytest.mark.parametrize(
    ("witness", "why"),
    [
        ("tests/test_witnesses.py", ""),
        ("tests/test_witnesses.py::test_no_such", "no such test"),
        ("tests/test_no_such.py::test_x", "no such file"),
        ("tests/engine/test_poller.py::TestPartnerEvents::test_they_are_read_once_for_display", ""),
        ("tests/engine/test_poller.py::test_they_are_read_once_for_display", "no such test"),
        ("fixtures/gap-blocks-later-files", ""),
        ("fixtures/recipes", "no such fixture"),
        ("make bench merge newest", ""),
        ("make torture", ""),
        ("make nothing", "no such target"),
        ("benchmarks/memory.py", ""),
        ("LZ-4", ""),
        ("LZ-4.12", ""),
        ("LZ-99", "no such rule or chapter"),
        ("LZ-4.1", ""),
        ("not shown: it names what has no test", ""),
        ("not shown: ", "no such reason"),
        ("README.txt", NO_SUCH),
        ("README.md", NO_SUCH),
        ("docs/protocol.md", NO_SUCH),
        ("benchmarks/no_such.py", NO_SUCH),
    ],
)
def test_a_witness_is_there_or_it_is_said_why_not(witness, why):
    assert missing(witness) == why


def test_an_unknown_work_of_the_benchmarks_is_none():
    assert missing("make bench nothing").startswith("no such work; there are ")


PAGE = """# Title

- one
  goes on

## A list

| a | b |
| --- | --- |
| row | x |

Text.
"""


def test_claims_that_are_not_there_or_lack_a_witness_are_faults(tmp_path, monkeypatch):
    (tmp_path / "page.md").write_text(PAGE)
    (tmp_path / "claims.toml").write_text(
        '[lists]\n"page.md" = ["", "A list", "No list"]\n'
        '[claims."page.md"]\n"one goes on" = ["tests/test_witnesses.py"]\n"gone" = ["README.txt"]\n"Text." = []\n'
    )
    monkeypatch.setattr(witnesses, "HOME", tmp_path)
    monkeypatch.setattr(witnesses, "CLAIMS", tmp_path / "claims.toml")
    for name in ("guarantees", "figures", "threats"):
        monkeypatch.setattr(witnesses, name, list)
    for kept in (witnesses.claims, witnesses.stated, witnesses._claims_file):
        monkeypatch.setattr(witnesses, kept.__name__, kept.__wrapped__)
    assert faults() == [
        "page.md: no witness for 'Text.'",
        "page.md: tests/test_witnesses.py: no such file",
        f"page.md: README.txt: {NO_SUCH}",
        "page.md: docs/claims.toml has words that it does not say: 'gone'",
        "page.md: no claim of docs/claims.toml is in '| row | x |'",
        "page.md: no list below 'No list'",
    ]


def test_items_are_found_by_their_heading():
    assert items_of(section(PAGE, "")) == ["- one goes on"]
    assert items_of(section(PAGE, "A list")) == ["| row | x |"]


def test_a_short_name_is_of_the_file_named_before_it():
    assert nodes("`tests/a.py::test_x`, `…::test_y`; `tests/b.py`, `…::Case::test_z`") == [
        "tests/a.py::test_x",
        "tests/a.py::test_y",
        "tests/b.py",
        "tests/b.py::Case::test_z",
    ]


def test_a_range_of_rules_names_each():
    assert rules_of("LZ-1.3 to LZ-1.5, LZ-2.1") == {"LZ-1.3", "LZ-1.4", "LZ-1.5", "LZ-2.1"}
