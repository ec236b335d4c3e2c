"""`validate`: its report, its exit code; and that nothing is written."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest

import mirror_engine.publisher.target as target_module
from mirror_engine.cli import validate as validate_module
from mirror_engine.errors import StorageUnavailable
from mirror_engine.publisher import dry_run
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
from mirror_engine.storage.local import LocalStorage

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look

ROW = {"Id": 1, "Name": "one"}


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A ROOT with a good table, one with a wrong marker in its second file, and one with a gap."""
    publisher = LandingZoneWriter(tmp_path / "out")
    types = {"Id": pa.int64(), "Name": pa.string()}
    publisher.table("Good", keys=["Id"], types=types).insert(ROW)
    items = publisher.table("Sales.Wrong", keys=["Id"], types=types)
    items.insert(ROW)
    items.apply_changes((4, ROW), (3, ROW))
    gap = publisher.table("Gap", keys=["Id"], types=types)
    gap.insert(ROW)
    gap.skip_numbers()
    gap.upsert(ROW)
    return tmp_path / "out"


def written(root: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in root.rglob("*"))


def target(cli, path: Path | str) -> dict[str, Any]:
    return json.loads(cli("validate", path, "--json").out)["targets"][0]


def test_each_table_gets_its_findings_and_nothing_is_written(broken, cli) -> None:
    before = written(broken)
    printed = cli("validate", broken)
    assert written(broken) == before
    assert printed.code == 3
    assert "Good: caught up, 1 file (1 row)\n" in printed.out
    assert "Sales.Wrong: halted, 1 of 2 files applied (1 row)\n" in printed.out
    assert "  error[ME037]: row marker is 3, expected 0, 1, 2 or 4 (LZ-4.12)\n" in printed.out
    assert "Files/LandingZone/Sales.schema/Wrong/00000000000000000002.parquet, row 2\n" in printed.out
    assert "    help: delete the file and land a corrected one under the same name\n" in printed.out
    assert "  warning[ME019]: " in printed.out
    assert printed.out.endswith(
        "Found 1 error, 1 warning: 1 table blocked, 1 table halted (3 tables, 5 files, 3 rows).\n"
        "For details: mirror-engine explain ME037\n"
    )
    assert printed.err == ""


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ((), 3),
        (("--ignore", "me037"), 3),
        (("--ignore", "ME019"), 3),
        (("--ignore", "me037", "--ignore", "ME019"), 0),
        (("--ignore", "me037,ME019"), 0),
        (("--ignore", "ME037", "--ignore", "ME019", "--fail-on", "warning"), 0),
    ],
)
def test_what_fails_a_check_can_be_chosen(broken, cli, flags, code) -> None:
    assert cli("validate", broken, *flags).code == code


def test_a_gap_fails_a_check_unless_it_is_known(broken, cli) -> None:
    gap = broken / "Files/LandingZone/Gap"
    printed = cli("validate", gap)
    assert printed.code == 3
    assert printed.out.endswith(
        "Found 1 warning: 1 table blocked (1 table, 2 files, 1 row).\nFor details: mirror-engine explain ME019\n"
    )
    assert json.loads(cli("validate", gap, "--json").out)["ok"] is False
    assert cli("validate", gap, "--format", "github").out.startswith("::error file=")
    known = cli("validate", gap, "--ignore", "ME019")
    assert known.code == 0
    assert known.out.endswith("No problems found (1 table, 2 files, 1 row).\n1 finding suppressed.\n")


def test_the_cases_of_junit_agree_with_the_exit_code(broken, cli) -> None:
    """Files that a table left standing fail, those that wait for metadata are skipped."""
    LandingZoneWriter(broken).table("Later").land(b"")
    LandingZoneWriter(broken).remove("Later/_metadata.json")
    for table, flags, (code, failures, skipped) in (
        ("Gap", (), (3, 2, 0)),
        ("Gap", ("--ignore", "ME019"), (0, 0, 1)),
        ("Sales.schema/Wrong", (), (3, 1, 0)),
        ("Later", (), (0, 0, 1)),
    ):
        printed = cli("validate", broken / "Files/LandingZone" / table, "--format", "junit", *flags)
        (suite,) = ET.fromstring(printed.out)  # noqa: S314 - our own
        found = (printed.code, int(suite.get("failures", "")), int(suite.get("skipped", "")))
        assert found == (code, failures, skipped), (table, flags)
        assert len(suite.findall(".//failure")) == failures
        assert len(suite.findall(".//skipped")) == skipped


@pytest.mark.parametrize(
    ("path", "tables"),
    [
        ("", ["Gap", "Good", "Sales.Wrong"]),
        ("Files/LandingZone", ["Gap", "Good", "Sales.Wrong"]),
        ("Files/LandingZone/Sales.schema", ["Sales.Wrong"]),
        ("Files/LandingZone/Sales.schema/Wrong", ["Sales.Wrong"]),
        ("Files/LandingZone/Gap", ["Gap"]),
        ("Files/LandingZone/Gap/00000000000000000003.parquet", ["Gap"]),
    ],
)
def test_a_root_a_zone_a_schema_folder_a_table_folder_and_a_file_are_checked(broken, cli, path, tables) -> None:
    report = target(cli, broken / path)
    assert sorted(table["table"] for table in report["tables"]) == tables


def test_one_file_is_checked_by_itself_whatever_its_number(broken, cli) -> None:
    file = broken / "Files/LandingZone/Gap/00000000000000000003.parquet"
    printed = cli("validate", file)
    assert printed.code == 0
    assert "No problems found (1 table, 1 file, 1 row)." in printed.out
    lonely = broken / "lonely.parquet"
    lonely.write_bytes(file.read_bytes())
    printed = cli("validate", lonely)
    assert printed.code == 2
    assert "its table folder has no _metadata.json" in printed.err  # no table's file (LZ-2.3), so not checked
    assert cli("validate", lonely, "--missing-metadata", "insert-only").code == 0


@pytest.mark.parametrize("path", [".", "out/Tables", "out/Tables/dbo"])
def test_a_folder_that_is_no_zone_is_not_called_clean(broken, cli, path) -> None:
    (broken / "Tables/dbo/Good/_delta_log").mkdir(parents=True)
    printed = cli("validate", broken.parent / path)
    assert printed.code == 2
    assert "neither a landing zone nor a table folder" in printed.err


def test_a_zone_whose_first_files_were_processed_and_deleted_is_not_blocked(tmp_path, cli) -> None:
    table = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"])
    table.skip_numbers(499)
    table.upsert({"Id": 1})
    table.update({"Id": 2})
    assert cli("validate", tmp_path).code == 3
    (tmp_path / "Files/LandingZone/Orders/_FilesReadyToDelete").mkdir()
    printed = cli("validate", tmp_path)
    assert (printed.code, "No problems found (1 table, 2 files, 2 rows)." in printed.out) == (0, True)
    times = LandingZoneWriter(tmp_path).table("Times", keys=["Id"], strategy="LastUpdateTimeFileDetection")
    times.insert({"Id": 1}, name=f"{7:020}.parquet")
    assert cli("validate", tmp_path).code == 0
    LandingZoneWriter(tmp_path).table("Gap", keys=["Id"]).insert({"Id": 1}, name=f"{2:020}.parquet")
    assert cli("validate", tmp_path).code == 3


def test_a_partition_that_lacks_its_first_file_is_blocked_though_another_was_processed(tmp_path, cli) -> None:
    table = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"], partitioned=True)
    table.insert({"Id": 1, "day": "1"}, name=f"day=1/{5:020}.parquet")
    archive = tmp_path / "Files/LandingZone/Orders/_FilesReadyToDelete"
    (archive / "day=1").mkdir(parents=True)
    assert cli("validate", tmp_path).code == 0
    table.insert({"Id": 1, "day": "2"}, name=f"day=2/{3:020}.parquet")
    assert cli("validate", tmp_path).code == 3


def test_several_paths_are_checked_each(broken, cli) -> None:
    zone = broken / "Files/LandingZone"
    report = json.loads(cli("validate", zone / "Good", zone / "Gap", "--json").out)
    assert [each["tables"][0]["table"] for each in report["targets"]] == ["Good", "Gap"]
    assert [each["ok"] for each in report["targets"]] == [True, False]
    lines = cli("validate", zone / "Good", zone / "Gap").out.splitlines()
    assert [number for number, text in enumerate(lines) if text.startswith(str(zone))] == [0, 4]
    assert lines[4] == f"{zone / 'Gap'}:"


def test_suites_of_several_zones_have_names_of_their_own(tmp_path, cli) -> None:
    for root in ("a", "b"):
        LandingZoneWriter(tmp_path / root).table("Orders", keys=["Id"]).insert({"Id": 1})
    printed = cli("validate", tmp_path / "a", tmp_path / "b", "--format", "junit").out
    names = {suite.get("name") for suite in ET.fromstring(printed)}  # noqa: S314 - our own
    assert names == {f"{tmp_path}/{root}/Files/LandingZone/Orders" for root in ("a", "b")}


def test_findings_of_the_baseline_are_suppressed(broken, cli, tmp_path) -> None:
    baseline = tmp_path / "known.json"
    printed = cli("validate", broken, "--write-baseline", baseline)
    assert (printed.code, "2 findings recorded" in printed.err) == (0, True)
    assert cli("validate", broken, "--baseline", baseline, "--fail-on", "warning").code == 0
    LandingZoneWriter(broken).table("New", keys=["Id"]).land(b"")
    printed = cli("validate", broken, "--baseline", baseline)
    assert printed.code == 3
    assert ("error[ME023]" in printed.out, "error[ME037]" in printed.out) == (True, False)


def test_a_baseline_is_known_again_from_any_folder(broken, cli, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("validate", "out", "--write-baseline", "known.json").code == 0
    monkeypatch.chdir(broken)
    assert cli("validate", ".", "--baseline", "../known.json").code == 0
    moved = tmp_path / "moved"
    moved.mkdir()
    monkeypatch.chdir(moved)
    for each in (broken, tmp_path / "known.json"):
        shutil.move(each, moved)
    assert cli("validate", "out/Files/LandingZone", "--baseline", moved / "known.json").code == 0


def test_reports_for_other_programs(broken, cli, monkeypatch) -> None:
    monkeypatch.chdir(broken)
    path = "Files/LandingZone/Sales.schema/Wrong/00000000000000000002.parquet"
    assert f"::error file={path},title=ME037::" in cli("validate", ".", "--format", "github").out
    suites = ET.fromstring(cli("validate", ".", "--format", "junit").out)  # noqa: S314 - our own
    assert suites.get("failures") == "3"
    (run,) = json.loads(cli("validate", ".", "--format", "sarif").out)["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["ME037", "ME019"]


@pytest.mark.parametrize(
    ("words", "help"),
    [
        (("nowhere",), "no such file or folder"),
        ((".",), "neither a landing zone nor a table folder"),
        ((".", "--ignore", "ME999"), 'unknown diagnostic "ME999"'),
        ((".", ".", "--watch"), "takes one path"),
        (("live", "--watch"), "create it first: mkdir -p live/Files/LandingZone"),
        ((".", "--duration", "3"), "requires --watch"),
        ((".", "--baseline", "nothing.json"), "No such file"),
        ((".", "--format", "xml"), "xml"),
        ((), "neither a landing zone nor a table folder"),
    ],
)
def test_usage_errors(tmp_path, monkeypatch, cli, words, help) -> None:
    monkeypatch.chdir(tmp_path)
    printed = cli("validate", *words)
    assert (printed.code, printed.out) == (2, "")
    assert help in printed.err


def test_files_that_were_moved_away_are_checked_too(shop, cli) -> None:
    for number in range(3, 6):
        shop.orders.upsert({"Id": number, "Name": "more"})
    shop.orders.land(b"")
    cli("sync", shop.root)
    report = target(cli, shop.root)["tables"]
    (orders,) = [table for table in report if table["table"] == "Sales.Orders"]
    assert len(orders["files"]) == 4
    assert orders["state"] == "halted"


@pytest.mark.parametrize(("row", "is_found"), [({"Id": 1, "Name": "two"}, True), ({"Id": 2, "Name": "two"}, False)])
def test_other_orders_of_ties_are_tried(tmp_path, cli, row, is_found) -> None:
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"], strategy="LastUpdateTimeFileDetection")
    orders.upsert(ROW, name="a.parquet", modified_ns=10**18)
    orders.upsert(row, name="b.parquet", modified_ns=10**18)
    out = cli("validate", tmp_path, "--check-tie-order", "8").out
    assert "ME028" in out
    assert ("[ME079]" in out) is is_found


def test_watch_finds_what_is_gone_afterwards(tmp_path, cli) -> None:
    """What a look afterwards no longer shows: an empty file under its final name."""
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"], types={"Id": pa.int64(), "Name": pa.string()})
    name = orders.insert(ROW)
    content = (tmp_path / "Files/LandingZone" / name).read_bytes()
    orders.writer.write_in_place("Orders/00000000000000000002.parquet", b"")
    printed = cli("validate", tmp_path, "--watch", "--duration", "300ms")
    assert printed.code == 3
    assert "Watching" in printed.err
    assert "Orders/00000000000000000002.parquet: file is empty (0 bytes) [ME023]" in printed.err
    assert "ME023" in printed.out
    orders.writer.write_in_place("Orders/00000000000000000002.parquet", content)
    assert cli("validate", tmp_path).code == 0


def test_what_cannot_be_read_is_not_clean(broken, cli, monkeypatch) -> None:
    """Not even if nothing else is wrong."""

    class Unreadable(LocalStorage):
        def list(self, folder):
            if folder.endswith("Good"):
                raise StorageUnavailable(f"{folder}: Permission denied")
            return super().list(folder)

    monkeypatch.setattr(target_module, "LocalStorage", Unreadable)
    monkeypatch.setattr(dry_run, "MAX_RETRY_SECONDS", 0.0)
    printed = cli("validate", broken)
    assert printed.code == 4
    assert "Good: cannot be listed or read" in printed.err


def test_a_zone_is_one_though_a_stray_file_lies_at_its_top_or_nothing_at_all(broken, cli, tmp_path) -> None:
    zone = broken / "Files/LandingZone"
    (zone / "00000000000000000001.parquet").write_bytes(b"x")
    report = target(cli, zone)
    assert len(report["tables"]) == 3
    assert [found["code"] for found in report["diagnostics"]] == ["ME002"]
    empty = tmp_path / "LandingZone"
    empty.mkdir()
    printed = cli("validate", empty)
    assert (printed.code, printed.out.splitlines()[-1]) == (0, "Nothing has landed yet (0 tables, 0 files, 0 rows).")


def test_dots_in_a_path_and_folders_of_moved_files_are_understood(broken, cli, monkeypatch) -> None:
    table = broken / "Files/LandingZone/Gap"
    moved = table / "_FilesReadyToDelete"
    moved.mkdir()
    (table / "00000000000000000001.parquet").rename(moved / "00000000000000000001.parquet")
    monkeypatch.chdir(moved)
    for path in ("..", "00000000000000000001.parquet"):
        (found,) = target(cli, path)["tables"]
        assert found["files"] == ["Gap/00000000000000000001.parquet"]


@pytest.mark.parametrize("name", ["_out", ".out"])
def test_a_folder_that_fabric_ignores_is_not_called_clean(tmp_path, cli, name) -> None:
    folder = LandingZoneWriter(tmp_path, zone="zone").folder(name)
    folder.write_metadata(keys=["Id"])
    folder.insert({"Id": 1})
    for path in (tmp_path / "zone" / name, tmp_path / "zone" / name / "00000000000000000001.parquet"):
        printed = cli("validate", path)
        assert (printed.code, "Fabric ignores" in printed.err) == (2, True)


def test_a_root_that_was_mirrored_may_lack_its_first_files(shop, cli) -> None:
    for number in range(3, 6):
        shop.orders.upsert({"Id": number, "Name": "more"})
    cli("sync", shop.root)
    shutil.rmtree(shop.root / "Files/LandingZone/Sales.schema/Orders/_FilesReadyToDelete")
    report = target(cli, shop.root)["tables"]
    assert {table["state"] for table in report} == {"caught_up"}


def test_equal_rows_in_another_order_of_columns_are_no_other_rows(tmp_path, cli) -> None:
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"], strategy="LastUpdateTimeFileDetection")
    orders.insert({"Id": 1, "A": 0.0}, name="a.parquet", modified_ns=10**18)
    orders.insert({"Id": 2, "B": 1.0}, name="b.parquet", modified_ns=10**18)
    assert "ME079" not in cli("validate", tmp_path, "--check-tie-order", "8").out


def test_a_baseline_of_one_zone_hides_nothing_of_another(tmp_path, cli) -> None:
    for root in ("a", "b"):
        LandingZoneWriter(tmp_path / root).table("Orders", keys=["Id"]).land(b"")
    cli("validate", tmp_path / "a", "--write-baseline", tmp_path / "known.json")
    assert cli("validate", tmp_path / "a", "--baseline", tmp_path / "known.json").code == 0
    assert cli("validate", tmp_path / "a", tmp_path / "b", "--baseline", tmp_path / "known.json").code == 3


def test_large_files_are_read_whole_unless_keys_are_enough(tmp_path, cli, monkeypatch) -> None:
    monkeypatch.setattr(validate_module, "LARGE_FILE_BYTES", 0)
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"])
    orders.land_parquet(pa.table({"Id": [1, 1], "At": pa.array([2**62, 0], pa.timestamp("ms"))}))
    assert "ME060" in cli("validate", tmp_path).out
    out = cli("validate", tmp_path, "--keys-only").out
    assert ("ME060" in out, "ME039" in out) == (False, True)


def test_watch_forgets_what_was_true_for_a_moment(tmp_path, cli) -> None:
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"], types={"Id": pa.int64()})
    threading.Timer(0.2, orders.insert, [{"Id": 1}]).start()
    printed = cli("validate", tmp_path, "--watch", "--duration", "600ms", "--fail-on", "warning")
    assert (printed.code, printed.out.endswith("No problems found (1 table, 1 file, 1 row).\n")) == (0, True)


def test_a_root_without_a_zone_is_no_zone_itself(tmp_path, cli) -> None:
    for folder in (".mirror-engine", "Files/Monitoring", "Tables"):
        (tmp_path / folder).mkdir(parents=True)
    printed = cli("validate", tmp_path)
    assert (printed.code, "The landing zone has no table folders." in printed.out) == (0, True)


def test_a_halt_has_fabrics_message_if_it_is_known(tmp_path, cli) -> None:
    table = LandingZoneWriter(tmp_path).table("Sales.Orders", keys=["Id"])
    table.land_parquet(pa.table({"Id": pa.array([1], pa.int64())}))
    table.land_parquet(pa.table({"Id": pa.array([1], pa.int32())}))
    LandingZoneWriter(tmp_path).table("Marks", keys=["Id"]).apply_changes((3, {"Id": 1}))
    (words,) = [line for line in cli("validate", tmp_path).out.splitlines() if "Fabric:" in line]
    assert (
        "ErrorCode: SchemaMergeFailure, Message: Failed to write table 'Sales\\Orders' due to schema mismatch." in words
    )
    assert "Cause: Type mismatch for column 'Id'. Incoming type: 'integer' (Nullable: True)" in words
    assert "ArtifactId" not in words
    errors = {table["table"]: table["fabric_error"] for table in target(cli, tmp_path)["tables"]}
    assert errors["Marks"] is None
    assert words.endswith(errors["Sales.Orders"])


def test_two_forms_of_one_report_are_a_usage_error(broken, cli) -> None:
    printed = cli("validate", broken, "--json", "--format", "sarif")
    assert (printed.code, "--json cannot be combined with --format sarif" in printed.out + printed.err) == (2, True)


SLOW = """import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process inherits it ignored
from mirror_engine.cli.main import main
from mirror_engine.tables.reading.reader import ChangeFileReader

read = ChangeFileReader.read

def slow(*arguments):
    print("reading", flush=True)
    time.sleep(1)
    return read(*arguments)

ChangeFileReader.read = slow
sys.exit(main(["validate", sys.argv[1]]))
"""


def test_ctrl_c_ends_validate_after_the_file_that_is_being_read(tmp_path) -> None:
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"])
    for number in range(30):
        orders.insert({"Id": number})
    command = [sys.executable, "-c", SLOW, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, text = running.communicate(timeout=20)
    assert (running.returncode, text) == (130, b"error: interrupted\n")
