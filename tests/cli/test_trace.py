"""`trace`: a row, a file, the plan and another order, in a terminal and for programs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from sessions import blocks, steps_in

from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look

PAGE = Path(__file__).parents[2] / "docs/trace.md"
WIDTH = 96


def rich_history(shop, cli):
    """Ten changes to order 42 over four files: three in two commits, the last waits."""
    types = {"OrderNo": pa.int64(), "City": pa.string(), "Pieces": pa.int32()}
    table = LandingZoneWriter(shop.root).table("Sales.Shipments", keys=["OrderNo"], types=types)

    def order(city, pieces, number=42):
        return {"OrderNo": number, "City": city, "Pieces": pieces}

    table.initial_load(order("Linz", 5, 41), order("Wels", 3))
    table.apply_changes((1, order("Wels", 4)), (1, order("Linz", 6, 41)), (4, order("Graz", 4)), (4, order("Graz", 4)))
    cli("sync", shop.root)
    table.apply_changes((2, {"OrderNo": 42}), (2, {"OrderNo": 42}), (1, order("Bregenz", 1)), (0, order("Bregenz", 2)))
    cli("sync", shop.root)
    table.apply_changes((4, order("Dornbirn", 2)), (1, order("Linz", 7, 41)), (2, {"OrderNo": 42}))
    return table


def test_the_page_about_trace_shows_real_output(sales, cli, on_terminal):
    rich_history(sales, cli)
    commands = [step for block in blocks(PAGE, "text") for step in steps_in(block.text)]
    assert commands
    for step in commands:
        words = step.text.removeprefix("mirror-engine -C ./shop ").split()
        code, lines = on_terminal(WIDTH, "-C", sales.root, *words)
        assert (code, [line.rstrip() for line in lines]) == (0, step.shown.rstrip().splitlines()), step.text


def wide_rows(shop, cli):
    """A table of twelve columns, wider than a terminal; the second file is pending."""
    columns = [f"A column of a long name {letter}" for letter in "ABCDEFGHIJK"]
    table = LandingZoneWriter(shop.root).table(
        "Wide", keys=["Id"], types={"Id": pa.int64(), **dict.fromkeys(columns, pa.string())}
    )
    table.initial_load({"Id": 1, **{name: name[-1] * 20 for name in columns}})
    cli("sync", shop.root)
    table.upsert({"Id": 1, columns[0]: "new"}, {"Id": 2, columns[0]: "x"})
    return columns


def test_rows_wider_than_the_terminal_are_listed_by_column(sales, cli, on_terminal):
    columns = wide_rows(sales, cli)
    _, lines = on_terminal(80, "trace", "what-if", "-C", sales.root, "Wide", "--skip", "2")
    at = lines.index("Only in actual")
    expected = ["Id: 2", f"{columns[0]}: x", *(f"{name}: NULL" for name in columns[1:])]
    assert lines[at + 1 : at + 14] == [*expected, ""]


def test_two_rows_that_do_not_fit_have_an_empty_line_between_them(sales, cli, on_terminal):
    columns = wide_rows(sales, cli)
    cli("sync", sales.root)
    _, lines = on_terminal(80, "show", "-C", sales.root, "Wide")
    assert (lines[0], lines[12:14], lines[24:]) == ("Id: 1", ["", "Id: 2"], [f"{columns[-1]}: NULL", "2 rows"])
    _, lines = on_terminal(600, "show", "-C", sales.root, "Wide")
    assert lines[0].startswith(f"Id  {columns[0]}")


def test_values_wider_than_the_terminal_are_listed_by_column(sales, cli, on_terminal):
    columns = wide_rows(sales, cli)
    lines = [line.rstrip() for line in on_terminal(80, "trace", "row", "-C", sales.root, "Wide", "1")[1]]
    at = lines.index("  row 1   0 insert  matched 0  inserted")
    values = ["Id 1", *(f"{name} {name[-1] * 20}" for name in columns)]
    assert lines[at + 1 : at + 13] == [" " * 31 + value for value in values]
    end = lines.index("Result: 1 row")
    assert lines[end + 1 : end + 4] == ["  Id 1", f"  {columns[0]} new", f"  {columns[1]} NULL"]
