"""Every change that a command makes to a table is in its report, in all forms, and in the history of ROOT."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal

import pyarrow as pa
import pytest

from mirror_engine import Config
from mirror_engine.cli.log import Log
from mirror_engine.engine.changes import ChangeKind
from mirror_engine.engine.history import UNRECORDED, recorded_changes
from mirror_engine.landing_zone.layout import ENGINE, HISTORY, LEDGER, ZONE
from mirror_engine.mirror import Mirror
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look


ITEMS = {"Id": pa.int64(), "Name": pa.string()}


def delete(*paths):
    return lambda shop: [shop.publisher.remove(path) for path in paths]


def rename(folder, target):
    return lambda shop: (shop.root / ZONE / folder).rename(shop.root / ZONE / target)


def recreate(shop):
    """Land the folder again, with its metadata alone."""
    metadata = (shop.root / ZONE / "Items/_metadata.json").read_bytes()
    shop.publisher.remove("Items")
    shop.publisher.put("Items/_metadata.json", metadata)


def recreate_with_files(shop):
    """Land the folder again, with its metadata and other files of the same names."""
    recreate(shop)
    shop.publisher.table("Items", keys=["Id"], types=ITEMS).insert({"Id": 7, "Name": "seven"}, name=f"{1:020}.parquet")


def replace_by_another(shop):
    """Put the folder of a new table in its place."""
    shop.publisher.table("Goods", keys=["Id"], types=ITEMS).insert({"Id": 1, "Name": "one"})
    shop.publisher.remove("Items")
    rename("Goods", "Items")(shop)


def lose_ledger(shop):
    for file in shop.root.glob(f"{LEDGER}*"):
        file.unlink()


def remove_table(shop):
    shop.writer.drop("dbo/Items")


def restore_zone(shop):
    """Copy the landing zone, and put the copy in its place."""
    zone = shop.root / ZONE
    shutil.copytree(zone, zone.with_name("copy"))
    shutil.rmtree(zone)
    zone.with_name("copy").rename(zone)


def update(shop):
    shop.items.upsert({"Id": 9, "Name": "nine"})


def dropped(act, reason, *tables):
    words = {"removed": "Delta table removed by others"}.get(reason, f"folder {reason}")
    text = f"Dropped {len(tables)} table{'s' * (len(tables) > 1)} ({words}): {', '.join(tables)}."
    return act, (), [(table, "dropped", reason, 0) for table in tables], text


# what is done, the options of `sync`, and the changes: table, kind, reason and files
CASES = {
    "deleted": dropped(delete("Items"), "deleted", "Items"),
    "all deleted": dropped(delete("Items", "Sales.schema"), "deleted", "Items", "Sales.Orders"),
    "recreated": dropped(recreate, "recreated", "Items"),
    "recreated with files": dropped(recreate_with_files, "recreated", "Items"),
    "replaced": dropped(replace_by_another, "recreated", "Items"),
    # the new name is a new table, whose change files begin where the former one's were left
    "renamed": dropped(rename("Items", "Goods"), "deleted", "Items"),
    "schema deleted": dropped(delete("Sales.schema"), "deleted", "Sales.Orders"),
    "schema renamed": dropped(rename("Sales.schema", "Store.schema"), "deleted", "Sales.Orders"),
    # without its ending, it is a table folder with a folder in it
    "schema no more": dropped(rename("Sales.schema", "Sales"), "deleted", "Sales.Orders"),
    "removed": dropped(remove_table, "removed", "Items"),
    "metadata removed": (delete("Items/_metadata.json"), (), [("Items", "halted", "ME009", 0)], "Items is halted"),
    "halted": (lambda shop: shop.halt(), (), [("Items", "halted", "ME023", 0)], "Items is halted"),
    "ledger lost": (
        lose_ledger,
        (),
        [("Items", "progress_rebuilt", None, 0), ("Sales.Orders", "progress_rebuilt", None, 0)],
        "Progress of 2 tables was rebuilt from the Delta log: Items, Sales.Orders.",
    ),
    "moved": (
        restore_zone,
        (),
        [("Items", "folder_moved", None, 0), ("Sales.Orders", "folder_moved", None, 0)],
        "2 tables moved or mounted again, with the same content: Items, Sales.Orders.",
    ),
    "archived": (update, ("-v",), [("Items", "files_archived", None, 1)], "Archived 1 applied file of 1 table: Items."),
}
DROPS = {name: case for name, case in CASES.items() if case[2][0][1] == "dropped"}


def found(changes):
    return [(each["table"], each["change"], each["reason"], each["files"]) for each in changes]


@pytest.mark.parametrize("case", list(CASES))
def test_sync_reports_a_change_once_and_the_history_has_it(synced, case):
    """The command prints what Python prints (test_output.py)."""
    act, options, changes, text = CASES[case]
    act(synced)
    with Mirror(synced.root, Config(), writer=synced.writer) as mirror:
        report = mirror.sync()
        shown = "\n".join(map(str, report.lines(verbose=bool(options))))
        assert shown.startswith(text) if "dropped" in text.lower() else text in shown
        assert found(report.to_json()["changes"]) == changes
        assert report.dropped == [name for name, kind, *_ in changes if kind == "dropped"]
        recorded = [change for change in changes if change[1] not in UNRECORDED]
        assert sorted(found(mirror.history().to_json()["changes"])) == recorded
        assert found(mirror.sync().to_json()["changes"]) == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", ["all deleted", "halted", "ledger lost", "moved", "archived"])
def test_run_logs_a_change_and_reports_it_at_its_end(synced, cli, monkeypatch, case):
    act, _, changes, _ = CASES[case]
    act(synced)
    names = {"dropped": "table_dropped", "halted": "table_halted"}
    awaited = [names.get(kind, kind) for _, kind, _, _ in changes]

    class StoppingLog(Log):
        def write(self, level, name, fields):
            super().write(level, name, fields)
            if name in awaited:
                awaited.remove(name)
                if not awaited:
                    os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("mirror_engine.cli.log.Log", StoppingLog)
    printed = cli("run", synced.root, "--log-format", "json", "--json", "-v", "--auto-maintain", "off")
    logged = [json.loads(line) for line in printed.err.splitlines()]
    for table, kind, reason, _ in changes:
        (event,) = [each for each in logged if each["event"] == names.get(kind, kind) and each["table"] == table]
        assert event.get("reason", reason) == reason
    assert found(json.loads(printed.out)["changes"]) == changes


def test_resume_is_reported_in_all_forms(synced, cli):
    synced.halt()
    assert cli("sync", synced.root).code == 3
    synced.publisher.remove(f"Items/{2:020}.parquet")
    assert "1 table resumed: Items." in cli("sync", synced.root).out
    kinds = [change.kind for change in recorded_changes(synced.root / HISTORY)]
    assert kinds == ["resumed", "halted"]


def test_halt_that_ends_with_its_folder_is_no_resume(synced, cli):
    """ME004: the folder that came second is removed."""
    shutil.copytree(synced.root / ZONE / "Items", synced.root / ZONE / "dbo.schema/Items")
    assert found(json.loads(cli("sync", synced.root, "--json").out)["changes"]) == [("dbo.Items", "halted", "ME004", 0)]
    synced.publisher.remove("dbo.schema/Items")
    assert "1 table no longer halted (folder deleted): dbo.Items." in cli("sync", synced.root).out
    shown = json.loads(cli("history", "-C", synced.root, "--json").out)
    assert found(shown["changes"])[0] == ("dbo.Items", "resumed", "deleted", 0)
    assert "folder deleted" in cli("history", "-C", synced.root).out


def test_archived_files_that_expire_are_reported(synced, cli):
    for number in range(2):
        synced.items.upsert({"Id": number, "Name": "x"})
    cli("sync", synced.root)
    printed = cli("sync", synced.root, "--delete-processed-after", "0s")
    assert "Deleted 2 archived files of 1 table: Items." in printed.out
    assert recorded_changes(synced.root / HISTORY)[0].files == 2


@pytest.mark.parametrize("case", [name for name in DROPS if name != "removed"])
def test_drop_is_said_before_by_status_plan_and_wait(synced, cli, case):
    act, _, changes, _ = DROPS[case]
    act(synced)
    tables = json.loads(cli("status", synced.root, "--json").out)["tables"]
    plans = json.loads(cli("plan", synced.root, "--json").out)["tables"]
    for table, _, reason, _ in changes:
        (status,) = [each for each in tables if each["table"] == table]
        assert {found["code"] for found in status["diagnostics"]} & {"ME065", "ME066"}
        assert status["state"] == "deleted" or reason == "recreated"
        (plan,) = [each for each in plans if each["table"] == table]
        assert "drop_table" in [step["step"] for step in plan["steps"]]
        if reason == "deleted":
            delayed = cli("plan", synced.root, "--drop-delay", "1h", "--json", "--table", table).out
            (plan,) = json.loads(delayed)["tables"]
            assert [step["step"] for step in plan["steps"]] == ["mark_folder_missing"]
        assert cli("wait", synced.root, "--table", table, "--timeout", "0.1s").code != 0
    text = cli("status", synced.root).out
    assert "All tables have caught up" not in text
    assert all(table in text for table, *_ in changes)


@pytest.mark.usefixtures("no_pauses")
def test_zone_renamed_drops_nothing_in_any_form(synced, cli):
    """Into a name that the engine does not know."""
    (synced.root / ZONE).rename(synced.root / "Files/Zone2")
    for command in ("sync", "status"):
        printed = cli(command, synced.root, "--json", *(["--check"] if command == "status" else []))
        assert printed.code == 4
        document = json.loads(printed.out)
        assert {table["state"] for table in document["tables"]} == {"unlisted"}
        assert found(document.get("changes", [])) == []
    assert json.loads(cli("history", "-C", synced.root, "--json").out)["changes"] == []
    assert "no table is dropped" in cli("sync", synced.root).out


def test_rebuild_is_in_the_history(synced, cli):
    assert "Dropped Items" in cli("rebuild", synced.root, "--yes", "--lose-rows", "--table", "Items").out
    printed = cli("history", "-C", synced.root)
    assert "to be rebuilt" in printed.out
    (change,) = json.loads(cli("history", "-C", synced.root, "--json").out)["changes"]
    assert (change["table"], change["change"], change["reason"]) == ("Items", "dropped", "rebuild")


def test_maintenance_is_in_the_history(tmp_path, cli):
    items = LandingZoneWriter(tmp_path).table("Items", keys=["Id"], types={"Id": pa.int64()})
    with Mirror(tmp_path, Config(merge_engine="arrow")) as mirror:
        for number in range(3):
            items.insert({"Id": number})
            mirror.sync()
        [done] = mirror.maintain().tables
        assert (done.table, done.files_removed) == ("Items", 3)
        (change,) = mirror.history().changes
    assert (change.table, change.change, change.files) == ("Items", "maintained", 3)
    assert "maintained" in cli("history", "-C", tmp_path).out


def test_history_of_a_root_without_any_says_so(sales, cli):
    assert cli("history", "-C", sales.root).out == "Nothing is recorded: no table was dropped, halted or maintained.\n"


def test_history_of_a_table_has_its_own_changes(synced, cli):
    synced.halt()
    cli("sync", synced.root)
    for table, kinds in (("Items", ["halted"]), ("Sales.Orders", [])):
        document = json.loads(cli("history", "-C", synced.root, table, "--json").out)
        assert [change["change"] for change in document["changes"]] == kinds
        assert document["commits"]


def test_history_ends_with_the_number_of_its_lines(synced, cli):
    cli("rebuild", synced.root, "--yes", "--replay")
    lines = len(recorded_changes(synced.root / HISTORY))
    assert cli("history", "-C", synced.root).out.endswith(f"\n{lines} changes\n")
    assert cli("history", "-C", synced.root, "--limit", "1").out.endswith("\n1 change; there are more, see --limit\n")
    cli("sync", synced.root)
    assert re.search(r"\n\d commits\n$", cli("history", "-C", synced.root, "Items").out)
    assert cli("history", "-C", synced.root, "Items", "--limit", "1").out.endswith(
        "\n1 commit; there are more, see --limit\n"
    )


def test_history_that_cannot_be_written_stops_no_table(synced, cli):
    (synced.root / HISTORY).mkdir()
    delete("Items")(synced)
    assert cli("sync", synced.root).code == 0
    shutil.rmtree(synced.root / ENGINE)


def test_every_kind_of_change_is_tried():
    tried = {kind for _, _, changes, _ in CASES.values() for _, kind, _, _ in changes}
    others = {"resumed", "maintained", "archived_files_deleted"}  # each has a test of its own
    assert tried | others == {*ChangeKind.__args__}


def test_rows_lost_with_a_delta_table_are_reported_until_rebuild(synced, cli):
    """ME069: the applied files were archived, and a sequential table does not begin without them."""
    update(synced)
    assert cli("sync", synced.root).code == 0
    remove_table(synced)
    for _ in range(2):
        printed = cli("sync", synced.root)
        assert printed.out.count("warning[ME069]") == 1
        assert "`mirror-engine rebuild --replay --table Items`" in printed.out
        for command in ("sync", "status"):
            tables = json.loads(cli(command, synced.root, "--json").out)["tables"]
            assert [table["table"] for table in tables if "cannot be rebuilt" in table["message"]] == ["Items"]
        assert "ME069" in cli("status", synced.root).out
    assert cli("rebuild", synced.root, "--replay", "--yes").code == 0
    printed = cli("sync", synced.root)
    assert (printed.code, "ME069" in printed.out) == (0, False)
    assert "ME069" not in cli("status", synced.root, "--json").out
