"""Every diagnostic has a long form, and its example raises it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mirror_engine.explain.pages import explanation, read_page
from mirror_engine.explain.rules import rules, rules_in, rules_page
from mirror_engine.landing_zone.csv_dialect import RecordLimits, RecordReader, TextDialect
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.metadata import parse
from mirror_engine.landing_zone.register import CATALOG

HOME = Path(__file__).parents[2]
PROTOCOL = (HOME / "docs/protocol.md").read_text(encoding="utf-8")
PAGES = [explanation(code) for code in CATALOG]
METADATA = [page for page in PAGES if page.wrong.title == "_metadata.json"]


def raised_by(text: str) -> set[str]:
    return {found.code for found in parse(text.encode(), "Items/_metadata.json")[1]}


def test_every_page_belongs_to_a_code_of_the_register() -> None:
    pages = {path.stem for path in (HOME / "mirror_engine/explain").glob("ME*.md")}
    assert pages == set(CATALOG)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.code)
def test_every_code_says_why_and_what_to_do_with_an_example(page) -> None:
    assert len(page.why) > 60
    assert not set("{}`") & set(page.title)
    assert page.title[:1].isupper()
    assert len(page.advice) > 10
    assert page.wrong.text.strip()
    assert page.right.text.strip()
    assert page.wrong != page.right
    assert max(map(len, f"{page.wrong.text}\n{page.right.text}".splitlines())) <= 110


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.code)
def test_every_rule_a_code_names_is_in_the_protocol(page) -> None:
    known = rules_in(PROTOCOL)
    assert page.rules
    assert all(known[rule.name] == rule and rule.text in PROTOCOL for rule in page.rules)


@pytest.mark.parametrize("page", METADATA, ids=lambda page: page.code)
def test_wrong_metadata_raises_the_code_and_the_right_one_does_not(page) -> None:
    assert page.code in raised_by(page.wrong.text)
    assert page.code not in raised_by(page.right.text)


def test_most_codes_about_metadata_are_shown_with_one_that_can_be_parsed() -> None:
    assert {page.code for page in METADATA} >= {"ME010", "ME011", "ME012", "ME013", "ME014", "ME015", "ME056", "ME059"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.code)
def test_right_examples_are_well_formed(page) -> None:
    if page.right.language == "json":
        json.loads(page.right.text)
    elif page.right.language == "csv":
        reader = RecordReader(TextDialect(), RecordLimits("example", 1000, strict=False))
        records = [record for several in reader.records(iter([page.right.text])) for record in several]
        assert len({len(record) for record in records}) == 1
    elif page.right.language == "python":
        compile(page.right.text, page.code, "exec")


def test_the_package_carries_the_rules_of_the_protocol_as_they_are() -> None:
    assert rules() == rules_in(PROTOCOL)
    carried = (HOME / "mirror_engine/explain/rules.md").read_text(encoding="utf-8")
    assert carried == rules_page(PROTOCOL), "run: python -m mirror_engine.cli.reference docs"


def test_a_rule_tells_the_lines_of_its_table_that_name_the_code() -> None:
    told = rules()["LZ-4.1"].about("ME039").splitlines()
    assert len(told) == 2
    assert len(rules()["LZ-4.1"].about("ME078").splitlines()) == 6  # the text, the heading and four markers
    assert told[1].startswith("0 insert | append | append all the same")
    assert rules()["LZ-10"].text.startswith("Use these shapes")


def test_a_page_of_another_form_says_so() -> None:
    with pytest.raises(ValueError, match=r"ME001\.md is not in the form"):
        read_page("ME001", "# ME002\n\nWhy.\n")
    with pytest.raises(KeyError):
        explanation("ME999")


@pytest.mark.parametrize(
    ("count", "said"), [("1", "1 file"), ("2", "2 files"), ("1204", "1,204 files"), ("some", "some files")]
)
def test_a_number_in_a_text_agrees_with_its_noun(count, said) -> None:
    assert diagnose("ME008", "Items", count=count).text == f"no `_metadata.json`, {said} waiting"
    assert "{count} files waiting" in CATALOG["ME008"].wording
