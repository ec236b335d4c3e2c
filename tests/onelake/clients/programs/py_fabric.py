"""pyfabric as its users call it: mirrored databases by REST, and their landing zones by requests."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from places import ITEM, WORKSPACE, until
from pyfabric.client.auth import FabricCredential
from pyfabric.client.http import FabricClient
from pyfabric.data import onelake
from pyfabric.data.open_mirror import OpenMirrorClient
from pyfabric.items import mirrored_database as databases

CREDENTIAL = FabricCredential()
FABRIC = FabricClient(CREDENTIAL)
STORAGE = (CREDENTIAL.storage_token, WORKSPACE)


def status(item):
    return databases.get_mirroring_status(FABRIC, WORKSPACE, item)["status"]


def tables(item):
    return databases.get_tables_mirroring_status(FABRIC, WORKSPACE, item)["data"]


def publish(name, tmp_path, schema=None):
    """A new item, not started: pyfabric writes under final names, so no engine may scan in between."""
    item = databases.create_mirrored_database(FABRIC, WORKSPACE, display_name=name)["id"]
    assert status(item) == "Initializing"
    with pytest.raises(Exception, match="MirroredDatabaseNotReady"):
        databases.start_mirroring(FABRIC, WORKSPACE, item)
    until(lambda: status(item) == "Initialized")
    place = OpenMirrorClient(CREDENTIAL, WORKSPACE, item)
    place.ensure_table("Cities", schema=schema, key_columns=["id"])
    initial = tmp_path / "initial.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3], "city": ["Linz", "Wels", "Graz"]}), initial)
    paths = [place.upload_data_file("Cities", initial, schema=schema)]
    for mode, ids, cities in (("insert", [4], ["Enns"]), ("upsert", [1, 5], ["Steyr", "Perg"]), ("delete", [2], ["W"])):
        rows = pa.table({"id": ids, "city": cities})
        paths.append(place.write_rows("Cities", rows, schema=schema, mode=mode))
    assert [int(path[-28:-8]) for path in paths] == [1, 2, 3, 4]
    return item


@pytest.mark.parametrize("schema", [None, "bc2"])
def test_a_table_is_published(tmp_path, schema):
    """The test that runs this program looks for its rows."""
    databases.start_mirroring(FABRIC, WORKSPACE, publish(f"pyfabric {schema or 'dbo'}", tmp_path, schema))


def test_lists_deep_in_the_path_renames_reads_and_deletes():
    place, folder = (*STORAGE, ITEM), "Files/LandingZone/_kept"
    assert onelake.list_paths(*place, folder) == []
    onelake.create_directory(*place, f"{folder}/inner")
    onelake.upload_file(*place, f"{folder}/inner/_a", b"abc")
    onelake.rename_path(*place, f"{folder}/inner/_a", f"{folder}/inner/a")
    assert [(found["rel_path"], found["size"]) for found in onelake.walk(*place, folder)] == [(f"{folder}/inner/a", 3)]
    [listed] = onelake.list_files(*place, folder, recursive=True)
    assert onelake.read_file_by_name(*STORAGE, listed["name"]) == b"abc"
    assert onelake.read_file(*place, f"{folder}/inner/a") == b"abc"
    assert [onelake.delete_path(*place, folder, recursive=True) for _ in range(2)] == [True, False]


def test_an_item_s_life_by_rest(tmp_path):
    item = publish("pyfabric life", tmp_path)
    assert tables(item) == []
    databases.start_mirroring(FABRIC, WORKSPACE, item)
    databases.wait_for_running(FABRIC, WORKSPACE, item, timeout_s=20, poll_interval_s=0.1)
    done = [("Replicating", 7)]  # operations: 4 rows are left
    until(lambda: [(each["status"], each["metrics"]["processedRows"]) for each in tables(item)] == done)
    databases.stop_mirroring(FABRIC, WORKSPACE, item)
    until(lambda: status(item) == "Stopped")
    FABRIC.delete(f"workspaces/{WORKSPACE}/mirroredDatabases/{item}")
    with pytest.raises(Exception, match="HTTP 404"):
        databases.get_mirrored_database(FABRIC, WORKSPACE, item)
