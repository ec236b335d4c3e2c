"""`maintain`, `rebuild`, `init` and `doctor`; damaged tables, and tables that another program changed."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from lake import Lake

from mirror_engine import Mirror
from mirror_engine.errors import StorageUnavailable, TableDamaged
from mirror_engine.tables.spark import doctor as machine

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look


def test_a_table_that_fails_does_not_stop_the_others(sales, cli, monkeypatch):
    cli("sync", sales.root)
    maintain = sales.writer.maintain

    def maintain_all_but_orders(table, *more):
        if table == "Sales/Orders":
            raise StorageUnavailable("no room", "make some")
        return maintain(table, *more)

    monkeypatch.setattr(sales.writer, "maintain", maintain_all_but_orders)
    printed = cli("maintain", "-C", sales.root)
    assert (printed.code, printed.out.startswith("Items: ")) == (4, True)
    assert printed.err == "error: Sales.Orders: no room\n  help: make some\n"
    printed = cli("maintain", "-C", sales.root, "--json")
    items, orders = json.loads(printed.out)["tables"]
    assert (printed.code, printed.err, "error" in items) == (4, "", False)
    assert orders["error"] == {"code": "storage_unavailable", "message": "no room", "help": "make some"}
    with Mirror(sales.root, writer=sales.writer) as mirror, pytest.raises(StorageUnavailable):
        mirror.maintain()


def test_the_worst_of_several_failures_decides_how_maintain_ends(sales, cli, monkeypatch):
    cli("sync", sales.root)
    errors = {"Sales/Orders": TableDamaged("here", "its log ends early"), "dbo/Items": StorageUnavailable("no room")}

    def fail(table, *_):
        raise errors[table]

    monkeypatch.setattr(sales.writer, "maintain", fail)
    assert cli("maintain", "-C", sales.root).code == 3
    errors["Sales/Orders"] = OSError("unexpected")
    printed = cli("maintain", "-C", sales.root)
    assert printed.code == 1
    assert "error: Sales.Orders: " in printed.err
    assert "error: Items: no room" in printed.err


@pytest.mark.parametrize(("words", "code"), [((), 2), (("--lose-rows",), 0), (("--replay",), 0)])
def test_rebuild_with_yes_drops_nothing_that_is_lost_unless_that_is_accepted(sales, cli, words, code):
    sales.items.upsert({"Id": 9, "Name": "nine"})
    cli("sync", sales.root)
    printed = cli("rebuild", sales.root, "--yes", "--json", *words)
    assert (printed.code, sales.writer.tables() == []) == (code, not code)
    if code:
        assert "nothing was dropped: Items: 3 rows" in json.loads(printed.err)["error"]["message"]
        return
    document = json.loads(printed.out)
    lost, moved = (["ME069"], 0) if words == ("--lose-rows",) else ([], 1)
    assert ([found["code"] for found in document["diagnostics"]], document["files_moved_back"]) == (lost, moved)
    assert [table["table"] for table in document["dropped"]] == ["Items", "Sales.Orders"]


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ((), "Drop every Delta table under {}/Tables and lose 3 rows?"),
        (("--replay", "--table", "items"), "Move 1 change file back, then drop Items under {}/Tables?"),
    ],
)
def test_the_question_of_rebuild_states_what_is_lost(sales, cli, monkeypatch, words, asked):
    sales.items.upsert({"Id": 9, "Name": "nine"})
    cli("sync", sales.root)
    questions = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda text, **_: questions.append(text))
    printed = cli("rebuild", sales.root, *words)
    assert (printed.code, questions, len(sales.writer.tables())) == (2, [asked.format(sales.root)], 2)
    assert ("warning[ME069]: 3 rows cannot be rebuilt" in printed.err) is (not words)
    monkeypatch.setattr("click.confirm", lambda *_, **__: True)
    assert cli("rebuild", sales.root, *words).code == 0


class TestDeltaTables:
    @pytest.fixture
    def healthy_lake(self, tmp_path, monkeypatch):
        monkeypatch.setattr(machine, "checks", lambda *_: [])
        return Lake(tmp_path / "lake", files=2)

    def test_doctor_passes_tables_that_only_the_engine_changed(self, healthy_lake, cli):
        printed = cli("doctor", healthy_lake.root)
        assert (printed.code, printed.err) == (0, "")
        assert "1 table, no external change" in printed.out
        assert printed.out.endswith("All checks passed.\n")

    def test_doctor_of_a_missing_root_checks_the_machine(self, tmp_path, cli, monkeypatch):
        monkeypatch.setattr(machine, "checks", lambda *_: [])
        assert cli("doctor", tmp_path / "new").code == 0

    def test_an_external_change_is_reported_with_its_version(self, healthy_lake, cli):
        write_deltalake(str(healthy_lake.folder), pa.table({"id": [1], "city": ["x"]}), mode="append")
        synced = cli("sync", healthy_lake.root, "-q")
        assert (synced.code, synced.out.splitlines()[0]) == (
            0,
            "warning[ME080]: another program changed the Delta table at version 3",
        )
        assert synced.out.endswith("All tables have caught up.\n")
        (table,) = json.loads(cli("sync", healthy_lake.root, "--json").out)["tables"]
        assert table["external_change"]["details"] == {"version": "3"}
        assert "warning[ME080]: Orders: another program changed the Delta table at version 3" in (
            cli("status", healthy_lake.root).out
        )
        (found,) = json.loads(cli("status", healthy_lake.root, "--json").out)["tables"][0]["diagnostics"]
        assert (found["code"], found["severity"], found["details"]) == ("ME080", "warning", {"version": "3"})
        doctor = cli("doctor", healthy_lake.root)
        assert (doctor.code, "FAIL" in doctor.out) == (3, True)
        assert doctor.out.endswith("1 check failed.\n")

    def test_a_damaged_table_is_halted_and_every_command_says_so(self, healthy_lake, cli):
        healthy_lake.commit(2).write_bytes(b"")
        printed = cli("sync", healthy_lake.root)
        assert printed.code == 3
        assert printed.out.startswith(
            "Orders is halted: error[ME081]: its Delta table cannot be read: commit 2 of its Delta log is cut off"
        )
        status = cli("status", healthy_lake.root, "--check")
        assert status.code == 3
        assert "_delta_log/00000000000000000002.json" in status.out
        (table,) = json.loads(cli("status", healthy_lake.root, "--json").out)["tables"]
        assert (table["state"], table["diagnostics"][0]["code"]) == ("halted", "ME081")
        doctor = json.loads(cli("doctor", healthy_lake.root, "--json").out)
        assert (doctor["ok"], list(doctor["checks"][0])) == (False, ["name", "ok", "found", "help"])
        show = cli("show", "-C", healthy_lake.root, "Orders")
        assert (show.code, "commit 2 of its Delta log is cut off" in show.err) == (3, True)
