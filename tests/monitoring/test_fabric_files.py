"""Fabric's monitoring files (LZ-9) and error messages (LZ-10), to the letter."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_storage import MemoryStorage

from mirror_engine.landing_zone.diagnostics import CATALOG, Diagnostic, diagnose
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import Progress
from mirror_engine.landing_zone.schema import Column, type_mismatch
from mirror_engine.landing_zone.states import (
    Behind,
    Blocked,
    CaughtUp,
    Empty,
    Halted,
    Loading,
    TableState,
    Unconfigured,
)
from mirror_engine.monitoring.fabric_files import (
    REPLICATOR_FILE,
    TABLES_FILE,
    FabricTable,
    artifact_id,
    dotnet,
    fabric_message,
    last_heartbeat,
    replicator,
    write,
    write_heartbeat,
)

MIRROR = "5f0c2a4e0b1d4c55" * 2
NOW = 1_793_607_330.5
STORES, ITEMS = TableName("Sales", "Stores"), TableName("", "Items")
FRESH = Progress("g", "i", configured_at=NOW - 20 * 86_400)
COMMITTED = replace(FRESH, delta_version=2, rows_processed=4, bytes_processed=40, last_commit_at=NOW - 1)


def written(*tables: FabricTable) -> list[dict]:
    storage = MemoryStorage()
    write(storage, tables, mirror=MIRROR, now=NOW)
    with storage.open(TABLES_FILE) as file:
        return json.load(file)["tables"]


def entry(state: TableState, progress: Progress | None = COMMITTED, name: TableName = STORES) -> dict:
    (found,) = written(FabricTable(name, state, progress))
    return found


def test_an_entry_has_fabrics_fields() -> None:
    found = entry(CaughtUp())
    assert str(UUID(found.pop("id")))
    assert found == {
        "status": "Replicating",
        "errorCode": "",
        "errorMessage": "",
        "normalizedTableName": "Sales.Stores",
        "sourceTableName": "Stores",
        "sourceSchemaName": "Sales",
        "sourceObjectType": "Table",
        "metrics": {
            "processedRowCount": 4,
            "processedByte": 40,
            "lastSourceCommitTimeUtc": "0001-01-01T00:00:00",
            "lastSyncTimeUtc": "2026-11-02T08:15:29.5000000Z",
        },
    }


def test_a_table_outside_a_schema_folder_has_an_empty_schema_name() -> None:
    found = entry(CaughtUp(), name=ITEMS)
    assert (found["normalizedTableName"], found["sourceSchemaName"]) == ("Items", "")


def test_ids_are_stable_and_differ_by_folder() -> None:
    twins = [TableName("a", "b"), TableName("", "a.b")]
    first, second = (
        [found["id"] for found in written(*(FabricTable(n, CaughtUp(), None) for n in twins))] for _ in range(2)
    )
    assert first == second
    assert len(set(first)) == 2


def test_a_status_is_fabrics() -> None:
    refused = Halted(diagnose("ME023", "x.parquet"), 1)
    assert entry(Loading(1), None)["status"] == "Initialized"
    assert entry(Loading(1), FRESH)["status"] == "Snapshotting"
    assert entry(refused, FRESH)["status"] == "Snapshotting"
    for state in (CaughtUp(), Behind(1), Blocked("x", 1), refused):
        assert entry(state)["status"] == "Replicating"
    assert entry(Empty(expired=False), FRESH)["status"] == "Snapshotting"


def test_a_table_without_a_commit_was_synced_in_year_one() -> None:
    assert entry(Loading(1), FRESH)["metrics"]["lastSyncTimeUtc"] == "0001-01-01T00:00:00"


def test_a_blocked_table_has_no_error() -> None:
    assert entry(Blocked("x", 1))["errorCode"] == ""


def test_a_halted_table_has_its_error() -> None:
    found = entry(Halted(diagnose("ME023", "Sales.schema/Stores/1.parquet"), 1))
    assert found["errorCode"] == "InputValidationError"
    assert "Parquet file size is 0 bytes" in found["errorMessage"]
    assert found["errorMessage"].endswith(f"ArtifactId: {artifact_id(MIRROR)}")


def test_a_table_without_data_for_14_days_has_failed() -> None:
    found = entry(Empty(expired=True), FRESH)
    assert (found["status"], found["errorMessage"]) == (
        "Failed",
        "This table has been stuck in Snapshotting for 20 days",
    )


def test_unconfigured_folders_are_left_out() -> None:
    assert written(FabricTable(ITEMS, Unconfigured(diagnose("ME008", "Items", count=1), 1), None)) == []


def test_the_heartbeat_is_written_with_both_files_and_alone() -> None:
    storage = MemoryStorage()
    assert last_heartbeat(storage) is None
    write(storage, (), mirror=MIRROR, now=NOW)
    with storage.open(REPLICATOR_FILE) as file:
        assert json.load(file) == {
            "status": "Running",
            "errorCode": "",
            "errorMessage": "",
            "lastHeartbeatTime": "2026-11-02T08:15:30.5000000+00:00",
        }
    write_heartbeat(storage, now=NOW + 60)
    assert last_heartbeat(storage) == NOW + 60


def test_a_heartbeat_of_another_shape_is_none() -> None:
    storage = MemoryStorage()
    for content in (b"", b"[]", b'{"lastHeartbeatTime": 7}', b'{"lastHeartbeatTime": "soon"}', b"\xff"):
        storage.write(REPLICATOR_FILE, content)
        assert last_heartbeat(storage) is None


def test_more_tables_than_fabric_mirrors_are_an_error() -> None:
    assert replicator(NOW, table_count=1000)["errorMessage"] == ""
    assert replicator(NOW, table_count=1001)["errorMessage"].startswith("The tables count might exceed the limit")


def test_the_artifact_is_a_guid_whatever_the_mirrors_id_is() -> None:
    assert artifact_id(MIRROR) == str(UUID(MIRROR))
    assert UUID(artifact_id("not a guid"))


def test_dotnet_times_have_seven_digits() -> None:
    assert dotnet(1_793_607_330.5) == "2026-11-02T08:15:30.5000000"
    assert dotnet(1_793_607_330.0) == "2026-11-02T08:15:30.0000000"


@given(st.floats(0, 4e9))
def test_a_dotnet_time_is_always_of_one_shape(seconds: float) -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}", dotnet(seconds))


FOLDER = STORES.folder
TAIL = ", ErrorCode: InternalError, ErrorCode: InputValidationError ArtifactId: G"
DATA = "We encountered an error while parsing data file being used, please fix the file and try again. The error is: "
METADATA = DATA.replace("data file", "metadata file")


def message(diagnostic: Diagnostic) -> str:
    return fabric_message(diagnostic, STORES, "G")[1]


def test_e1_an_empty_parquet_file() -> None:
    text = message(diagnose("ME023", f"{FOLDER}/1.parquet"))
    assert text.startswith(
        f"We encountered an error while opening the Parquet file 'Files/LandingZone/{FOLDER}/1.parquet'"
    )
    assert "'Invalid: Parquet file size is 0 bytes'" in text


def test_e2_an_empty_text_file() -> None:
    text = message(diagnose("ME023", f"{FOLDER}/1.csv"))
    assert text.startswith(
        f"{DATA}Exception reading the data file. Exception: No data rows available. "
        "IReader state: ColumnCount: 0 CurrentIndex: -1"
    )
    assert text.endswith(TAIL)


def test_e3_removed_metadata() -> None:
    assert message(diagnose("ME009", f"{FOLDER}/_metadata.json")) == (
        f"{METADATA}Exception reading the metadata file: _metadata.json, Exception: "
        f"PathNotFound Files/LandingZone/{FOLDER}/_metadata.json{TAIL}"
    )


def test_e4_metadata_that_is_not_json() -> None:
    text = message(diagnose("ME010", f"{FOLDER}/_metadata.json", line=3, char=5, fault="a bare word", help="quote it"))
    assert text == (
        f"{METADATA}Exception reading the metadata file: _metadata.json, Exception: a bare word, line 3, column 5{TAIL}"
    )


def test_e5_a_type_that_does_not_merge() -> None:
    reason = type_mismatch(Column("Id", "long", nullable=False), Column("Id", "integer"))
    code, text = fabric_message(diagnose("ME044", f"{FOLDER}/2.parquet", column="Id", reason=reason), STORES, "G")
    assert code == "SchemaMergeFailure"
    assert text == (
        "ErrorCode: SchemaMergeFailure, Message: Failed to write table 'Sales\\Stores' due to schema mismatch. "
        "Schema merge failure due to potential invalid input. Cause: Type mismatch for column 'Id'. "
        "Incoming type: 'long' (Nullable: False), existing type: 'integer' (Nullable: True). ArtifactId: G"
    )


@pytest.mark.parametrize(("default", "name"), [("dbo", "'dbo\\Items'"), ("", "'Items'")])
def test_e5_names_a_table_without_schema_folder_by_its_delta_schema(default: str, name: str) -> None:
    text = fabric_message(diagnose("ME044", "Items/1", reason="r"), TableName("", "Items"), "G", default_schema=default)
    assert name in text[1]


@pytest.mark.parametrize(
    ("delta_type", "fault", "expected"),
    [
        ("integer", "", "System.FormatException: Input string was not in a correct format."),
        ("double", "", "System.FormatException: Input string was not in a correct format."),
        (
            "short",
            "out of range",
            "System.OverflowException: Value was either too large or too small for an Int16.",
        ),
        ("timestamp", "", "String was not recognized as a valid DateTime."),
        ("date", "", "String was not recognized as a valid DateTime."),
    ],
)
def test_e6_a_cell_of_another_type(delta_type: str, fault: str, expected: str) -> None:
    text = message(diagnose("ME060", f"{FOLDER}/1.csv", row=2, column="Qty", type=delta_type, fault=fault))
    assert text.startswith(
        f"{DATA}Exception reading the data file. Exception: ReadDataRowsAsync: Failed to read data rows. "
        f"Exception: {expected}"
    )
    assert "row 2" in text
    assert "Qty" in text


def test_e7_a_table_without_data() -> None:
    assert message(diagnose("ME068", FOLDER, time="20 days")) == (
        "This table has been stuck in Snapshotting for 20 days"
    )


def test_e10_any_other_rejection_has_the_diagnostics_message() -> None:
    text = message(diagnose("ME037", f"{FOLDER}/2.parquet", row=3, value="3"))
    assert text == (f"{DATA}{FOLDER}/2.parquet, row 3: row marker is 3, expected 0, 1, 2 or 4 [ME037]{TAIL}")


def test_rejected_metadata_is_called_metadata() -> None:
    assert message(diagnose("ME017", f"{FOLDER}/_metadata.json", before="A", after="B")).startswith(METADATA)


@pytest.mark.parametrize("code", CATALOG)
def test_every_code_has_a_fabric_message(code: str) -> None:
    details = dict.fromkeys(("time", "fault", "line", "char", "reason"), "x")
    template = CATALOG[code].message + CATALOG[code].help
    details |= {re.split("[:}]", part)[0]: "x" for part in template.split("{")[1:]}
    error_code, text = fabric_message(diagnose(code, f"{FOLDER}/1.csv", **details), STORES, "G")
    assert error_code
    assert "G" in text or code == "ME068"
