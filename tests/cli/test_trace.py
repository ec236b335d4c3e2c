"""`trace`: a row, a file, the plan and another order, in a terminal and for programs."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from json_shapes import shape
from rich.console import Console

from mirror_engine.cli.trace import JSON
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look

PAGE = Path(__file__).parents[2] / "docs/trace.md"
WIDTH = 96


@pytest.fixture
def wide(monkeypatch):
    """Prints as on a terminal of so many columns."""

    def set_width(columns):
        def console():
            return Console(width=columns, highlight=False, markup=False, emoji=False, file=made[-1])

        made.append(StringIO())
        for command in ("trace", "show"):
            monkeypatch.setattr(f"mirror_engine.cli.{command}.stdout", console)
        return lambda: "\n".join(line.rstrip() for line in made[-1].getvalue().splitlines())

    made = []
    return set_width


def rich_history(shop, say):
    """Ten changes to order 42 over four files: three in two commits, the last waits."""
    types = {"OrderNo": pa.int64(), "City": pa.string(), "Pieces": pa.int32()}
    table = LandingZoneWriter(shop.root).table("Sales.Shipments", keys=["OrderNo"], types=types)

    def order(city, pieces, number=42):
        return {"OrderNo": number, "City": city, "Pieces": pieces}

    table.initial_load(order("Linz", 5, 41), order("Wels", 3))
    table.apply_changes((1, order("Wels", 4)), (1, order("Linz", 6, 41)), (4, order("Graz", 4)), (4, order("Graz", 4)))
    say("once", shop.root)
    table.apply_changes((2, {"OrderNo": 42}), (2, {"OrderNo": 42}), (1, order("Bregenz", 1)), (0, order("Bregenz", 2)))
    say("once", shop.root)
    table.apply_changes((4, order("Dornbirn", 2)), (1, order("Linz", 7, 41)), (2, {"OrderNo": 42}))
    return table


def test_the_page_about_trace_shows_what_it_prints(shop, say, wide) -> None:
    rich_history(shop, say)
    page = PAGE.read_text(encoding="utf-8")
    commands = re.findall(r"```text\n\$ mirror-engine trace \./shop (.*)\n((?:.*\n)*?)```", page)
    assert len(commands) == 4
    for words, printed in commands:
        shown = wide(WIDTH)
        assert say("trace", shop.root, *words.split()).code == 0
        assert printed.rstrip() == shown(), words


def wide_rows(shop, say):
    """A table of twelve columns, none of which has room for what stands in it; the second file waits."""
    columns = [f"A column of a long name {letter}" for letter in "ABCDEFGHIJK"]
    table = LandingZoneWriter(shop.root).table(
        "Wide", keys=["Id"], types={"Id": pa.int64(), **dict.fromkeys(columns, pa.string())}
    )
    table.initial_load({"Id": 1, **{name: name[-1] * 20 for name in columns}})
    say("once", shop.root)
    table.upsert({"Id": 1, columns[0]: "new"}, {"Id": 2, columns[0]: "x"})
    return columns


def test_rows_that_do_not_fit_on_the_terminal_stand_below_each_other(shop, say, wide) -> None:
    columns = wide_rows(shop, say)
    shown = wide(80)
    say("trace", shop.root, "Wide", "--what-if", "skip=2")
    lines = [line.rstrip() for line in shown().splitlines()]
    at = lines.index("Only as the files are")
    told = ["Id: 2", f"{columns[0]}: x", *(f"{name}: NULL" for name in columns[1:])]
    assert lines[at + 1 : at + 14] == [*told, ""]


def test_two_rows_that_do_not_fit_have_an_empty_line_between_them(shop, say, wide) -> None:
    columns = wide_rows(shop, say)
    say("once", shop.root)
    shown = wide(80)
    say("show", shop.root, "Wide")
    lines = [line.rstrip() for line in shown().splitlines()]
    assert (lines[0], lines[12:14], lines[24:]) == ("Id: 1", ["", "Id: 2"], [f"{columns[-1]}: NULL", "2 rows"])
    shown = wide(600)
    say("show", shop.root, "Wide")
    assert shown().startswith(f"Id  {columns[0]}")


def test_values_of_a_key_that_do_not_fit_stand_below_each_other(shop, say, wide) -> None:
    columns = wide_rows(shop, say)
    shown = wide(80)
    say("trace", shop.root, "Wide", "--key", "1")
    lines = [line.rstrip() for line in shown().splitlines()]
    at = lines.index("  row 1   0 insert  no row   inserted")
    values = ["Id 1", *(f"{name} {name[-1] * 20}" for name in columns)]
    assert lines[at + 1 : at + 13] == [" " * 29 + value for value in values]
    end = lines.index("In the end: 1 row")
    assert lines[end + 1 : end + 4] == ["  Id 1", f"  {columns[0]} new", f"  {columns[1]} NULL"]


def block(shop):
    shop.orders.skip_numbers()
    shop.orders.upsert({"Id": 3, "Name": "three"})


def mode(shop, say, *words):
    said = say("trace", shop.root, *words, "--json")
    assert said.err == ""
    return said.code, json.loads(said.out)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("key", ["--key", "42"]),
        ("file", ["--file", "4"]),
        ("plan", ["--plan"]),
        ("what_if", ["--what-if", "swap=4,2"]),
    ],
)
def test_json_has_the_shape_that_is_documented(shop, say, name, words) -> None:
    table = rich_history(shop, say)
    table.skip_numbers()
    table.insert({"OrderNo": 43, "City": "Ried", "Pieces": 1})
    code, told = mode(shop, say, "sales.shipments", *words)
    assert (code, list(told)) == (0, ["table", name])
    found, known = without_rows(told[name]), without_rows(JSON[name])
    assert found.keys() == known.keys()
    assert [key for key, value in found.items() if value and shape(value) != shape(known[key])] == []


def without_rows(value):
    """The document with rows and values left out: their names are the table's own."""
    own = {"key", "first", "before", "after", "end", "applied", "delta", "markers", "different_cells"}
    own |= {"missing", "unexpected", "different"}
    match value:
        case dict():
            return {key: None if key in own else without_rows(inner) for key, inner in value.items()}
        case list():
            return [without_rows(inner) for inner in value if isinstance(inner, dict)]
        case _:
            return value


def test_a_change_is_told_with_all_its_facts(shop, say) -> None:
    rich_history(shop, say)
    _, told = mode(shop, say, "sales.shipments", "--key", "orderno=42")
    assert told["key"]["changes"][1] == {
        "file": "00000000000000000002.parquet",
        "row": 1,
        "marker": 1,
        "marker_name": "update",
        "met": 1,
        "did": "updated",
        "why": "",
        "before": [{"OrderNo": 42, "City": "Wels", "Pieces": 3}],
        "after": [{"OrderNo": 42, "City": "Wels", "Pieces": 4}],
        "changed": ["Pieces"],
        "version": 1,
        "batch": ["00000000000000000001.parquet", "00000000000000000002.parquet"],
        "waits": "",
    }


def test_a_delta_table_that_holds_something_else_ends_with_3_and_shows_both(shop, say) -> None:
    say("once", shop.root)
    shop.writer._tables["Sales/Orders"][-1].rows[0]["Name"] = "[b]forged[/b]"
    said = say("trace", shop.root, "Sales.Orders", "--key", 1)
    assert said.code == 3
    assert "THE DELTA TABLE SAYS SOMETHING ELSE" in said.out
    assert "The Delta table has: 1 row\n  Id 1  Name [b]forged[/b]" in said.out
    assert "The files that are applied make: 1 row\n  Id 1  Name one" in said.out


def test_what_is_gone_is_told_with_where_the_replay_begins(shop, say) -> None:
    for name in ("three", "four"):
        say("once", shop.root)
        shop.orders.upsert({"Id": 1, "Name": name})
    say("once", shop.root)
    moved = shop.root / "Files/LandingZone/Sales.schema/Orders/_FilesReadyToDelete"
    (moved / "00000000000000000001.parquet").unlink()
    said = say("trace", shop.root, "Sales.Orders", "--key", 1)
    assert said.code == 0
    assert "1 earlier file is gone; what it held is not known: the replay begins with Delta version 1\n" in said.out
    assert "Before these files: 1 row\n  Id 1  Name one\n" in said.out
    assert "*Name one -> three" in said.out


def test_the_plan_says_why_not_more(shop, say) -> None:
    block(shop)
    said = say("trace", shop.root, "Sales.Orders", "--plan")
    assert "apply 1 file in 1 commit: 00000000000000000001.parquet" in said.out
    assert "left: 00000000000000000003.parquet: 00000000000000000002.parquet is missing" in said.out
    say("once", shop.root)
    shop.items.land(b"")
    say("once", shop.root)
    said = say("trace", shop.root, "Items", "--plan")
    assert said.out.startswith(
        "Items is halted: 00000000000000000002.parquet: file is empty (0 bytes) [ME023]; 1 file pending\n"
    )
    assert "  nothing is to be done\n" in said.out
    assert "-> delete it, write under a temporary name, then rename" in said.out


def test_a_file_that_is_refused_says_why(shop, say) -> None:
    shop.items.land(b"")
    said = say("trace", shop.root, "Items", "--file", "00000000000000000002.parquet")
    assert said.out.startswith("Items, 00000000000000000002.parquet: rejected\n  file is empty (0 bytes)\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["Items"], "trace: nothing to trace"),
        (["Items", "--plan", "--key", "1"], "trace: one thing at a time"),
        (["Items", "--key", "Sku=1"], "key Id=Sku=1: no value of type long"),
        (["Items", "--key", "seven"], "key Id=seven: no value of type long"),
        (["Items", "--file", "9"], "9: Items has no such change file"),
        (["Items", "--what-if", "skip"], "skip: nothing to suppose"),
        (["Items", "--what-if", "swap=1,1"], "they are in this order already"),
        (["Stores", "--plan"], "Stores: no such table"),
    ],
)
def test_what_cannot_be_traced_ends_with_2_and_a_hint(shop, say, words, message) -> None:
    said = say("trace", shop.root, *words)
    assert (said.code, said.out) == (2, "")
    assert message in said.err
    assert "->" in said.err


def test_a_row_of_many_columns_shows_those_that_changed(shop, say) -> None:
    table = LandingZoneWriter(shop.root).table("Wide", keys=["Id"])
    row = {"Id": 1} | {f"C{number}": number for number in range(20)}
    table.insert(row)
    table.update(row | {"C7": 8})
    said = say("trace", shop.root, "Wide", "--key", 1)
    assert "*C7 7 -> 8  (20 other columns)" in said.out
