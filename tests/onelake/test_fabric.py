"""Fabric's REST API for mirrored databases, operation by operation; then against its OpenAPI document."""

from __future__ import annotations

import base64
import itertools
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from mirror_engine.clock import Clock
from mirror_engine.errors import StorageUnavailable
from mirror_engine.onelake.engine_pool import DatabaseStatus, EnginePool
from mirror_engine.onelake.fabric_rest import DOCUMENT, TABLES_PER_PAGE, _sql_endpoint_id, fabric_app
from mirror_engine.onelake.items import Items
from mirror_engine.onelake.options import EmulatorOptions, ServerPlan
from mirror_engine.onelake.store import LocalStore

FABRIC = "https://api.fabric.microsoft.com"
EXAMPLES = int(os.environ.get("MIRROR_TEST_REST_EXAMPLES", "4"))
SOURCE = {"type": "GenericMirror", "typeProperties": None}
OPTIONS = {"format": "Delta", "defaultSchema": "raw", "retentionInDays": 3}


def pool_of(folder, **options):
    """A store with the item `shop/orders`, and no engines."""
    items = Items(LocalStore(folder))
    items.ensure("shop", "orders")
    return EnginePool(ServerPlan(folder, has_engines=False, options=EmulatorOptions(**options)), items)


def definition(content=None, **options):
    target = {"type": "MountedRelationalDatabase", "typeProperties": options or OPTIONS}
    content = {"properties": {"source": SOURCE, "target": target}} if content is None else content
    payload = base64.b64encode(json.dumps(content).encode()).decode()
    return {"parts": [{"path": "mirroring.json", "payload": payload, "payloadType": "InlineBase64"}]}


@pytest.fixture
def pool(tmp_path):
    return pool_of(tmp_path, clock=Clock(monotonic=(half / 2 for half in itertools.count()).__next__))


def client_of(pool, long_running):
    pool.plan.options.long_running = long_running
    client = TestClient(fabric_app(pool), FABRIC)
    client.workspace = f"/v1/workspaces/{client.get('/v1/workspaces').json()['value'][0]['id']}"
    client.items = f"{client.workspace}/mirroredDatabases"
    return client


@pytest.fixture
def rest(pool):
    return client_of(pool, "never")


def create(client, name="sales", **more):
    answer = client.post(client.items, json={"displayName": name, "definition": definition(), **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def refused(answer):
    assert answer.headers["x-ms-public-api-error-code"] == answer.json()["errorCode"]
    assert {"message", "requestId", "isRetriable"} < answer.json().keys()
    return answer.status_code, answer.json()["errorCode"]


def test_an_item_is_made_found_changed_and_deleted(rest):
    """LZ-9.4."""
    made = create(rest, description="all of it")
    assert made["type"] == "MirroredDatabase"
    found = rest.get(f"{rest.items}/{made['id']}").json()
    properties = found.pop("properties")  # which no answer to a create has
    assert found == made
    assert properties["defaultSchema"] == "raw"
    assert properties["oneLakeTablesPath"].endswith(f"/{made['workspaceId']}/{made['id']}/Tables")
    assert [each["displayName"] for each in rest.get(rest.items).json()["value"]] == ["orders", "sales"]
    changed = rest.patch(f"{rest.items}/{made['id']}", json={"displayName": "sold"}).json()
    assert changed == made | {"displayName": "sold", "properties": properties}
    in_use = rest.patch(f"{rest.items}/{made['id']}", json={"displayName": "orders"})
    assert refused(in_use) == (409, "ItemDisplayNameAlreadyInUse")
    assert refused(rest.post(rest.items, json={"displayName": "orders"})) == (
        409,
        "ItemDisplayNameAlreadyInUse",
    )
    deleted = rest.delete(f"{rest.items}/{made['id']}?hardDelete=true")
    assert (deleted.status_code, deleted.content) == (200, b"")
    assert deleted.headers["content-type"] == "application/octet-stream"
    assert refused(rest.get(f"{rest.items}/{made['id']}")) == (404, "ItemNotFound")


def test_workspaces_are_found_by_guid(rest):
    found = rest.get("/v1/workspaces").json()["value"][0]
    endpoints = {f"{name}Endpoint": f"https://onelake.{name}.fabric.microsoft.com" for name in ("blob", "dfs")}
    alone = {"capacityAssignmentProgress": "Completed", "oneLakeEndpoints": endpoints}
    assert rest.get(f"/v1/workspaces/{found['id']}").json() == found | alone
    assert refused(rest.get("/v1/workspaces/6e335e92-a2a2-4b5a-970a-bd6a89fbb765")) == (404, "WorkspaceNotFound")


def with_payload(payload):
    part = {"path": "mirroring.json", "payload": payload, "payloadType": "InlineBase64"}
    return {"displayName": "x", "definition": {"parts": [part]}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expected", "body"),
    [
        *(("InvalidRequest", {"displayName": name}) for name in ("", "x" * 124, "../x", ".mirror-engine", 1)),
        *(("InvalidRequest", body) for body in ({}, [], {"displayName": "x", "description": "x" * 257})),
        ("InvalidItemType", {"displayName": "x", "type": "Lakehouse"}),
        *(
            ("CorruptedPayload", {"displayName": "x", "definition": content})
            for content in (
                1,
                {"parts": []},
                {"parts": [1]},
                definition([]),
                definition({"properties": {"source": {"type": "Snowflake"}}}),
                definition(defaultSchema="a/b"),
                definition(defaultSchema=1),
                definition(retentionInDays=0),
                definition(enableDeltaChangeDataFeed="true"),
                definition(format="Iceberg"),
            )
        ),
        *(
            ("CorruptedPayload", with_payload(payload))
            for payload in ("%%%", "e30", 1, None, base64.b64encode(b"[" * 100_000).decode())
        ),
    ],
)
def test_what_is_no_item_is_refused(rest, expected, body):
    assert refused(rest.post(rest.items, json=body)) == (400, expected)


def test_a_body_must_be_json(rest):
    for body in (b"{", b"[" * 100_000, b""):
        assert refused(rest.post(rest.items, content=body)) == (400, "InvalidRequest")
    assert refused(rest.post(rest.items, content=b" " * (5 << 20))) == (413, "RequestBodyTooLarge")


def test_the_life_of_a_database(rest):
    """LZ-9.5."""
    at = f"{rest.items}/{create(rest)['id']}"
    assert refused(rest.post(f"{at}/startMirroring")) == (400, "MirroredDatabaseNotReady")
    seen = []
    for act in (None, "startMirroring", "startMirroring", "stopMirroring"):
        if act:
            done = rest.post(f"{at}/{act}")
            assert (done.status_code, done.content) == (200, b"")
        seen.append(rest.post(f"{at}/getMirroringStatus").json())
    assert seen == [{"status": each} for each in ("Initialized", "Running", "Running", "Stopped")]


@pytest.mark.parametrize(("said", "feed"), [({"enableDeltaChangeDataFeed": True}, "on"), ({}, "keep")])
def test_a_running_database_takes_over_the_options_of_a_new_definition(rest, pool, monkeypatch, said, feed):
    """LZ-8.6, LZ-9.10: its engine starts again, if they are others, and no table is rebuilt."""
    at = f"{rest.items}/{create(rest)['id']}"
    rest.post(f"{at}/getMirroringStatus")
    rest.post(f"{at}/startMirroring")
    ended, forget = [], pool.forget
    monkeypatch.setattr(pool, "forget", lambda item: (ended.append(item.name), forget(item)))
    rest.post(f"{at}/updateDefinition", json={"definition": definition(**OPTIONS, **said)})
    assert ended == (["sales"] if said else [])
    assert rest.post(f"{at}/getMirroringStatus").json() == {"status": "Running"}
    [item] = [item for item in pool.items.all() if item.name == "sales"]
    assert pool._config_of(item).change_data_feed == feed
    assert pool._marker(item) is None


def test_a_renamed_database_is_mirrored_on_under_its_new_name(rest, pool):
    at = f"{rest.items}/{create(rest)['id']}"
    rest.post(f"{at}/getMirroringStatus")
    rest.post(f"{at}/startMirroring")
    [item] = [item for item in pool.items.all() if item.name == "sales"]
    engine = pool._engine(item)
    rest.patch(at, json={"displayName": "sold"})
    assert pool._engine(item) is not engine  # its folder is another
    assert rest.post(f"{at}/getMirroringStatus").json() == {"status": "Running"}


def test_without_a_definition_nothing_starts(rest):
    at = f"{rest.items}/{create(rest, definition=None)['id']}"
    rest.post(f"{at}/getMirroringStatus")
    assert refused(rest.post(f"{at}/startMirroring")) == (400, "MirroringDefinitionMissing")
    assert refused(rest.post(f"{at}/getDefinition")) == (400, "MirroringDefinitionMissing")


def test_a_definition_comes_back_as_it_was_given(rest):
    at = f"{rest.items}/{create(rest)['id']}"
    [part, platform] = rest.post(f"{at}/getDefinition?format=Default").json()["definition"]["parts"]
    assert [part] == definition()["parts"]
    assert json.loads(base64.b64decode(platform["payload"]))["metadata"]["displayName"] == "sales"
    rest.post(f"{at}/getMirroringStatus")
    changed = rest.post(f"{at}/updateDefinition", json={"definition": definition(defaultSchema="else")})
    assert (changed.status_code, changed.content) == (200, b"")
    assert rest.get(at).json()["properties"]["defaultSchema"] == "else"
    rest.post(f"{at}/startMirroring")
    while_running = rest.post(f"{at}/updateDefinition", json={"definition": definition()})
    assert refused(while_running) == (400, "OperationNotAllowed")


def test_connection_changes_only_while_nothing_runs(rest):
    def connected(to):
        source = {"type": "GenericMirror", "typeProperties": {"connection": to}}
        target = {"type": "MountedRelationalDatabase", "typeProperties": OPTIONS}
        return {"definition": definition({"properties": {"source": source, "target": target}})}

    at = f"{rest.items}/{create(rest)['id']}"
    rest.post(f"{at}/getMirroringStatus")
    assert rest.post(f"{at}/updateDefinition", json=connected("a")).status_code == 200
    rest.post(f"{at}/startMirroring")
    assert refused(rest.post(f"{at}/updateDefinition", json=connected("b"))) == (400, "OperationNotAllowed")
    assert rest.post(f"{at}/updateDefinition", json=connected("a")).status_code == 200
    rest.post(f"{at}/stopMirroring")
    assert rest.post(f"{at}/updateDefinition", json=connected("b")).status_code == 200


def test_database_that_is_starting_is_not_started_again(rest, pool):
    at = f"{rest.items}/{create(rest)['id']}"
    rest.post(f"{at}/getMirroringStatus")
    [item] = [item for item in pool.items.all() if item.name == "sales"]
    pool._engine(item).status = DatabaseStatus.STARTING
    assert refused(rest.post(f"{at}/startMirroring")) == (400, "MirroredDatabaseNotReady")
    pool._engine(item).status = DatabaseStatus.RUNNING
    assert rest.post(f"{at}/startMirroring").status_code == 200


def test_items_not_created_by_rest_can_be_started(rest):
    [found] = rest.get(rest.items).json()["value"]
    at = f"{rest.items}/{found['id']}"
    assert rest.post(f"{at}/startMirroring").status_code == 200
    assert rest.post(f"{at}/getDefinition").json()["definition"]["parts"]
    for same in (definition(format="Delta"), definition(defaultSchema="dbo")):  # the same schema, reported or not
        assert rest.post(f"{at}/updateDefinition", json={"definition": same}).status_code == 200


def entry(table, rows, synced, **more):
    """Of `tables.json`."""
    metrics = {"processedByte": 10 * rows, "processedRowCount": rows, "lastSyncTimeUtc": synced}
    return {"sourceSchemaName": "", "sourceTableName": table, "status": "Replicating", "metrics": metrics, **more}


def test_tables_come_in_pages(rest, tmp_path):
    none = "0001-01-01T00:00:00"
    many = [entry(f"T{number:03}", 1, none) for number in range(TABLES_PER_PAGE)]
    many.append(entry("T", 4, "2026-11-02T08:15:29.5Z", errorCode="SchemaMergeFailure", errorMessage="x"))
    (tmp_path / "shop/orders/Files/Monitoring").mkdir()
    (tmp_path / "shop/orders/Files/Monitoring/tables.json").write_text(json.dumps({"tables": many}))
    [item] = rest.get(rest.items).json()["value"]
    at = f"{rest.items}/{item['id']}/getTablesMirroringStatus"
    first = rest.post(at).json()
    assert first["data"][0] == {
        "sourceObjectType": "Table",
        "sourceSchemaName": "",
        "sourceTableName": "T",
        "status": "Replicating",
        "metrics": {"processedBytes": 40, "processedRows": 4, "lastSyncDateTime": "2026-11-02T08:15:29.5Z"},
        "error": {"errorCode": "SchemaMergeFailure", "message": "x"},
    }
    second = rest.post(first["continuationUri"]).json()
    assert [each["sourceTableName"] for each in second["data"]] == [f"T{TABLES_PER_PAGE - 1:03}"]
    assert second["data"][0]["metrics"]["lastSyncDateTime"] is None
    assert second.keys() == {"data"}
    assert refused(rest.post(f"{at}?continuationToken=x")) == (400, "InvalidRequest")


def test_an_error_comes_with_the_status(rest, pool, monkeypatch):
    at = f"{rest.items}/{create(rest)['id']}"
    monkeypatch.setattr(pool, "status", lambda _: (DatabaseStatus.RUNNING, "too many tables"))
    status = rest.post(f"{at}/getMirroringStatus").json()
    assert status == {"status": "Running", "error": {"errorCode": "InternalError", "message": "too many tables"}}


def test_a_disk_that_fails_is_a_busy_service(rest, pool, monkeypatch):
    def fail(*_):
        raise StorageUnavailable("the disk is full")

    monkeypatch.setattr(pool.items, "create", fail)
    answer = rest.post(rest.items, json={"displayName": "x"})
    assert (refused(answer), answer.headers["retry-after"]) == ((503, "ServiceUnavailable"), "1")


def test_other_paths_and_methods_are_refused_in_the_same_form(rest):
    assert refused(rest.get("/v1/nothing")) == (404, "EndpointNotFound")
    assert refused(rest.put(rest.items)) == (405, "MethodNotAllowed")


def test_items_of_all_types_are_listed_and_changed_like_mirrored_databases(rest):
    body = {"displayName": "sales", "type": "MirroredDatabase", "folderId": None, "definition": definition()}
    made = rest.post(f"{rest.workspace}/items", json={**body, "sensitivityLabelSettings": {"labelId": "x"}}).json()
    at = f"{rest.workspace}/items/{made['id']}"
    assert rest.get(at).json() == made
    assert "properties" not in made
    listed = rest.get(f"{rest.workspace}/items?recursive=true").json()["value"]
    assert [(each["type"], each["displayName"]) for each in listed] == [
        (kind, name) for name in ("orders", "sales") for kind in ("SQLEndpoint", "MirroredDatabase")
    ]
    assert rest.get(f"{rest.workspace}/items?type=MirroredDatabase").json()["value"] == listed[1::2]
    assert rest.patch(at, json={"description": "x"}).json() == made | {"description": "x"}
    assert rest.post(f"{at}/getDefinition").json()["definition"]["parts"][0] == definition()["parts"][0]
    assert rest.delete(at).status_code == 200
    assert refused(rest.get(at)) == (404, "ItemNotFound")
    assert refused(rest.post(f"{rest.workspace}/items", json={"displayName": "x"})) == (
        400,
        "InvalidItemType",
    )
    assert rest.get(f"{rest.workspace}/folders?recursive=True").json() == {"value": []}


def until_ended(client, answer):
    """The states of the operation that an answer began, to its end; each but the last says when to ask again."""
    assert (answer.status_code, answer.json()) == (202, None)
    states = []
    while not states or states[-1].json()["status"] == "Running":
        assert answer.headers["retry-after"] == "1"
        answer = client.get(answer.headers["location"])
        assert answer.headers["x-ms-operation-id"] in str(answer.url)
        states.append(answer)
    return states


@pytest.mark.slow
def test_a_long_running_operation_is_asked_for_its_state_and_result(pool):
    """LZ-9.9."""
    client = client_of(pool, "always")
    states = until_ended(client, client.post(client.items, json={"displayName": "sales", "definition": definition()}))
    assert [state.json()["status"] for state in states] == ["Running", "Running", "Succeeded"]
    made = client.get(states[-1].headers["location"]).json()
    assert made["displayName"] == "sales"
    [*_, read] = until_ended(client, client.post(f"{client.items}/{made['id']}/getDefinition"))
    assert client.get(read.headers["location"]).json()["definition"]["parts"][0] == definition()["parts"][0]
    [*_, written] = until_ended(
        client, client.post(f"{client.items}/{made['id']}/updateDefinition", json={"definition": definition()})
    )
    assert "location" not in written.headers
    assert refused(client.get(f"{written.url}/result")) == (400, "OperationHasNoResult")
    assert refused(client.get("/v1/operations/0")) == (404, "OperationNotFound")


def test_a_result_is_there_when_the_operation_has_ended(pool):
    client = client_of(pool, "always")
    [item] = client.get(client.items).json()["value"]
    begun = client.post(f"{client.items}/{item['id']}/getDefinition")
    result = f"{begun.headers['location']}/result"
    answers = [client.get(result) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [400, 400, 200, 200]
    assert {refused(answer) for answer in answers[:2]} == {(400, "OperationHasNoResult")}


def test_invalid_definition_fails_its_long_running_operation(pool):
    client = client_of(pool, "always")
    body = {"displayName": "sales", "definition": {"parts": []}}
    [*_, failed] = until_ended(client, client.post(client.items, json=body))
    assert (failed.json()["status"], failed.json()["error"]["errorCode"]) == ("Failed", "CorruptedPayload")
    assert refused(client.get(f"{failed.url}/result")) == (400, "OperationHasNoResult")
    assert refused(client.post(client.items, json={"displayName": "orders"})) == (409, "ItemDisplayNameAlreadyInUse")
    assert len(client.get(client.items).json()["value"]) == 1


def test_default_answers_202_to_every_other_call_but_create(pool):
    """LZ-9.9."""
    client = client_of(pool, "mixed")
    [item] = client.get(client.items).json()["value"]
    ask = [f"{path}/{item['id']}/getDefinition" for path in (client.items, f"{client.workspace}/items")]
    assert [client.post(path).status_code for path in ask * 2] == [202, 202, 200, 200]
    made = [client.post(client.items, json={"displayName": name}).status_code for name in "ab"]
    body = {"type": "MirroredDatabase"}
    generic = [client.post(f"{client.workspace}/items", json={"displayName": name, **body}) for name in "cd"]
    assert (made, [answer.status_code for answer in generic]) == ([201, 201], [202, 201])


def test_a_sql_endpoint_is_refreshed_for_all_tables_or_some(rest, tmp_path):
    [item] = rest.get(rest.items).json()["value"]
    endpoint = item["properties"]["sqlEndpointProperties"]["id"]
    at = f"{rest.workspace}/sqlEndpoints/{endpoint}/refreshMetadata"
    assert rest.post(at).json() == {"value": []}
    tables = [entry("T", 4, "2026-11-02T08:15:29.5Z"), entry("U", 0, "0001-01-01T00:00:00")]
    (tmp_path / "shop/orders/Files/Monitoring").mkdir()
    (tmp_path / "shop/orders/Files/Monitoring/tables.json").write_text(json.dumps({"tables": tables}))
    [synced] = rest.post(at).json()["value"]
    assert (synced["tableName"], synced["status"]) == ("dbo.T", "Success")
    some = {"tables": [{"schema": "dbo", "tableNames": ["T", "U"]}]}
    states = [
        (each["status"], each.get("error", {}).get("errorCode")) for each in rest.post(at, json=some).json()["value"]
    ]
    assert states == [("Success", None), ("Failure", "DeltaTableNotFound")]
    assert refused(rest.post(at, json={"tables": [1]})) == (400, "InvalidRequest")
    assert refused(rest.post(at.replace(endpoint, item["id"]))) == (404, "ItemNotFound")


@pytest.fixture(scope="module")
def documented(tmp_path_factory):
    """Each operation of the document by its id, and the store's items."""
    import schemathesis  # noqa: PLC0415 - it takes seconds, of every run that only collects

    pool = pool_of(tmp_path_factory.mktemp("store"))
    app = fabric_app(pool)
    [item] = pool.items.all()
    path = f"{FABRIC}/v1/workspaces/{item.workspace.id}/items/{item.id}/getDefinition"
    begun = TestClient(app).post(path).headers["x-ms-operation-id"]
    document = schemathesis.openapi.from_asgi("/v1/openapi.json", app)
    operations = {found.ok().definition.raw["operationId"]: found.ok() for found in document.get_all_operations()}
    return operations, pool.items, begun


@pytest.mark.slow
@pytest.mark.parametrize(
    "operation", [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
)
def test_whatever_is_asked_the_answer_is_one_of_the_document(documented, operation):
    from schemathesis.checks import not_a_server_error  # noqa: PLC0415 - as above
    from schemathesis.specs.openapi import checks  # noqa: PLC0415 - as above

    operations, items, begun = documented
    expected = [checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance]
    reached = set()

    def ask(case, aimed):
        if aimed:  # a drawn GUID is never one that is there; what an earlier request took away is put back
            item = items.ensure("shop", "orders")
            ids = {"workspaceId": item.workspace.id, "mirroredDatabaseId": item.id, "itemId": item.id}
            ids |= {"sqlEndpointId": _sql_endpoint_id(item), "operationId": begun}
            case.path_parameters |= {name: ids[name] for name in case.path_parameters}
        response = case.call()
        reached.add(response.status_code)
        case.validate_response(response, checks=[not_a_server_error, *expected])

    for aimed in (True, False):
        asked = given(case=operations[operation].as_strategy(), aimed=st.just(aimed))(ask)
        settings(max_examples=-(-EXAMPLES // 2), suppress_health_check=list(HealthCheck))(asked)()
    assert reached - {404}
