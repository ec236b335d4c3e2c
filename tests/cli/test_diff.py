"""`diff`: a mirrored table compared with an expected one, as text and as JSON."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look


@pytest.fixture
def expected(shop, cli, tmp_path):
    """Apply all files, and write the expected table of `Items` as CSV."""
    cli("sync", shop.root)

    def write(text):
        path = tmp_path / "expected.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_an_equal_table_ends_with_0(shop, cli, expected) -> None:
    printed = cli("diff", "-C", shop.root, "Items", expected("Name,Id\n[red]seven[/red],7\n,8\n"))
    assert (printed.code, printed.err) == (0, "")
    assert printed.out == "Items is as expected: 2 equal rows\n"


def test_a_different_table_ends_with_3_and_says_where(shop, cli, expected) -> None:
    printed = cli("diff", "-C", shop.root, "Items", expected("Id,Name\n7,seven\n9,nine\n"))
    assert printed.code == 3
    lines = [line.rstrip() for line in printed.out.splitlines()]
    assert lines == [
        "Items differs from expected: 1 missing, 1 unexpected, 1 different; 0 equal rows",
        "  different cells: Name 1",
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
        "Id  Column  Expected  Actual",
        "7   Name    seven     [red]seven[/red]",
    ]


def test_the_key_may_be_named(shop, cli, expected) -> None:
    printed = cli("diff", "-C", shop.root, "Items", expected("Id,Name\n1,[red]seven[/red]\n"), "--key", "name")
    assert "\n  different cells: Id 1\n" in printed.out
    several = cli("diff", "-C", shop.root, "Items", expected("Id,Name\n7,seven\n"), "--key", "Id,Name", "--json")
    assert json.loads(several.out)["key"] == ["Id", "Name"]


def test_an_earlier_version_can_be_compared(shop, cli, expected) -> None:
    assert cli("diff", "-C", shop.root, "Items", expected("Id,Name\n"), "--at-version", "0").code == 0
    assert cli("diff", "-C", shop.root, "Items", expected("Id,Name\n"), "--at-version", "9").code == 2


def test_as_many_rows_are_shown_as_wanted_and_all_are_counted(shop, cli, expected) -> None:
    text = "Id,Name\n" + "".join(f"{at},x\n" for at in range(100, 150))
    printed = cli("diff", "-C", shop.root, "Items", expected(text), "--limit", "3")
    assert "50 missing" in printed.out
    assert "Missing: expected, not in the table (first 3 of 50, see --limit)\n" in printed.out
    assert cli("diff", "-C", shop.root, "Items", expected(text), "--limit", "0").out.count("  x") == 50


def test_columns_on_one_side_only_are_named(shop, cli, expected) -> None:
    printed = cli("diff", "-C", shop.root, "Items", expected("Id,Size\n7,XL\n8,S\n"))
    assert printed.code == 3
    assert "\n  missing columns: Size\n  unexpected columns: Name\n" in printed.out


def test_programs_get_the_same_as_json(shop, cli, expected) -> None:
    printed = cli("diff", "-C", shop.root, "Items", expected("Id,Name\n7,seven\n9,nine\n"), "--json")
    document = json.loads(printed.out)
    assert printed.code == 3
    assert document["counts"] == {"equal": 0, "missing": 1, "unexpected": 1, "different": 1}
    assert document["missing"] == [{"Id": 9, "Name": "nine"}]
    assert document["different"] == [
        {"key": {"Id": 7}, "cells": [{"column": "Name", "expected": "seven", "actual": "[red]seven[/red]"}]}
    ]


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["Nothing", "expected.csv"], 'unknown table "Nothing"'),
        (["Items", "none.csv"], "none.csv: no such file"),
        (["Items", "expected.csv", "--key", "Sku"], "key column Sku: the table has no such column"),
        (["Items", "expected.csv", "--float-tolerance", "-1"], "--float-tolerance"),
    ],
)
def test_wrong_usage_ends_with_2_and_a_hint(shop, cli, expected, words, printed) -> None:
    expected("Id,Name\n")
    words = [shop.root / word if word.endswith(".csv") else word for word in words]
    document = cli("diff", "-C", shop.root, *words)
    assert document.code == 2
    assert printed in document.err


def test_no_value_of_a_table_is_written_to_the_engine_s_log(shop, cli, expected) -> None:
    cli("diff", "-C", shop.root, "Items", expected("Id,Name\n7,a value that is never logged\n"))
    logs = (shop.root / ".mirror-engine").rglob("*.log*")
    assert not any("a value that is never logged" in path.read_text() for path in logs if path.is_file())
