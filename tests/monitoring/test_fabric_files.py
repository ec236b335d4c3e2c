"""Fabric's own monitoring files, to the letter of chapter 9."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

from memory_storage import MemoryStorage

from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import Progress
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
    beat,
    last_beat,
    replicator,
    write,
)

MIRROR = "5f0c2a4e0b1d4c55" * 2
NOW = 1_793_607_330.5
STORES, ITEMS = TableName("Sales", "Stores"), TableName("", "Items")
FRESH = Progress("g", "i", armed_at=NOW - 20 * 86_400)
COMMITTED = replace(FRESH, delta_version=2, rows_processed=4, bytes_processed=40, synced_at=NOW - 1)


def written(*tables: FabricTable) -> list[dict]:
    storage = MemoryStorage()
    write(storage, tables, mirror=MIRROR, now=NOW)
    with storage.open(TABLES_FILE) as file:
        return json.load(file)["tables"]


def entry(state: TableState, progress: Progress | None = COMMITTED, name: TableName = STORES) -> dict:
    (found,) = written(FabricTable(name, state, progress))
    return found


def test_a_table_shows_as_the_service_shows_it() -> None:
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


def test_a_bare_table_has_an_empty_schema_name() -> None:
    found = entry(CaughtUp(), name=ITEMS)
    assert (found["normalizedTableName"], found["sourceSchemaName"]) == ("Items", "")


def test_ids_are_stable_and_told_apart_by_folder() -> None:
    twins = [TableName("a", "b"), TableName("", "a.b")]
    first, second = (
        [found["id"] for found in written(*(FabricTable(n, CaughtUp(), None) for n in twins))] for _ in range(2)
    )
    assert first == second
    assert len(set(first)) == 2


def test_status_words_are_those_of_the_service() -> None:
    refused = Halted(diagnose("ME023", "x.parquet"), 1)
    assert entry(Loading(1), None)["status"] == "Initialized"
    assert entry(Loading(1), FRESH)["status"] == "Snapshotting"
    assert entry(refused, FRESH)["status"] == "Snapshotting"
    for state in (CaughtUp(), Behind(1), Blocked("x", 1), refused):
        assert entry(state)["status"] == "Replicating"
    assert entry(Empty(expired=False), FRESH)["status"] == "Snapshotting"


def test_a_table_never_committed_was_synced_in_year_one() -> None:
    assert entry(Loading(1), FRESH)["metrics"]["lastSyncTimeUtc"] == "0001-01-01T00:00:00"


def test_a_blocked_table_carries_no_error() -> None:
    assert entry(Blocked("x", 1))["errorCode"] == ""


def test_a_latched_table_carries_its_error() -> None:
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


def test_unarmed_folders_are_left_out() -> None:
    assert written(FabricTable(ITEMS, Unconfigured(diagnose("ME008", "Items", count=1), 1), None)) == []


def test_the_heartbeat_is_written_beside_and_alone() -> None:
    storage = MemoryStorage()
    assert last_beat(storage) is None
    write(storage, (), mirror=MIRROR, now=NOW)
    with storage.open(REPLICATOR_FILE) as file:
        assert json.load(file) == {
            "status": "Running",
            "errorCode": "",
            "errorMessage": "",
            "lastHeartbeatTime": "2026-11-02T08:15:30.5000000+00:00",
        }
    beat(storage, now=NOW + 60)
    assert last_beat(storage) == NOW + 60


def test_a_heartbeat_of_another_shape_is_none() -> None:
    storage = MemoryStorage()
    for content in (b"", b"[]", b'{"lastHeartbeatTime": 7}', b'{"lastHeartbeatTime": "soon"}', b"\xff"):
        storage.write(REPLICATOR_FILE, content)
        assert last_beat(storage) is None


def test_more_tables_than_the_service_takes_show_as_its_error() -> None:
    assert replicator(NOW, table_count=1000)["errorMessage"] == ""
    assert replicator(NOW, table_count=1001)["errorMessage"].startswith("The tables count might exceed the limit")


def test_the_artifact_is_a_guid_whatever_the_mirrors_id_is() -> None:
    assert artifact_id(MIRROR) == str(UUID(MIRROR))
    assert UUID(artifact_id("not a guid"))
