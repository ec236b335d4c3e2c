"""Every diagnostic has a page with front matter; tests/test_fixtures.py runs its example."""

from __future__ import annotations

from pathlib import Path

import pytest
from reference import rules_page

from mirror_engine.explain.pages import explanation, parse, rules, rules_in
from mirror_engine.landing_zone.diagnostics import CATALOG, PAGES, diagnose, read_page
from mirror_engine.testing import cases

HOME = Path(__file__).parents[2]
PROTOCOL = (HOME / "docs/protocol.md").read_text(encoding="utf-8")
EXPLANATIONS = [explanation(code) for code in CATALOG]
EACH_PAGE = pytest.mark.parametrize("page", EXPLANATIONS, ids=lambda page: page.code)


@EACH_PAGE
def test_page_explains_its_code_with_help_rules_and_an_example(page) -> None:
    assert page.why
    assert not set("{}`") & set(page.title)
    assert page.title[:1].isupper()
    assert page.what_to_do
    for text in (page.message, page.help or ""):
        assert not text.endswith(".")
        assert text[:1] == text[:1].lower() or text.startswith(("NULL", "NOT NULL", "Delta"))
    assert page.name == page.name.lower().replace(" ", "-")
    assert all(code in CATALOG and code != page.code for code in page.related)
    assert page.rules


def test_the_package_has_the_rules_of_the_protocol() -> None:
    assert rules() == rules_in(PROTOCOL)
    packaged = (HOME / "mirror_engine/explain/rules.md").read_text(encoding="utf-8")
    assert packaged == rules_page(PROTOCOL), "run: python docs/site/reference.py"


def test_a_rule_quotes_the_lines_of_its_table_that_name_the_code() -> None:
    lines = rules()["LZ-4.1"].about("ME039").splitlines()
    assert len(lines) == 2
    assert len(rules()["LZ-4.1"].about("ME078").splitlines()) == 6  # the text, the heading and four markers
    assert lines[1].startswith("0 insert | append | append all the same")
    assert rules()["LZ-10"].text.startswith("Use these shapes")


def test_rule_quotes_the_notes_that_name_the_code() -> None:
    rule = rules()["LZ-4.10"]
    shown = rule.about("ME095").splitlines()
    assert [line.partition(" ")[0] for line in shown] == ["Find", "-"]
    assert "ME095" in shown[1]
    assert rule.about("ME052") == rule.text
    assert len(rule.about("ME001").splitlines()) == 1 + len(rule.notes)


def test_an_unknown_code_or_form_is_an_error() -> None:
    page = (PAGES / "ME001.md").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match=r"ME001\.md is not in the form"):
        parse("ME001", page.replace("## What to do", "## Do"))
    with pytest.raises(ValueError, match=r"ME001\.md: unknown fields in the front matter: colour"):
        cases.parse("ME001", page.replace("severity:", "colour: red\nseverity:"))
    with pytest.raises(ValueError, match='"Fixed" is there twice'):
        parse("ME001", f"{page}\n## Fixed\n")
    with pytest.raises(ValueError, match="'often' is not a valid Trait"):
        read_page(page.replace("severity:", "traits: often\nseverity:"))
    for code in ("ME999", "../ME001", ""):
        assert code not in CATALOG
    with pytest.raises(KeyError):
        explanation("ME999")


@pytest.mark.parametrize(
    ("count", "words"), [("1", "1 file"), ("2", "2 files"), ("1204", "1,204 files"), ("some", "some files")]
)
def test_a_number_in_a_message_agrees_with_its_noun(count, words) -> None:
    assert diagnose("ME008", "Items", count=count, help="").message == f"no `_metadata.json`; {words} pending"
    assert "{count} files pending" in CATALOG["ME008"].template
