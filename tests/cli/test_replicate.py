"""`sync`, `run` and `wait` against the real engine over the reference writer."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from unittest.mock import Mock

import pytest
from filelock import FileLock
from scripted_faults import Failing, Fault, faulty

from mirror_engine.config import Config, write_effective
from mirror_engine.engine import lock
from mirror_engine.errors import NoAccess, StorageUnavailable
from mirror_engine.landing_zone.layout import LOCK, OPTIONS
from mirror_engine.mirror import Mirror
from mirror_engine.storage.local import LocalStorage

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look


@pytest.mark.parametrize("command", [("sync",), ("maintain", "-C")])
def test_a_second_engine_ends_with_4(sales, cli, command, monkeypatch):
    monkeypatch.setattr(lock, "LOCK_TIMEOUT_SECONDS", 0.01)
    (sales.root / LOCK).parent.mkdir()
    with FileLock(sales.root / LOCK):
        printed = cli(*command, sales.root)
    assert (printed.code, "another engine" in printed.err) == (4, True)


@pytest.mark.parametrize(
    "case",
    [
        ("open .*Items.*parquet", "Items", "Items: 1 file pending, first commit not made yet."),
        ("write .*json", None, ""),
    ],
)
def test_sync_says_why_a_table_was_not_applied(sales, cli, monkeypatch, case):
    call, table, unapplied = case
    monkeypatch.setattr("mirror_engine.engine.cycle.MAX_SYNC_ATTEMPTS", 1)
    script = Failing(call, lambda text: StorageUnavailable(text, "give it back"))
    monkeypatch.setattr("mirror_engine.mirror.open_storage", lambda place, *_: faulty(LocalStorage(place), script))
    printed = cli("sync", sales.root)  # the other table is applied, and this one waits meanwhile
    assert (printed.code, "start `mirror-engine run`" in printed.out) == (4, False)
    assert re.search(rf"{unapplied}\nerror: {call}.*: scripted\n +help: give it back\n", f"\n{printed.out}")
    document = json.loads(cli("sync", sales.root, "--json").out)
    failures = {entry.get("table"): entry["last_failure"] for entry in [document, *document["tables"]]}
    failure = failures.pop(table)
    assert (failure["code"], failure["help"], [*failures.values()]) == (
        "storage_unavailable",
        "give it back",
        [None] * 2,
    )
    assert re.fullmatch(f"{call}.*: scripted", failure["message"])
    status = json.loads(cli("status", sales.root, "--json").out)  # another process, and later
    assert [entry["last_failure"] for entry in [status, *status["tables"]] if entry["last_failure"]] == [failure]
    for words in (("status",), ("wait", "--timeout", "0"))[: 2 if table else 1]:
        printed = cli(*words, sales.root)
        assert f"last failure: {failure['message']}\n" in printed.out + printed.err
        assert "help: give it back" in printed.out + printed.err
    script.is_over = True
    assert cli("sync", sales.root).code == 0
    assert "last failure" not in cli("status", sales.root).out


def test_sync_and_wait_do_not_hide_ignored_data_behind_tables_that_have_caught_up(sales, cli):
    (sales.root / "Files/LandingZone/Items/data.csv").touch()
    (sales.root / "Files/LandingZone/stray.parquet").touch()
    printed = cli("sync", sales.root)
    assert printed.code == 0
    assert printed.out.endswith("All tables have caught up, but 2 paths with data are ignored.\n")
    assert "Items has caught up; 1 ignored path with data.\n  ignored: Items/data.csv: extension `csv`" in printed.out
    assert "warning[ME002]: ignored: file is not in a table folder\n" in printed.out
    assert "; 1 ignored path with data" in json.loads(cli("sync", sales.root, "--json").out)["tables"][1]["message"]
    waited = cli("wait", sales.root, "--timeout", "0")
    assert (waited.code, "All 2 tables have caught up, but 2 paths with data are ignored (" in waited.out) == (0, True)


def test_run_waits_in_an_empty_folder_for_a_zone_to_come(cli, tmp_path):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    assert cli("run", tmp_path, "--poll-interval", "50ms").code == 0


def test_run_on_a_terminal_shows_commits_findings_and_a_report_and_no_log(sales, cli, terminal, monkeypatch):
    monkeypatch.setattr("mirror_engine.tables.spark.choice.find_spec", lambda _: object())
    sales.halt()
    printed = run_until_applied(sales, cli, words=())
    shown = " ".join(terminal.file.getvalue().split())  # lines end where the folder's name lets them
    assert (printed.code, printed.err) == (0, "")
    for text in (
        ": applying change files as",
        "Items v1: 1 file, 2 rows (",
        "Items is halted.",
        "error[ME023]",
        "Applied 2 files (4 rows) to 2 tables",
    ):
        assert text in shown
    assert ("event=" in shown, shown.count("--merge-engine arrow")) == (False, 1)


def test_run_on_a_terminal_logs_where_a_format_is_asked_for(sales, cli, terminal):
    assert "event=started" in run_until_applied(sales, cli, words=("--log-format", "text")).err
    assert terminal.file.getvalue() == ""


@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_run_suggests_arrow_once_where_spark_is_the_default(sales, cli, engine, monkeypatch):
    monkeypatch.setattr("mirror_engine.tables.spark.choice.find_spec", lambda _: object())
    printed = run_until_applied(sales, cli, "--merge-engine", engine)
    events = [json.loads(line) for line in printed.err.splitlines()]
    suggested = [event["message"] for event in events if event["event"] == "quicker_merge_engine"]
    assert len(suggested) == (engine == "auto")
    assert all("--merge-engine arrow" in message for message in suggested)


def run_until_applied(shop, cli, *more, number=signal.SIGTERM, words=("--log-format", "json", "--json")):
    def stop_when_applied():
        while shop.writer.snapshot("dbo/Items") is None or shop.writer.snapshot("Sales/Orders") is None:
            pause.wait(0.01)
        os.kill(os.getpid(), number)

    pause = threading.Event()
    watcher = threading.Thread(target=stop_when_applied)
    watcher.start()
    printed = cli("run", shop.root, "--poll-interval", "50ms", *words, *more)
    watcher.join()
    return printed


def test_run_retries_a_zone_that_cannot_be_listed_and_logs_it(sales, cli):
    sales.faults[1] = Fault.REFUSED
    events = [json.loads(line) for line in run_until_applied(sales, cli).err.splitlines()]
    assert [event.get("code") for event in events if event["level"] == "warning"][:2] == ["ME070", "ME072"]
    assert sales.writer.snapshot("dbo/Items").count_rows() == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_run_works_until_a_signal_and_logs_one_line_per_event(sales, cli, number, code):
    printed = run_until_applied(sales, cli, number=number)
    names = [json.loads(line)["event"] for line in printed.err.splitlines()]
    assert (printed.code, names[0], names[-1], names.count("commit_finished")) == (code, "started", "stopped", 2)
    report = json.loads(printed.out)
    assert list(report)[:2] == ["schema_version", "command"]
    assert (report["exit_code"], report["rows_applied"]) == (code, 4)


@pytest.mark.parametrize(("words", "levels"), [(("-v",), {"debug", "info"}), (("-q",), set())])
def test_verbosity_chooses_what_run_logs(sales, cli, words, levels):
    printed = run_until_applied(sales, cli, *words)
    assert {json.loads(line)["level"] for line in printed.err.splitlines()} == levels


def after(seconds, action):
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


class TestWait:
    def test_a_running_engine_is_given_as_the_reason(self, sales, cli):
        (sales.root / LOCK).parent.mkdir()
        with FileLock(sales.root / LOCK):
            printed = cli("wait", sales.root, "--timeout", "0")
        assert printed.code == 4
        assert "the engine is still working: wait longer (--timeout)" in printed.err

    def test_it_says_every_ten_seconds_what_it_waits_for_until_it_is_there(self, sales, cli, monkeypatch):
        def seen(mirror, also):
            calls.append(status(mirror, also))
            if len(calls) == 2:
                sales.items.insert({"Id": 9, "Name": "nine"})
            if len(calls) == 3:
                mirror.sync()
            return calls[-1]

        calls, status = [], Mirror._status
        monkeypatch.setattr(Mirror, "_status", seen)
        monkeypatch.setattr("mirror_engine.cli.replicate.NOTE_SECONDS", 0)
        printed = cli("wait", sales.root, "--timeout", "60s", "--interval", "50ms", "--table", "Items", "--json")
        assert (printed.code, json.loads(printed.out)["result"]) == (0, "reached")
        assert re.findall(r"^\[.*\] (.*)", printed.err, re.MULTILINE) == [
            "Items: 1 file pending, first commit not made yet",
            "Items: 1 file pending, first commit not made yet; nothing landed",
            "Items: 2 files pending, first commit not made yet",
        ]

    def test_a_storage_error_is_retried(self, sales, cli, monkeypatch):
        cli("sync", sales.root)
        fails = iter([True, False])
        status = Mirror._status

        def failing(mirror, also=""):
            if next(fails, False):
                raise StorageUnavailable("the zone cannot be listed", "check the disk")
            return status(mirror, also)

        monkeypatch.setattr(Mirror, "_status", failing)
        assert cli("wait", sales.root, "--timeout", "20s", "--interval", "50ms").code == 0
        fails = iter([True])
        printed = cli("wait", sales.root, "--timeout", "0")
        assert (printed.code, "the zone cannot be listed" in printed.err) == (4, True)

    def test_no_access_ends_it_at_once(self, sales, cli, monkeypatch):
        monkeypatch.setattr(Mirror, "_status", Mock(side_effect=NoAccess("no credential was found")))
        assert cli("wait", sales.root, "--timeout", "60s").code == 1

    def test_ctrl_c_ends_it_with_130(self, sales, cli):
        timer = after(0.15, lambda: os.kill(os.getpid(), signal.SIGINT))
        started = time.monotonic()
        assert cli("wait", sales.root, "--timeout", "60s").code == 130
        timer.join()
        assert time.monotonic() - started < 30


@pytest.mark.parametrize("words", [("status",), ("plan",), ("wait", "--timeout", "0")])
def test_readers_take_the_options_of_the_running_engine_unless_a_flag_says_otherwise(sales, cli, words):
    (sales.root / LOCK).parent.mkdir()
    write_effective(sales.root / OPTIONS, Config(default_schema="shop"))
    command, *more = words

    def deltas(*flags):
        tables = json.loads(cli(command, sales.root, *more, *flags, "--json").out).get("tables", [])
        return {table.get("delta_path", table.get("delta_folder", "")).rpartition("Tables/")[2] for table in tables}

    if command != "wait":
        assert "dbo/Items" in deltas()  # no engine is running: those of this command
    with FileLock(sales.root / LOCK):
        if command != "wait":
            assert "shop/Items" in deltas()
            assert "other/Items" in deltas("--default-schema", "other")
        else:
            found = json.loads(cli("wait", sales.root, "--table", "shop.Items", "--timeout", "0", "--json").out)
            assert [entry["table"] for entry in found["unmet"]] == ["Items"]
