"""`diff`: a mirrored table beside an expected one, in a terminal and for programs."""

from __future__ import annotations

import json

import pytest

from mirror_engine.cli.diff import JSON

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look


@pytest.fixture
def expected(shop, say, tmp_path):
    """Applies what lies there, and writes the expected table of `Items` as CSV."""
    say("once", shop.root)

    def write(text):
        path = tmp_path / "expected.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_an_equal_table_ends_with_0(shop, say, expected) -> None:
    said = say("diff", shop.root, "Items", expected("Name,Id\n[red]seven[/red],7\n,8\n"))
    assert (said.code, said.err) == (0, "")
    assert said.out == "Items is as expected: 2 equal rows\n"


def test_a_different_table_ends_with_3_and_says_where(shop, say, expected) -> None:
    said = say("diff", shop.root, "Items", expected("Id,Name\n7,seven\n9,nine\n"))
    assert said.code == 3
    lines = [line.rstrip() for line in said.out.splitlines()]
    assert lines == [
        "Items is not as expected: 1 missing, 1 unexpected, 1 different; 0 equal rows",
        "  cells that differ: Name 1",
        "",
        "Missing: expected, not in the table",
        "Id  Name",
        "9   nine",
        "",
        "Unexpected: in the table, not expected",
        "Id  Name",
        "8   NULL",
        "",
        "Different",
        "Id  Column  Expected  Found",
        "7   Name    seven     [red]seven[/red]",
    ]


def test_the_key_may_be_named(shop, say, expected) -> None:
    said = say("diff", shop.root, "Items", expected("Id,Name\n1,[red]seven[/red]\n"), "--key", "name")
    assert "\n  cells that differ: Id 1\n" in said.out
    several = say("diff", shop.root, "Items", expected("Id,Name\n7,seven\n"), "--key", "Id,Name", "--json")
    assert json.loads(several.out)["key"] == ["Id", "Name"]


def test_an_earlier_version_can_be_compared(shop, say, expected) -> None:
    assert say("diff", shop.root, "Items", expected("Id,Name\n"), "--version", "0").code == 0
    assert say("diff", shop.root, "Items", expected("Id,Name\n"), "--version", "9").code == 2


def test_as_many_rows_are_shown_as_wanted_and_all_are_counted(shop, say, expected) -> None:
    text = "Id,Name\n" + "".join(f"{at},x\n" for at in range(100, 150))
    said = say("diff", shop.root, "Items", expected(text), "--limit", "3")
    assert "50 missing" in said.out
    assert "Missing: expected, not in the table, the first 3 of 50, see --limit\n" in said.out
    assert say("diff", shop.root, "Items", expected(text), "--limit", "0").out.count("  x") == 50


def test_columns_on_one_side_only_are_told(shop, say, expected) -> None:
    said = say("diff", shop.root, "Items", expected("Id,Size\n7,XL\n8,S\n"))
    assert said.code == 3
    assert "\n  columns expected, not there: Size\n  columns not expected: Name\n" in said.out


def test_programs_get_the_same_as_json(shop, say, expected) -> None:
    said = say("diff", shop.root, "Items", expected("Id,Name\n7,seven\n9,nine\n"), "--json")
    told = json.loads(said.out)
    assert said.code == 3
    assert list(told) == list(JSON)
    assert told["counts"] == {"equal": 0, "missing": 1, "unexpected": 1, "different": 1}
    assert told["missing"] == [{"Id": 9, "Name": "nine"}]
    assert told["different"] == [
        {"key": {"Id": 7}, "cells": [{"column": "Name", "expected": "seven", "found": "[red]seven[/red]"}]}
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Nothing", "expected.csv"], "Nothing: no such table"),
        (["Items", "none.csv"], "none.csv: no such file"),
        (["Items", "expected.csv", "--key", "Sku"], "key column Sku: the table has none of that name"),
        (["Items", "expected.csv", "--tolerance", "-1"], "--tolerance"),
    ],
)
def test_wrong_usage_ends_with_2_and_a_hint(shop, say, expected, words, said) -> None:
    expected("Id,Name\n")
    words = [shop.root / word if word.endswith(".csv") else word for word in words]
    told = say("diff", shop.root, *words)
    assert told.code == 2
    assert said in told.err


def test_no_value_of_a_table_is_written_to_the_engine_s_log(shop, say, expected) -> None:
    say("diff", shop.root, "Items", expected("Id,Name\n7,a value nobody logs\n"))
    logs = (shop.root / ".mirror-engine").rglob("*.log*")
    assert not any("a value nobody logs" in path.read_text() for path in logs if path.is_file())
