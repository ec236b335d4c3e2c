"""OneLake's table APIs: Unity Catalog's and Iceberg's catalogs, and the table read API."""

from __future__ import annotations

import gc
import json
import os
import shutil
from datetime import date
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pytest
import requests
from deltalake import DeltaTable, write_deltalake
from raw_http import running
from starlette.testclient import TestClient

from mirror_engine.clock import Clock
from mirror_engine.errors import TableDamaged
from mirror_engine.onelake import item_tables, table_reads
from mirror_engine.onelake.engine_pool import EnginePool
from mirror_engine.onelake.faults import parse_fault, with_table_faults
from mirror_engine.onelake.items import Items
from mirror_engine.onelake.options import EmulatorOptions, ServerPlan
from mirror_engine.onelake.store import LocalStore
from mirror_engine.onelake.table_api import table_app
from mirror_engine.tables.log import snapshot
from mirror_engine.tables.log.snapshot import DeltaLog

HOST = "https://onelake.table.fabric.microsoft.com"
NAME = "orders.MirroredDatabase"
ORDERS = pa.table(
    {
        "Id": pa.array([1, 2, 3], pa.int64()),
        "City": ["Linz", None, "Graz"],
        "Price": pa.array([Decimal("1.50"), None, Decimal("99.99")], pa.decimal128(9, 2)),
        "Sold": [date(2026, 11, 2)] * 3,
    }
)


class Door:
    """A client of the table APIs of a store with the item `shop/orders`; `sell` and `stock` are schemas."""

    def __init__(self, folder, *faults):
        items = Items(LocalStore(folder))
        self.item = items.ensure("shop", "orders")
        self.folder = folder / "shop/orders/Tables"
        self.clock = Clock()
        options = EmulatorOptions(clock=self.clock, faults=[parse_fault(text) for text in faults])
        pool = EnginePool(ServerPlan(folder, has_engines=False, options=options), items)
        self.app = with_table_faults(table_app(pool), options)
        self.client = TestClient(self.app, HOST)
        ids = f"{self.item.workspace.id}/{self.item.id}"
        self.unity = f"/delta/{ids}/api/2.1/unity-catalog"
        self.named = f"/delta/shop/{NAME}/api/2.1/unity-catalog"
        self.warehouse = ids
        self.namespaces = f"/iceberg/v1/{ids}/namespaces"

    def write(self, table, rows, **options):
        write_deltalake(str(self.folder / table), rows, **options)

    def read_path(self, table):
        workspace, item = self.item.workspace.id, self.item.id
        schema, _, name = table.partition("/")
        return f"/v1.0/workspaces/{workspace}/items/{item}/schemas/{schema}/tables/{name}"

    def streams(self, table, **body):
        answer = self.client.post(f"{self.read_path(table)}/read", json=body)
        assert answer.status_code == 200, answer.text
        return [each["streamId"] for each in answer.json()["streams"]]

    def stream(self, table, stream):
        return self.client.get(f"{self.read_path(table)}/readStream/{stream}")

    def rows(self, table, *streams):
        parts = [self.stream(table, each) for each in streams]
        assert {part.headers["content-type"] for part in parts} == {"application/vnd.apache.arrow.stream"}
        return pa.concat_tables(pa.ipc.open_stream(part.content).read_all() for part in parts)


def refusal(answer):
    """Status and code of an error of any of the three APIs."""
    error = answer.json().get("error", answer.json())
    assert error["message"]
    if "type" in error:  # Iceberg's
        assert error["code"] == answer.status_code
    return answer.status_code, error.get("error_code") or error.get("type") or error["code"]


def opened(folder):
    door = Door(folder)
    door.write("sell/Orders", ORDERS)
    door.write("stock/Items", pa.table({"Sku": ["A"], "Region": ["EU"]}), partition_by=["Region"])
    return door


@pytest.fixture
def own(tmp_path):
    """A store that the test may change."""
    return opened(tmp_path)


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    """A store that all tests read."""
    return opened(tmp_path_factory.mktemp("store"))


def test_unity_catalog_lists_schemas_and_tables(door):
    schemas = door.client.get(f"{door.named}/schemas", params={"catalog_name": NAME}).json()
    assert [(each["name"], each["full_name"]) for each in schemas["schemas"]] == [
        ("sell", f"{NAME}.sell"),
        ("stock", f"{NAME}.stock"),
    ]
    assert schemas["schemas"][0]["created_at"] > 1_700_000_000_000
    assert (schemas["next_page_token"], schemas["schemas"][0]["schema_id"]) == (None, None)
    asked = {"catalog_name": door.item.id, "schema_name": "sell"}
    [table] = door.client.get(f"{door.unity}/tables", params=asked).json()["tables"]
    location = f"https://onelake.dfs.fabric.microsoft.com/{door.warehouse}/Tables/sell/Orders"
    assert table["storage_location"] == location
    assert (table["name"], table["catalog_name"], table["data_source_format"]) == ("Orders", door.item.id, "DELTA")
    assert table["columns"] is table["created_at"] is table["table_id"] is None


def test_unity_catalog_describes_a_table(door):
    table = door.client.get(f"{door.named}/tables/{NAME}.sell.Orders").json()
    metadata = DeltaTable(str(door.folder / "sell/Orders")).metadata()
    assert (table["table_id"], table["created_at"]) == (metadata.id, metadata.created_time)
    assert table["updated_at"] >= table["created_at"]
    types = [(each["name"], each["type_name"], each["type_precision"], each["type_scale"]) for each in table["columns"]]
    assert types == [("Id", "long", 0, 0), ("City", "string", 0, 0), ("Price", "decimal", 9, 2), ("Sold", "date", 0, 0)]
    assert [each["position"] for each in table["columns"]] == [0, 1, 2, 3]
    assert table["columns"][1]["nullable"] is True
    assert door.client.get(f"{door.unity}/tables/{door.item.id}.sell.Orders").json()["name"] == "Orders"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("schemas/sell", 200),
        (f"schemas/{NAME}.sell", 200),
        ("schemas/none", 404),
        (f"tables/{NAME}.sell.Orders", 200),
        (f"tables/{NAME}.sell.None", 404),
        (f"tables/{NAME}.none.Orders", 404),
        ("tables/other.sell.Orders", 404),
    ],
)
def test_unity_catalog_says_whether_something_exists(door, path, status):
    answer = door.client.head(f"{door.named}/{path}")
    assert (answer.status_code, answer.content if status == 200 else b"") == (status, b"")


def test_names_with_dots_need_their_parameters(own):
    own.write("a.b/c.d", ORDERS)
    path, asked = f"{own.named}/tables/{NAME}.a.b.c.d", {"catalog_name": NAME, "schema_name": "a.b"}
    refused = own.client.get(path)
    assert (refused.status_code, refused.json()["error_code"]) == (404, "NOT_FOUND")
    assert "schema_name" in refused.json()["message"]
    assert own.client.get(path, params=asked).json()["name"] == "c.d"
    exists = own.client.head(f"{own.named}/schemas/a.b", params={"catalog_name": NAME})
    assert exists.status_code == 200


@pytest.mark.slow
def test_tables_outside_of_schemas_are_in_dbo(own):
    own.write("Alone", ORDERS)
    names = [each["name"] for each in own.client.get(f"{own.named}/schemas?catalog_name={NAME}").json()["schemas"]]
    assert names == ["dbo", "sell", "stock"]
    table = own.client.get(f"{own.named}/tables/{NAME}.dbo.Alone").json()
    assert table["storage_location"].endswith("/Tables/Alone")
    assert own.rows("dbo/Alone", *own.streams("dbo/Alone")).num_rows == 3


def test_iceberg_catalog_lists_namespaces_and_tables(door):
    config = door.client.get("/iceberg/v1/config", params={"warehouse": door.warehouse}).json()
    assert (config["defaults"], config["overrides"]) == ({}, {"prefix": door.warehouse})
    assert "GET /v1/{prefix}/namespaces/{namespace}/tables" in config["endpoints"]
    listed = door.client.get(door.namespaces).json()
    assert listed == {"namespaces": [["sell"], ["stock"]], "next-page-token": None}
    found = door.client.get(f"{door.namespaces}/sell").json()
    assert found == {"namespace": ["sell"], "properties": {"location": f"{door.warehouse}/Tables/sell"}}
    tables = door.client.get(f"{door.namespaces}/sell/tables").json()
    assert tables == {"identifiers": [{"namespace": ["sell"], "name": "Orders"}], "next-page-token": None}
    statuses = [
        door.client.head(f"{door.namespaces}/{path}").status_code
        for path in ("sell", "none", "sell/tables/Orders", "sell/tables/None")
    ]
    assert statuses == [204, 404, 204, 404]


@pytest.mark.slow
def test_a_read_session_gives_all_rows_of_one_snapshot(own, monkeypatch):
    monkeypatch.setattr(table_reads, "STREAM_BYTES", 1)
    own.write("sell/Orders", ORDERS.slice(0, 1), mode="append")
    streams = own.streams("sell/Orders")
    own.write("sell/Orders", ORDERS.slice(0, 1), mode="overwrite")
    assert len(streams) == 2
    rows = own.rows("sell/Orders", *reversed(streams))
    assert rows.schema.types == [pa.int64(), pa.string(), pa.decimal128(9, 2), pa.date32()]
    assert sorted(rows.column("Id").to_pylist()) == [1, 1, 2, 3]
    assert own.rows("sell/Orders", *own.streams("sell/Orders")).to_pylist() == ORDERS.slice(0, 1).to_pylist()


def test_a_stream_is_sent_batch_by_batch():
    batches = ORDERS.to_batches(max_chunksize=1)
    chunks = [*table_reads._ipc(ORDERS.schema, iter(batches))]
    assert len(chunks) == 4
    assert pa.ipc.open_stream(b"".join(chunks)).read_all().equals(ORDERS)


def test_columns_are_chosen_and_a_wildcard_means_all(door):
    rows = door.rows("sell/Orders", *door.streams("sell/Orders", columns=["City", "Id"]))
    assert rows.to_pylist()[0] == {"City": "Linz", "Id": 1}
    for every in (["*"], "*"):
        assert door.rows("sell/Orders", *door.streams("sell/Orders", columns=every)).column_names == ORDERS.column_names
    rows = door.rows("stock/Items", *door.streams("stock/Items"))
    assert rows.to_pylist() == [{"Sku": "A", "Region": "EU"}]


def test_rows_marked_as_deleted_are_not_read(own):
    own.write("sell/Marked", ORDERS, configuration={"delta.enableDeletionVectors": "true"})
    DeltaTable(str(own.folder / "sell/Marked")).delete("Id = 2")
    assert own.rows("sell/Marked", *own.streams("sell/Marked")).column("Id").to_pylist() == [1, 3]


def test_an_empty_table_is_a_stream_without_rows(own):
    own.write("sell/Empty", ORDERS.slice(0, 0))
    rows = own.rows("sell/Empty", *own.streams("sell/Empty"))
    assert (rows.num_rows, rows.column_names) == (0, ORDERS.column_names)


CATALOG = "api/2.1/unity-catalog"
NAMESPACES = f"/iceberg/v1/shop/{NAME}/namespaces"
TABLES = f"/v1.0/workspaces/shop/items/{NAME}/schemas"


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (f"/delta/none/{NAME}/{CATALOG}/schemas?catalog_name={NAME}", None, 404, "NOT_FOUND"),
        (f"/delta/shop/none.MirroredDatabase/{CATALOG}/schemas?catalog_name=x", None, 404, "NOT_FOUND"),
        (f"/delta/shop/orders/{CATALOG}/schemas?catalog_name={NAME}", None, 400, "INVALID_ARGUMENT"),
        (f"/delta/shop/{NAME}/{CATALOG}/schemas", None, 400, "INVALID_ARGUMENT"),
        (f"/delta/shop/{NAME}/{CATALOG}/schemas?catalog_name=other", None, 404, "NOT_FOUND"),
        (f"/delta/shop/{NAME}/{CATALOG}/tables?catalog_name={NAME}", None, 400, "INVALID_ARGUMENT"),
        (f"/delta/shop/{NAME}/{CATALOG}/volumes", None, 404, "NOT_FOUND"),
        (f"/delta/shop/{NAME}/{CATALOG}/schemas", {"name": "x"}, 405, "UNIMPLEMENTED"),
        ("/iceberg/v1/config", None, 400, "BadRequestException"),
        ("/iceberg/v1/config?warehouse=shop", None, 400, "BadRequestException"),
        ("/iceberg/v1/config?warehouse=shop/none.MirroredDatabase", None, 404, "NoSuchWarehouseException"),
        (f"{NAMESPACES}?parent=sell", None, 400, "BadRequestException"),
        (f"{NAMESPACES}/none", None, 404, "NoSuchNamespaceException"),
        (f"{NAMESPACES}/none/tables", None, 404, "NoSuchNamespaceException"),
        (f"{NAMESPACES}/sell/tables/None", None, 404, "NoSuchTableException"),
        (f"{NAMESPACES}/sell/tables/Orders", None, 406, "UnsupportedOperationException"),
        (NAMESPACES, {"namespace": ["x"]}, 405, "UnsupportedOperationException"),
        (f"{TABLES}/sell/tables/None/read", {}, 404, "TableNotFound"),
        (f"{TABLES}/none/tables/Orders/read", {}, 404, "SchemaNotFound"),
        (f"{TABLES}/sell/tables/Orders/read", {"columns": ["Id", "None"]}, 404, "ColumnNotFound"),
        (f"{TABLES}/sell/tables/Orders/read", {"columns": "Id"}, 400, "BadRequest"),
        (f"{TABLES}/sell/tables/Orders/read", {"columns": []}, 400, "BadRequest"),
        (f"{TABLES}/sell/tables/Orders/read", {"version": 0}, 400, "BadRequest"),
        (f"{TABLES}/sell/tables/Orders/read", [1], 400, "BadRequest"),
    ],
)
def test_each_api_refuses_in_its_own_form(door, path, body, status, code):
    answer = door.client.get(path) if body is None else door.client.post(path, json=body)
    assert refusal(answer) == (status, code)
    assert sorted(path.name for path in door.folder.iterdir()) == ["sell", "stock"]  # catalogs are read only


def test_a_read_session_expires_after_an_hour(own):
    [stream] = own.streams("sell/Orders")
    own.clock.advance(minutes=59)
    assert own.rows("sell/Orders", stream).num_rows == 3
    own.clock.advance(minutes=1)
    assert refusal(own.stream("sell/Orders", stream)) == (404, "StreamNotFound")


def test_stream_of_a_vacuumed_version_is_not_found(own):
    """Fabric's documentation promises one snapshot for the session's hour, and names no error for this."""
    streams = [own.streams("sell/Orders")[0] for _ in range(2)]
    [file] = (own.folder / "sell/Orders").glob("*.parquet")
    assert own.stream("sell/Orders", streams[0]).status_code == 200
    file.unlink()
    answer = own.stream("sell/Orders", streams[1])
    assert refusal(answer) == (404, "StreamNotFound")
    assert "begin another session" in answer.json()["error"]["message"]


def test_stream_that_breaks_off_is_an_error_to_its_client(own, monkeypatch):
    def breaking(*_):
        yield from ORDERS.to_batches(max_chunksize=1)
        raise TableDamaged("a.parquet", "the Delta log names this file, but it is missing")

    monkeypatch.setattr(table_reads, "scan", breaking)
    path = f"{own.read_path('sell/Orders')}/readStream/{own.streams('sell/Orders')[0]}"
    failures = []
    with running(own.app, failures.append) as emulator:
        with requests.get(f"http://127.0.0.1:{emulator.http_port}{path}", stream=True, timeout=10) as answer:
            assert answer.status_code == 200
            with pytest.raises(requests.RequestException):
                answer.content  # noqa: B018 - it is read now
        assert requests.get(f"http://127.0.0.1:{emulator.http_port}/v1.0", timeout=10).status_code == 404
    assert failures == []


@pytest.mark.slow
def test_session_has_no_more_streams_than_are_kept(own, monkeypatch):
    monkeypatch.setattr(table_reads, "STREAM_BYTES", 1)
    monkeypatch.setattr(table_reads, "MAX_STREAMS", 3)
    for _ in range(6):
        own.write("sell/Orders", ORDERS, mode="append")
    earlier, streams = own.streams("stock/Items"), own.streams("sell/Orders")
    assert 1 < len(streams) <= 3
    assert own.rows("sell/Orders", *streams).num_rows == 7 * ORDERS.num_rows
    is_kept = own.stream("stock/Items", earlier[0]).status_code == 200
    assert is_kept == (len(streams) < 3)


def test_schema_dropped_meanwhile_is_absent(own, monkeypatch):
    real = item_tables._folders

    def dropping(folder):
        for entry in real(folder):
            if entry.name == "sell":
                shutil.rmtree(own.folder / "sell")
            yield entry

    monkeypatch.setattr(item_tables, "_folders", dropping)
    schemas = own.client.get(f"{own.named}/schemas", params={"catalog_name": NAME}).json()["schemas"]
    assert [each["name"] for each in schemas] == ["stock"]


def test_folder_dropped_before_it_is_listed_is_empty(own, monkeypatch):
    def scandir(folder):
        if folder.name == "sell":
            shutil.rmtree(folder)
        return os.scandir(folder)

    monkeypatch.setattr(item_tables, "os", SimpleNamespace(scandir=scandir))
    asked = {"catalog_name": NAME, "schema_name": "sell"}
    assert own.client.get(f"{own.named}/tables", params=asked).json()["tables"] == []


def test_table_dropped_while_it_is_opened_is_absent(own, monkeypatch):
    real = snapshot.open_delta
    monkeypatch.setattr(snapshot, "open_delta", lambda folder, *more: shutil.rmtree(folder) or real(folder, *more))
    answer = own.client.get(f"{own.named}/tables/{NAME}.sell.Orders")
    assert (answer.status_code, answer.json()["error_code"]) == (404, "NOT_FOUND")


def test_streams_of_the_oldest_sessions_make_room(own, monkeypatch):
    monkeypatch.setattr(table_reads, "MAX_STREAMS", 2)
    first, second, third = (own.streams("sell/Orders")[0] for _ in range(3))
    assert [own.stream("sell/Orders", each).status_code for each in (first, second, third)] == [404, 200, 200]


@pytest.mark.slow
def test_a_session_keeps_no_log_in_memory(own):
    """A log takes megabytes, and a client may begin thousands of sessions within their hour."""

    def logs():
        gc.collect()
        return sum(isinstance(each, DeltaLog) for each in gc.get_objects())

    before = logs()
    for _ in range(3):
        own.streams("sell/Orders")
    assert logs() == before


def test_a_stream_of_a_dropped_table_is_gone(own):
    streams = [own.streams("sell/Orders")[0] for _ in range(2)]
    shutil.rmtree(own.folder / "sell/Orders")
    assert own.stream("sell/Orders", streams[0]).status_code == 404
    own.write("sell/Orders", ORDERS)
    assert own.stream("sell/Orders", streams[1]).status_code == 404


def test_a_stream_belongs_to_its_table(door):
    [stream] = door.streams("sell/Orders")
    assert refusal(door.stream("stock/Items", stream)) == (404, "StreamNotFound")


def test_nothing_outside_of_the_item_is_read(own, tmp_path):
    secret = tmp_path / "secret"
    write_deltalake(str(secret / "t"), ORDERS)
    (own.folder / "sell/Linked").symlink_to(secret / "t")
    (own.folder / "linked").symlink_to(secret)
    vector = {"storageType": "p", "pathOrInlineDv": "file:///dev/zero", "sizeInBytes": 1 << 30, "cardinality": 1}
    for table, added in (
        ("sell/Far", {"path": str(next((secret / "t").glob("*.parquet")))}),
        ("sell/Marks", {"deletionVector": {**vector, "offset": 1}}),
    ):
        own.write(table, ORDERS, configuration={"delta.enableDeletionVectors": "true"})
        commit = own.folder / table / "_delta_log/00000000000000000000.json"
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for line in lines:
            line.get("add", {}).update(added)
        commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    own.write("sell/Behind", ORDERS)
    [file] = (own.folder / "sell/Behind").glob("*.parquet")
    file.unlink()
    file.symlink_to(next((secret / "t").glob("*.parquet")))
    for table in ("sell/Linked", "linked/t", "sell/Behind", "sell/Far", "sell/Marks", "../Tables", "sell/.."):
        assert own.client.post(f"{own.read_path(table)}/read").status_code == 404, table
    listed = own.client.get(f"{own.namespaces}/sell/tables").json()["identifiers"]
    assert [each["name"] for each in listed] == ["Behind", "Far", "Marks", "Orders"]


@pytest.mark.parametrize(
    ("path", "fault", "status", "code"),
    [
        ("/delta/x/y/api/2.1/unity-catalog/schemas", "throttle status=429 retry-after=5", 429, "RESOURCE_EXHAUSTED"),
        ("/delta/x/y/api/2.1/unity-catalog/schemas", "token_expired", 401, "UNAUTHENTICATED"),
        ("/iceberg/v1/config", "throttle operation=table_api", 503, "SlowDownException"),
        ("/v1.0/x", "token_expired path=v1.0/*", 401, "TokenExpired"),
    ],
)
def test_faults_answer_in_the_form_of_each_api(tmp_path, path, fault, status, code):
    client = Door(tmp_path, fault).client
    answer = client.get(path)
    assert answer.status_code == status
    assert code in answer.text
    assert (answer.headers.get("retry-after") is None) is (status == 401)
    assert client.get(path).status_code in {400, 404}
