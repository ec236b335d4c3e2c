"""`status`, `tables`, `show` and `history`."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest
from filelock import FileLock

from mirror_engine.landing_zone.layout import LOCK


def test_status_shows_tables_with_their_reason_and_help(shop, cli):
    shop.halt()
    shop.block()
    cli("sync", shop.root)
    printed = cli("status", shop.root)
    assert printed.code == 0
    lines = [line.strip() for line in printed.out.splitlines()]
    assert lines[0].startswith(f"{shop.root}: no engine is running")
    assert [line.split()[:2] for line in lines if line.startswith(("Items  ", "Sales.Orders  "))] == [
        ["Sales.Orders", "blocked"],
        ["Items", "halted"],
    ]
    at = lines.index("error[ME023]: file is empty (0 bytes)")
    assert lines[at + 1] == "--> Files/LandingZone/Items/00000000000000000002.parquet"
    assert lines[at + 2].startswith("help: ")
    assert any(line.startswith("Sales.Orders is blocked") for line in lines)


def test_status_check_ends_with_3_if_a_table_needs_attention(shop, cli):
    cli("sync", shop.root)
    assert cli("status", shop.root, "--check").code == 0
    shop.halt()
    cli("sync", shop.root)
    assert (cli("status", shop.root).code, cli("status", shop.root, "--check").code) == (0, 3)


def test_status_shows_the_publisher(shop, cli):
    source = {"sourceType": "PostgreSQL", "sourceVersion": "17"}
    for events, expected in (
        ({"partnerName": "Acme.Sync", "sourceInfo": source}, "published by Acme.Sync from PostgreSQL 17"),
        ({"partnerName": "A" * 10_000}, f"published by {'A' * 100}…"),
        ({}, ""),
    ):
        shop.publisher.partner_events(**events)
        assert cli("status", shop.root).out.splitlines()[1] == expected


def test_status_shows_many_ignored_files_in_a_few_lines(shop, cli):
    for number in range(60):
        (shop.root / f"Files/LandingZone/Items/{number}.txt").touch()
    printed = cli("status", shop.root)
    assert "… and 52 more" in printed.out
    assert len(printed.out.splitlines()) < 40
    for command in ("status", "plan"):
        assert "  ignored: Items/0.txt: extension txt" in cli(command, shop.root).out


def test_status_shows_that_an_engine_is_running(shop, cli):
    cli("sync", shop.root)
    with FileLock(shop.root / LOCK):
        assert "engine running" in cli("status", shop.root).out
        assert json.loads(cli("status", shop.root, "--json").out)["engine_running"] is True


def test_status_before_any_engine_writes_nothing(shop, cli):
    assert cli("status", shop.root).code == 0
    assert not (shop.root / "Tables").exists()


@pytest.mark.slow
@pytest.mark.parametrize("form", [("--json",), ()])
def test_status_watch_prints_until_it_is_stopped(shop, cli, form):
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    printed = cli("status", shop.root, "--watch", "--interval", "100ms", *form)
    assert printed.code == 0
    if form:
        assert len(printed.out.splitlines()) > 1


def test_tables_lists_delta_tables(shop, cli):
    assert cli("tables", shop.root).out == "There are no Delta tables yet.\n"
    cli("sync", shop.root)
    tables = {table["table"]: table for table in json.loads(cli("tables", shop.root, "--json").out)["tables"]}
    assert tables["Items"]["landing_folder"] == "Items"
    assert tables["Items"]["delta_path"] == "Tables/dbo/Items"
    assert tables["Sales.Orders"]["landing_folder"] == "Sales.schema/Orders"
    assert [column["type"] for column in tables["Items"]["columns"]] == ["long", "string"]
    assert "Sales.Orders" in cli("tables", shop.root).out
    shop.publisher.remove("Items")
    (items,) = [t for t in json.loads(cli("tables", shop.root, "--json").out)["tables"] if t["table"] == "Items"]
    assert items["landing_folder"] is None


def test_show_prints_values_as_they_are(shop, cli):
    shop.items.upsert({"Id": 9, "Name": "a\x1b[2Jb\nc"})
    cli("sync", shop.root)
    printed = cli("show", "-C", shop.root, "items")
    assert all(text in printed.out for text in ("[red]seven[/red]", "NULL", "a\\x1b[2Jb\\nc"))
    assert printed.out.endswith("3 rows\n")


def test_show_says_whether_there_are_more_rows(shop, cli):
    cli("sync", shop.root)
    assert "1 row; there are more" in cli("show", "-C", shop.root, "Items", "--limit", 1).out
    for limit, has_more, rows in ((1, True, 1), (2, False, 2), (0, False, 2)):
        document = json.loads(cli("show", "-C", shop.root, "Items", "--limit", limit, "--json").out)
        assert (document["has_more"], len(document["rows"])) == (has_more, rows)


def test_show_reads_an_earlier_version(shop, cli):
    cli("sync", shop.root)
    history = json.loads(cli("history", "-C", shop.root, "Items", "--json").out)
    shop.items.delete({"Id": 7})
    cli("sync", shop.root)
    for words, rows in ((["--at-version", history["commits"][0]["version"]], 2), ([], 1)):
        assert len(json.loads(cli("show", "-C", shop.root, "Items", *words, "--json").out)["rows"]) == rows
    assert cli("show", "-C", shop.root, "Items", "--at-version", 99).code == 2


def test_history_shows_which_commit_applied_which_files(shop, cli):
    for number in range(5):
        shop.items.upsert({"Id": number, "Name": "x"})
    cli("sync", shop.root)
    printed = cli("history", "-C", shop.root, "Items").out
    assert "00000000000000000001.parquet … 00000000000000000006.parquet (6 files)" in printed
    newest = json.loads(cli("history", "-C", shop.root, "Items", "--json").out)["commits"][0]
    assert (len(newest["files"]), newest["rows"]) == (6, 7)


@pytest.mark.parametrize("command", ["show", "history", "maintain"])
def test_an_unknown_table_is_a_usage_error_with_a_near_match(shop, cli, command):
    cli("sync", shop.root)
    printed = cli(command, "-C", shop.root, "Itmes")
    assert printed.code == 2
    assert printed.err.startswith("error: ")
    assert "Itmes" in printed.err
    assert "id you mean dbo.Items?" in printed.err
