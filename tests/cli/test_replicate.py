"""`sync`, `run` and `wait` against the real engine over the reference writer."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest
from filelock import FileLock
from scripted_faults import Fault

from mirror_engine.config import Config, write_effective
from mirror_engine.engine import root_identity
from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.layout import LOCK, OPTIONS
from mirror_engine.mirror import Mirror

FIRST = f"Items/{1:020}.parquet"


def test_sync_applies_everything_and_reports_how_much(shop, cli):
    printed = cli("sync", shop.root)
    assert (printed.code, printed.err) == (0, "")
    assert printed.out.startswith("Applied 2 files (4 rows) to 2 tables in 2 commits (")
    assert printed.out.endswith("). All tables have caught up.\n")
    assert cli("sync", shop.root).out.startswith("Nothing to apply (")


def test_root_is_given_by_c_by_argument_by_variable_or_is_here(shop, cli, monkeypatch):
    for words in (["-C", shop.root, "sync"], ["sync", "-C", shop.root], ["sync", shop.root]):
        assert cli(*words).code == 0, words
    monkeypatch.setenv("MIRROR_ENGINE_ROOT", str(shop.root))
    assert cli("sync").code == 0
    monkeypatch.delenv("MIRROR_ENGINE_ROOT")
    monkeypatch.chdir(shop.root)
    assert cli("sync").code == 0
    twice = cli("sync", shop.root, "-C", shop.root)
    assert (twice.code, "given twice" in twice.err) == (2, True)


def test_sync_reports_a_halted_table_like_a_compiler_and_applies_the_others(shop, cli):
    shop.halt()
    printed = cli("sync", shop.root)
    assert printed.code == 3
    lines = printed.out.splitlines()
    assert lines[0] == "error[ME023]: file is empty (0 bytes)"
    assert lines[1].rstrip() == "  --> Files/LandingZone/Items/00000000000000000002.parquet"
    assert lines[2].startswith("  help: delete it")
    assert lines[3] == "Items is halted; 1 file pending."
    assert lines[-1].endswith("1 of 2 tables have caught up.")
    assert shop.writer.row_count("Sales/Orders") == 2


def test_sync_names_the_file_that_a_blocked_table_lacks(shop, cli):
    shop.block()
    printed = cli("sync", shop.root)
    assert printed.code == 3
    (line,) = [line for line in printed.out.splitlines() if line.startswith("Sales.Orders is blocked")]
    assert "00000000000000000002.parquet" in line


def test_flags_of_options_are_applied(shop, cli):
    shop.items.upsert({"Id": 9, "Name": "nine"})
    assert "in 3 commits" in cli("sync", shop.root, "--max-batch-files", 1).out


@pytest.mark.parametrize("command", [("sync",), ("maintain", "-C")])
def test_a_second_engine_ends_with_4(shop, cli, command, monkeypatch):
    monkeypatch.setattr(root_identity, "LOCK_TIMEOUT_SECONDS", 0.01)
    (shop.root / LOCK).parent.mkdir()
    with FileLock(shop.root / LOCK):
        printed = cli(*command, shop.root)
    assert (printed.code, "another engine" in printed.err) == (4, True)


def run_until_applied(shop, cli, *words, number=signal.SIGTERM):
    def stop_when_applied() -> None:
        while shop.writer.row_count("dbo/Items") is None or shop.writer.row_count("Sales/Orders") is None:
            pause.wait(0.01)
        os.kill(os.getpid(), number)

    pause = threading.Event()
    watcher = threading.Thread(target=stop_when_applied)
    watcher.start()
    printed = cli("run", shop.root, "--poll-interval", "50ms", "--log-format", "json", "--json", *words)
    watcher.join()
    return printed


def test_run_retries_a_zone_that_cannot_be_listed_and_logs_it(shop, cli):
    shop.faults[1] = Fault.REFUSED
    events = [json.loads(line) for line in run_until_applied(shop, cli).err.splitlines()]
    assert [event.get("code") for event in events if event["level"] == "warning"][:2] == ["ME070", "ME072"]
    assert shop.writer.row_count("dbo/Items") == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
@pytest.mark.slow
def test_run_works_until_a_signal_and_logs_one_line_per_event(shop, cli, number, code):
    printed = run_until_applied(shop, cli, number=number)
    names = [json.loads(line)["event"] for line in printed.err.splitlines()]
    assert (printed.code, names[0], names[-1], names.count("commit_finished")) == (code, "started", "stopped", 2)
    report = json.loads(printed.out)
    assert list(report)[:2] == ["schema_version", "command"]
    assert (report["exit_code"], report["rows_applied"]) == (code, 4)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "levels"), [(("-v",), {"debug", "info"}), (("-q",), set())])
def test_verbosity_chooses_what_run_logs(shop, cli, words, levels):
    printed = run_until_applied(shop, cli, *words)
    assert {json.loads(line)["level"] for line in printed.err.splitlines()} == levels


def after(seconds, action):
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


@pytest.mark.slow
class TestWait:
    def test_tables_that_have_caught_up_end_it_at_once(self, shop, cli):
        cli("sync", shop.root)
        printed = cli("wait", shop.root, "--for", "caught-up", "--timeout", "0")
        assert (printed.code, printed.err) == (0, "")
        assert printed.out.startswith("All 2 tables have caught up (0.")

    def test_it_returns_when_an_engine_has_applied_everything(self, shop, cli):
        timer = after(0.15, lambda: Mirror(shop.root, writer=shop.writer).sync())
        printed = cli("wait", shop.root, "--timeout", "20s", "--interval", "50ms", "--json")
        timer.join()
        assert (printed.code, json.loads(printed.out)["result"]) == (0, "reached")
        assert cli("wait", shop.root, "--for", f"file={FIRST}", "--timeout", "0").out.startswith(f"{FIRST} is applied")

    def test_after_the_timeout_each_table_has_its_reason_and_help(self, shop, cli):
        cli("sync", shop.root)
        shop.halt()
        shop.block()
        cli("sync", shop.root)
        printed = cli("wait", shop.root, "--timeout", "1s", "--interval", "50ms")  # a first check may take long
        assert (printed.code, printed.out) == (4, "")
        assert printed.err.count("start `mirror-engine run`") == 1
        _, head, *lines = printed.err.splitlines()
        assert head.startswith("error: timed out after ")
        assert head.endswith(": 2 tables have not caught up; no engine is running")
        assert lines[0].startswith("  Sales.Orders is blocked: 00000000000000000002.parquet is missing")
        assert lines[1].startswith("  help: ")
        assert lines[2].startswith("  Items is halted: ")

    def test_a_running_engine_is_given_as_the_reason(self, shop, cli):
        (shop.root / LOCK).parent.mkdir()
        with FileLock(shop.root / LOCK):
            printed = cli("wait", shop.root, "--timeout", "0")
        assert printed.code == 4
        assert "the engine is still working: wait longer (--timeout)" in printed.err

    def test_a_table_that_does_not_exist_yet_is_waited_for(self, shop, cli):
        printed = cli("wait", shop.root, "--table", "Nowhere", "--timeout", "100ms")
        assert printed.code == 4
        assert "\n  Nowhere: " in printed.err

    def test_a_halted_table_ends_it_only_with_fail_fast(self, shop, cli):
        shop.halt()
        cli("sync", shop.root)
        assert cli("wait", shop.root, "--fail-fast", "--timeout", "20s").code == 3
        assert cli("wait", shop.root, "--fail-fast", "--table", "Sales.Orders", "--timeout", "20s").code == 0
        assert cli("wait", shop.root, "--timeout", "0").code == 4

    def test_a_storage_error_is_retried(self, shop, cli, monkeypatch):
        cli("sync", shop.root)
        fails = iter([True, False])
        status = Mirror.status

        def failing(mirror):
            if next(fails, False):
                raise StorageUnavailable("the zone cannot be listed", "check the disk")
            return status(mirror)

        monkeypatch.setattr(Mirror, "status", failing)
        assert cli("wait", shop.root, "--timeout", "20s", "--interval", "50ms").code == 0
        fails = iter([True])
        printed = cli("wait", shop.root, "--timeout", "0")
        assert (printed.code, "the zone cannot be listed" in printed.err) == (4, True)

    def test_ctrl_c_ends_it_with_130(self, shop, cli):
        timer = after(0.15, lambda: os.kill(os.getpid(), signal.SIGINT))
        assert cli("wait", shop.root, "--timeout", "20s").code == 130
        timer.join()

    @pytest.mark.parametrize(
        "words",
        [["--for", "dawn"], ["--for", "file="], ["--interval", "0"], ["--timeout", "-1"], ["--timeout", "soon"]],
    )
    def test_invalid_values_are_usage_errors(self, shop, cli, words):
        assert cli("wait", shop.root, *words).code == 2

    def test_a_missing_root_is_a_usage_error_at_once(self, shop, cli):
        assert cli("wait", shop.root / "nowhere", "--timeout", "20s").code == 2


@pytest.mark.parametrize("words", [("status",), ("plan",), ("wait", "--timeout", "0")])
def test_readers_take_the_options_of_the_running_engine_unless_a_flag_says_otherwise(shop, cli, words):
    (shop.root / LOCK).parent.mkdir()
    write_effective(shop.root / OPTIONS, Config(default_schema="shop"))
    command, *more = words

    def deltas(*flags):
        tables = json.loads(cli(command, shop.root, *more, *flags, "--json").out).get("tables", [])
        return {table.get("delta_path", table.get("delta_folder", "")).rpartition("Tables/")[2] for table in tables}

    if command != "wait":
        assert "dbo/Items" in deltas()  # no engine is running: those of this command
    with FileLock(shop.root / LOCK):
        if command != "wait":
            assert "shop/Items" in deltas()
            assert "other/Items" in deltas("--default-schema", "other")
        else:
            found = json.loads(cli("wait", shop.root, "--table", "shop.Items", "--timeout", "0", "--json").out)
            assert [entry["table"] for entry in found["unmet"]] == ["Items"]
