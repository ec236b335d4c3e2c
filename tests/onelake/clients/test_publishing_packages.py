"""Publishers from the package index, unmodified, and what an engine makes of them."""

from __future__ import annotations

import json
import sys

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="pyfabric and sqllocks-shape need Python 3.11"),
]

PUBLISHED = [
    {"id": 1, "city": "Steyr"},
    {"id": 3, "city": "Graz"},
    {"id": 4, "city": "Enns"},
    {"id": 5, "city": "Perg"},
]


@pytest.fixture
def pyfabric(mirrored):
    return mirrored.client("py_fabric")


@pytest.fixture
def shape(mirrored):
    return mirrored.client("shape_sink")


def ready(pyfabric, mirrored, name):
    """A new item that waits to be started: pyfabric writes under final names, so no engine may scan in between."""
    item = pyfabric.create(name)
    mirrored.until(lambda: pyfabric.status(item)["status"] == "Initialized")
    return item


@pytest.mark.parametrize("schema", [None, "bc2"])
def test_pyfabric_publishes_without_a_service_version(pyfabric, mirrored, table, schema):
    item = ready(pyfabric, mirrored, f"pyfabric {table}")
    paths = pyfabric.publish(table, schema, item)
    assert [int(path[-28:-8]) for path in paths] == [1, 2, 3, 4]
    pyfabric.start(item)
    mirrored.until_rows(f"{schema or 'dbo'}/{table}", PUBLISHED, item)


def test_pyfabric_lists_deep_in_the_path_renames_reads_and_deletes(pyfabric):
    folder = "Files/LandingZone/_kept"
    assert pyfabric.file_operations("_kept") == {
        "before": [],
        "walked": [[f"{folder}/inner/a", 3]],
        "by name": "abc",
        "read": "abc",
        "deleted": [True, False],
    }


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_sqllocks_shape_publishes_by_abfss(shape, mirrored, table, form):
    mirrored.client("datalake").create_folder(table)  # adlfs makes none below a container
    assert shape.publish(table, form) == 5
    cities = {1: "Linz", 2: 'Wels, "an der Traun"', 4: "Graz"}
    mirrored.until_rows(f"dbo/{table}", [{"id": key, "city": city} for key, city in cities.items()])


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_sqllocks_shape_writes_plain_files_by_abfss(shape, mirrored, form):
    assert shape.files(f"exports-{form}", form) == 2
    written = mirrored.landing_zone.parent / f"exports-{form}"
    assert [path.suffix for path in written.rglob("*") if path.is_file()] == [f".{form}"]


def told_by_files(pyfabric, item):
    """The tables of `tables.json` in the words of REST."""
    return [
        {
            "sourceObjectType": entry["sourceObjectType"],
            "sourceSchemaName": entry["sourceSchemaName"],
            "sourceTableName": entry["sourceTableName"],
            "status": entry["status"],
            "metrics": {
                "processedBytes": entry["metrics"]["processedByte"],
                "processedRows": entry["metrics"]["processedRowCount"],
                "lastSyncDateTime": entry["metrics"]["lastSyncTimeUtc"],
            },
        }
        for entry in json.loads(pyfabric.monitoring(item)["tables.json"])["tables"]
    ]


def agrees(pyfabric, item):
    """REST and the monitoring files show one state; asked until no cycle came between."""
    files = pyfabric.monitoring(item)
    if len(files) < len(("replicator.json", "tables.json")):  # the first cycle writes them at its end
        return False
    database = json.loads(files["replicator.json"])["status"]
    return pyfabric.status(item)["status"] == database and told_by_files(pyfabric, item) == pyfabric.tables(item)


def test_an_item_s_life_by_rest_equals_its_monitoring_files(pyfabric, mirrored, refused, table):
    item = pyfabric.create(f"life {table}")
    assert pyfabric.status(item)["status"] == "Initializing"
    with refused("MirroredDatabaseNotReady"):
        pyfabric.start(item)
    mirrored.until(lambda: pyfabric.status(item)["status"] == "Initialized")
    pyfabric.publish("Orders", None, item)
    assert (pyfabric.monitoring(item), pyfabric.tables(item)) == ({}, [])

    pyfabric.start(item)
    assert pyfabric.wait(item) == "Running"
    mirrored.until_rows("dbo/Orders", PUBLISHED, item)
    mirrored.until(lambda: agrees(pyfabric, item), lambda: (pyfabric.monitoring(item), pyfabric.tables(item)))
    [orders] = pyfabric.tables(item)
    assert (orders["status"], orders["metrics"]["processedRows"]) == ("Replicating", 7)  # operations: 4 rows are left

    pyfabric.stop(item)
    mirrored.until(lambda: pyfabric.status(item)["status"] == "Stopped")
    mirrored.until(lambda: agrees(pyfabric, item), lambda: (pyfabric.monitoring(item), pyfabric.tables(item)))
    assert [each["status"] for each in pyfabric.tables(item)] == ["Stopped"]

    pyfabric.start(item)
    assert pyfabric.wait(item) == "Running"
    pyfabric.delete(item)
    with refused("HTTP 404"):
        pyfabric.look(item)
