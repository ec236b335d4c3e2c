"""Every command against the real engine over the reference writer: what it prints and how it ends."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest
from filelock import FileLock
from json_shapes import documented, shape
from scripted_faults import Fault

from mirror_engine import Mirror
from mirror_engine.engine import root_identity
from mirror_engine.errors import StorageUnavailable, TableDamaged
from mirror_engine.landing_zone.layout import LOCK


def latch(shop) -> None:
    shop.items.land(b"")


def block(shop) -> None:
    shop.orders.skip_numbers()
    shop.orders.upsert({"Id": 3, "Name": "three"})


def test_once_applies_everything_and_says_how_much(shop, say) -> None:
    said = say("once", shop.root)
    assert said.code == 0
    assert said.out.startswith("caught_up: 2 files, 4 rows in 2 commits")
    assert said.err == ""
    assert say("once", shop.root).out.startswith("caught_up: 0 files, 0 rows in 0 commits")


def test_once_ends_with_3_where_a_table_is_latched_and_applies_the_others(shop, say) -> None:
    latch(shop)
    said = say("once", shop.root)
    assert said.code == 3
    assert (
        "Items is halted: 00000000000000000002.parquet: file is empty (0 bytes) [ME023]; 1 file pending\n  -> delete"
        in said.out
    )
    assert "Sales.schema/Orders" not in said.out
    assert shop.writer.row_count("Sales/Orders") == 2


def test_once_ends_with_3_where_a_table_is_blocked(shop, say) -> None:
    block(shop)
    said = say("once", shop.root)
    assert said.code == 3
    assert "Sales.Orders is blocked: 00000000000000000002.parquet is missing" in said.out


@pytest.mark.parametrize("command", ["once", "maintain"])
def test_a_second_engine_says_so_and_ends_with_4(shop, say, command, monkeypatch) -> None:
    monkeypatch.setattr(root_identity, "LOCK_TIMEOUT_SECONDS", 0.01)
    (shop.root / LOCK).parent.mkdir()
    with FileLock(shop.root / LOCK):
        said = say(command, shop.root)
    assert said.code == 4
    assert "another engine" in said.err


def test_the_json_of_every_command_has_the_documented_shape(shop, say) -> None:
    latch(shop)
    block(shop)
    shop.orders.writer.partner_events(partnerName="Acme.Sync")
    (shop.root / "Files/LandingZone/Sales.schema/Orders/stray.txt").touch()
    (shop.root / "Files/LandingZone/stray.parquet").touch()
    for words in (
        ("once", shop.root),
        ("status", shop.root),
        ("tables", shop.root),
        ("show", shop.root, "Items"),
        ("history", shop.root, "Items"),
        ("init", shop.root / "new"),
    ):
        said = say(*words, "--json")
        assert said.out.count("\n") == 1, words
        assert shape(json.loads(said.out)) == documented(words[0]), words


def test_status_says_why_a_table_stands_still_and_what_to_do(shop, say) -> None:
    latch(shop)
    block(shop)
    say("once", shop.root)
    said = say("status", shop.root)
    assert said.code == 0
    told = [line.strip() for line in said.out.splitlines()]
    assert "rejected: 00000000000000000002.parquet: file is empty (0 bytes)" in told
    assert "pending: 00000000000000000003.parquet: 00000000000000000002.parquet is missing" in told
    assert any(line.startswith("-> land 00000000000000000002.parquet") for line in told)
    assert "no engine is running" in told[0]


def test_status_says_who_publishes(shop, say) -> None:
    source = {"sourceType": "PostgreSQL", "sourceVersion": "17"}
    shop.orders.writer.partner_events(partnerName="Acme.Sync", sourceInfo=source)
    assert say("status", shop.root).out.splitlines()[1] == "published by Acme.Sync from PostgreSQL 17"
    told = json.loads(say("status", shop.root, "--json").out)["partner"]
    assert told == {"name": "Acme.Sync", "source_type": "PostgreSQL", "source_version": "17"}
    shop.orders.writer.partner_events(partnerName="A" * 10_000)
    assert say("status", shop.root).out.splitlines()[1] == f"published by {'A' * 100}…"
    shop.orders.writer.partner_events()
    assert say("status", shop.root).out.splitlines()[1] == ""


def test_status_tells_many_ignored_files_in_a_few_lines(shop, say) -> None:
    for number in range(60):
        (shop.root / f"Files/LandingZone/Items/{number}.txt").touch()
    said = say("status", shop.root)
    assert "... and 52 more" in said.out
    assert len(said.out.splitlines()) < 40


def test_status_knows_that_an_engine_is_running(shop, say) -> None:
    say("once", shop.root)
    with FileLock(shop.root / LOCK):
        assert "engine is running" in say("status", shop.root).out
        assert json.loads(say("status", shop.root, "--json").out)["engine_running"] is True


def test_status_before_anything_ran_needs_no_trace_of_an_engine(shop, say) -> None:
    said = say("status", shop.root)
    assert said.code == 0
    assert "never ran here" in said.out
    assert not (shop.root / "Tables").exists()


def test_tables_lists_what_came_out(shop, say) -> None:
    assert say("tables", shop.root).out == "No table has been mirrored here yet.\n"
    say("once", shop.root)
    (items,) = [table for table in json.loads(say("tables", shop.root, "--json").out)["tables"] if table["rows_live"]][
        1:
    ]
    assert items["delta_folder"] == "dbo/Items"
    assert [column["type"] for column in items["columns"]] == ["long", "string"]
    assert "Sales/Orders" in say("tables", shop.root).out


def test_show_prints_values_as_they_are(shop, say) -> None:
    shop.items.upsert({"Id": 9, "Name": "a\x1b[2Jb\nc"})
    say("once", shop.root)
    said = say("show", shop.root, "items")
    assert "[red]seven[/red]" in said.out
    assert "NULL" in said.out
    assert "a\\x1b[2Jb\\nc" in said.out
    assert said.out.endswith("3 rows\n")


def test_show_says_that_there_are_more_rows(shop, say) -> None:
    say("once", shop.root)
    assert "1 row; there are more" in say("show", shop.root, "Items", "--limit", 1).out
    assert json.loads(say("show", shop.root, "Items", "--limit", 1, "--json").out)["more"] is True
    assert json.loads(say("show", shop.root, "Items", "--limit", 2, "--json").out)["more"] is False
    assert len(json.loads(say("show", shop.root, "Items", "--limit", 0, "--json").out)["rows"]) == 2


def test_show_travels_in_time(shop, say) -> None:
    say("once", shop.root)
    before = json.loads(say("history", shop.root, "Items", "--json").out)["commits"][0]["version"]
    shop.items.delete({"Id": 7})
    say("once", shop.root)
    rows = json.loads(say("show", shop.root, "Items", "--version", before, "--json").out)["rows"]
    assert len(rows) == 2
    assert len(json.loads(say("show", shop.root, "Items", "--json").out)["rows"]) == 1
    assert say("show", shop.root, "Items", "--version", 99).code == 2


def test_history_says_which_commit_holds_which_files(shop, say) -> None:
    for number in range(5):
        shop.items.upsert({"Id": number, "Name": "x"})
    say("once", shop.root)
    said = say("history", shop.root, "Items").out
    assert "00000000000000000001.parquet … 00000000000000000006.parquet (6 files)" in said
    newest = json.loads(say("history", shop.root, "Items", "--json").out)["commits"][0]
    assert (len(newest["files"]), newest["rows"]) == (6, 7)


def test_batch_files_is_a_flag(shop, say) -> None:
    shop.items.upsert({"Id": 9, "Name": "nine"})
    assert "in 3 commits" in say("once", shop.root, "--max-batch-files", 1).out


@pytest.mark.parametrize("command", ["show", "history", "maintain"])
def test_an_unknown_table_is_wrong_usage_with_a_near_match(shop, say, command) -> None:
    say("once", shop.root)
    said = say(command, shop.root, "Itmes")
    assert said.code == 2
    assert said.err.splitlines()[0] == "Itmes: no such table"
    assert "Did you mean dbo.Items?" in said.err


def test_maintain_names_every_table(shop, say) -> None:
    assert say("maintain", shop.root).out == "No table has been mirrored here yet.\n"
    say("once", shop.root)
    said = say("maintain", shop.root)
    assert said.code == 0
    assert [line.partition(":")[0] for line in said.out.splitlines()] == ["Sales/Orders", "dbo/Items"]
    assert list(json.loads(say("maintain", shop.root, "Items", "--json").out)["tables"]) == ["dbo/Items"]


@pytest.mark.parametrize(
    ("error", "code"),
    [(TableDamaged("Tables/Sales/Orders", "its log ends early"), 3), (StorageUnavailable("no room", "make some"), 4)],
)
def test_a_table_that_cannot_be_maintained_keeps_no_other_from_it(shop, say, monkeypatch, error, code) -> None:
    say("once", shop.root)
    maintain = shop.writer.maintain

    def maintain_but_orders(table, *more):
        if table == "Sales/Orders":
            raise error
        return maintain(table, *more)

    monkeypatch.setattr(shop.writer, "maintain", maintain_but_orders)
    said = say("maintain", shop.root)
    assert said.code == code
    assert said.out.startswith("dbo/Items: ")
    assert said.err == f"Sales/Orders: {error.message}\n  -> {error.help}\n"
    said = say("maintain", shop.root, "--json")
    assert (said.code, said.err) == (code, "")
    told = json.loads(said.out)
    assert list(told["tables"]) == ["dbo/Items"]
    assert told["failed"]["Sales/Orders"] == {
        "kind": type(error).__name__,
        "message": error.message,
        "help": error.help,
    }
    with Mirror(shop.root, writer=shop.writer) as mirror, pytest.raises(type(error)):
        mirror.maintain()


def test_the_gravest_of_several_failures_decides_how_maintain_ends(shop, say, monkeypatch) -> None:
    say("once", shop.root)
    errors = {"Sales/Orders": TableDamaged("here", "its log ends early"), "dbo/Items": StorageUnavailable("no room")}

    def refuse(table, *_):
        raise errors[table]

    monkeypatch.setattr(shop.writer, "maintain", refuse)
    assert say("maintain", shop.root).code == 3
    errors["Sales/Orders"] = OSError("unforeseen")
    said = say("maintain", shop.root)
    assert said.code == 1
    assert "Sales/Orders: unforeseen: OSError" in said.err
    assert "dbo/Items: no room" in said.err


def test_restart_drops_nothing_unless_confirmed(shop, say) -> None:
    say("once", shop.root)
    said = say("restart", shop.root)
    assert said.code == 2
    assert "--yes" in said.err
    assert shop.writer.tables()


def test_restart_begins_anew_and_lists_what_is_lost(shop, say) -> None:
    shop.items.upsert({"Id": 9, "Name": "nine"})
    say("once", shop.root)
    said = say("restart", shop.root, "--yes", "--json")
    assert shape(json.loads(said.out)) == documented("restart")
    assert [found["code"] for found in json.loads(said.out)["diagnostics"]] == ["ME069"]
    assert shop.writer.tables() == []


def test_init_refuses_to_overwrite(shop, say) -> None:
    said = say("init", shop.root)
    assert said.code == 2
    assert "nothing was written" in said.err


def test_init_refuses_a_place_that_is_a_file(tmp_path, say) -> None:
    (tmp_path / "file").touch()
    assert say("init", tmp_path / "file").code == 2


@pytest.mark.slow
def test_what_init_writes_ends_level(shop, say) -> None:
    root = shop.root / "example"
    said = say("init", root)
    assert said.code == 0
    assert "_metadata.example.jsonc" in said.out
    assert say("once", root).code == 0
    assert len(shop.writer.tables()) == 4


def run_until_level(shop, say, number=signal.SIGTERM):
    def stop_once_level() -> None:
        while shop.writer.row_count("dbo/Items") is None or shop.writer.row_count("Sales/Orders") is None:
            pause.wait(0.01)
        os.kill(os.getpid(), number)

    pause = threading.Event()
    watcher = threading.Thread(target=stop_once_level)
    watcher.start()
    said = say("run", shop.root, "--poll-interval", "0.05", "--log-format", "json", "--json")
    watcher.join()
    return said


def test_run_outlives_a_zone_that_cannot_be_listed_and_says_so(shop, say) -> None:
    shop.faults[1] = Fault.REFUSED
    events = [json.loads(line) for line in run_until_level(shop, say).err.splitlines()]
    assert [event.get("code") for event in events if event["level"] == "warning"][:2] == ["ME070", "ME072"]
    assert shop.writer.row_count("dbo/Items") == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
@pytest.mark.slow
def test_run_works_until_a_signal_and_logs_one_line_an_event(shop, say, number, code) -> None:
    said = run_until_level(shop, say, number)
    assert said.code == code
    events = [json.loads(line) for line in said.err.splitlines()]
    assert next(event["event"] for event in events) == "started"
    assert [event["event"] for event in events][-1] == "stopped"
    assert [event["event"] for event in events].count("batch_committed") == 2
    report = json.loads(said.out)
    assert shape(report) == documented("run")
    assert (report["exit_code"], report["rows"]) == (code, 4)


@pytest.mark.slow
def test_status_watch_prints_until_it_is_stopped(shop, say) -> None:
    timer = threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    said = say("status", shop.root, "--watch", "--every", "0.1", "--json")
    assert said.code == 0
    assert len(said.out.splitlines()) > 1
