"""Fabric's REST API for mirrored databases, operation by operation."""

from __future__ import annotations

import base64
import itertools
import json

import pytest
from starlette.testclient import TestClient

from mirror_engine.onelake import replication
from mirror_engine.onelake.fabric_rest import TABLES_PER_PAGE, FabricApi, fabric_app
from mirror_engine.onelake.items import Items
from mirror_engine.onelake.replication import DatabaseStatus, FabricError, NullReplication, TableReport
from mirror_engine.onelake.store import LocalStore

FABRIC = "https://api.fabric.microsoft.com"
MIRRORING = {
    "properties": {
        "source": {"type": "GenericMirror", "typeProperties": None},
        "target": {
            "type": "MountedRelationalDatabase",
            "typeProperties": {"format": "Delta", "defaultSchema": "raw", "retentionInDays": 3},
        },
    }
}


def definition(content=MIRRORING):
    payload = base64.b64encode(json.dumps(content).encode()).decode()
    return {"parts": [{"path": "mirroring.json", "payload": payload, "payloadType": "InlineBase64"}]}


@pytest.fixture
def databases():
    return NullReplication(clock=(half / 2 for half in itertools.count()).__next__)


@pytest.fixture
def client(databases, tmp_path):
    storage = LocalStore(tmp_path)
    items = Items(storage)
    items.ensure("shop", "orders")
    client = TestClient(fabric_app(FabricApi(items, databases)), FABRIC)
    workspace = client.get("/v1/workspaces").json()["value"][0]["id"]
    client.items = f"/v1/workspaces/{workspace}/mirroredDatabases"
    return client


def create(client, name="sales", **more):
    answer = client.post(client.items, json={"displayName": name, "definition": definition(), **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def refused(answer):
    assert answer.headers["x-ms-public-api-error-code"] == answer.json()["errorCode"]
    assert {"message", "requestId", "isRetriable"} < answer.json().keys()
    return answer.status_code, answer.json()["errorCode"]


def test_an_item_is_made_found_changed_and_deleted(client):
    made = create(client, description="all of it")
    assert made["type"] == "MirroredDatabase"
    assert made["properties"]["defaultSchema"] == "raw"
    assert made["properties"]["oneLakeTablesPath"].endswith(f"/{made['workspaceId']}/{made['id']}/Tables")
    assert client.get(f"{client.items}/{made['id']}").json() == made
    assert [each["displayName"] for each in client.get(client.items).json()["value"]] == ["orders", "sales"]
    changed = client.patch(f"{client.items}/{made['id']}", json={"displayName": "sold"}).json()
    assert changed == made | {"displayName": "sold"}
    deleted = client.delete(f"{client.items}/{made['id']}")
    assert (deleted.status_code, deleted.content) == (200, b"")
    assert refused(client.get(f"{client.items}/{made['id']}")) == (404, "ItemNotFound")


def test_workspaces_are_found_by_guid(client):
    found = client.get("/v1/workspaces").json()["value"][0]
    assert client.get(f"/v1/workspaces/{found['id']}").json() == found
    assert refused(client.get("/v1/workspaces/6e335e92-a2a2-4b5a-970a-bd6a89fbb765")) == (404, "WorkspaceNotFound")


def test_names_are_given_once(client):
    assert refused(client.post(client.items, json={"displayName": "orders"})) == (409, "ItemDisplayNameAlreadyInUse")
    other = create(client)
    renamed = client.patch(f"{client.items}/{other['id']}", json={"displayName": "orders"})
    assert refused(renamed) == (409, "ItemDisplayNameAlreadyInUse")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, "InvalidRequest"),
        ({"displayName": ""}, "InvalidRequest"),
        ({"displayName": "x" * 124}, "InvalidRequest"),
        ({"displayName": "../x"}, "InvalidRequest"),
        ({"displayName": ".mirror-engine"}, "InvalidRequest"),
        ({"displayName": 1}, "InvalidRequest"),
        ({"displayName": "x", "description": "x" * 257}, "InvalidRequest"),
        ({"displayName": "x", "type": "Lakehouse"}, "InvalidItemType"),
        ({"displayName": "x", "definition": 1}, "CorruptedPayload"),
        ({"displayName": "x", "definition": {"parts": []}}, "CorruptedPayload"),
        ({"displayName": "x", "definition": {"parts": [1]}}, "CorruptedPayload"),
        ({"displayName": "x", "definition": definition([])}, "CorruptedPayload"),
        (
            {"displayName": "x", "definition": definition({"properties": {"source": {"type": "Snowflake"}}})},
            "CorruptedPayload",
        ),
        ([], "InvalidRequest"),
    ],
)
def test_what_is_no_item_is_refused(client, body, expected):
    assert refused(client.post(client.items, json=body)) == (400, expected)


@pytest.mark.parametrize("payload", ["%%%", "e30", 1, None, base64.b64encode(b"[" * 100_000).decode()])
def test_a_payload_must_be_base64_of_json(client, payload):
    part = {"path": "mirroring.json", "payload": payload, "payloadType": "InlineBase64"}
    answer = client.post(client.items, json={"displayName": "x", "definition": {"parts": [part]}})
    assert refused(answer) == (400, "CorruptedPayload")


def test_a_body_must_be_json(client):
    assert refused(client.post(client.items, content=b"{")) == (400, "InvalidRequest")
    assert refused(client.post(client.items, content=b"[" * 100_000)) == (400, "InvalidRequest")
    assert refused(client.post(client.items, content=b"")) == (400, "InvalidRequest")
    assert refused(client.post(client.items, content=b" " * (5 << 20))) == (413, "RequestBodyTooLarge")


def test_the_life_of_a_database(client):
    at = f"{client.items}/{create(client)['id']}"
    assert refused(client.post(f"{at}/startMirroring")) == (400, "MirroredDatabaseNotReady")
    seen = []
    for act in (None, "startMirroring", "startMirroring", "stopMirroring"):
        if act:
            done = client.post(f"{at}/{act}")
            assert (done.status_code, done.content) == (200, b"")
        seen.append(client.post(f"{at}/getMirroringStatus").json())
    assert seen == [{"status": each} for each in ("Initialized", "Running", "Running", "Stopped")]


def test_without_a_definition_nothing_starts(client):
    at = f"{client.items}/{create(client, definition=None)['id']}"
    client.post(f"{at}/getMirroringStatus")
    assert refused(client.post(f"{at}/startMirroring")) == (400, "MirroringDefinitionMissing")
    assert refused(client.post(f"{at}/getDefinition")) == (400, "MirroringDefinitionMissing")


def test_a_definition_comes_back_as_it_was_given(client):
    at = f"{client.items}/{create(client)['id']}"
    assert client.post(f"{at}/getDefinition").json() == {"definition": definition()}
    other = json.loads(json.dumps(MIRRORING))
    other["properties"]["target"]["typeProperties"]["defaultSchema"] = "else"
    client.post(f"{at}/getMirroringStatus")
    changed = client.post(f"{at}/updateDefinition", json={"definition": definition(other)})
    assert (changed.status_code, changed.content) == (200, b"")
    assert client.get(at).json()["properties"]["defaultSchema"] == "else"
    client.post(f"{at}/startMirroring")
    while_running = client.post(f"{at}/updateDefinition", json={"definition": definition()})
    assert refused(while_running) == (400, "OperationNotAllowed")


def test_tables_come_in_pages(client, databases, monkeypatch):
    many = [TableReport("Sales", f"T{number}", "Replicating", 8, 1, None) for number in range(TABLES_PER_PAGE + 1)]
    many[0] = TableReport(
        "", "T", "Replicating", 40, 4, "2026-11-02T08:15:29.5Z", FabricError("SchemaMergeFailure", "x")
    )
    monkeypatch.setattr(databases, "tables", lambda _: many)
    at = f"{client.items}/{create(client)['id']}/getTablesMirroringStatus"
    first = client.post(at).json()
    assert first["data"][0] == {
        "sourceObjectType": "Table",
        "sourceSchemaName": "",
        "sourceTableName": "T",
        "status": "Replicating",
        "metrics": {"processedBytes": 40, "processedRows": 4, "lastSyncDateTime": "2026-11-02T08:15:29.5Z"},
        "error": {"errorCode": "SchemaMergeFailure", "message": "x"},
    }
    second = client.post(first["continuationUri"]).json()
    assert [each["sourceTableName"] for each in second["data"]] == [f"T{TABLES_PER_PAGE}"]
    assert second.keys() == {"data"}
    assert refused(client.post(f"{at}?continuationToken=x")) == (400, "InvalidRequest")


@pytest.mark.parametrize(
    "options", [{"defaultSchema": "a/b"}, {"defaultSchema": 1}, {"retentionInDays": 0}, {"format": "Iceberg"}]
)
def test_what_a_definition_asks_for_must_be_possible(client, options):
    content = json.loads(json.dumps(MIRRORING))
    content["properties"]["target"]["typeProperties"] = options
    answer = client.post(client.items, json={"displayName": "x", "definition": definition(content)})
    assert refused(answer) == (400, "CorruptedPayload")


def test_a_renamed_database_is_mirrored_on(client):
    at = f"{client.items}/{create(client)['id']}"
    client.post(f"{at}/getMirroringStatus")
    client.post(f"{at}/startMirroring")
    client.patch(at, json={"displayName": "sold"})
    assert client.post(f"{at}/getMirroringStatus").json() == {"status": "Running"}


def test_an_error_comes_with_the_status(client, databases, monkeypatch):
    found = DatabaseStatus.RUNNING, FabricError("InternalError", "too many tables")
    monkeypatch.setattr(databases, "status", lambda _: found)
    status = client.post(f"{client.items}/{create(client)['id']}/getMirroringStatus").json()
    assert status == {"status": "Running", "error": {"errorCode": "InternalError", "message": "too many tables"}}


def test_other_paths_and_methods_are_refused_in_the_same_form(client):
    assert refused(client.get("/v1/nothing")) == (404, "EndpointNotFound")
    assert refused(client.put(client.items)) == (405, "MethodNotAllowed")


def test_a_new_database_takes_a_moment():
    databases, item = NullReplication(clock=lambda: now[0]), type("Item", (), {"id": "x"})
    now = [0.0]
    databases.add(item)
    assert databases.status(item)[0] is DatabaseStatus.INITIALIZING
    now[0] = replication.INITIALIZING_SECONDS
    assert databases.status(item)[0] is DatabaseStatus.INITIALIZED


def test_an_item_is_initialized_soon_after_it_was_made_whether_anybody_looks_or_not(client, databases):
    made = create(client)
    for _ in range(4):
        databases._clock()
    assert client.post(f"{client.items}/{made['id']}/startMirroring").status_code == 200


def test_items_not_created_by_rest_can_be_started(client):
    [found] = client.get(client.items).json()["value"]
    at = f"{client.items}/{found['id']}"
    assert client.post(f"{at}/startMirroring").status_code == 200
    assert client.post(f"{at}/getDefinition").json()["definition"]["parts"]
    same = definition({"properties": {**MIRRORING["properties"], "target": {"type": "MountedRelationalDatabase"}}})
    named = definition(
        {
            "properties": {
                **MIRRORING["properties"],
                "target": {"type": "MountedRelationalDatabase", "typeProperties": {"defaultSchema": "dbo"}},
            }
        }
    )
    for meant in (same, named):  # the same schema, reported or not
        assert client.post(f"{at}/updateDefinition", json={"definition": meant}).status_code == 200
