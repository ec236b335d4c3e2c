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
from mirror_engine.monitoring.fabric_errors import FabricTable, fabric_message
from mirror_engine.monitoring.fabric_files import (
    REPLICATOR_FILE,
    TABLES_FILE,
    dotnet,
    last_heartbeat,
    read_tables,
    replicator,
    write,
    write_stopped,
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
    """LZ-9.2."""
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
    outside = entry(CaughtUp(), name=ITEMS)
    assert (outside["normalizedTableName"], outside["sourceSchemaName"]) == ("Items", "")


def test_ids_are_stable_and_differ_by_folder() -> None:
    twins = [FabricTable(name, CaughtUp(), None) for name in (TableName("a", "b"), TableName("", "a.b"))]
    first, second = ([found["id"] for found in written(*twins)] for _ in range(2))
    assert first == second
    assert len(set(first)) == 2


REJECTED = Halted(diagnose("ME023", "Sales.schema/Stores/1.parquet"), 1)


@pytest.mark.parametrize(
    ("state", "progress", "status", "code"),
    [
        (Loading(1), None, "Initialized", ""),
        (Loading(1), FRESH, "Snapshotting", ""),
        (REJECTED, FRESH, "Snapshotting", "InputValidationError"),
        (REJECTED, COMMITTED, "Replicating", "InputValidationError"),
        (CaughtUp(), COMMITTED, "Replicating", ""),
        (Behind(1), COMMITTED, "Replicating", ""),
        (Blocked("x", 1), COMMITTED, "Replicating", ""),
        (Empty(expired=False), FRESH, "Snapshotting", ""),
        (Empty(expired=True), FRESH, "Failed", "InternalError"),
    ],
)
def test_a_status_is_fabrics(state, progress, status, code) -> None:
    """LZ-9.6."""
    found = entry(state, progress)
    assert (found["status"], found["errorCode"]) == (status, code)
    assert (found["metrics"]["lastSyncTimeUtc"] == "0001-01-01T00:00:00") == (progress is not COMMITTED)
    if code:
        stuck = "This table has been stuck in Snapshotting for 20 days"  # E7
        assert found["errorMessage"] == stuck if state.code == "empty" else str(UUID(MIRROR)) in found["errorMessage"]


def test_unconfigured_folders_are_left_out() -> None:
    assert written(FabricTable(ITEMS, Unconfigured(diagnose("ME008", "Items", count=1, help=""), 1), None)) == []


def test_tables_json_entry_is_rendered_when_the_table_changed() -> None:
    storage = MemoryStorage()
    states = {STORES: CaughtUp(), ITEMS: CaughtUp(), TableName("", "Old"): Empty(expired=True)}
    tables = [FabricTable(name, state, COMMITTED) for name, state in states.items()]
    before = write(storage, tables, mirror=MIRROR, now=NOW)
    tables[0] = tables[0]._replace(progress=replace(COMMITTED, rows_processed=5))
    after = write(storage, tables, mirror=MIRROR, now=NOW + 86_400, before=before)
    assert after[ITEMS] is before[ITEMS]
    with storage.open(TABLES_FILE) as file:
        found = json.load(file)["tables"]
    assert found[:2] == [*written(tables[0]), *written(tables[1])]
    assert "21 days" in found[2]["errorMessage"]


@pytest.mark.slow
def test_tables_of_a_file_of_any_length_are_stopped() -> None:
    """The engine writes it: no bound may cut it, or all tables would be gone."""
    storage, entries = MemoryStorage(), [{"id": str(number), "errorMessage": "x" * (1 << 20)} for number in range(70)]
    storage.write(TABLES_FILE, json.dumps({"tables": entries}).encode())
    write_stopped(storage, now=NOW)
    assert [table["status"] for table in read_tables(storage)] == ["Stopped"] * 70


def test_the_heartbeat_is_written_with_both_files() -> None:
    """LZ-9.1."""
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
    assert last_heartbeat(storage) == NOW
    for content in (b"", b"[]", b'{"lastHeartbeatTime": 7}', b'{"lastHeartbeatTime": "soon"}', b"\xff"):
        storage.write(REPLICATOR_FILE, content)
        assert last_heartbeat(storage) is None


def test_the_error_about_too_many_tables_comes_with_the_thousandth() -> None:
    assert replicator(NOW, table_count=999)["errorMessage"] == ""
    assert replicator(NOW, table_count=1000)["errorMessage"].startswith("The tables count might exceed the limit")


@given(st.floats(0, 4e9))
def test_a_dotnet_time_is_always_of_one_shape(seconds: float) -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}", dotnet(seconds))


FOLDER = STORES.folder
TAIL = ", ErrorCode: InternalError, ErrorCode: InputValidationError ArtifactId: G"
FRAME = "We encountered an error while parsing {} file being used, please fix the file and try again. The error is: "
DATA, METADATA = FRAME.format("data"), FRAME.format("metadata")
READING = "Exception reading the metadata file: _metadata.json, Exception: "
LONG_ID = type_mismatch(Column("Id", "long", nullable=False), Column("Id", "integer"))


@pytest.mark.parametrize(
    ("diagnostic", "text"),
    [
        pytest.param(
            diagnose("ME023", f"{FOLDER}/1.parquet"),
            f"We encountered an error while opening the Parquet file 'Files/LandingZone/{FOLDER}/1.parquet', please "
            f"fix the file and try again. The error is: 'Invalid: Parquet file size is 0 bytes'{TAIL}",
            id="E1, an empty Parquet file",
        ),
        pytest.param(
            diagnose("ME024", f"{FOLDER}/1.parquet", reason="no footer", help=""),
            f"We encountered an error while opening the Parquet file 'Files/LandingZone/{FOLDER}/1.parquet', please "
            f"fix the file and try again. The error is: 'Invalid: file cannot be read: no footer'{TAIL}",
            id="E1, an unreadable Parquet file",
        ),
        pytest.param(
            diagnose("ME023", f"{FOLDER}/1.csv"),
            f"{DATA}Exception reading the data file. Exception: No data rows available. IReader state: ColumnCount: 0 "
            f"CurrentIndex: -1 ({FOLDER}/1.csv: file is empty (0 bytes) [ME023]){TAIL}",
            id="E2, an empty text file",
        ),
        pytest.param(
            diagnose("ME009", f"{FOLDER}/_metadata.json"),
            f"{METADATA}{READING}PathNotFound Files/LandingZone/{FOLDER}/_metadata.json{TAIL}",
            id="E3, removed metadata",
        ),
        pytest.param(
            diagnose("ME010", f"{FOLDER}/_metadata.json", line=3, char=5, fault="a bare word", help="quote it"),
            f"{METADATA}{READING}a bare word, line 3, column 5{TAIL}",
            id="E4, metadata that is not JSON",
        ),
        pytest.param(
            diagnose("ME044", f"{FOLDER}/2.parquet", column="Id", **LONG_ID, hint=""),
            "ErrorCode: SchemaMergeFailure, Message: Failed to write table 'Sales\\Stores' due to schema mismatch. "
            "Schema merge failure due to potential invalid input. Cause: Type mismatch for column 'Id'. Incoming type: "
            "'long' (Nullable: False), existing type: 'integer' (Nullable: True). ArtifactId: G",
            id="E5, a type that does not merge",
        ),
        pytest.param(
            diagnose("ME037", f"{FOLDER}/2.parquet", row=3, value="3", meant=""),
            f"{DATA}{FOLDER}/2.parquet, row 3: row marker is 3, expected 0, 1, 2 or 4 [ME037]{TAIL}",
            id="E10, any other rejection",
        ),
    ],
)
def test_a_rejection_has_fabrics_message(diagnostic: Diagnostic, text: str) -> None:
    assert fabric_message(diagnostic, STORES, "G")[1] == text


@pytest.mark.parametrize(("default", "name"), [("dbo", "'dbo\\Items'"), ("", "'Items'")])
def test_e5_names_a_table_without_schema_folder_by_its_delta_schema(default: str, name: str) -> None:
    code, text = fabric_message(
        diagnose("ME044", "Items/1", column="Id", found="int64", expected="int32", reason="r", hint=""),
        ITEMS,
        "G",
        default_schema=default,
    )
    assert name in text
    assert code == "SchemaMergeFailure"


FORMAT = "System.FormatException: Input string was not in a correct format."
DATE_TIME = "String was not recognized as a valid DateTime."
OVERFLOW = "System.OverflowException: Value was either too large or too small for an Int16."


@pytest.mark.parametrize(
    ("delta_type", "fault", "expected"),
    [
        ("integer", "", FORMAT),
        ("double", "", FORMAT),
        ("short", "out of range", OVERFLOW),
        ("timestamp", "", DATE_TIME),
        ("date", "", DATE_TIME),
    ],
)
def test_e6_a_cell_of_another_type(delta_type: str, fault: str, expected: str) -> None:
    cell = diagnose(
        "ME060", f"{FOLDER}/1.csv", row=2, column="Qty", type=delta_type, fault=fault, known="a valid Int32", help=""
    )
    assert fabric_message(cell, STORES, "G")[1] == (
        f"{DATA}Exception reading the data file. Exception: ReadDataRowsAsync: Failed to read data rows. "
        f"Exception: {expected} ({cell.full_message}){TAIL}"
    )
    assert "row 2" in cell.full_message
    assert "Qty" in cell.full_message


def test_every_code_has_a_fabric_message() -> None:
    for code, definition in CATALOG.items():
        details = dict.fromkeys(("time", "fault", "line", "char", "reason"), "x")
        template = definition.message + definition.help
        details |= {re.split("[:}]", part)[0]: "x" for part in template.split("{")[1:]}
        error_code, text = fabric_message(diagnose(code, f"{FOLDER}/_metadata.json", **details), STORES, "G")
        assert error_code, code
        assert "G" in text, code
        assert text.startswith(METADATA) or code == "ME044"
