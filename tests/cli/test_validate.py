"""`validate`: which verdict, in which words, with which exit code; and that nothing is written."""

from __future__ import annotations

import io
import json
import shutil
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from json_shapes import documented, shape

import mirror_engine.cli.validate as validate_module
import mirror_engine.publisher.target as target_module
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


def place(say, path: Path | str) -> dict[str, Any]:
    return json.loads(say("validate", path, "--json").out)["targets"][0]


def test_each_table_gets_its_verdict_and_nothing_is_written(broken, say) -> None:
    before = written(broken)
    said = say("validate", broken)
    assert written(broken) == before
    assert said.code == 3
    assert "Good  caught_up  1 file, 1 row\n" in said.out
    assert "Sales.schema/Wrong  halted  1 file, 1 row  1 file not applied\n" in said.out
    assert "  error    ME037 00000000000000000002.parquet, row 2: row marker is 3, " in said.out
    assert "-> delete the file and land a corrected one under the same name  (LZ-4.12)" in said.out
    assert "  warning  ME019 `00000000000000000002.parquet` is missing; 1 later file pending" in said.out
    assert said.out.endswith(
        "3 tables, 3 files, 3 rows, 2 files not applied: 1 error, 1 warning; 1 table blocked, 1 table halted\n"
        "`mirror-engine explain ME037` says more.\n"
    )
    assert said.err == ""


def test_json_has_the_documented_shape(broken, say) -> None:
    said = say("validate", broken / "Files/LandingZone/Sales.schema", "--json")
    assert said.code == 3
    assert shape(json.loads(said.out)) == documented("validate")


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
def test_what_fails_a_check_can_be_chosen(broken, say, flags, code) -> None:
    assert say("validate", broken, *flags).code == code


def test_a_gap_fails_a_check_unless_it_is_known(broken, say) -> None:
    gap = broken / "Files/LandingZone/Gap"
    said = say("validate", gap)
    assert said.code == 3
    assert said.out.endswith(
        "1 table, 1 file, 1 row, 1 file not applied: 1 warning; 1 table blocked\n"
        "`mirror-engine explain ME019` says more.\n"
    )
    assert json.loads(say("validate", gap, "--json").out)["ok"] is False
    assert say("validate", gap, "--format", "github").out.startswith("::error file=")
    known = say("validate", gap, "--ignore", "ME019")
    assert known.code == 0
    assert known.out.endswith("1 table, 1 file, 1 row, 1 file not applied: 1 known finding passed over\n")


def test_the_cases_of_junit_agree_with_the_exit_code(broken, say) -> None:
    """Files that a table left standing fail, those that wait for metadata are skipped."""
    LandingZoneWriter(broken).table("Later").land(b"")
    LandingZoneWriter(broken).remove("Later/_metadata.json")
    for table, flags, (code, failures, skipped) in (
        ("Gap", (), (3, 2, 0)),
        ("Gap", ("--ignore", "ME019"), (0, 0, 1)),
        ("Sales.schema/Wrong", (), (3, 1, 0)),
        ("Later", (), (0, 0, 1)),
    ):
        said = say("validate", broken / "Files/LandingZone" / table, "--format", "junit", *flags)
        (suite,) = ET.fromstring(said.out)  # noqa: S314 - our own
        found = (said.code, int(suite.get("failures", "")), int(suite.get("skipped", "")))
        assert found == (code, failures, skipped), (table, flags)
        assert len(suite.findall(".//failure")) == failures
        assert len(suite.findall(".//skipped")) == skipped


@pytest.mark.parametrize(
    ("path", "tables"),
    [
        ("", ["Gap", "Good", "Sales.schema/Wrong"]),
        ("Files/LandingZone", ["Gap", "Good", "Sales.schema/Wrong"]),
        ("Files/LandingZone/Sales.schema", ["Sales.schema/Wrong"]),
        ("Files/LandingZone/Sales.schema/Wrong", ["Sales.schema/Wrong"]),
        ("Files/LandingZone/Gap", ["Gap"]),
        ("Files/LandingZone/Gap/00000000000000000003.parquet", ["Gap"]),
    ],
)
def test_a_root_a_zone_a_schema_folder_a_table_folder_and_a_file_are_judged(broken, say, path, tables) -> None:
    told = place(say, broken / path)
    assert sorted(table["table"] for table in told["tables"]) == tables


def test_one_file_is_judged_by_itself_whatever_its_number(broken, say) -> None:
    file = broken / "Files/LandingZone/Gap/00000000000000000003.parquet"
    said = say("validate", file)
    assert said.code == 0
    assert "1 table, 1 file, 1 row: clean" in said.out
    lonely = broken / "lonely.parquet"
    lonely.write_bytes(file.read_bytes())
    said = say("validate", lonely)
    assert said.code == 2
    assert "its table folder has no _metadata.json" in said.err  # it is no table's (LZ-2.3): nothing was judged
    assert say("validate", lonely, "--missing-metadata", "insert-only").code == 0


@pytest.mark.parametrize("path", [".", "out/Tables", "out/Tables/dbo"])
def test_a_folder_that_is_no_zone_is_not_called_clean(broken, say, path) -> None:
    (broken / "Tables/dbo/Good/_delta_log").mkdir(parents=True)
    said = say("validate", broken.parent / path)
    assert said.code == 2
    assert "neither a landing zone nor a table folder" in said.err


def test_a_zone_whose_first_files_were_processed_and_deleted_is_not_blocked(tmp_path, say) -> None:
    table = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"])
    table.skip_numbers(499)
    table.upsert({"Id": 1})
    table.update({"Id": 2})
    assert say("validate", tmp_path).code == 3
    (tmp_path / "Files/LandingZone/Orders/_FilesReadyToDelete").mkdir()
    said = say("validate", tmp_path)
    assert (said.code, "1 table, 2 files, 2 rows: clean" in said.out) == (0, True)
    times = LandingZoneWriter(tmp_path).table("Times", keys=["Id"], strategy="LastUpdateTimeFileDetection")
    times.insert({"Id": 1}, name=f"{7:020}.parquet")
    assert say("validate", tmp_path).code == 0
    LandingZoneWriter(tmp_path).table("Gap", keys=["Id"]).insert({"Id": 1}, name=f"{2:020}.parquet")
    assert say("validate", tmp_path).code == 3


def test_a_partition_that_lacks_its_first_file_is_blocked_though_another_was_processed(tmp_path, say) -> None:
    table = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"], partitioned=True)
    table.insert({"Id": 1, "day": "1"}, name=f"day=1/{5:020}.parquet")
    archive = tmp_path / "Files/LandingZone/Orders/_FilesReadyToDelete"
    (archive / "day=1").mkdir(parents=True)
    assert say("validate", tmp_path).code == 0
    table.insert({"Id": 1, "day": "2"}, name=f"day=2/{3:020}.parquet")
    assert say("validate", tmp_path).code == 3


def test_several_paths_are_judged_each(broken, say) -> None:
    zone = broken / "Files/LandingZone"
    told = json.loads(say("validate", zone / "Good", zone / "Gap", "--json").out)
    assert [each["tables"][0]["table"] for each in told["targets"]] == ["Good", "Gap"]
    assert [each["ok"] for each in told["targets"]] == [True, False]
    lines = say("validate", zone / "Good", zone / "Gap").out.splitlines()
    assert [number for number, text in enumerate(lines) if text.startswith(str(zone))] == [0, 4]
    assert lines[4] == f"{zone / 'Gap'}:"


def test_suites_of_several_zones_have_names_of_their_own(tmp_path, say) -> None:
    for root in ("a", "b"):
        LandingZoneWriter(tmp_path / root).table("Orders", keys=["Id"]).insert({"Id": 1})
    said = say("validate", tmp_path / "a", tmp_path / "b", "--format", "junit").out
    names = {suite.get("name") for suite in ET.fromstring(said)}  # noqa: S314 - our own
    assert names == {f"{tmp_path}/{root}/Files/LandingZone/Orders" for root in ("a", "b")}


def test_what_is_known_already_is_passed_over(broken, say, tmp_path) -> None:
    baseline = tmp_path / "known.json"
    said = say("validate", broken, "--write-baseline", baseline)
    assert (said.code, "2 diagnostics written down" in said.err) == (0, True)
    assert say("validate", broken, "--baseline", baseline, "--fail-on", "warning").code == 0
    LandingZoneWriter(broken).table("New", keys=["Id"]).land(b"")
    said = say("validate", broken, "--baseline", baseline)
    assert said.code == 3
    assert ("error    ME023" in said.out, "error    ME037" in said.out) == (True, False)


def test_a_baseline_is_known_again_from_any_folder(broken, say, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert say("validate", "out", "--write-baseline", "known.json").code == 0
    monkeypatch.chdir(broken)
    assert say("validate", ".", "--baseline", "../known.json").code == 0
    moved = tmp_path / "moved"
    moved.mkdir()
    monkeypatch.chdir(moved)
    for each in (broken, tmp_path / "known.json"):
        shutil.move(each, moved)
    assert say("validate", "out/Files/LandingZone", "--baseline", moved / "known.json").code == 0


def test_reports_for_other_programs(broken, say, monkeypatch) -> None:
    monkeypatch.chdir(broken)
    path = "Files/LandingZone/Sales.schema/Wrong/00000000000000000002.parquet"
    assert f"::error file={path},title=ME037::" in say("validate", ".", "--format", "github").out
    suites = ET.fromstring(say("validate", ".", "--format", "junit").out)  # noqa: S314 - our own
    assert suites.get("failures") == "3"
    (run,) = json.loads(say("validate", ".", "--format", "sarif").out)["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["ME037", "ME019"]


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("nowhere",), "no such file or folder"),
        ((".",), "neither a landing zone nor a table folder"),
        ((".", "--ignore", "ME999"), "no such diagnostic"),
        ((".", ".", "--watch"), "one path only"),
        (("live", "--watch"), "Make it before you watch: mkdir -p live/Files/LandingZone"),
        ((".", "--for", "3"), "needs --watch"),
        ((".", "--baseline", "nothing.json"), "No such file"),
        ((".", "--format", "xml"), "xml"),
        ((), "Missing argument"),
    ],
)
def test_wrong_usage_is_told(tmp_path, monkeypatch, say, words, remedy) -> None:
    monkeypatch.chdir(tmp_path)
    said = say("validate", *words)
    assert (said.code, said.out) == (2, "")
    assert remedy in said.err


def test_changes_to_rows_that_never_came_are_told(tmp_path, say) -> None:
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"], types={"Id": pa.int64()})
    orders.insert({"Id": 1})
    orders.update({"Id": 2}, {"Id": 1})
    orders.delete({"Id": 3}, {"Id": 4}, {"Id": 1})
    out = say("validate", tmp_path).out
    assert "ME077 00000000000000000002.parquet, row 1: 1 update matched no row; inserted instead\n" in out
    assert "ME078 00000000000000000003.parquet, row 1: 2 deletes" in out


def test_history_that_is_not_there_accuses_nobody(tmp_path, say) -> None:
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"], types={"Id": pa.int64()})
    orders.skip_numbers(4)
    orders.update({"Id": 2})
    out = say("validate", tmp_path, "--first-file", "lowest").out
    assert "ME077" not in out
    assert "clean" in out


def test_files_that_were_moved_away_are_judged_too(shop, say) -> None:
    for number in range(3, 6):
        shop.orders.upsert({"Id": number, "Name": "more"})
    shop.orders.land(b"")
    say("once", shop.root)
    told = place(say, shop.root)["tables"]
    (orders,) = [table for table in told if table["table"] == "Sales.schema/Orders"]
    assert len(orders["files"]) == 4
    assert orders["state"] == "halted"


@pytest.mark.parametrize(("row", "told"), [({"Id": 1, "Name": "two"}, True), ({"Id": 2, "Name": "two"}, False)])
def test_ties_are_shuffled(tmp_path, say, row, told) -> None:
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"], strategy="LastUpdateTimeFileDetection")
    orders.upsert(ROW, name="a.parquet", modified_ns=10**18)
    orders.upsert(row, name="b.parquet", modified_ns=10**18)
    out = say("validate", tmp_path, "--shuffle-ties", "8").out
    assert "ME028" in out
    assert ("ME079 a.parquet: " in out) is told


def test_a_publisher_is_watched_at_work(tmp_path, say) -> None:
    """What a look afterwards no longer shows: an empty file under its final name."""
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"], types={"Id": pa.int64(), "Name": pa.string()})
    name = orders.insert(ROW)
    content = (tmp_path / "Files/LandingZone" / name).read_bytes()
    orders.writer.write_in_place("Orders/00000000000000000002.parquet", b"")
    said = say("validate", tmp_path, "--watch", "--for", "0.3")
    assert said.code == 3
    assert "watching" in said.err
    assert "Orders/00000000000000000002.parquet: file is empty (0 bytes) [ME023]" in said.err
    assert "ME023" in said.out
    orders.writer.write_in_place("Orders/00000000000000000002.parquet", content)
    assert say("validate", tmp_path).code == 0


def test_what_cannot_be_read_is_not_clean(broken, say, monkeypatch) -> None:
    """Not even where nothing else is wrong: whoever reads the verdict would take it for one."""

    class Unreadable(LocalStorage):
        def list(self, folder):
            if folder.endswith("Good"):
                raise StorageUnavailable(f"{folder}: Permission denied")
            return super().list(folder)

    monkeypatch.setattr(target_module, "_local", Unreadable)
    monkeypatch.setattr(dry_run, "MAX_RETRY_SECONDS", 0.0)
    said = say("validate", broken)
    assert said.code == 4
    assert "Good: cannot be listed or read" in said.err


def test_a_zone_is_one_though_a_stray_file_lies_at_its_top_or_nothing_at_all(broken, say, tmp_path) -> None:
    zone = broken / "Files/LandingZone"
    (zone / "00000000000000000001.parquet").write_bytes(b"x")
    told = place(say, zone)
    assert len(told["tables"]) == 3
    assert [found["code"] for found in told["diagnostics"]] == ["ME002"]
    empty = tmp_path / "LandingZone"
    empty.mkdir()
    said = say("validate", empty)
    assert (said.code, said.out.splitlines()[-1]) == (0, "0 tables, 0 files, 0 rows: nothing has landed yet")


def test_dots_in_a_path_and_folders_of_moved_files_are_understood(broken, say, monkeypatch) -> None:
    table = broken / "Files/LandingZone/Gap"
    moved = table / "_FilesReadyToDelete"
    moved.mkdir()
    (table / "00000000000000000001.parquet").rename(moved / "00000000000000000001.parquet")
    monkeypatch.chdir(moved)
    for path in ("..", "00000000000000000001.parquet"):
        (found,) = place(say, path)["tables"]
        assert found["files"] == ["Gap/00000000000000000001.parquet"]


@pytest.mark.parametrize("name", ["_out", ".out"])
def test_what_the_service_passes_over_is_not_called_clean(tmp_path, say, name) -> None:
    folder = LandingZoneWriter(tmp_path, zone="zone").folder(name)
    folder.write_metadata(keys=["Id"])
    folder.insert({"Id": 1})
    for path in (tmp_path / "zone" / name, tmp_path / "zone" / name / "00000000000000000001.parquet"):
        said = say("validate", path)
        assert (said.code, "Fabric ignores" in said.err) == (2, True)


def test_a_root_that_was_mirrored_may_lack_its_first_files(shop, say) -> None:
    for number in range(3, 6):
        shop.orders.upsert({"Id": number, "Name": "more"})
    say("once", shop.root)
    shutil.rmtree(shop.root / "Files/LandingZone/Sales.schema/Orders/_FilesReadyToDelete")
    told = place(say, shop.root)["tables"]
    assert {table["state"] for table in told} == {"caught_up"}


def test_equal_rows_in_another_order_of_columns_are_no_other_rows(tmp_path, say) -> None:
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"], strategy="LastUpdateTimeFileDetection")
    orders.insert({"Id": 1, "A": 0.0}, name="a.parquet", modified_ns=10**18)
    orders.insert({"Id": 2, "B": 1.0}, name="b.parquet", modified_ns=10**18)
    assert "ME079" not in say("validate", tmp_path, "--shuffle-ties", "8").out


def test_a_baseline_of_one_zone_hides_nothing_of_another(tmp_path, say) -> None:
    for root in ("a", "b"):
        LandingZoneWriter(tmp_path / root).table("Orders", keys=["Id"]).land(b"")
    say("validate", tmp_path / "a", "--write-baseline", tmp_path / "known.json")
    assert say("validate", tmp_path / "a", "--baseline", tmp_path / "known.json").code == 0
    assert say("validate", tmp_path / "a", tmp_path / "b", "--baseline", tmp_path / "known.json").code == 3


def test_large_files_are_read_whole_unless_keys_are_enough(tmp_path, say, monkeypatch) -> None:
    monkeypatch.setattr(validate_module, "LARGE_FILE_BYTES", 0)
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"])
    orders.land_parquet(pa.table({"Id": [1, 1], "At": pa.array([2**62, 0], pa.timestamp("ms"))}))
    assert "ME060" in say("validate", tmp_path).out
    out = say("validate", tmp_path, "--keys-only").out
    assert ("ME060" in out, "ME039" in out) == (False, True)


def test_a_good_publisher_is_not_accused_for_what_was_true_for_a_moment(tmp_path, say) -> None:
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"], types={"Id": pa.int64()})
    threading.Timer(0.2, orders.insert, [{"Id": 1}]).start()
    said = say("validate", tmp_path, "--watch", "--for", "0.6", "--fail-on", "warning")
    assert (said.code, said.out.endswith("1 table, 1 file, 1 row: clean\n")) == (0, True)


def test_a_root_without_a_zone_is_no_zone_itself(tmp_path, say) -> None:
    for folder in (".mirror-engine", "Files/Monitoring", "Tables"):
        (tmp_path / folder).mkdir(parents=True)
    said = say("validate", tmp_path)
    assert (said.code, "No table folder lies in the landing zone" in said.out) == (0, True)


def test_a_refusal_is_told_in_fabrics_words_where_they_are_known(tmp_path, say) -> None:
    table = LandingZoneWriter(tmp_path).table("Sales.Orders", keys=["Id"])
    table.land_parquet(pa.table({"Id": pa.array([1], pa.int64())}))
    table.land_parquet(pa.table({"Id": pa.array([1], pa.int32())}))
    LandingZoneWriter(tmp_path).table("Marks", keys=["Id"]).apply_changes((3, {"Id": 1}))
    (words,) = [line for line in say("validate", tmp_path).out.splitlines() if "Fabric says" in line]
    assert (
        "ErrorCode: SchemaMergeFailure, Message: Failed to write table 'Sales\\Orders' due to schema mismatch." in words
    )
    assert "Cause: Type mismatch for column 'Id'. Incoming type: 'integer' (Nullable: True)" in words
    assert "ArtifactId" not in words
    told = {table["table"]: table["fabric_error"] for table in place(say, tmp_path)["tables"]}
    assert told["Marks"] is None
    assert words.endswith(told["Sales.schema/Orders"])


def test_two_forms_of_one_report_are_refused(broken, say) -> None:
    said = say("validate", broken, "--json", "--format", "sarif")
    assert (said.code, "two forms of one report" in said.out + said.err) == (2, True)


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
    assert (running.returncode, text) == (130, b"interrupted\n")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit needs Linux")
def test_a_file_beyond_the_memory_limit_is_rejected_with_the_option_that_moves_it(tmp_path) -> None:
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"])
    orders.insert({"Id": 1})
    zeros = io.BytesIO()
    table = pa.table({"Id": [2], "Text": ["\0" * (400 << 20)]})
    pq.write_table(table, zeros, compression="zstd", use_dictionary=False, write_statistics=False)
    orders.land(zeros.getvalue(), name="00000000000000000002.parquet")
    command = [sys.executable, "-m", "mirror_engine.cli.main", "validate", str(tmp_path), "--memory-limit", "350MiB"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "row group 1 exceeds the limit of 367,001,600 bytes" in done.stdout
    assert "raise memory_limit" in done.stdout
