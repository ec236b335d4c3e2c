"""azure-storage-blob, adlfs and obstore, unmodified, by production's URLs."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

MIB = 1 << 20
BATCH_REFUSED = "Either WorkspaceId or ArtifactId are missing in the request"


@pytest.fixture
def blob(client):
    return client("blob")


@pytest.fixture
def adlfs(client):
    return client("adl_fs")


@pytest.fixture
def obstore(client):
    return client("object_store")


def test_blob_upload_look_read_copy_and_delete(blob, table):
    assert blob.round_trip(table) == {
        "size": 10,
        "exists": True,
        "range": "3456",
        "copied": "success",
        "content": "0123456789",
        "deleted": True,
        "container": True,
    }


def test_blob_lists_come_in_pages_and_by_level(blob, table, served):
    found = blob.listings(table, 12)
    above = f"{served.connection.item_id}/Files/LandingZone/{table}/"
    names = sorted([f"{above}{number}" for number in range(2)] + [f"{above}{n % 2}/{n:04}" for n in range(12)])
    assert found["pages"] == [names[:10], names[10:]]
    assert found["level"] == [f"{above}0/", f"{above}1/"]


def test_blob_upload_without_overwrite_is_refused_on_an_existing_file(blob, refused, table, landing_zone):
    with refused("409 BlobAlreadyExists ResourceExistsError"):
        blob.upload_again(table, "a.bin")
    assert (landing_zone / table / "a.bin").read_bytes() == b"first"


def test_blob_blocks_are_seen_once_they_are_listed(blob, table):
    assert blob.in_blocks(table, "a.bin") == [False, "[0][1]"]


def test_blob_batches_are_refused_as_onelake_does(blob, refused, table, landing_zone):
    with refused(BATCH_REFUSED):
        blob.delete_many(table)
    assert sorted(path.name for path in (landing_zone / table).iterdir()) == ["a", "b"]


@pytest.mark.usefixtures("accepts_batches")
def test_blob_batches_are_carried_out_where_a_switch_says_so(blob, table, landing_zone):
    blob.delete_many(table)
    assert list((landing_zone / table).iterdir()) == []


@pytest.mark.parametrize("way", ["real name", "https", "http"])
def test_adlfs_pipe_ls_cat_mv_rm(adlfs, table, served, way):
    port = served.connection.https.rpartition(":")[2]
    address = {"real name": "", "https": f"https://localhost:{port}", "http": served.connection.http}[way]
    assert adlfs.round_trip(address, table) == {
        "listed": ["/_a.bin"],
        "size": 10,
        "range": "3456",
        "content": "0123456789",
        "moved": ["/a.bin"],
        "big": 3 * MIB,
        "found": ["/a.bin", "/big.bin"],
        "removed": False,
        "folder": False,
    }


def test_obstore_put_head_range_list_copy(obstore, table):
    assert obstore.round_trip(table) == {
        "size": 10,
        "range": "3456",
        "content": "0123456789",
        "listed": [f"{table}/a.bin", f"{table}/b.bin"],
    }


def test_obstore_puts_what_must_be_new_once(obstore, refused, table):
    with refused("AlreadyExistsError"):
        obstore.create_twice(table)


def test_obstore_multipart_of_12_mb(obstore, table, landing_zone):
    assert obstore.multipart(table, 12 * MIB) == 12 * MIB
    assert (landing_zone / table / "big.bin").stat().st_size == 12 * MIB


@pytest.mark.parametrize("operation", ["delete", "rename"])
def test_obstore_s_delete_and_rename_are_batches_and_refused(obstore, refused, table, operation):
    with refused(BATCH_REFUSED):
        getattr(obstore, operation)(table)


@pytest.mark.usefixtures("accepts_batches")
def test_obstore_s_delete_and_rename_pass_where_a_switch_says_so(obstore, table, landing_zone):
    obstore.delete(table)
    assert obstore.rename(table) == "abc"
    assert [path.name for path in (landing_zone / table).iterdir()] == ["a.bin"]
